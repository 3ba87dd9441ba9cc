"""Offsets of many partitions are asked for in lots, side by side, in an order that leaves no end before its start."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from sluice.errors import RetryableError
from sluice.kafka.list_offsets import Question, list_offsets
from sluice.protocol.offsets import TopicPartition

EARLIEST = Question(OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)
LATEST = Question(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
PARTITIONS = [TopicPartition("kafka", topic, p) for topic in ("a", "b") for p in range(300)]


class Answer(Future):
    """An answer that is there as soon as it is waited for, and keeps which were taken."""

    def __init__(self, taken: list[Any], place: Any, answer: Any) -> None:
        super().__init__()
        self._taken, self._place = taken, place
        self.set_exception(answer) if isinstance(answer, Exception) else self.set_result(answer)

    def result(self, timeout: float | None = None) -> Any:
        self._taken.append(self._place)
        return super().result(timeout)


class Broker:
    """An admin client whose logs begin at 3 and end at 7; it keeps what was asked, and what was known by then."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.asked: list[tuple[dict[Any, Any], IsolationLevel, set[Any]]] = []
        self._error = error
        self._taken: list[Any] = []

    def list_offsets(self, request: dict[Any, Any], isolation_level: IsolationLevel, request_timeout: float) -> Any:
        self.asked.append((request, isolation_level, set(self._taken)))
        wrong = KafkaException(self._error) if self._error else None
        return {
            tp: Answer(
                self._taken,
                (tp.topic, tp.partition, isolation_level),
                wrong or SimpleNamespace(offset=3 if spec is EARLIEST.spec else 7),
            )
            for tp, spec in request.items()
        }


def test_no_request_is_as_wide_as_the_pipeline():
    broker = Broker()
    (found,) = list_offsets(broker, "kafka", PARTITIONS, LATEST, timeout=1)
    assert list(found) == PARTITIONS
    assert [len(request) for request, _, _ in broker.asked] == [250, 250, 100]
    assert not any(known for *_, known in broker.asked)  # all of them are on their way before one answer is awaited


def test_a_question_is_answered_before_the_next_one_is_asked_of_the_same_partition():
    broker = Broker()
    starts, ends = list_offsets(broker, "kafka", PARTITIONS, EARLIEST, LATEST, timeout=1)
    assert {answer.offset for answer in starts.values()} == {3}
    assert {answer.offset for answer in ends.values()} == {7}
    later = [(request, known) for request, isolation, known in broker.asked if isolation is LATEST.isolation]
    assert sum(len(request) for request, _ in later) == len(PARTITIONS)
    for request, known in later:
        assert {(tp.topic, tp.partition, EARLIEST.isolation) for tp in request} <= known


def test_nothing_is_asked_of_no_partition():
    broker = Broker()
    assert list_offsets(broker, "kafka", [], EARLIEST, LATEST, timeout=1) == [{}, {}]
    assert broker.asked == []


def test_partitions_that_lose_their_leader_are_not_missing():
    broker = Broker(KafkaError(KafkaError._NOENT, "No leaders found"))
    with pytest.raises(RetryableError, match="lost their leader"):
        list_offsets(broker, "kafka", PARTITIONS, LATEST, timeout=1)
