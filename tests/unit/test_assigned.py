"""A consumer of assigned partitions goes on where brokers refuse the group that librdkafka gives it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaError

from sluice.kafka.assigned import AssignedConsumer

REFUSED = SimpleNamespace(error=lambda: KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
LOST = SimpleNamespace(error=lambda: KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
RECORD = SimpleNamespace(error=lambda: None)


class Answers(Consumer):
    """A consumer to which these answers come."""

    def __init__(self, *answers):
        super().__init__({"group.id": "g", "bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        self._left = iter(answers)

    def poll(self, _timeout):
        return next(self._left)

    def consume(self, _number, _timeout):
        return next(self._left)


class Assigned(AssignedConsumer, Answers):
    """The consumer in question, before that one."""


@pytest.mark.parametrize(
    ("answers", "found"),
    [((REFUSED, RECORD), RECORD), ((REFUSED, REFUSED, None), None), ((LOST,), LOST), ((RECORD,), RECORD)],
)
def test_polls_past_what_concerns_its_group(answers, found):
    assert Assigned(*answers).poll(1) is found


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (([REFUSED, RECORD],), [RECORD]),
        (([REFUSED], [RECORD]), [RECORD]),
        (([REFUSED], []), []),
        (([LOST, REFUSED],), [LOST]),
    ],
)
def test_consumes_past_what_concerns_its_group(answers, found):
    assert Assigned(*answers).consume(10, 1) == found
