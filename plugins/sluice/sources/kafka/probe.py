"""Reads the times and leader epochs of single records in many partitions, by offset."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from sluice.errors import RetryableError
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify
from sluice.protocol.offsets import TopicPartition

_PATIENCE = 60.0  # seconds for one read of all partitions
_LOOK = 200  # records of one partition at most
_BATCH = 1000


class RecordHead(NamedTuple):
    """A record's offset, its time in milliseconds since 1970, and the leader epoch of its batch."""

    offset: int
    time: int
    leader_epoch: int | None


class RecordProbe:
    """Reads single records without ever committing anything.

    Args:
        settings: the cluster.
        isolation_level: which transactions' records are read.
    """

    def __init__(self, settings: KafkaSettings, isolation_level: str) -> None:
        self._where = {"connection": settings.name, "bootstrap_servers": settings.bootstrap_servers}
        self._name = settings.name
        self._consumer = AssignedConsumer(
            settings.client(
                group_id=f"sluice-looker-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                isolation_level=isolation_level,
                fetch_wait_max_ms=20,
                fetch_message_max_bytes=65536,  # a few records; a batch that is larger still comes whole
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def first(
        self, offsets: Mapping[TopicPartition, int], wanted: Callable[[TopicPartition, RecordHead], bool]
    ) -> dict[TopicPartition, RecordHead | None]:
        """Each partition's first wanted record from an offset on; None if none is among the next few.

        Raises:
            RetryableError: the brokers don't answer in time.
            ActionRequiredError: a topic may not be read.
        """
        found: dict[TopicPartition, RecordHead | None] = {}
        seen = dict.fromkeys(offsets, 0)
        self._consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, o) for tp, o in offsets.items()])
        give_up = time.monotonic() + _PATIENCE
        while len(found) < len(offsets):
            left = give_up - time.monotonic()
            records = self._consumer.consume(_BATCH, timeout=min(0.05, left)) if left > 0 else []
            if left <= 0:
                raise RetryableError(
                    "Single records could not be looked at in time.",
                    next_step="check that the brokers are up; the step is retried.",
                    partitions=", ".join(str(tp) for tp in offsets if tp not in found)[:500],
                    **self._where,
                )
            for record in records:
                self._take(record, found, seen, wanted)
        self._consumer.unassign()
        return found

    def _take(
        self,
        record: Message,
        found: dict[TopicPartition, RecordHead | None],
        seen: dict[TopicPartition, int],
        wanted: Callable[[TopicPartition, RecordHead], bool],
    ) -> None:
        topic, partition = record.topic(), record.partition()
        error = record.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if error.fatal() or not error.retriable():
                raise classify(error, "looking at single records", topic=topic, partition=partition, **self._where)
            return
        tp = TopicPartition(self._name, str(topic), -1 if partition is None else partition)
        if tp in found or tp not in seen:
            return
        if error is not None:  # the end of the log
            found[tp] = None
            return
        here = RecordHead(int(record.offset() or 0), int(record.timestamp()[1]), record.leader_epoch())
        seen[tp] += 1
        if wanted(tp, here):
            found[tp] = here
        elif seen[tp] >= _LOOK:
            found[tp] = None
