"""Steps around a commit that simulated histories seldom come to: offsets that moved, services that were left."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, WRITER, abort, ack, end, envelope, start, status

from sluice.coordinator import coordinator as coordinators
from sluice.coordinator import move as moves
from sluice.coordinator import services
from sluice.coordinator import start as starts
from sluice.coordinator.checks import truncated_since_read
from sluice.coordinator.commit import Committer
from sluice.coordinator.coordinator import Coordinator
from sluice.coordinator.machine import ThisMachine
from sluice.coordinator.move import Mover
from sluice.coordinator.services import Services
from sluice.coordinator.session import Committed
from sluice.coordinator.start import Starter
from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol.commit_note import NO_NOTE, CommitNote
from sluice.protocol.messages import BadRecord, Moved
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition
from sluice.protocol.transaction import State, TableLog

SERVICE = "20250101000000000"


class _Table:
    """A table with an interval's instant, in a state that a test says; nothing may be committed to it."""

    def __init__(self, state: str) -> None:
        self._state = state

    def state_of(self, instant: str) -> str:
        assert instant == INSTANT
        return self._state

    def completions(self) -> dict[str, Any]:
        return {}


def _committer(log: TableLog, last_commit: str) -> Committer:
    session: Any = SimpleNamespace(
        table_id=TABLE,
        machine=ThisMachine(),
        pipeline=SimpleNamespace(
            control=SimpleNamespace(commit_timeout=timedelta(minutes=10), clock_wait=timedelta(minutes=5)),
            errors=SimpleNamespace(quarantine=None),
        ),
        control=SimpleNamespace(table_log=lambda *_: log),
        committed=lambda *_: Committed(Checkpoint(), CommitNote(instant=last_commit)),
    )
    return Committer(session)


@pytest.mark.parametrize(("state", "is_refused"), [("inflight", True), ("completed", False)])
def test_an_interval_whose_offsets_moved_is_not_committed_unless_its_own_commit_has_moved_them(state, is_refused):
    """The lease's holder before may have completed the commit after all: it isn't made twice, nor given up."""
    log = TableLog(TABLE).extend(enumerate([start(INSTANT, planned_on="1"), status(INSTANT), end(INSTANT)]))
    committer, table = _committer(log, "2"), _Table(state)
    transaction = log.transactions[INSTANT]
    committer._leases.sent(transaction.lease_offset, committer._session.machine.steady())
    if is_refused:
        with pytest.raises(IntervalError, match="offsets moved") as caught:
            committer._hudi_commit(table, transaction)  # type: ignore[arg-type]
        assert caught.value.where["moved"] == ["planned on 1, and on 2 now"]
    else:
        assert not committer._hudi_commit(table, transaction)  # type: ignore[arg-type, func-returns-value]


def test_an_outcome_says_how_many_bad_records_are_where():
    bad = status(INSTANT, records_written=8, records_quarantined=2)
    log = TableLog(TABLE).extend(enumerate([start(INSTANT, quarantine=WRITER), bad, end(INSTANT)]))
    summary = _committer(log, INSTANT).outcome(log.transactions[INSTANT]).summary
    assert f"8 rows from t[0] [0, 10); 2 bad records are set aside in {WRITER.path}." in summary
    first = BadRecord(topic="t", partition=0, offset=3, reason="no JSON")
    named = TableLog(TABLE).extend(
        enumerate([start(INSTANT, quarantine=WRITER), bad.model_copy(update={"first_bad": first}), end(INSTANT)])
    )
    summary = _committer(named, INSTANT).outcome(named.transactions[INSTANT]).summary
    assert f"set aside in {WRITER.path}; the first is t[0]@3: no JSON." in summary
    without = TableLog(TABLE).extend(enumerate([start(INSTANT), bad, end(INSTANT)]))
    assert "set aside" not in _committer(without, INSTANT).outcome(without.transactions[INSTANT]).summary


@pytest.mark.parametrize("is_aborted_first", [False, True])
def test_offsets_are_copied_to_the_consumer_group_after_an_acknowledgement_that_counts(is_aborted_first):
    messages: list[Any] = [start(INSTANT), status(INSTANT), end(INSTANT)]
    log = TableLog(TABLE).extend(enumerate(messages))
    messages += [abort(INSTANT, lease_offset=2)] if is_aborted_first else []
    copied: list[Any] = []
    committer = _committer(log, INSTANT)
    session: Any = committer._session
    session.pipeline.consumer_group = "lag"
    session.control.send = messages.append
    session.control.extend = lambda log: log.extend(enumerate(messages[log.position :], log.position))
    session.envelope_of = lambda transaction: envelope(transaction.id)
    session.read_as, session.followed = lambda _: None, None
    session.sources = SimpleNamespace(copy_to_group=lambda *asked: copied.append(asked) or {})
    assert committer._acknowledge(log, log.transactions[INSTANT]) is not is_aborted_first
    assert copied == ([] if is_aborted_first else [("lag", {TopicPartition("kafka", "t", 0): 10})])


