"""A pipeline's topic and control topic: what a test sends to them, and what they hold."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from sluice.control.reader import ControlReader
from sluice.control.topic import ControlTopic
from sluice.kafka.failures import until_there_is_a_leader
from sluice.protocol.messages import ControlMessage, encode

from .processes import CLUSTER, kafka_settings, wait_for


@dataclass
class Sent:
    """A record that Kafka has taken."""

    partition: int
    offset: int
    id: int
    value: str
    table_partition: str


class Topic(ABC):
    """A topic of a test's own, its control topic, and the records that it was sent."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.connection = CLUSTER  # the id of its Airflow connection
        self.topic = topic
        self.control_topic = f"control-{topic}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.sent: list[Sent] = []
        self._next_id = 0

    @property
    @abstractmethod
    def table(self) -> str:
        """The table that it is loaded into, as the messages name it."""

    def move(self, bootstrap: str, connection: str) -> None:
        """From now on it is the topic of that name on another cluster."""
        self.bootstrap, self.connection = bootstrap, connection
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create_topic(self, partitions: int = 2, **config: str) -> None:
        """Create the topic; the broker's retention doesn't take records that a test dates years ago."""
        settings = {"retention.ms": "-1", **{k.replace("_", "."): v for k, v in config.items()}}
        new = NewTopic(self.topic, partitions, 1, config=settings)
        self.admin.create_topics([new])[self.topic].result(30)
        wait_for(lambda: self.topic in self.admin.list_topics(timeout=10).topics, "the topic", pause=0.1)

    def create_again(self, partitions: int = 1) -> None:
        """Delete the topic, and make another one of its name."""
        self.admin.delete_topics([self.topic])[self.topic].result(30)
        wait_for(lambda: self.topic not in self.admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)
        self.create_topic(partitions)

    def produce(
        self, count: int, *, partitions: Sequence[int] = (0, 1), ids: Iterable[int] | None = None,
        values: str = "a", table_partitions: int = 2, fields: Mapping[str, Any] | None = None, dated: int = 0,
        **config: Any,
    ) -> None:  # fmt: skip
        """Send `count` records round robin; with `ids` given, new versions of those keys. `dated` in ms, 0 for now."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0, **config})
        known = list(ids) if ids is not None else range(self._next_id, self._next_id + count)
        self._next_id = max(self._next_id, *(i + 1 for i in known)) if known else self._next_id
        for number in known:
            row = {"id": number, "v": f"{values}{number}", "p": f"p{number % table_partitions}", **(fields or {})}
            self._send(producer, partitions[number % len(partitions)], row, dated=dated)
        assert producer.flush(30) == 0

    def _send(
        self, producer: Producer, partition: int, row: Mapping[str, Any], keep: list[Sent] | None = None, dated: int = 0
    ) -> None:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            where = (message.partition(), message.offset())
            (self.sent if keep is None else keep).append(Sent(*where, row["id"], row["v"], row["p"]))

        key, value = str(row["id"]).encode(), json.dumps(row).encode()
        producer.produce(self.topic, value, key, partition=partition, on_delivery=delivered, timestamp=dated)

    def produce_in_transactions(
        self, transactions: Sequence[tuple[int, bool]], partitions: Sequence[int] = (0, 1)
    ) -> None:
        """Transactions of so many records, each committed or aborted. What was aborted is not in `sent`."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.topic, "log_level": 0})
        producer.init_transactions(30)
        for count, commit in transactions:
            producer.begin_transaction()
            records: list[Sent] = []
            for number in range(self._next_id, self._next_id + count):
                row = {"id": number, "v": f"t{number}", "p": f"p{number % 2}"}
                self._send(producer, partitions[number % len(partitions)], row, records)
            self._next_id += count
            assert producer.flush(30) == 0
            if commit:
                producer.commit_transaction(30)
                self.sent += records
            else:
                producer.abort_transaction(30)

    def begin_transaction(self, count: int, partitions: Sequence[int] = (0, 1)) -> Callable[[], None]:
        """So many records in a transaction that is open until it is committed by what is returned."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.topic, "log_level": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        records: list[Sent] = []
        for number in range(self._next_id, self._next_id + count):
            row = {"id": number, "v": f"t{number}", "p": f"p{number % 2}"}
            self._send(producer, partitions[number % len(partitions)], row, records)
        self._next_id += count
        assert producer.flush(30) == 0
        sent = self.sent

        def commit() -> None:
            producer.commit_transaction(30)
            sent.extend(records)

        return commit

    def produce_raw(self, value: bytes | None, partition: int = 0, key: bytes | None = None) -> int:
        """One record as it is; returns its offset."""
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce(
            self.topic, value, key, partition=partition, on_delivery=lambda _, message: offsets.append(message.offset())
        )
        assert producer.flush(30) == 0
        return offsets[0]

    def produce_to(self, topic: str, key: bytes, value: bytes | None) -> int:
        """One record of any topic's only partition; returns its offset."""
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce(
            topic, value, key, partition=0, on_delivery=lambda _, message: offsets.append(message.offset())
        )
        assert producer.flush(30) == 0
        return offsets[0]

    def produce_keyed(
        self, records: Iterable[tuple[bytes | None, bytes | None]], *, partition: int | None = None, **config: Any
    ) -> list[tuple[int, int]]:
        """Records of key and value, where the producer's own partitioner puts them; returns where each of them is."""
        places: dict[int, tuple[int, int]] = {}
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0, **config})
        chosen = {} if partition is None else {"partition": partition}
        for i, (key, value) in enumerate(records):

            def delivered(error: Any, message: Any, i: int = i) -> None:
                assert error is None, error
                places[i] = (message.partition(), message.offset())

            producer.produce(self.topic, value, key, on_delivery=delivered, **chosen)
        assert producer.flush(30) == 0
        return [places[i] for i in sorted(places)]

    def grow(self, partitions: int) -> None:
        """Add partitions to the topic."""
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(30)

        def all_led() -> bool:
            with suppress(KafkaException):  # a new partition has no leader at first
                return len(self.log_ends()) == partitions
            return False

        wait_for(all_led, "the new partitions", pause=0.1)

    def produce_values(self, values: Iterable[bytes], partition: int = 0) -> None:
        """Records as they are, all to one partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for value in values:
            producer.produce(self.topic, value, partition=partition)
        assert producer.flush(30) == 0

    def delete_records(self, before: Mapping[int, int]) -> None:
        """Move the log start, as retention does."""
        bounds = [TopicPartition(self.topic, p, offset) for p, offset in before.items()]
        for future in self.admin.delete_records(bounds).values():
            future.result(30)

    def log_ends(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends", "log_level": 0})
        ask = until_there_is_a_leader(consumer.get_watermark_offsets)  # a mirror may just have made the topic
        try:
            partitions = self.admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            return {p: ask(TopicPartition(self.topic, p), 10)[1] for p in partitions}
        finally:
            consumer.close()

    def messages(self) -> list[ControlMessage]:
        """All messages of the control topic."""
        control = ControlReader(kafka_settings(self.bootstrap), self.control_topic)
        bounds = control.bounds()
        return [message for batch in control.read(bounds.first, bounds.end) for _, message in batch]

    def forget_control_messages(self) -> None:
        """Delete what stands in the control topic, as retention does."""
        end = ControlTopic(kafka_settings(self.bootstrap), self.control_topic).end()
        for future in self.admin.delete_records([TopicPartition(self.control_topic, 0, end)]).values():
            future.result(30)

    def send_as_it_is(self, message: ControlMessage) -> None:
        """Without what `send` does with a large one."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce(self.control_topic, encode(message), self.table.encode(), partition=0)
        assert producer.flush(30) == 0

    def send(self, message: ControlMessage) -> int:
        return ControlTopic(kafka_settings(self.bootstrap), self.control_topic).send(message)
