"""A Hudi table in memory: its timeline and its files, and what readers see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from .kafka import Record, Where

if TYPE_CHECKING:
    from .kafka_sink import Brokers

TABLE = "file:///lake/orders"


@dataclass
class File:
    """A data file: of which instant, in which table partition and file group, with which records.

    `newest` is the last interval whose rows a compaction has merged into it: what was completed since is newer.
    """

    instant: str
    partition: str
    group: str
    rows: tuple[Record, ...]
    newest: str = ""

    @property
    def rank(self) -> str:
        """By which a key's version in one file is newer than that in another, where nothing else says so."""
        return self.newest or self.instant


@dataclass
class Completed:
    """One file of the timeline that completes an instant."""

    name: str
    paths: frozenset[str]
    extra: dict[str, str]
    replaced: frozenset[str]
    is_late: bool = False  # somebody else had taken the lease over by then


@dataclass
class Instant:
    """What lies on the timeline of one instant."""

    action: str
    requested: bool = True
    inflight: bool = False
    plan: frozenset[str] = frozenset()  # of a compaction or clustering: the files whose rows it puts into one
    completed: list[Completed] = field(default_factory=list)

    @property
    def is_pending(self) -> bool:
        return self.requested and not self.completed


class Lake:
    """The table."""

    clock: datetime
    on_change: Callable[[], None]
    is_void: Callable[[str], bool]
    tell: Callable[[str], None]

    def __init__(self) -> None:
        self.timeline: dict[str, Instant] = {}
        self.files: dict[str, File] = {}
        self.markers: dict[str, set[str]] = {}
        self.undone: set[str] = set()  # plans whose files were deleted by who stood still while others had the table
        self.rollbacks: set[str] = set()  # begun, with their instants still on the timeline or off it
        self.restored: set[str] = set()  # instants that a restore has taken off
        self.chosen: set[str] = set()  # instants that coordinators have chosen, on the timeline or not
        # Of a table of files: its log, the files that readers see, and the intervals of which all are seen.
        self.lists = False
        self.log_of_files: list[str] = []
        self.shown: set[str] = set()
        self.marked: set[str] = set()
        # Of a table of a database: the last interval, and of each one the interval on which its plan rests.
        self.position: str | None = None
        self.rests_on: dict[str, str | None] = {}
        # Where the table is a topic: the cluster that has it.
        self.target: Brokers | None = None
        self.attempts = 0
        self.spread = 2  # table partitions, by key

    def now(self) -> str:
        """The time as the name of an instant."""
        return instant_at(self.clock)

    def cluster(self, paths: list[str]) -> None:
        """Another writer puts the rows of some files into a file group of its own."""
        last = max(self.timeline, default="")
        self.clock = max(self.clock, time_of(last)) + timedelta(milliseconds=1) if last else self.clock
        while (instant := instant_at(self.clock)) in self.chosen:  # by a clock that is ahead: one millisecond's chance
            self.clock += timedelta(milliseconds=1)
        gathered = tuple(row for path in paths for row in self.files[path].rows)
        gone = frozenset(self.files[path].group for path in paths)
        partition = self.files[paths[0]].partition
        self.attempts += 1
        path = f"{partition}/clustered-{self.attempts}_0-0-0_{instant}.parquet"
        self.files[path] = File(instant, partition, f"clustered-{self.attempts}", gathered)
        found = Instant("replacecommit", inflight=True)
        found.completed.append(Completed(f"{instant}_{instant}.replacecommit", frozenset({path}), {}, gone))
        self.timeline[instant] = found
        self.tell(f"another writer clusters {', '.join(paths)} as {instant}")
        self.on_change()

    def restore(self, last: str) -> set[Where]:
        """Take all instants after one off, with their files, as Hudi's restore does; returns whose rows are gone."""
        before = self._rows_for_good()
        gone = {name for name in self.timeline if name > last}
        self.restored |= gone
        for name in gone:
            del self.timeline[name]
            self.markers.pop(name, None)
        self.rollbacks -= gone
        self.files = {path: file for path, file in self.files.items() if file.instant not in gone}
        self.tell(f"the table is restored to {last}, without {', '.join(sorted(gone))}")
        return before - self._rows_for_good()

    def committed_files(self) -> dict[str, File]:
        """The files that a reader of the timeline reads."""
        taken = {group for i in self.timeline.values() for c in i.completed for group in c.replaced}
        named = (path for i in self.timeline.values() for c in i.completed[:1] for path in c.paths)
        return {path: self.files[path] for path in named if path in self.files and self.files[path].group not in taken}

    def listed_files(self) -> dict[str, File]:
        """The files that a reader reads who lists folders and takes a file's instant for its proof."""
        if self.lists:
            return {path: self.files[path] for path in self.shown}
        taken = {group for i in self.timeline.values() for c in i.completed for group in c.replaced}
        done = {name for name, instant in self.timeline.items() if instant.completed}
        return {p: f for p, f in self.files.items() if f.instant in done and f.group not in taken}

    def _rows_for_good(self) -> set[Where]:
        return {r.where for r in rows({p: f for p, f in self.committed_files().items() if not self.is_void(f.instant)})}


def instant_at(time: datetime) -> str:
    """A time as the name of an instant."""
    return time.strftime("%Y%m%d%H%M%S") + f"{time.microsecond // 1000:03}"


def time_of(instant: str) -> datetime:
    """The time that an instant is named by."""
    return datetime.strptime(instant + "000+0000", "%Y%m%d%H%M%S%f%z")


def rows(files: dict[str, File]) -> Iterator[Record]:
    """All rows of some files."""
    for file in files.values():
        yield from file.rows
