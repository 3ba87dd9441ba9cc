"""The demo's topics: made to keep everything, since the tables are compared with them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sluice import runtime
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import until_there_is_a_leader
from sluice.local.errors import LocalRuntimeError

PARTITIONS = 4
_TIMEOUT = 30.0


def ensure_topic(settings: KafkaSettings, topic: str) -> bool:
    """Make the topic where it isn't there, with no limit on how long it keeps its records; True if it was made.

    Raises:
        LocalRuntimeError: it is there, and has lost its first records.
    """
    admin = AdminClient(settings.client())
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1", "retention.bytes": "-1"})
    try:
        admin.create_topics([new])[topic].result(_TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    else:
        return True
    if any(low > 0 for low, _ in bounds(settings, topic).values()):
        raise LocalRuntimeError(
            f"The topic {topic} no longer holds its first records, so that no table can be compared with it.",
            next_step=f"run `{runtime.command('clean')}`, which removes topics and tables, and then the demo again.",
        )
    return False


def bounds(settings: KafkaSettings, topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition."""
    consumer = _consumer(settings)
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions
        return {p: _bounds_of(consumer, TopicPartition(topic, p)) for p in partitions}
    finally:
        consumer.close()


@until_there_is_a_leader  # a single broker on a busy machine misses a heartbeat, and leads nothing for a moment
def _bounds_of(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    first, end = consumer.get_watermark_offsets(partition, timeout=_TIMEOUT)
    return first, end


def records(settings: KafkaSettings, topic: str) -> Iterator[Mapping[str, Any]]:
    """The values of all records that the topic holds now, those of a partition in their order."""
    open_ends = {p: high for p, (low, high) in bounds(settings, topic).items() if low < high}
    consumer = _consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in open_ends])
        while open_ends:
            message = consumer.poll(_TIMEOUT)
            if message is None:
                raise LocalRuntimeError(
                    f"The topic {topic} could not be read to its end: the broker doesn't answer.",
                    next_step=f"run `{runtime.command('status')}`; `{runtime.command('up')}` starts missing parts.",
                )
            error, end = message.error(), open_ends.get(message.partition(), 0)
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is None and message.offset() < end:
                yield json.loads(message.value())
            if error is not None or message.offset() + 1 >= end:
                open_ends.pop(message.partition(), None)
    finally:
        consumer.close()


def _consumer(settings: KafkaSettings) -> Consumer:
    # The group is never joined or committed; librdkafka wants one.
    return Consumer(
        settings.client(
            group_id=f"demo-{uuid.uuid4()}",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
        )
    )
