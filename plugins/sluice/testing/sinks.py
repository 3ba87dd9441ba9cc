"""The contract of every sink, as tests: subclass `SinkConformance`, and run pytest on it.

A sink's process may die at any call, be run twice, be suspended, and wake up when all others have moved on. The
protocol depends on the sink's behaviour then.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sluice.connectors.capabilities import SinkCapabilities
from sluice.connectors.sink import (
    Ended,
    ForbidsCommits,
    KeepsQuarantine,
    Publishes,
    SharedTimeline,
    Sink,
    Table,
    TakesOff,
    TellsCatalogs,
)
from sluice.errors import SluiceError
from sluice.protocol.committable import Committable
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint
from sluice.testing.deaths import FILE_CALLS, When, deaths, dying


class SinkConformance(ABC):
    """The tests. A subclass says how its sink is made, written to and read.

    Attributes:
        calls: the calls at each of which the process dies once before and once after they have had their effect, as
            (object, name). None of them, where the sink works in another process: it then dies between the steps alone.
    """

    calls: ClassVar[Sequence[tuple[Any, str]]] = FILE_CALLS

    # The subclass

    @abstractmethod
    def sink(self, folder: Path) -> Sink[Any]:
        """The sink of a table in a folder that is this test's alone; asked anew for each process."""

    @abstractmethod
    def capabilities(self) -> SinkCapabilities:
        """Its declared capabilities."""

    @abstractmethod
    def write(self, folder: Path, table: Table, instant: str, attempt: str, rows: Sequence[int]) -> list[Committable]:
        """A participant's write: a row for each number under an instant, invisible to readers."""

    @abstractmethod
    def rows(self, folder: Path) -> list[int]:
        """The rows that a reader finds in the table, in any order."""

    # The tests

    def test_it_can_be_used_for_exactly_once(self) -> None:
        """Rows and checkpoint together, or Sluice refuses the pipeline file."""
        assert self.capabilities().atomic_with_checkpoint

    def test_it_has_the_parts_that_the_capabilities_name(self, tmp_path: Path) -> None:
        """A missing capability has to be refused when a pipeline file is loaded, not in an interval."""
        sink, can = self.sink(tmp_path), self.capabilities()
        asked = {KeepsQuarantine: can.quarantine, TellsCatalogs: can.catalogs}
        assert [part.__name__ for part, named in asked.items() if named and not isinstance(sink, part)] == []
        with self._table(tmp_path) as table:
            assert isinstance(table, SharedTimeline) or not (can.services or can.replaces_interval)

    def test_a_commit_that_comes_too_late_is_forbidden_or_taken_off(self, tmp_path: Path) -> None:
        """No lease ends a suspended process: its storage refuses it, or the coordinator undoes what it did."""
        with self._table(tmp_path) as table:
            assert isinstance(table, ForbidsCommits | TakesOff)

    def test_it_writes_as_the_capabilities_say(self, tmp_path: Path) -> None:
        """Whether every record is a row: a replay of such rows takes them off, and one of versions doesn't."""
        with self._table(tmp_path) as table:
            assert table.writer.upserts == self.capabilities().upsert

    def test_nothing_shows_before_the_commit_and_all_after_it(self, tmp_path: Path) -> None:
        """Rows and checkpoint appear together."""
        with self._table(tmp_path) as table:
            assert table.last_checkpoint() is None
            instant = table.new_instant()
            assert table.state_of(instant) == "absent"
            table.open(instant)
            written = self.write(tmp_path, table, instant, "a", [1, 2])
            assert sum(one.rows for one in written) == 2
            assert table.state_of(instant) == "pending"
            assert table.last_checkpoint() is None
            assert self._seen(tmp_path) == []
            _commit(table, instant, written, extra(1))
            assert table.state_of(instant) == "completed"
        assert self._state(tmp_path) == ([1, 2], 1)

    def test_intervals_follow_each_other(self, tmp_path: Path) -> None:
        """Each adds its rows, and the last one's checkpoint is the table's; instants grow."""
        instants = [self._load(tmp_path, number, [number]) for number in (1, 2, 3)]
        assert instants == sorted(set(instants))
        assert all(len(instant) == 17 and instant.isdigit() for instant in instants)
        assert self._state(tmp_path) == ([1, 2, 3], 3)

    @pytest.mark.parametrize("steps", range(3))
    def test_a_process_that_dies_between_two_steps_leaves_nothing(self, tmp_path: Path, steps: int) -> None:
        """Its unfinished work is found by the next one, and rolled back."""
        self._load(tmp_path, 1, [1, 2])
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            if steps > 0:
                table.open(instant)
            if steps > 1:
                self.write(tmp_path, table, instant, "a", [3])
        assert self._state(tmp_path) == ([1, 2], 1)
        with self._table(tmp_path) as table:
            assert table.rollback(instant) == (steps > 0)
            assert table.state_of(instant) == "absent"
        self._load(tmp_path, 2, [3])
        assert self._state(tmp_path) == ([1, 2, 3], 2)

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_process_may_die_at_each_call_of_an_interval(self, tmp_path: Path, when: When) -> None:
        """Readers see the interval whole or not at all, with the checkpoint that goes with it, then and afterwards.

        Of a table that publishes, a process that dies in between leaves the checkpoint, and the next shows the rows.
        """
        for number in deaths(self.calls):
            folder = tmp_path / str(number)
            self._load(folder, 1, [1, 2])
            with self._table(folder) as table:
                instant = table.new_instant()
            with dying(self.calls, number, when) as died:
                self._interval(folder, instant, 2, [3, 4])
            with self._table(folder) as table:
                later = [([1, 2], 2)] if isinstance(table, Publishes) else []
            assert self._state(folder) in (([1, 2], 1), ([1, 2, 3, 4], 2), *later)
            self._recover(folder, instant, [3, 4])
            assert self._state(folder) == ([1, 2, 3, 4], 2)
            if not died:
                assert number > 1, "an interval makes none of the `calls`: name the calls of the sink, or none"
                return

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_process_may_die_at_each_call_of_a_roll_back(self, tmp_path: Path, when: When) -> None:
        """The next one finishes it."""
        for number in deaths(self.calls):
            folder = tmp_path / str(number)
            self._load(folder, 1, [1, 2])
            with self._table(folder) as table:
                instant = table.new_instant()
                table.open(instant)
                self.write(folder, table, instant, "a", [3])
            with dying(self.calls, number, when) as died, self._table(folder) as table:
                table.rollback(instant)
            assert self._state(folder) == ([1, 2], 1)
            self._recover(folder, instant, [3])
            assert self._state(folder) == ([1, 2, 3], 2)
            if not died:
                assert number > 1, "a roll-back makes none of the `calls`: name the calls of the sink, or none"
                return

    def test_a_commit_that_is_repeated_adds_nothing(self, tmp_path: Path) -> None:
        """By a process that doesn't know how the first one ended; it may be refused."""
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            table.open(instant)
            written = self.write(tmp_path, table, instant, "a", [1])
            _commit(table, instant, written, extra(1))
        with self._table(tmp_path) as table, _refused():
            _commit(table, instant, written, extra(1))
        assert self._state(tmp_path) == ([1], 1)

    def test_what_is_committed_is_not_rolled_back(self, tmp_path: Path) -> None:
        """It isn't pending."""
        instant = self._load(tmp_path, 1, [1])
        with self._table(tmp_path) as table:
            assert not table.rollback(instant)
            assert table.state_of(instant) == "completed"
        assert self._state(tmp_path) == ([1], 1)

    def test_of_two_attempts_the_one_that_the_commit_names_counts(self, tmp_path: Path) -> None:
        """The other one's files aren't rows of the table."""
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            table.open(instant)
            self.write(tmp_path, table, instant, "a", [1])
            second = self.write(tmp_path, table, instant, "b", [1])
            _commit(table, instant, second, extra(1))
        assert self._state(tmp_path) == ([1], 1)

    def test_what_an_attempt_finishes_after_the_commit_is_swept_up(self, tmp_path: Path) -> None:
        """No reader sees it meanwhile, and nothing else goes."""
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            table.open(instant)
            written = self.write(tmp_path, table, instant, "a", [1])
            _commit(table, instant, written, extra(1))
            late = self.write(tmp_path, table, instant, "b", [1])
        assert self._state(tmp_path) == ([1], 1)
        self._sweep(tmp_path, instant, written, late)
        assert self._state(tmp_path) == ([1], 1)

    def test_what_an_attempt_finishes_after_a_roll_back_is_swept_up(self, tmp_path: Path) -> None:
        """It has to be found by its instant: nothing else knows of it any more."""
        with self._table(tmp_path) as table:
            instant, late = self._late(tmp_path, table)
        assert self._seen(tmp_path) == []
        self._sweep(tmp_path, instant, [], late)
        assert self._seen(tmp_path) == []

    def test_where_an_attempt_has_written_the_storage_knows(self, tmp_path: Path) -> None:
        """Even of an unreported attempt, whose table partitions no commit and no status names."""
        with self._table(tmp_path) as table:
            instant, _ = self._late(tmp_path, table)
        with self._table(tmp_path) as table:
            ended = Ended({instant: ()}, anywhere=True)
            assert table.sweep(ended) != []
            assert table.sweep(ended) == []
        assert self._seen(tmp_path) == []

    def test_what_is_left_of_intervals_is_listed(self, tmp_path: Path) -> None:
        """Unlisted intervals are never rolled back; finished ones must not be listed, or START takes ever longer."""
        over = self._load(tmp_path, 1, [1])
        with self._table(tmp_path) as table:
            gone = table.new_instant()
            table.open(gone)
            self.write(tmp_path, table, gone, "a", [2])
            assert gone in table.leftovers()
            table.rollback(gone)
            half = table.new_instant()
            table.open(half)
            assert {over, gone, half} & table.leftovers() == {half}
            table.rollback(half)
            late, written = self._late(tmp_path, table)
            assert {over, gone, half, late} & table.leftovers() == {late}
        self._sweep(tmp_path, late, [], written)
        with self._table(tmp_path) as table:
            assert {over, gone, half, late} & table.leftovers() == set()

    def test_a_forbidden_commit_is_refused(self, tmp_path: Path) -> None:
        """Before ABORT-COMMIT is sent, though nothing is rolled back yet; a commit that was faster stays."""
        first = self._load(tmp_path, 1, [1])
        with self._table(tmp_path) as frozen:
            instant = frozen.new_instant()
            frozen.open(instant)
            written = self.write(tmp_path, frozen, instant, "a", [2])
            with self._table(tmp_path) as table:
                if not isinstance(table, ForbidsCommits):
                    return
                assert not table.forbid_commit(first)
                assert table.forbid_commit(instant)
            with _refused():
                frozen.commit(instant, written, extra(2))
        with self._table(tmp_path) as table:
            assert [table.state_of(one) == "completed" for one in (first, instant)] == [True, False]
            assert {first, instant} & {*table.last_commits()} == {first}
            table.rollback(instant)
        assert self._state(tmp_path) == ([1], 1)

    def test_a_commit_after_the_roll_back_is_refused_or_can_be_taken_off(self, tmp_path: Path) -> None:
        """By a process that was suspended meanwhile."""
        self._load(tmp_path, 1, [1])
        with self._table(tmp_path) as frozen:
            instant = frozen.new_instant()
            frozen.open(instant)
            written = self.write(tmp_path, frozen, instant, "a", [2])
            with self._table(tmp_path) as table:
                assert table.rollback(instant)
            with _refused():
                frozen.commit(instant, written, extra(2))
        with self._table(tmp_path) as table:
            if isinstance(table, TakesOff):
                for name, completion in table.completions().items():
                    if name == instant:
                        table.take_off(instant, completion.files)
            assert table.state_of(instant) != "completed"
        assert self._state(tmp_path) == ([1], 1)

    def test_an_interval_is_replaced_as_the_capabilities_say(self, tmp_path: Path) -> None:
        """Its rows are removed in the commit that adds the new ones."""
        if not self.capabilities().replaces_interval:
            return
        first = self._load(tmp_path, 1, [1])
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            written = table.written_by(first)
            assert written is not None
            table.open_replacing(instant)
            again = self.write(tmp_path, table, instant, "a", [1, 2])
            assert self._state(tmp_path) == ([1], 1)
            table.commit_replacing(instant, again, extra(2), written.file_groups)
        assert self._state(tmp_path) == ([1, 2], 2)

    # How

    @contextmanager
    def _table(self, folder: Path) -> Iterator[Any]:
        """The table as a coordinator has it: opened, and written as the interval has pinned it."""
        folder.mkdir(parents=True, exist_ok=True)
        sink = self.sink(folder)
        with sink.open() as table:
            yield table.written_as(sink.pin(table, None, [ClusterTopics("cluster", ("topic",))]).writer)

    def _seen(self, folder: Path) -> list[int]:
        return sorted(self.rows(folder))

    def _state(self, folder: Path) -> tuple[list[int], int | None]:
        """The rows, and the checkpoint's interval."""
        with self._table(folder) as table:
            extra = table.last_checkpoint()
        return self._seen(folder), None if extra is None else json.loads(extra[TRANSACTION_KEY])["number"]

    def _load(self, folder: Path, number: int, rows: Sequence[int]) -> str:
        with self._table(folder) as table:
            instant: str = table.new_instant()
        self._interval(folder, instant, number, rows)
        return instant

    def _interval(self, folder: Path, instant: str, number: int, rows: Sequence[int]) -> None:
        with self._table(folder) as table:
            table.open(instant)
            _commit(table, instant, self.write(folder, table, instant, "a", rows), extra(number))

    def _late(self, folder: Path, table: Any) -> tuple[str, Sequence[Committable]]:
        """An interval that was rolled back, and what an attempt at it has finished after that."""
        instant: str = table.new_instant()
        table.open(instant)
        assert table.rollback(instant)
        return instant, self.write(folder, table, instant, "a", [1])

    def _recover(self, folder: Path, instant: str, rows: Sequence[int]) -> None:
        """The next coordinator's step: the interval is committed, or rolled back and loaded anew."""
        with self._table(folder) as table:
            if isinstance(table, SharedTimeline):
                table.finish_rollbacks()
            if table.state_of(instant) == "completed":
                _publish(table, instant)
                return
            table.rollback(instant)
            assert table.state_of(instant) == "absent"
            table.sweep(Ended({instant: ()}, anywhere=True))
        self._load(folder, 2, rows)

    def _sweep(self, folder: Path, instant: str, named: Sequence[Committable], late: Sequence[Committable]) -> None:
        with self._table(folder) as table:
            ended = Ended({instant: {one.path for one in named}}, {one.partition for one in late})
            assert table.sweep(ended) != []
            assert table.sweep(ended) == []


def extra(number: int) -> dict[str, str]:
    """The metadata of an interval's commit, which identifies the interval."""
    return {OFFSETS_KEY: Checkpoint().model_dump_json(), TRANSACTION_KEY: json.dumps({"number": number})}


def _commit(table: Any, instant: str, written: Sequence[Committable], said: dict[str, str]) -> None:
    """The coordinator's steps: it commits, and then publishes files that the commit alone doesn't show."""
    assert all(isinstance(remark, str) for remark in table.commit(instant, written, said))
    _publish(table, instant)


def _publish(table: Any, instant: str) -> None:
    if isinstance(table, Publishes):
        table.publish(instant)


@contextmanager
def _refused() -> Iterator[None]:
    """A sink may refuse this by one of Sluice's errors; only the table's content afterwards counts."""
    with suppress(SluiceError):
        yield
