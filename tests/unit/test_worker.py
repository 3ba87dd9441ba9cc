"""A worker's threads: what it hears, the ranges that it writes, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, abort, start, status

from sluice import __version__
from sluice.errors import IntervalError, RetryableError
from sluice.participant import worker as workers
from sluice.participant.claiming import End, ServedTable, Terms
from sluice.participant.participant import Assignment, NotHereError, Participant
from sluice.participant.worker import Worker
from sluice.protocol.messages import Claim
from sluice.protocol.transaction import TableLog

TOPIC = "control"
KNOWN = RetryableError("Known.", next_step="-")


class Desk:
    """A worker, the control topic that it sends to and hears of, and the ranges that it writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, write: Callable[[], None] = lambda: None) -> None:
        self.sent: SimpleQueue[Any] = SimpleQueue()
        self.written: SimpleQueue[int] = SimpleQueue()
        self.cancelled = threading.Event()
        self.ails: End | None = None
        self._length = 0
        self._write = write
        monkeypatch.setattr(workers, "Participant", self._participant)
        served = ServedTable(self, None, 600.0)  # type: ignore[arg-type]
        self.worker = Worker(Terms("a"), {(TOPIC, TABLE): served}, self, lambda: ("a",), time.monotonic)
        self.why: SimpleQueue[End] = SimpleQueue()
        self.thread = threading.Thread(target=lambda: self.why.put(self.worker.run()), daemon=True)

    def health_problem(self) -> End | None:
        return self.ails

    def send(self, message: Any) -> int:
        self.sent.put(message)
        return self.say(message)

    def say(self, *messages: Any) -> int:
        self.worker.said(TOPIC, list(enumerate(messages, self._length)))
        self._length += len(messages)
        return self._length - 1

    def _participant(self, assignment: Any, control: Any, job: Any, *, leaves: bool) -> Any:
        assert (control, job, leaves) == (self, None, True)
        desk = self

        class Writes:
            def run(self) -> Any:
                desk.written.put(assignment.range)
                desk._write()
                return status(INSTANT, assignment.range)

            def cancel(self) -> None:
                desk.cancelled.set()

        return Writes()

    def begin(self, *messages: Any) -> None:
        self.worker.reads_from(TOPIC, 0, 0)
        self.say(*messages)
        self.thread.start()

    def claim(self) -> Claim:
        found = self.sent.get(timeout=30)
        assert isinstance(found, Claim)
        return found


def _start(ranges: int = 1) -> Any:
    return start(INSTANT, ranges=ranges, release=__version__)


def test_it_writes_what_it_has_claimed_until_it_is_asked_to_end(monkeypatch):
    desk = Desk(monkeypatch)
    desk.begin(_start(ranges=2), status(INSTANT, 0))
    assert (desk.claim().range, desk.written.get(timeout=30)) == (1, 1)
    desk.worker.end()
    assert desk.why.get(timeout=30) is End.ASKED
    assert desk.sent.empty()


def test_it_ends_only_when_what_it_writes_is_written(monkeypatch):
    may_end = threading.Event()
    desk = Desk(monkeypatch, lambda: may_end.wait(30) and None)
    desk.begin(_start())
    desk.written.get(timeout=30)
    desk.worker.end(End.OLD)
    desk.say(status("20250101000000000"))
    may_end.set()
    assert desk.why.get(timeout=30) is End.OLD
    assert not desk.claim().released
    assert desk.sent.empty()


@pytest.mark.parametrize(
    ("error", "is_given_back"), [(KNOWN, False), (NotHereError(KNOWN), True), (RuntimeError("any"), True)]
)
def test_what_it_could_not_write_and_did_not_report_is_given_back(error, is_given_back, monkeypatch):
    def fail() -> None:
        raise error

    desk = Desk(monkeypatch, fail)
    desk.begin(_start())
    assert not desk.claim().released
    desk.written.get(timeout=30)
    if is_given_back:
        assert desk.claim().released
    desk.worker.end()
    assert desk.why.get(timeout=30) is End.ASKED
    assert desk.sent.empty()


def test_a_mute_jvm_ends_it_beside_a_range_that_never_ends(monkeypatch):
    never = threading.Event()
    desk = Desk(monkeypatch, lambda: never.wait(30) and None)
    desk.begin(_start())
    desk.written.get(timeout=30)
    desk.ails = End.JVM_UNRESPONSIVE
    assert desk.why.get(timeout=30) is End.JVM_UNRESPONSIVE
    assert [desk.claim().released, desk.claim().released] == [False, True]
    never.set()


def test_an_attempt_is_cancelled_without_waiting_for_it(monkeypatch):
    desk = Desk(monkeypatch)
    attempt = desk.worker._begin("range", None, ServedTable(desk, None, 1.0))  # type: ignore[arg-type]
    attempt.cancel()
    assert desk.cancelled.wait(30)


@pytest.mark.parametrize(
    ("messages", "at", "says"),
    [
        ([_start()], 0, None),
        ([_start(), abort(INSTANT)], 0, "it is aborted"),
        ([_start()], 1, "no START-COMMIT"),
    ],
    ids=["open", "ended", "elsewhere"],
)
def test_nothing_is_read_for_an_interval_that_is_not_open(messages, at, says):
    participant = Participant(Assignment(TABLE, TOPIC, at, 0), None, None)  # type: ignore[arg-type]
    log = TableLog(TABLE).extend(enumerate(messages))
    if says is None:
        assert participant._transaction(log) is log.transactions[INSTANT]
    else:
        with pytest.raises(IntervalError, match=says):
            participant._transaction(log)


_ELSEWHERE = NotHereError(KNOWN)


@pytest.mark.parametrize(
    ("error", "leaves", "raised"),
    [
        (_ELSEWHERE, True, _ELSEWHERE),
        (_ELSEWHERE, False, KNOWN),
        (ValueError("any"), True, KNOWN),
        (ValueError("any"), False, KNOWN),
    ],
    ids=["left to others", "not here, and there are no others", "an error in a worker", "an error in a job"],
)
def test_only_a_range_whose_source_is_elsewhere_is_left_to_others_and_only_by_a_worker(error, leaves, raised):
    """Any other error is told in the range's own words, for its WRITE-STATUS."""

    def write(*_: Any) -> Any:
        raise error

    job = SimpleNamespace(write=write, cancel=lambda: None, classified=lambda *_: KNOWN)
    control = SimpleNamespace(follow=lambda *_: iter(()))
    log = TableLog(TABLE).extend([(0, _start())])
    runs: Any = SimpleNamespace(running=lambda _: nullcontext(job))
    participant = Participant(Assignment(TABLE, TOPIC, 0, 0), control, runs, leaves=leaves)  # type: ignore[arg-type]
    with pytest.raises(type(raised)) as caught:
        participant._write(log.transactions[INSTANT], log)
    assert caught.value is raised
