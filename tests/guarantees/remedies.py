"""What the tests of remedies share: a table of each kind, what troubles it, and the rows that its records lead to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Producer

from sluice.coordinator import Outcome, Started
from sluice.protocol.offsets import Checkpoint, TopicPartition

from .debezium import event, postgresql
from .harness import CLUSTER, Flow, wait_for

Row = tuple[int, str]
_WITHOUT_DELETES = ("append", "upsert")

_UPSERT: dict[str, Any] = {"sink__hudi__operation": "upsert", "sink__hudi__key_placement": "trusted"}
TABLES: dict[str, dict[str, Any]] = {
    "append": {"sink__hudi__schema": "id BIGINT, v STRING, p STRING"},
    "upsert": {**_UPSERT, "sink__hudi__record_key": "id"},
    "tombstones": {
        **_UPSERT,
        "sink__hudi__record_key": ["id", "p"],
        "sink__hudi__schema": "id BIGINT NOT NULL, p STRING NOT NULL, v STRING NOT NULL",
        "source__kafka__key": {"converter": "json"},
        "changes": {"format": "tombstones"},
    },
    "debezium": {
        **_UPSERT,
        "sink__hudi__record_key": "id",
        "sink__hudi__partition_fields": None,
        "sink__hudi__schema": "id BIGINT NOT NULL, v STRING NOT NULL, p STRING",
        "changes": {"format": "debezium"},
    },
}


@dataclass(frozen=True)
class Change:
    """A record that Kafka has taken: what it makes of a key's row, and where it stands."""

    log: int
    partition: int
    offset: int
    lsn: int
    id: int
    v: str | None


