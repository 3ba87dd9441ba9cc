"""The copy of offsets for lag monitors when the group's coordinator moves, which no broker does on request."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import TopicPartition
from sluice.sources.kafka.consumer_group import copy_to_group

MOVES = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


class Client:
    """Answers each partition with an error, or the whole request, or takes the offsets."""

    def __init__(self, of_a_partition: int | None = None, of_all: int | None = None) -> None:
        self.of_a_partition, self.of_all = of_a_partition, of_all
        self.taken: dict[tuple[str, int], int] = {}

    def alter_consumer_group_offsets(self, asked, *, request_timeout):
        answer: Future = Future()
        if self.of_all is not None:
            answer.set_exception(KafkaException(KafkaError(self.of_all)))
        else:
            answer.set_result(Answers([self._take(partition) for partition in asked[0].topic_partitions]))
        return {asked[0].group_id: answer}

    def _take(self, partition):
        if self.of_a_partition is None:
            self.taken[partition.topic, partition.partition] = partition.offset
            return partition
        return Answered(partition, KafkaError(self.of_a_partition))


class Answered:
    """A partition with an error, which only librdkafka can put into its own."""

    def __init__(self, partition: KafkaTopicPartition, error: KafkaError) -> None:
        self.topic, self.partition, self.error = partition.topic, partition.partition, error


class Answers:
    def __init__(self, topic_partitions) -> None:
        self.topic_partitions = topic_partitions


def copy(*clients: Client) -> None:
    copy_to_group(iter(clients), "g", {TopicPartition("main", "orders", 0): 5}, timeout=1.0)


@pytest.mark.parametrize("code", MOVES)
@pytest.mark.parametrize("whole", [False, True])
def test_a_coordinator_that_moves_is_looked_for_by_a_new_client(code, whole):
    moves, found = Client(of_all=code) if whole else Client(of_a_partition=code), Client()
    copy(moves, found)
    assert found.taken == {("orders", 0): 5}


def test_any_other_refusal_is_final():
    refuses, other = Client(of_a_partition=KafkaError.UNKNOWN_MEMBER_ID), Client()
    with pytest.raises(ActionRequiredError, match=r"topic=orders, partition=0.*UNKNOWN_MEMBER_ID"):
        copy(refuses, other)
    assert other.taken == {}
