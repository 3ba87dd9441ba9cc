"""The newest records of some topics, for a look at them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import TopicPartition as KafkaTopicPartition

from sluice.errors import RetryableError
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify
from sluice.protocol.state import PartitionBounds

_PATIENCE = 30.0  # seconds without a record before it gives up
_BATCH = 500


class Sampled(NamedTuple):
    """A record: its position, and its value."""

    place: str
    value: bytes | None


def newest_records(
    settings: KafkaSettings, isolation_level: str, partitions: Sequence[PartitionBounds], count: int
) -> list[Sampled]:
    """About the newest records, as many from each partition; nothing is committed to any group.

    Args:
        settings: the cluster.
        isolation_level: as the pipeline reads.
        partitions: with their logs' bounds.
        count: how many, of all partitions together.

    Raises:
        RetryableError: the cluster delivers nothing.
    """
    wanted = {}
    waiting = [b for b in partitions if b.log_end > b.log_start]
    for bounds in waiting:
        share = -(-count // len(waiting))
        wanted[bounds.topic_partition[1:]] = (max(bounds.log_start, bounds.log_end - share), bounds.log_end)
    consumer = AssignedConsumer(
        settings.client(
            group_id="sluice.infer",
            enable_auto_commit=False,
            isolation_level=isolation_level,
            enable_partition_eof=False,
            auto_offset_reset="error",
        )
    )
    try:
        consumer.assign([KafkaTopicPartition(topic, p, start) for (topic, p), (start, _) in wanted.items()])
        return _read(consumer, wanted, settings)[:count]
    finally:
        consumer.close()


def _read(
    consumer: AssignedConsumer, wanted: dict[tuple[str, int], tuple[int, int]], settings: KafkaSettings
) -> list[Sampled]:
    found: list[Sampled] = []
    open_ends = {partition: end for partition, (_, end) in wanted.items()}
    heard = time.monotonic()
    while open_ends:
        for message in consumer.consume(_BATCH, 1.0):
            if message.error():
                raise classify(message.error(), "reading a sample", connection=settings.name)
            partition = (str(message.topic()), int(message.partition()))
            if message.offset() < wanted[partition][1]:
                found.append(Sampled(f"{partition[0]}[{partition[1]}]@{message.offset()}", message.value()))
            heard = time.monotonic()
        # The position passes offsets that hold no record, such as a transaction's end.
        for position in consumer.position([KafkaTopicPartition(*partition) for partition in open_ends]):
            if position.offset >= open_ends[position.topic, position.partition]:
                del open_ends[position.topic, position.partition]
        if time.monotonic() - heard > _PATIENCE:
            raise RetryableError(
                "Kafka delivered no records for a sample.",
                next_step="look whether the cluster is well, and try again.",
                connection=settings.name,
            )
    return found
