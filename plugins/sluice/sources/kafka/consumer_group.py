"""The copy of a table's offsets in a consumer group, for Kafka's own tools and lag monitors. Nothing reads it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from sluice.errors import ActionRequiredError
from sluice.kafka.failures import COORDINATOR_MOVES, kafka_errors, until_a_group_has_a_coordinator
from sluice.protocol.offsets import TopicPartition


def copy_to_group(
    clients: Iterator[AdminClient], group: str, next_offsets: Mapping[TopicPartition, int], *, timeout: float
) -> None:
    """Copy next offsets into a consumer group.

    Args:
        clients: the client to ask, and a new one for each further try: the group's coordinator may move.
        group: the consumer group.
        next_offsets: the offset after the last committed record of each partition, all of one cluster.
        timeout: of one request, in seconds.

    Raises:
        SluiceError: Kafka refused; the caller logs it, since the table is committed whatever comes of the copy.
    """
    if not next_offsets:
        return
    offsets = [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in next_offsets.items()]
    with kafka_errors("copying offsets to the consumer group", group=group):
        answers = _alter(clients, ConsumerGroupTopicPartitions(group, offsets), timeout)
    for answer in answers:
        if answer.error:
            raise ActionRequiredError(
                "Kafka did not take an offset for the consumer group.",
                next_step="none for the table; lag monitors show an old figure until the next interval.",
                group=group,
                topic=answer.topic,
                partition=answer.partition,
                reason=str(answer.error),
            )


@until_a_group_has_a_coordinator
def _alter(
    clients: Iterator[AdminClient], asked: ConsumerGroupTopicPartitions, timeout: float
) -> Sequence[KafkaTopicPartition]:
    client = next(clients)  # kept until the answer: a client without a reference leaves its requests unanswered
    request = client.alter_consumer_group_offsets([asked], request_timeout=timeout)
    answers: Sequence[KafkaTopicPartition] = request[asked.group_id].result().topic_partitions
    for answer in answers:
        if answer.error and answer.error.code() in COORDINATOR_MOVES:
            raise KafkaException(answer.error)
    return answers
