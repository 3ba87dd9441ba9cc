"""Which workers are there, as Kafka's group of them says: when it is asked, and what is believed without an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sluice.control import presence as presences
from sluice.control.presence import Member, Presence, members
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings

SETTINGS = KafkaSettings("k", {"bootstrap.servers": "nowhere:9"})


class _Admin:
    """A client that describes groups by what a test says."""

    def __init__(self, *, error: KafkaError | None = None, workers: tuple[tuple[str, str], ...] = ()) -> None:
        self._error = error
        self._workers = workers

    def describe_consumer_groups(self, names: list[str], request_timeout: float) -> Any:
        assert request_timeout == 3.0

        def result() -> Any:
            if self._error is not None:
                raise KafkaException(self._error)
            return SimpleNamespace(members=[SimpleNamespace(client_id=c, host=h) for c, h in self._workers])

        return {name: SimpleNamespace(result=result) for name in names if name == "sluice-workers-default"}


def test_the_workers_of_a_group_are_its_members_by_name():
    admin: Any = _Admin(workers=(("b", "/10.0.0.2"), ("a", "/10.0.0.1")))
    assert members(admin, SETTINGS, "default", 3.0) == (Member("a", "/10.0.0.1"), Member("b", "/10.0.0.2"))


def test_a_group_that_was_never_there_has_no_workers_and_one_that_may_not_be_described_is_an_error():
    gone: Any = _Admin(error=KafkaError(KafkaError.GROUP_ID_NOT_FOUND))
    assert members(gone, SETTINGS, "default", 3.0) == ()
    forbidden: Any = _Admin(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(ActionRequiredError, match="asking which workers are there"):
        members(forbidden, SETTINGS, "default", 3.0)


def test_a_client_is_kept_while_it_gets_answers_and_made_anew_after_none(monkeypatch):
    made: list[_Admin] = []

    def admin(_: Any) -> _Admin:
        made.append(_Admin(workers=(("a", "h"),)))
        return made[-1]

    monkeypatch.setattr(presences, "AdminClient", admin)
    presence = Presence(SETTINGS, 3.0)
    for _ in range(2):
        assert len(presence.members("default")) == 1
    assert len(made) == 1
    made[0]._error = KafkaError(KafkaError._TRANSPORT, retriable=True)
    with pytest.raises(RetryableError):
        presence.members("default")
    assert len(presence.members("default")) == 1
    assert len(made) == 2


@pytest.mark.parametrize(
    ("answer", "are_there"),
    [
        ((Member("a", "h"),), True),
        ((), False),
        (RetryableError("No broker answers.", next_step="-"), True),
        (ActionRequiredError("Not permitted.", next_step="-"), False),
    ],
    ids=["a worker", "none", "no answer, and the wait is bounded", "not permitted"],
)
def test_waiting_tasks_ask_whether_workers_are_there_every_two_seconds(answer, are_there, monkeypatch):
    now, asked = [1000.0], []
    monkeypatch.setattr(presences.time, "monotonic", lambda: now[0])
    presence = Presence(SETTINGS)

    def of(group: str) -> Any:
        asked.append((group, now[0]))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(presence, "members", of)
    for now[0] in (1000.0, 1001.9, 1002.0, 1003.9):
        assert presence.has_workers("default") is are_there
    assert presence.has_workers("other") is are_there
    assert asked == [("default", 1000.0), ("default", 1002.0), ("other", 1003.9)]
