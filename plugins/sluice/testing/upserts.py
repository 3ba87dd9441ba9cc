"""The further contract of a sink whose tables have a row for each key: the key's last version.

An interval that is repeated, or read again by a replay, writes versions that the table has, or has newer ones of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sluice.connectors.sink import Table
from sluice.protocol.committable import Committable
from sluice.testing.sinks import SinkConformance, extra


class Version(NamedTuple):
    """A version of a row: of two with one key the one with the larger order wins, and of equal ones the later one."""

    key: int
    order: int
    value: str


class UpsertConformance(SinkConformance):
    """The tests of `SinkConformance`, and those of versions. The sink's pipeline has an ordering field."""

    # The subclass

    @abstractmethod
    def write_versions(
        self, folder: Path, table: Table, instant: str, attempt: str, versions: Sequence[Version]
    ) -> list[Committable]:
        """A participant's write: versions under an instant, in their order, invisible to readers."""

    @abstractmethod
    def versions(self, folder: Path) -> list[Version]:
        """The rows that a reader finds in the table, in any order."""

    def write_ranges(
        self, folder: Path, table: Table, instant: str, attempt: str, ranges: Sequence[Sequence[Version]]
    ) -> list[Committable]:
        """The same of several ranges, which one Spark task brings one after the other, if the sink's writer takes that.

        By default each by itself, as it is for all others.
        """
        attempts = ((f"{attempt}{number}", versions) for number, versions in enumerate(ranges))
        return [c for own, some in attempts for c in self.write_versions(folder, table, instant, own, some)]

    def write(self, folder: Path, table: Table, instant: str, attempt: str, rows: Sequence[int]) -> list[Committable]:
        """Each number is a key."""
        return self.write_versions(folder, table, instant, attempt, [Version(row, 1, "a") for row in rows])

    def rows(self, folder: Path) -> list[int]:
        """The keys."""
        return [version.key for version in self.versions(folder)]

    # The tests

    def test_it_says_that_it_upserts(self) -> None:
        """Else its rows would be compared, replayed and replaced as an append's."""
        assert self.capabilities().upsert

    def test_the_same_range_twice_is_there_once(self, tmp_path: Path) -> None:
        """As a replay writes it."""
        versions = [Version(1, 1, "a"), Version(2, 1, "b")]
        for number in (1, 2):
            self._versions(tmp_path, number, versions)
            assert self._table_has(tmp_path) == versions
        assert self._state(tmp_path) == ([1, 2], 2)

    def test_a_later_version_takes_the_place_of_the_one_before(self, tmp_path: Path) -> None:
        """By its order; with the same order, by coming later. Other keys keep theirs."""
        self._versions(tmp_path, 1, [Version(1, 1, "a"), Version(2, 1, "a")])
        self._versions(tmp_path, 2, [Version(1, 2, "b")])
        assert self._table_has(tmp_path) == [Version(1, 2, "b"), Version(2, 1, "a")]
        self._versions(tmp_path, 3, [Version(1, 2, "c")])
        assert self._table_has(tmp_path) == [Version(1, 2, "c"), Version(2, 1, "a")]

    def test_an_older_version_that_comes_late_loses(self, tmp_path: Path) -> None:
        """As it does when an interval is read again."""
        self._versions(tmp_path, 1, [Version(1, 3, "new")])
        self._versions(tmp_path, 2, [Version(1, 2, "old"), Version(2, 1, "a")])
        assert self._table_has(tmp_path) == [Version(1, 3, "new"), Version(2, 1, "a")]

    def test_of_the_versions_of_one_interval_the_last_is_the_row(self, tmp_path: Path) -> None:
        """By their order, in whatever order they come."""
        self._versions(tmp_path, 1, [Version(1, 1, "a"), Version(1, 3, "c"), Version(1, 2, "b"), Version(2, 2, "a")])
        assert self._table_has(tmp_path) == [Version(1, 3, "c"), Version(2, 2, "a")]

    def test_of_ranges_that_one_task_brings_each_keeps_its_order(self, tmp_path: Path) -> None:
        """The last version of a key is the row where nothing else orders them, whatever ranges are beside it."""
        ranges = [
            [Version(1, 1, "a"), Version(2, 1, "a"), Version(1, 1, "b")],
            [Version(3, 1, "b"), Version(3, 1, "a")],
            [Version(4, 1, "a")],
        ]
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            table.open(instant)
            written = self.write_ranges(tmp_path, table, instant, "a", ranges)
            assert sum(one.rows for one in written) in (4, 6)  # whether it writes all versions is its own business
            table.commit(instant, written, extra(1))
        assert self._table_has(tmp_path) == [
            Version(1, 1, "b"), Version(2, 1, "a"), Version(3, 1, "a"), Version(4, 1, "a"),
        ]  # fmt: skip

    def test_after_a_roll_back_the_versions_before_it_are_there(self, tmp_path: Path) -> None:
        """They weren't overwritten, nor was any other state visible meanwhile; later versions count."""
        self._versions(tmp_path, 1, [Version(1, 1, "a")])
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            table.open(instant)
            self.write_versions(tmp_path, table, instant, "a", [Version(1, 9, "never"), Version(2, 9, "never")])
            assert self._table_has(tmp_path) == [Version(1, 1, "a")]
        with self._table(tmp_path) as table:
            assert table.rollback(instant)
        assert self._table_has(tmp_path) == [Version(1, 1, "a")]
        self._versions(tmp_path, 2, [Version(1, 2, "b")])
        assert self._table_has(tmp_path) == [Version(1, 2, "b")]

    def test_a_zombie_s_version_is_never_the_row(self, tmp_path: Path) -> None:
        """Newer than all others, finished after the commit that doesn't name it: not even after the next commit."""
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            table.open(instant)
            written = self.write_versions(tmp_path, table, instant, "a", [Version(1, 1, "a")])
            table.commit(instant, written, extra(1))
            late = self.write_versions(tmp_path, table, instant, "b", [Version(1, 9, "zombie")])
        assert self._table_has(tmp_path) == [Version(1, 1, "a")]
        self._versions(tmp_path, 2, [Version(1, 2, "b")])
        assert self._table_has(tmp_path) == [Version(1, 2, "b")]
        self._sweep(tmp_path, instant, written, late)
        assert self._table_has(tmp_path) == [Version(1, 2, "b")]

    # How

    def _versions(self, folder: Path, number: int, versions: Sequence[Version]) -> str:
        with self._table(folder) as table:
            instant: str = table.new_instant()
            table.open(instant)
            table.commit(instant, self.write_versions(folder, table, instant, "a", versions), extra(number))
        return instant

    def _table_has(self, folder: Path) -> list[Any]:
        return sorted(self.versions(folder))
