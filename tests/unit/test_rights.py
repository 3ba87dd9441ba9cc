"""What brokers say that a principal may do to a topic; on real ones in `tests/guarantees/test_rights.py`."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka import rights
from sluice.kafka.config import KafkaSettings
from sluice.kafka.rights import READ, WRITE, require_rights

KAFKA = KafkaSettings("c", {"bootstrap.servers": "k:9092"})
ASKED = {"dead": (WRITE,), "dead.sent": (READ, WRITE)}


def ask(monkeypatch: pytest.MonkeyPatch, **said: Any) -> None:
    """Have the brokers say this of the topics: operations, nothing, or an error."""

    def described(_topics: Any, **how: Any) -> dict[str, Future[Any]]:
        assert how["include_authorized_operations"] is True
        found = {}
        for name, operations in said.items():
            answer = found[name.replace("_", ".")] = Future()
            if isinstance(operations, Exception):
                answer.set_exception(operations)
            else:
                answer.set_result(SimpleNamespace(authorized_operations=operations))
        return found

    monkeypatch.setattr(rights, "AdminClient", lambda _: SimpleNamespace(describe_topics=described))
    require_rights(KAFKA, ASKED)


@pytest.mark.parametrize("operations", [[READ, WRITE, AclOperation.DESCRIBE], [], None])
def test_all_that_is_needed_or_nothing_said_is_fine(monkeypatch, operations):
    ask(monkeypatch, dead=operations, dead_sent=operations)


def test_a_missing_right_is_named_with_its_topic(monkeypatch):
    with pytest.raises(ActionRequiredError, match="lacks a right on the topic: Read, Write") as raised:
        ask(monkeypatch, dead=[WRITE], dead_sent=[AclOperation.DESCRIBE])
    assert raised.value.where == {"topic": "dead.sent", "connection": "c"}
    assert "Read and Write" in raised.value.next_step


def test_brokers_that_do_not_answer_are_asked_again(monkeypatch):
    with pytest.raises(RetryableError):
        ask(monkeypatch, dead=KafkaException(KafkaError(KafkaError._TIMED_OUT)))
