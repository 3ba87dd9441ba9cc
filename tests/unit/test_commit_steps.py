"""Steps around a commit that simulated histories seldom come to: offsets that moved, services that were left."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, abort, end, start, status

from sluice.coordinator.checks import truncated_since_read
from sluice.coordinator.commit import Committer
from sluice.coordinator.machine import ThisMachine
from sluice.coordinator.session import Committed
from sluice.coordinator.start import Starter
from sluice.errors import IntervalError
from sluice.protocol.commit_note import CommitNote
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition
from sluice.protocol.transaction import TableLog

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
            control=SimpleNamespace(commit_timeout=timedelta(minutes=10), clock_wait=timedelta(minutes=5))
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