class Trouble:
    """One pipeline with a table of a kind, two partitions with eight rows, and an oracle of what it must hold."""

    def __init__(self, flow: Flow, table: str) -> None:
        self.flow = flow
        self.table = table
        self.log = 0
        self.instants: list[str] = []
        self._lsn = 1000
        self._changes: list[Change] = []
        self._of_old_logs: list[Change] = []
        self._old_topics: set[str | None] = set()
        self.send(range(8), "a")
        self.interval()

    @property
    def upserts(self) -> bool:
        return self.table != "append"

    # Records -------------------------------------------------------------------------------------------------------

    def _encoded(self, number: int, v: str | None, lsn: int) -> tuple[bytes, bytes | None]:
        p = f"p{number % 2}"
        if self.table == "debezium":
            row = {"id": number, "v": v, "p": p}
            told = event("u", postgresql(lsn), None, row) if v is not None else event("d", postgresql(lsn), row)
            return json.dumps({"id": number}).encode(), json.dumps(told).encode()
        key = json.dumps({"id": number, "p": p}).encode()
        return key, None if v is None else json.dumps({"id": number, "p": p, "v": v}).encode()

    def send(self, ids: Iterable[int], version: str, *, deletes: Iterable[int] = ()) -> list[Change]:
        """New versions of rows, and deletes; an even id's to partition 0, an odd one's to partition 1."""
        producer = Producer({"bootstrap.servers": self.flow.bootstrap, "acks": "all", "log_level": 0})
        values = [(i, f"{version}{i}") for i in ids] + [
            (i, None) for i in deletes if self.table not in _WITHOUT_DELETES
        ]
        sent = self._produce(producer, values)
        self._changes += sent
        return sent

    def _produce(self, producer: Producer, values: Iterable[tuple[int, str | None]]) -> list[Change]:
        sent: list[Change] = []
        for number, v in values:
            self._lsn += 10
            made = Change(self.log, number % 2, -1, self._lsn, number, v)

            def delivered(error: Any, message: Any, made: Change = made) -> None:
                assert error is None, error
                sent.append(replace(made, offset=message.offset()))

            key, value = self._encoded(number, v, self._lsn)
            producer.produce(self.flow.topic, value, key, partition=number % 2, on_delivery=delivered)
        assert producer.flush(30) == 0
        return sent

    def send_bad(self) -> int:
        """A record of id 0 that no table takes; its offset in partition 0."""
        return self.flow.produce_raw(b"no json", partition=0, key=self._encoded(0, "", 0)[0])

    def quarantined(self, change: Change) -> None:
        """The record is set aside: its offset is covered, and makes no row."""
        self._changes.remove(change)

    def sent_again(self, change: Change, offset: int) -> None:
        """The record of a change stands at another offset, too."""
        self._changes.append(replace(change, log=self.log, offset=offset))

    # Circumstances -------------------------------------------------------------------------------------------------

    def recreate(self) -> None:
        """Delete the topic, and create it again with as many records as it had and more."""
        flow, topic = self.flow, self.flow.topic
        self._of_old_logs, self._changes = self.covered(), []
        self._old_topics.add(self._topic_id(flow.checkpoint()))
        self.log += 1
        flow.admin.delete_topics([topic])[topic].result(30)
        wait_for(lambda: topic not in flow.admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)
        flow.create_topic(2)
        for round_ in range(5):
            self.send(range(8), f"new{round_}-")

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        """Two records of partition 1 stay in an open transaction, and others behind them."""
        settings = {"bootstrap.servers": self.flow.bootstrap, "transactional.id": self.flow.topic, "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        held = self._produce(producer, [(1, "held1"), (9, "held9")])
        self.send([3, 5], "behind")
        yield
        producer.commit_transaction(30)
        self._changes += held

    def lose(self, count: int) -> None:
        """Retention takes the first records of partition 0 that the table doesn't have."""
        position = self.flow.offsets()[0]
        self.flow.delete_records({0: position + count})
        self._changes = [c for c in self._changes if c.partition or not position <= c.offset < position + count]

    # Steps ---------------------------------------------------------------------------------------------------------

    def interval(self, **request: Any) -> Outcome:
        outcome = self.flow.interval(**request)
        if not request:
            self.instants.append(str(outcome.instant))
        return outcome

    def catch_up(self) -> None:
        """The schedule reads on until nothing is left."""
        for _ in range(5):
            started = self.flow.coordinator().start(self.flow.run())
            if isinstance(started, Outcome):
                assert started.state == "empty"
                return
            self.finish(started)
        raise AssertionError("the schedule doesn't come to an end")

    def finish(self, started: Started) -> Outcome:
        self.flow.write_all(started)
        outcome = self.flow.commit(started)
        self.instants.append(started.instant)
        return outcome

    # The oracle ----------------------------------------------------------------------------------------------------

    def covered(self) -> list[Change]:
        """The records that the table has, of this log and of those before it."""
        checkpoint = self.flow.checkpoint()
        if self._topic_id(checkpoint) in self._old_topics:
            return list(self._of_old_logs)
        spans = {p: checkpoint.covered(TopicPartition(CLUSTER, self.flow.topic, p)) for p in (0, 1)}
        here = [c for c in self._changes if any(start <= c.offset < end for start, end in spans[c.partition])]
        return [*self._of_old_logs, *here]

    def _topic_id(self, checkpoint: Checkpoint) -> str | None:
        topic = checkpoint.topic(CLUSTER, self.flow.topic)
        return topic.topic_id if topic else None

    def expected(self) -> Counter[Row]:
        covered = self.covered()
        if not self.upserts:
            return Counter((c.id, str(c.v)) for c in covered)
        by_position = self.table == "debezium"
        ordered = sorted(covered, key=lambda c: c.lsn if by_position else (c.log, c.offset))
        last = {c.id: c.v for c in ordered}
        return Counter((i, v) for i, v in last.items() if v is not None)

    def check(self, *, complete: bool = False) -> None:
        """The table has the rows of the records that it says it has; `complete`: of all that Kafka has."""
        seen = Counter(self.flow.read("id", "v")) if self.upserts else self.flow.rows(metadata=True)
        expected = self.expected()
        more, fewer = seen - expected, expected - seen
        assert seen == expected, (
            f"{more.total()} rows too many {list(more)[:4]}, {fewer.total()} missing {list(fewer)[:4]}"
        )
        if complete:
            assert self.flow.offsets() == self.flow.log_ends()