@pytest.mark.parametrize(
    ("service", "messages"),
    [
        ("clustering", [abort(SERVICE)]),
        ("clustering", [end(SERVICE, reported=())]),
        ("compaction", [end(SERVICE, reported=()), abort(SERVICE, lease_offset=1)]),
        (None, [status(SERVICE), end(SERVICE), abort(SERVICE, lease_offset=2)]),
    ],
    ids=["never decided", "decided alone", "a compaction", "an interval"],
)
def test_before_a_replay_no_plan_is_taken_off_without_a_clustering_that_was_decided_and_aborted(service, messages):
    """Any other plan rewrites no file that the replay replaces, or its job has the table."""
    begun = start(SERVICE, ranges=0 if service else 1, service=service)
    log = TableLog(TABLE).extend(enumerate([begun, *messages]))
    replay = start(INSTANT, kind="replay", replays="1", replaced_file_groups={"day=1": ("g",)})
    assert replay.replaces_files
    Starter._take_off_clusterings(None, None, log, replay)  # type: ignore[arg-type]  # nothing is asked for plans


def test_logs_are_asked_what_they_lost_of_the_offsets_that_were_read_by_leaders_that_are_known():
    """Without a leader's epoch of that time nothing can be said."""
    first, second, unknown = (TopicPartition("kafka", "t", number) for number in range(3))
    asked: list[Any] = []

    def truncated_since(read: Any) -> Any:
        asked.append(read)
        return {second: 4, first: 7}

    session: Any = SimpleNamespace(sources=SimpleNamespace(truncated_since=truncated_since))
    read = [OffsetRange(first, 8, 9), OffsetRange(first, 0, 5), OffsetRange(second, 0, 6), OffsetRange(unknown, 0, 6)]
    found = truncated_since_read(session, read, {first: 3, second: 0}.get)
    assert asked == [{first: (9, 3), second: (6, 0)}]
    assert found == [(first, 7), (second, 4)]


# An interval that is given up


class _Given:
    """A table whose interval is given up, and a control topic in which others' messages may come first."""

    def __init__(self, *messages: Any, meanwhile: tuple[Any, ...] = ()) -> None:
        self.sent: list[Any] = [*messages]
        self.log = TableLog(TABLE).extend(enumerate(messages))
        self.rolled_back: list[str] = []
        self._meanwhile = meanwhile
        self.writer = None

    def send(self, message: Any) -> int:
        self.sent += (*self._meanwhile, message)
        return len(self.sent) - 1

    def extend(self, log: TableLog) -> TableLog:
        return log.extend(enumerate(self.sent[log.position :], log.position))

    def rollback(self, instant: str) -> bool:
        self.rolled_back.append(instant)
        return True

    def give_up(self, table: Any = None) -> bool:
        committer = _committer(self.log, "1")
        session: Any = committer._session
        session.control = self
        session.envelope_of = lambda transaction: envelope(transaction.id)
        return committer.give_up(table or self, self.log, self.log.transactions[INSTANT], "why")  # type: ignore[arg-type]


def test_an_interval_is_aborted_before_it_is_rolled_back():
    given = _Given(start(INSTANT))
    assert given.give_up()
    assert [message.type for message in given.sent] == ["START-COMMIT", "ABORT-COMMIT"]
    assert (given.rolled_back, given.log.transactions[INSTANT].state) == ([INSTANT], State.ABORTED)


def test_an_interval_that_another_process_has_aborted_is_rolled_back_without_a_second_message():
    given = _Given(start(INSTANT), abort(INSTANT))
    assert given.give_up()
    assert (len(given.sent), given.rolled_back) == (2, [INSTANT])


@pytest.mark.parametrize("meanwhile", [(end(INSTANT),), (end(INSTANT), ack(INSTANT))], ids=["decided", "committed"])
def test_an_interval_that_is_decided_before_the_abort_comes_to_the_log_is_not_rolled_back(meanwhile):
    given = _Given(start(INSTANT), status(INSTANT), meanwhile=meanwhile)
    assert not given.give_up()
    assert given.rolled_back == []


