"""Pipelines that write topics, and the topics as a consumer finds them that reads what is committed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from sluice.connectors.connections import VARIABLE

from .flow import Flow
from .processes import wait_for

TARGET = "kafka_target"
DDL = "id BIGINT, v STRING"


@dataclass(frozen=True)
class Found:
    """A record that a consumer has got."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int

    @property
    def row(self) -> tuple[int, str]:
        found = json.loads(self.value or b"{}")
        return found["id"], found["v"]


def consume(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Found]:
    """All that a consumer gets of a topic, by a client that shares no code with what wrote it.

    A commit is decided a moment before consumers see it, so this waits for transactions to end; one that a dead process
    has left open doesn't, and its records are none.
    """
    if isolation == "read_committed":
        with suppress(TimeoutError):
            wait_for(lambda: _is_settled(bootstrap, topic), "the transactions to end", timeout=10, pause=0.05)
    return list(_consume(bootstrap, topic, isolation))


def _is_settled(bootstrap: str, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    known = admin.list_topics(topic, timeout=30).topics[topic]
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in known.partitions}
    if not wanted:
        return True
    last, stable = (
        [one.result().offset for one in admin.list_offsets(wanted, isolation_level=isolation).values()]
        for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    )
    return all(a >= b for a, b in zip(stable, last, strict=True))


def _consume(bootstrap: str, topic: str, isolation: str) -> Iterator[Found]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False, "log_level": 0,
            "isolation.level": isolation, "enable.partition.eof": True, "fetch.wait.max.ms": 20,
        }
    )  # fmt: skip
    try:
        known = consumer.list_topics(topic, timeout=30).topics[topic]
        if known.error is not None:
            return
        left = set(known.partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in left])
        while left:
            record = consumer.poll(30)
            assert record is not None, f"{topic} can't be read to its end"
            if record.error() is None:
                yield Found(
                    record.partition(), record.offset(), record.key(), record.value(),
                    tuple(record.headers() or ()), record.timestamp()[1],
                )  # fmt: skip
            else:
                assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
                left.discard(record.partition())
    finally:
        consumer.close()


def create(bootstrap: str, topic: str, partitions: int, **config: str) -> None:
    """A topic of a test's own; retention doesn't take records that it dates years ago."""
    settings = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in config.items()}}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
    wait_for(lambda: topic in admin.list_topics(timeout=10).topics, "the topic", pause=0.1)


def environment(bootstrap: str, **extra: str) -> dict[str, str]:
    """How a process knows the target cluster."""
    one = {"id": TARGET, "type": "kafka", "extra": {"bootstrap.servers": bootstrap, "log_level": 0, **extra}}
    return {VARIABLE: json.dumps([one])}


class Topics:
    """A pipeline, and the topic that it writes."""

    def __init__(self, flow: Flow, bootstrap: str) -> None:
        self.flow, self.bootstrap = flow, bootstrap
        self.name = str(flow.pipeline.sink.options.topic)

    def found(self, isolation: str = "read_committed") -> list[Found]:
        return consume(self.bootstrap, self.name, isolation)

    def rows(self, isolation: str = "read_committed") -> list[tuple[int, str]]:
        return [one.row for one in self.found(isolation)]

    def check(self) -> None:
        """Each record that was sent is there once."""
        assert sorted(self.rows()) == sorted((sent.id, sent.value) for sent in self.flow.sent)
        assert self.staged() == []

    def delete_records(self, before: dict[int, int]) -> None:
        """Move the log start, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        bounds = [TopicPartition(self.name, p, offset) for p, offset in before.items()]
        for future in admin.delete_records(bounds).values():
            future.result(30)

    def staged(self) -> list[str]:
        """What lies in the staging folder."""
        folder = self.flow.folder / "staging"
        return sorted(file.name for file in folder.rglob("*.parquet"))


def topics_of(flow: Flow, bootstrap: str, partitions: int = 2, section: dict[str, Any] | None = None) -> Topics:
    """A flow that writes to a topic of its own."""
    name = f"{flow.topic}-out"
    kafka = {
        "connection": TARGET, "topic": name, "staging": str(flow.folder / "staging"), "schema": DDL, **(section or {}),
    }  # fmt: skip
    flow.set(sink__hudi=None, sink__kafka=kafka)
    flow.secret_environment.update(environment(bootstrap))
    if partitions:
        create(bootstrap, name, partitions)
    return Topics(flow, bootstrap)


def set_config(topics: Topics, name: str, value: str) -> None:
    """Change a setting of the topic that is written."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topics.name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": topics.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)
