"""What tables of intervals have in common, on a log in memory, and the looks of a table of files at its log."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from sluice.connectors.intervals import LoggedCommit, TransactionalTable, Turn
from sluice.connectors.sink import Ended, ForbidsCommits
from sluice.errors import IntervalError, RetryableError
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint
from sluice.sinks.files.options import Files
from sluice.sinks.files.renames import RenamedTable
from sluice.sinks.files.storage import LocalStorage

EXTRA = {OFFSETS_KEY: Checkpoint().model_dump_json(), TRANSACTION_KEY: json.dumps({"number": 1})}
FIRST, SECOND, THIRD = "20261123101112131", "20261123101112132", "20261123101112133"
WRITER = Files(path="/lake/t", schema_="id BIGINT").writer("t", None, maintained=False)


class InMemory(TransactionalTable):
    """Intervals with the commit that each is planned on, and what is staged for them."""

    def __init__(self):
        self.writer, self.clock_wait, self.process = WRITER, timedelta(minutes=1), "p"
        self.open_ones, self.commits, self.staged = {}, {}, {}

    def newest_time(self):
        return max([*self.open_ones, *self.commits], default="")

    def open(self, instant):
        self.open_ones[instant] = self._plan_base()
        self.staged[instant] = [f"{instant}/a"]

    def commit(self, instant, committables, extra):
        if self._may_commit(instant):
            del self.open_ones[instant]
            self.commits[instant] = dict(extra)
        return []

    def state_of(self, instant):
        return "completed" if instant in self.commits else "pending" if instant in self.open_ones else "absent"

    def last_commits(self):
        return list(self.commits)

    def _last(self):
        return self._committed(max(self.commits)) if self.commits else None

    def _committed(self, instant):
        return LoggedCommit(instant, self.commits[instant], {"": ("f",)}) if instant in self.commits else None

    def _turn(self, instant):
        last = self._last()
        return Turn(self.state_of(instant), self.open_ones.get(instant), last.instant if last else None)

    def _take_back(self, instant):
        found = self.state_of(instant)
        self.open_ones.pop(instant, None)
        return found

    def _pending(self):
        return set(self.open_ones)

    def _staged(self):
        return set(self.staged)

    def _delete_staged(self, instant):
        return self.staged.pop(instant, [])


@pytest.fixture
def table() -> InMemory:
    """With one commit, on which two intervals are planned."""
    made = InMemory()
    assert made.last_checkpoint() is None
    made.open(FIRST)
    made.commit(FIRST, [], EXTRA)
    assert made.last_checkpoint() == EXTRA
    made.open(SECOND)
    made.open(THIRD)
    return made


def test_only_one_of_two_intervals_that_are_planned_on_one_commit_is_committed(table):
    table.commit(SECOND, [], EXTRA)
    with pytest.raises(IntervalError, match="double or lose rows") as caught:
        table.commit(THIRD, [], EXTRA)
    assert (caught.value.where["planned_on"], caught.value.where["last_commit"]) == (FIRST, SECOND)
    assert table.state_of(THIRD) == "pending"


def test_an_interval_is_planned_on_the_commit_whose_checkpoint_was_read(table):
    """Though another one came before it was opened; and with another writer's settings, too."""
    again = table.written_as(WRITER.model_copy(update={"name": "other"}))
    table.commit(SECOND, [], EXTRA)
    again.open(THIRD)
    with pytest.raises(IntervalError):
        again.commit(THIRD, [], EXTRA)
    again.last_checkpoint()
    again.open(THIRD)
    again.commit(THIRD, [], EXTRA)
    assert (table.writer.name, again.writer.name) == ("t", "other")


def test_without_a_checkpoint_that_was_read_it_is_planned_on_the_last_commit(table):
    fresh = InMemory()
    fresh.commits = table.commits
    fresh.open(SECOND)
    assert fresh.open_ones == {SECOND: FIRST}


def test_a_commit_of_what_was_committed_adds_nothing_and_of_what_was_taken_back_is_refused(table):
    table.commit(FIRST, [], {"other": "x"})
    assert table.commits[FIRST] == EXTRA
    assert isinstance(table, ForbidsCommits)
    assert [table.forbid_commit(one) for one in (FIRST, SECOND, SECOND)] == [False, True, True]
    with pytest.raises(RetryableError, match="rolled back"):
        table.commit(SECOND, [], EXTRA)


def test_a_roll_back_deletes_what_is_staged_unless_the_interval_is_committed(table):
    assert not table.rollback(FIRST)
    assert table.rollback(SECOND)
    assert table.staged.keys() == {FIRST, THIRD}
    table.staged[SECOND] = ["late"]
    assert not table.rollback(SECOND)
    assert SECOND not in table.staged


def test_what_is_staged_for_a_pending_interval_is_not_swept_up_whatever_is_said(table):
    assert table.leftovers() == {FIRST, SECOND, THIRD}
    assert table.sweep(Ended({FIRST: (), SECOND: ()})) == [f"{FIRST}/a"]
    assert table.sweep(Ended({})) == []
    assert table.leftovers() == {SECOND, THIRD}


def test_what_was_written_is_said_of_commits_of_sluices_alone(table):
    written = table.written_by(FIRST)
    assert written is not None
    assert (written.file_groups, written.checkpoint) == ({"": ("f",)}, Checkpoint())
    table.commit(SECOND, [], {"of": "another program"})
    assert table.written_by(SECOND) is None
    assert table.written_by(THIRD) is None


def test_files_that_are_committed_and_shown_between_two_looks_are_committed(tmp_path):
    """By another process. Their mark of a pending interval is gone then."""

    class Overtaken(LocalStorage):
        def exists(self, path):
            if path.endswith(f"pending/{FIRST}") and other.state_of(FIRST) == "pending":
                other.commit(FIRST, [], EXTRA)
                other.publish(FIRST)
            return super().exists(path)

    other = RenamedTable(LocalStorage(tmp_path), WRITER, timedelta(minutes=1), "other")
    other.prepare()
    other.open(FIRST)
    assert RenamedTable(Overtaken(tmp_path), WRITER, timedelta(minutes=1), "p").state_of(FIRST) == "completed"
