"""Views of a sink's tables for people: commits, and bad records that were set aside. Pure.

Each is optional: a section names what shows it (`SinkOptions.commit_log`, `SinkOptions.quarantine_reader`). Without the
first the page shows a table by its control topic alone; without the second commands that need it refuse the pipeline.
What reads rows for `sluice verify` works in Spark, and is among `sluice.connectors.data`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from sluice.connectors import registry
from sluice.connectors.options import SinkOptions
from sluice.errors import ActionRequiredError
from sluice.protocol.quarantine import Quarantined

Standing = Literal["completed", "pending", "archived", "absent"]
Sees = Literal["all rows", "some rows", "nothing"]


@dataclass(frozen=True, slots=True)
class Instant:
    """One instant of a table's timeline.

    Attributes:
        requested: when it began, as its transaction names it.
        completed: when it was completed, in the timeline's own time zone; None while pending, or if no name has it.
        action: what kind of instant it is, in the sink's own word.
        pending: whether it isn't completed.
        name: the name by which its `CommitLog` finds it again.
        modified: when it was last written, independent of time zones; None where the storage doesn't record it.
        is_commit: whether it put rows or files into the table, unlike a clean or a rollback.
    """

    requested: str
    completed: str | None
    action: str
    pending: bool
    name: str
    modified: datetime | None = None
    is_commit: bool = True


@dataclass(frozen=True, slots=True)
class Timeline:
    """The active timeline: instants by their requested time, in its order.

    Attributes:
        instants: the instants that were read.
        archives: whether instants from before the first of them may be in an archive, which isn't read.
    """

    instants: Mapping[str, Instant] = field(default_factory=dict)
    archives: bool = True

    def standing(self, instant: str) -> Standing:
        """An instant's state; one from before the active timeline can only be in the archived one."""
        found = self.instants.get(instant)
        if found is not None:
            return "pending" if found.pending else "completed"
        before = self.archives and self.instants and instant < next(iter(self.instants))
        return "archived" if before else "absent"

    def of_others(self, ours: Iterable[str]) -> list[Instant]:
        """Completed instants that aren't Sluice's, newest first: other writers and table services."""
        ours = frozenset(ours)
        return sorted(
            (i for i in self.instants.values() if not i.pending and i.requested not in ours),
            key=lambda i: i.requested,
            reverse=True,
        )


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """A completed commit's metadata, in short. `extra` holds the names of its extra metadata."""

    operation: str | None
    rows: int
    bytes_written: int
    files: int
    table_partitions: int
    extra: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reader sees of a table.

    Attributes:
        reader: the reader's name for commands.
        title: its name for people.
        sees: all rows; not all of them, and no error; or nothing but an error.
        tried: whether Sluice's tests have read tables with it; otherwise its documentation says so.
        needed: what would have to change for it to see all rows, in words.
    """

    reader: str
    title: str
    sees: Sees
    tried: bool
    needed: tuple[str, ...] = ()


class TellsReaders(Protocol):
    """The type of a section's `readers`."""

    def __call__(self, table: str) -> Sequence[Verdict]:
        """What each known reader sees of a table, as it is now.

        Args:
            table: its id.

        Raises:
            ActionRequiredError: there is no table, or this process can't read it.
            RetryableError: the storage doesn't answer.
        """
        ...


class CommitLog(Protocol):
    """A table's commits, read for people by a process that may lack the table's writing library.

    Raises (all methods):
        ActionRequiredError: it is no table's path, or this process lacks a package or a permission for it.
        RetryableError: the storage doesn't answer.
    """

    def read(self) -> Timeline | None:
        """The present timeline; None where there is no table yet."""
        ...

    def facts(self, instant: Instant) -> CommitFacts:
        """A completed commit's metadata."""
        ...


class MakesCommitLog(Protocol):
    """The type of a section's `commit_log`."""

    def __call__(self, table: str) -> CommitLog:
        """The commits of one table.

        Args:
            table: its id (`SinkOptions.table_id`). It may come from a message of an untrusted writer.
        """
        ...


class QuarantineReader(Protocol):
    """The bad records that were set aside, read without a JVM.

    Raises (all methods):
        RetryableError, ActionRequiredError: they can't be read from this process.
    """

    path: str

    def committed(self, instants: Iterable[str] = ()) -> Mapping[str, Sequence[str]]:
        """The committed files by instant, oldest first, relative to the quarantine; of all where none is named."""
        ...

    def records(self, paths: Sequence[str], *, whole: bool = True) -> Iterator[Quarantined]:
        """The records of files, in their order.

        Args:
            paths: the files, relative to the quarantine.
            whole: with key, value and headers; without them it may be much less to read.
        """
        ...


class MakesQuarantineReader(Protocol):
    """The type of a section's `quarantine_reader`."""

    def __call__(self, path: str) -> QuarantineReader:
        """The quarantine at a path (`sluice.protocol.quarantine.quarantine_path`)."""
        ...


def shows_commits(sink: str) -> bool:
    """Whether a sink, by its name, shows its tables' commits; false for a sink that isn't installed here."""
    return bool(_commit_log(sink))


def commit_log_of(sink: str, table: str) -> CommitLog:
    """What shows a table's commits.

    Args:
        sink: the sink's name.
        table: the table's id.

    Raises:
        ActionRequiredError: the sink shows none.
    """
    reference = _commit_log(sink)
    if not reference:
        raise ActionRequiredError(
            f"The sink `{sink}` doesn't show the commits of its tables.",
            next_step="look at the control topic's transactions; the sink's author has to add `commit_log` to its "
            "section, as CONTRIBUTING.md says under `Add a sink`.",
            table=table,
        )
    made_by: MakesCommitLog = registry.load(reference)
    return made_by(table)


def _commit_log(sink: str) -> str:
    section = registry.section("sink", sink)
    return section.commit_log if section is not None and issubclass(section, SinkOptions) else ""


def readers_of(place: str, section: SinkOptions) -> Sequence[Verdict]:
    """What each known reader sees of a pipeline's table.

    Args:
        place: of the sink's section in the file: `sink.` and its name.
        section: the section.

    Raises:
        ActionRequiredError: the sink doesn't say, or as for `TellsReaders`.
    """
    if not section.readers:
        raise ActionRequiredError(
            f"Nothing is known of the readers of {place}.",
            next_step="the command is for Hudi tables; everything that reads such files, tables or topics reads these.",
            table=section.table_id,
        )
    tells: TellsReaders = registry.load(section.readers)
    return tells(section.table_id)


def quarantine_reader_of(place: str, section: SinkOptions, path: str) -> QuarantineReader:
    """What reads the bad records of a pipeline.

    Args:
        place: of the sink's section in the file: `sink.` and its name.
        section: the section.
        path: where the quarantine is.

    Raises:
        ActionRequiredError: the sink sets none aside, or can't show them.
    """
    if not section.quarantine_reader:
        raise ActionRequiredError(
            f"This command looks into the quarantine of bad records, and {place} has none that could be read.",
            next_step="nothing was set aside, so nothing is lost: a bad record stops its interval, and the error says "
            f"where it is. To have bad records set aside, write to a sink that can; {place}'s author has to add it "
            "as CONTRIBUTING.md says under `Add a sink`.",
            table=section.table_id,
        )
    made_by: MakesQuarantineReader = registry.load(section.quarantine_reader)
    return made_by(path)