@pytest.mark.parametrize(("has_refused", "is_given_up"), [(True, True), (False, False)])
def test_a_decided_interval_is_given_up_only_where_the_storage_refuses_its_commit_from_then_on(
    has_refused, is_given_up
):
    """Its last holder may be suspended just before its commit."""
    given: Any = _Given(start(INSTANT), status(INSTANT), end(INSTANT))
    given.forbid_commit, given.last_commits = lambda _: has_refused, tuple
    assert given.give_up() is is_given_up
    assert len(given.sent) == (4 if is_given_up else 3)


def test_an_open_interval_is_given_up_without_the_storage():
    given: Any = _Given(start(INSTANT))
    given.forbid_commit, given.last_commits = lambda _: False, tuple
    assert given.give_up()


# A table that others have written to, and one that has moved


class _SharedTimeline:
    def __init__(self, *, empty: bool) -> None:
        self._empty = empty

    def is_empty(self) -> bool:
        return self._empty


@pytest.mark.parametrize(
    ("upsert", "note", "table", "is_refused"),
    [
        (True, NO_NOTE, _SharedTimeline(empty=False), True),
        (True, NO_NOTE, _SharedTimeline(empty=True), False),
        (True, CommitNote(instant=INSTANT), _SharedTimeline(empty=False), False),
        (False, NO_NOTE, _SharedTimeline(empty=False), False),
        (True, NO_NOTE, object(), False),
    ],
    ids=["another writer's rows", "empty", "its own", "an append", "a table that has no other writers"],
)
def test_an_upsert_finds_no_rows_of_another_writer_and_is_refused(upsert, note, table, is_refused, monkeypatch):
    monkeypatch.setattr(starts, "SharedTimeline", _SharedTimeline)
    session = SimpleNamespace(
        table_id=TABLE,
        pipeline=SimpleNamespace(sink=SimpleNamespace(capabilities=SimpleNamespace(upsert=upsert))),
    )
    refused = pytest.raises(ActionRequiredError, match="Another writer") if is_refused else nullcontext()
    with refused:
        Starter._refuse_foreign_rows(SimpleNamespace(_session=session), table, Committed(Checkpoint(), note))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("to", "repairs", "expected"),
    [("new", False, True), ("new", True, False), ("other", False, ActionRequiredError)],
    ids=["it came here", "a late commit was taken off: look again", "it went elsewhere"],
)
def test_what_was_left_on_the_topic_that_a_table_has_left_is_cleared_up_there(to, repairs, expected, monkeypatch):
    log = TableLog(TABLE).extend([(0, start(INSTANT)), (1, Moved(**envelope("2"), read_position=1, to=to))])
    old = SimpleNamespace(
        table_id=TABLE,
        control=SimpleNamespace(topic="old", exists=lambda: True, end=lambda: 2, table_log=lambda *_: log),
    )
    committed = Committed(Checkpoint(), CommitNote(instant="1"), "old")
    empty = TableLog(TABLE)
    session: Any = SimpleNamespace(
        table_id=TABLE,
        control=SimpleNamespace(topic="new", table_log=lambda *_: empty),
        on_control_topic=lambda _: old,
        committed=lambda _: committed,
    )
    committer = SimpleNamespace(fence=SimpleNamespace(repair=lambda *_: repairs))
    monkeypatch.setattr(moves, "Committer", lambda _: committer)
    cleared: list[Any] = []
    mover = Mover(session, lambda *_: False, lambda *given: cleared.append(given[-1]))
    if expected is ActionRequiredError:
        with pytest.raises(ActionRequiredError, match="moved from the control topic old to other"):
            mover.settle(None, None, committed)  # type: ignore[arg-type]
    else:
        assert mover.settle(None, None, committed) is expected  # type: ignore[arg-type]
    assert cleared == (["2"] if expected is True else [])


@pytest.mark.parametrize(
    ("module", "made", "is_running"), [(coordinators, Coordinator, False), (services, Services, True)]
)
def test_without_a_word_on_runs_an_interval_waits_for_none_and_a_table_service_for_each(
    module, made, is_running, monkeypatch
):
    """A step by hand has no scheduler to ask; a service can wait, and takes no table over from a run."""
    told: list[Any] = []
    monkeypatch.setattr(module, "parts_of", lambda *_: None)
    monkeypatch.setattr(module, "Session", lambda *_: None)
    monkeypatch.setattr(module, "Committer", lambda _: None)
    monkeypatch.setattr(module, "Starter", lambda _session, _committer, given: told.append(given("dag", "run")))
    monkeypatch.setattr(services, "Turns", lambda *_: None)
    made(SimpleNamespace(table_services=None), None)
    assert told == [is_running]
