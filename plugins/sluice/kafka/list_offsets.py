"""Queries offsets of many partitions at once.

librdkafka looks through all partitions of a request for each partition that an answer names
(`rd_kafka_ListOffsets_response_merge`): one request of 10,000 costs thrice the processor time of forty of 250. So they
are queried in batches, and while one batch's answer is read here, others are on their way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from sluice.errors import RetryableError
from sluice.kafka.failures import classify
from sluice.protocol.offsets import TopicPartition

_LOT = 250  # partitions
_Answers = dict[KafkaTopicPartition, Future[ListOffsetsResultInfo]]


class Question(NamedTuple):
    """The queried offset, and its isolation: the latest of committed records is the last stable offset."""

    spec: OffsetSpec
    isolation: IsolationLevel


def list_offsets(
    admin: AdminClient, cluster: str, partitions: Iterable[TopicPartition], *questions: Question, timeout: float
) -> list[dict[TopicPartition, ListOffsetsResultInfo]]:
    """The answers to each question, by partition.

    For each partition a question is answered before the next one is sent: a log's start that was queried before its end
    isn't beyond it, nor is a last stable offset beyond the high watermark that was queried after it.

    Args:
        admin: a client of the cluster.
        cluster: the Airflow connection's id.
        partitions: partitions with a known leader, best grouped by topic.
        questions: the questions, in the order of their answers.
        timeout: seconds for one request.

    Raises:
        RetryableError: the cluster can't be reached, or a partition has lost its leader.
        ActionRequiredError: a topic is missing, or may not be read.
    """

    def ask(lot: Sequence[TopicPartition], question: Question) -> _Answers:
        request = {KafkaTopicPartition(tp.topic, tp.partition): question.spec for tp in lot}
        answers: _Answers = admin.list_offsets(request, isolation_level=question.isolation, request_timeout=timeout)
        return answers

    lots = list(_lots(partitions))
    pending = [ask(lot, questions[0]) for lot in lots]
    found: list[dict[TopicPartition, ListOffsetsResultInfo]] = []
    for place in range(len(questions)):
        answers: dict[TopicPartition, ListOffsetsResultInfo] = {}
        for i, lot in enumerate(lots):
            answers |= _taken(cluster, pending[i])
            if place + 1 < len(questions):
                pending[i] = ask(lot, questions[place + 1])
        found.append(answers)
    return found


def _lots(partitions: Iterable[TopicPartition]) -> Iterable[list[TopicPartition]]:
    left = iter(partitions)
    while lot := list(islice(left, _LOT)):
        yield lot


def _taken(cluster: str, answers: _Answers) -> dict[TopicPartition, ListOffsetsResultInfo]:
    taken = {}
    for tp, future in answers.items():
        try:
            taken[TopicPartition(cluster, tp.topic, tp.partition)] = future.result()
        except KafkaException as error:
            where = {"connection": cluster, "topic": tp.topic, "partition": tp.partition}
            if error.args[0].code() == KafkaError._NOENT:  # librdkafka's "No leaders found", of none in the lot
                raise RetryableError(
                    "Partitions have lost their leader while they were asked for their offsets.",
                    next_step="check that the brokers are up; the step is retried.",
                    **where,
                ) from error
            raise classify(error.args[0], "asking for offsets", **where) from error
    return taken
