"""The coordinator's view of a sink, which keeps rows and checkpoint together on a timeline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from sluice.errors import ActionRequiredError
from sluice.protocol.commit_note import CommitNote
from sluice.protocol.committable import Committable
from sluice.protocol.mapping import ClusterTopics, topics_of
from sluice.protocol.messages import FurtherTable, TableSpec
from sluice.protocol.offsets import Checkpoint
from sluice.protocol.quarantine import Quarantined
from sluice.protocol.version_change import BegunChange
from sluice.records.plan import RecordPlan

InstantState = Literal["absent", "pending", "completed"]


class VersionChangingError(ActionRequiredError):
    """The table's version is being changed, or the change was interrupted: the table can't be read until it is done.

    Attributes:
        begun: the change, by the note in the table's settings.
    """

    begun: BegunChange


@dataclass
class Completion:
    """A completed instant, by its files on the timeline.

    Attributes:
        action: the kind of instant.
        files: names of the files that complete it, by time: one, unless two processes have completed it.
        requested: whether its first file is still there, which a roll-back deletes.
    """

    action: str
    files: list[str] = field(default_factory=list)
    requested: bool = False

    def is_after(self, instant: str) -> bool:
        """Whether it was last completed after an instant began; also True if its file name has no time."""
        _, _, completed = self.files[-1].partition(".")[0].partition("_")
        return not completed or completed > instant


@dataclass(frozen=True)
class Registered:
    """The files that one completion of an instant names, and how many of them no longer exist."""

    files: int
    lost: int

    @property
    def is_void(self) -> bool:
        """Whether none of its files exists any more: it has been rolled back."""
        return 0 < self.files == self.lost


@dataclass(frozen=True)
class WrittenInterval:
    """A committed interval: Sluice's note, the file groups that it wrote by table partition, and its checkpoint."""

    instant: str
    note: CommitNote
    file_groups: Mapping[str, tuple[str, ...]]
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Pinned:
    """How an interval's records are read and its rows are written, as START-COMMIT pins it.

    Attributes:
        records: how records become rows of the table.
        writer: how these are written.
        further: the further tables that the sink loads beside it, in one commit (`SinkOptions.further_tables`).
    """

    records: RecordPlan
    writer: TableSpec
    further: tuple[FurtherTable, ...] = ()


@dataclass(frozen=True)
class Ended:
    """Intervals that have ended, for which no participant may leave anything.

    Attributes:
        registered: for each instant the paths that its commit registered; none if it was rolled back.
        partitions: table partitions in which, by the messages, attempts have written.
        anywhere: whether an attempt may have written in partitions that no message names. It may cost as much as
            listing the whole table.
    """

    registered: Mapping[str, Collection[str]]
    partitions: Collection[str] = ()
    anywhere: bool = False


class Table(Protocol):
    """A table that exists, opened by one process.

    Raises (all methods):
        RetryableError: the storage doesn't answer, or this machine's clock is too far behind the table's.
        ActionRequiredError: it may not be used.
    """

    writer: TableSpec

    @property
    def process(self) -> str:
        """The process that carries out this table's commits, as returned by `sluice.process.identity`."""
        ...

    # Commits

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the newest commit that holds a checkpoint; None if none does."""
        ...

    def state_of(self, instant: str) -> InstantState:
        """An instant's present state on the timeline."""
        ...

    def written_by(self, instant: str) -> WrittenInterval | None:
        """The result of a committed interval; None if the instant is not, or no longer, a commit of Sluice's."""
        ...

    # The two phases of a commit

    def await_clock(self) -> None:
        """Wait until this machine's clock is later than every instant on the table's timeline."""
        ...

    def new_instant(self) -> str:
        """A new instant, later than every other on the timeline. Nothing is written."""
        ...

    def open(self, instant: str) -> None:
        """Put the instant on the timeline: it is pending."""
        ...

    def written_as(self, writer: TableSpec, further: Sequence[TableSpec] = ()) -> Table:
        """The same table, written with the settings that an interval pinned, with those of further tables.

        Args:
            writer: the table's.
            further: those of the sink's further tables that the interval has written; none where it has none.
        """
        ...

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        """Commit the participants' files, with the extra metadata: both become visible together or not at all.

        Returns:
            Warnings that counts don't show, each one sentence without a full stop; mostly none.
        """
        ...

    def rollback(self, instant: str) -> bool:
        """Roll a pending instant back with all its files; False if it is not, or no longer, pending."""
        ...

    # What processes leave behind that were suspended for too long

    def leftovers(self) -> set[str]:
        """The instants that are pending or half rolled back, or for which participants have left files or markers.

        Its cost must not grow with the number of intervals that have ended. An instant that it doesn't name would be no
        work for `rollback` and `sweep`; one of other writers may be among them.
        """
        ...

    def sweep(self, ended: Ended) -> list[str]:
        """Delete files that zombies finished after their interval had ended; returns the deleted files."""
        ...


# Optional parts of a table. It has at least one of the first two: a commit that comes too late must not count.


@runtime_checkable
class ForbidsCommits(Protocol):
    """A table that can itself refuse a late commit: its storage compares before it commits."""

    def forbid_commit(self, instant: str) -> bool:
        """See to it that no process commits the instant any more; False if it is committed already.

        Called before ABORT-COMMIT of a decided transaction.

        Raises:
            RetryableError: the storage doesn't answer.
        """
        ...

    def last_commits(self) -> Collection[str]:
        """The instants of the last few committed intervals.

        If one of them was aborted, another program has written to the storage or to the control topic, and START stops.

        Raises:
            RetryableError: the storage doesn't answer.
        """
        ...


@runtime_checkable
class TakesOff(Protocol):
    """A table of which a late commit is found and taken off afterwards, since its storage would accept it.

    Raises (all methods):
        RetryableError: the storage doesn't answer.
        ActionRequiredError: it may not be changed.
    """

    def completions(self) -> dict[str, Completion]:
        """The completed commits on the timeline, by instant; at least the last few."""
        ...

    def take_off(self, instant: str, files: list[str]) -> None:
        """Delete files that complete an instant."""
        ...


@runtime_checkable
class SharedTimeline(Protocol):
    """A table of file groups on a timeline that other writers and table services share, such as Hudi's.

    Raises (all methods):
        RetryableError: the storage doesn't answer.
        ActionRequiredError: it may not be changed.
    """

    # Commits and plans of others

    def is_empty(self) -> bool:
        """Whether the table has no completed commit at all, of any writer."""
        ...

    def pending_writes(self) -> list[str]:
        """Instants of writes that are neither committed nor rolled back, oldest first, of any writer."""
        ...

    def registered(self, completion: str) -> Registered:
        """The data files named by a timeline file that completes an instant."""
        ...

    def maintenance(self) -> Maintenance:
        """The table's services, for the transaction that holds the table."""
        ...

    # What a commit needs that others may have left undone

    def mend(self) -> list[str]:
        """Repair what is beside the table's rows for the next commit. The caller holds the table.

        Returns:
            The repairs, in words; empty where all was in order.
        """
        ...

    def finish_rollbacks(self) -> list[str]:
        """Finish roll-backs that were begun but never completed; returns the instants that they removed."""
        ...

    def marker_partitions(self, instant: str) -> set[str]:
        """Table partitions in which files of an instant were opened; if it has ended, by zombies."""
        ...

    # Intervals that are replaced as file groups (capability `replaces_interval`)

    def replayed_by(self, instant: str) -> str | None:
        """The last committed replay that replaced an interval's rows; None if there is none."""
        ...

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:
        """File groups of an append interval that no longer hold its rows, and the instant that moved these."""
        ...

    def planned_by_others(self, written: WrittenInterval) -> dict[str, str]:
        """File groups of an interval that another writer has planned to rewrite, and the instant of its plan."""
        ...

    def open_replacing(self, instant: str) -> None:
        """As `Table.open`, of an interval whose commit removes file groups."""
        ...

    def commit_replacing(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]],
    ) -> list[str]:
        """As `Table.commit`; the same commit removes file groups, given by table partition."""
        ...


class Maintenance(Protocol):
    """Table services, which keep a table fast to read and its timeline short. The caller holds the table."""

    @property
    def writer(self) -> TableSpec:
        """The table for a service's START-COMMIT, with the services' settings."""
        ...

    def pending(self, service: str, *, own: bool = False) -> list[str]:
        """Instants of plans that were not completed yet, oldest first; `own`: those alone that `plan` has made."""
        ...

    def plan(self, service: str) -> str | None:
        """Plan a compaction or a clustering; its instant, or None if nothing is due."""
        ...

    def take_off(self, instant: str) -> None:
        """Remove a clustering's plan from the timeline, with everything that a dead attempt at it wrote."""
        ...

    def carry_out(self, service: str) -> str:
        """Do the work of a service that needs no plan (`IN_ONE_STEP`); what was done, as a sentence."""
        ...


@runtime_checkable
class Publishes(Protocol):
    """A table whose readers list files, and to which an interval's files are published in a step after its commit.

    `Table.commit` alone then decides. The coordinator reads the control log again and calls `publish` while no other
    process may end the transaction, and before ACK-COMMIT: so no visible interval is aborted afterwards.
    """

    def publish(self, instant: str) -> None:
        """Make a committed interval visible. Idempotent: a retry continues where a crashed process stopped.

        Raises:
            RetryableError: the storage doesn't answer.
            ActionRequiredError: another file is in the way. The interval is committed.
        """
        ...


T = TypeVar("T", bound=Table)
T_contra = TypeVar("T_contra", bound=Table, contravariant=True)


class Sink(Protocol[T]):
    """The destination of one pipeline's rows, with its own kind of tables.

    The part that every sink has to implement. A quarantine and catalogs are separate protocols below.
    """

    def open(self) -> AbstractContextManager[T]:
        """The table, open for the length of the block; created on first use.

        Raises:
            ActionRequiredError: it can't be used, or differs from the pipeline in settings that a table keeps for life.
        """
        ...

    def look(self) -> AbstractContextManager[T | None]:
        """The table for reading only; None if it doesn't exist yet."""
        ...

    def pin(self, table: T, last: Pinned | None, clusters: Sequence[ClusterTopics]) -> Pinned:
        """How the next interval's records are read, and how its rows are written.

        Args:
            table: the table, whose last commit has its columns.
            last: what the table's last START-COMMIT pinned; None if no longer known.
            clusters: the topics to read from each cluster. A sink that doesn't pin by
                `sluice.schemas.pinner.RecordPinner` gets them by `of_one_registry`.

        Raises:
            ActionRequiredError: a schema can't be read, or the rows don't fit the table.
            RetryableError: a registry doesn't answer.
        """
        ...


# Optional parts of a sink


@runtime_checkable
class KeepsQuarantine(Protocol[T]):
    """A sink that sets bad records aside in a separate table (capability `quarantine`)."""

    def pin_quarantine(self, table: T, writer: TableSpec) -> TableSpec:
        """The table of bad records for START-COMMIT, given how the main table is written."""
        ...

    def open_quarantine(self, table: T, pinned: TableSpec) -> T:
        """The table of bad records, created on first use.

        Raises:
            ActionRequiredError: there is another table at its path.
        """
        ...

    def bad_records(self, paths: Sequence[str]) -> Iterator[Quarantined]:
        """The records in files of the table of bad records, in the order of the paths and their rows.

        Args:
            paths: relative to that table, as participants have named them to the commit.

        Raises:
            RetryableError, ActionRequiredError: they can't be read.
        """
        ...


@runtime_checkable
class LooksAhead(Protocol[T_contra]):
    """A sink that looks, before an interval begins, whether its later steps will have what they need."""

    def look_ahead(self, table: T_contra, *, first: bool) -> None:
        """Check for packages, jars, log-ins and rights that START itself makes no use of.

        Args:
            table: the table.
            first: whether it has no interval yet. What only delays a later one, such as a catalog, stops the first one
                alone.

        Raises:
            ActionRequiredError: something is missing.
            RetryableError: a service doesn't answer.
        """
        ...


@runtime_checkable
class TellsCatalogs(Protocol):
    """A sink whose tables can be registered in catalogs (capability `catalogs`)."""

    def sync_catalogs(self) -> list[str]:
        """Update the table in each catalog that the pipeline names; returns the catalogs' names.

        Raises:
            RetryableError: a catalog refused; the table's commits are safe, and the next call catches up.
            ActionRequiredError: something that it needs is not installed, or permission is missing.
        """
        ...


@runtime_checkable
class TakesOver(Protocol):
    """A sink that can resume from another loader's recorded offsets."""

    def taken_over(self, topics: Collection[str]) -> Mapping[str, Mapping[int, int]]:
        """The offsets to resume from, by topic and partition; empty where the pipeline doesn't take over.

        Args:
            topics: the topics that the table has never read.

        Raises:
            RetryableError: the storage doesn't answer.
            ActionRequiredError: the other loader's files don't show which records are there.
        """
        ...


class VersionChange(Protocol):
    """A table whose version is to be changed, in whatever version it is, and opened by one process.

    Raises (all methods):
        RetryableError: the storage doesn't answer.
        ActionRequiredError: it may not be used.
    """

    @property
    def process(self) -> str:
        """The process that does it, as returned by `sluice.process.identity`."""
        ...

    @property
    def writer(self) -> TableSpec:
        """The table for the service's START-COMMIT, with the schema of its rows."""
        ...

    @property
    def to(self) -> int:
        """The version that the pipeline names."""
        ...

    @property
    def table(self) -> Table | None:
        """The table; None where a change has begun, which is completed first: until then it can't be read."""
        ...

    def begun(self) -> BegunChange | None:
        """The change that has begun and not ended, as the table's settings say it now."""
        ...

    def new_instant(self) -> str:
        """A new instant, for a table that can't be read. Nothing is written."""
        ...

    def carry_out(self, note: BegunChange, fence: Callable[[], None]) -> str:
        """Change the table's version, or complete a change that was begun; what was done, as a sentence.

        Args:
            note: goes into the table's settings before the first step, and out of them after the last.
            fence: is called before each step, and raises where another process has taken the table over.

        Raises:
            ActionRequiredError: what is on the timeline forbids it; nothing was changed.
        """
        ...


@runtime_checkable
class ChangesVersion(Protocol):
    """A sink whose tables can be changed to another version of their format (capability `services`)."""

    def open_to_change_version(self) -> AbstractContextManager[VersionChange]:
        """The table, for the service `table_version`.

        Raises:
            RetryableError: the storage doesn't answer.
            ActionRequiredError: the pipeline names no version, or there is no table, or neither can be that of the
                other.
        """
        ...


def version_changer_of(sink: Sink[Any]) -> ChangesVersion:
    """The sink, known to change its tables' versions.

    Raises:
        ActionRequiredError: it doesn't.
    """
    if not isinstance(sink, ChangesVersion):
        raise _lacks(sink, ChangesVersion, "service table_version")
    return sink


def quarantine_of(sink: Sink[T]) -> KeepsQuarantine[T]:
    """The sink, known to set bad records aside.

    Raises:
        ActionRequiredError: it doesn't.
    """
    if not isinstance(sink, KeepsQuarantine):
        raise _lacks(sink, KeepsQuarantine, "quarantine")
    return sink


def catalogs_of(sink: Sink[Any]) -> TellsCatalogs:
    """The sink, if it registers tables in catalogs.

    Raises:
        ActionRequiredError: it doesn't.
    """
    if not isinstance(sink, TellsCatalogs):
        raise _lacks(sink, TellsCatalogs, "catalogs")
    return sink


def shared_timeline_of(table: Table) -> SharedTimeline:
    """The table, known to share its timeline.

    Raises:
        ActionRequiredError: it doesn't.
    """
    if not isinstance(table, SharedTimeline):
        raise _lacks(table, SharedTimeline, "services or replaces_interval")
    return table


def _lacks(of: object, part: type, capability: str) -> ActionRequiredError:
    """Files that require a missing capability are refused at loading: the sink's section claims to have it."""
    name = _class_of(of)
    return ActionRequiredError(
        f"{name} has no {capability}, though its section's capabilities say so.",
        next_step=f"correct the sink's package: give it what sluice.connectors.sink.{part.__name__} has, or take "
        f"`{capability}` out of the capabilities.",
    )


def of_one_registry(sink: Sink[Any], clusters: Sequence[ClusterTopics]) -> tuple[str, ...]:
    """The topics of all clusters, for a sink that can't decode records by several schema registries.

    Raises:
        ActionRequiredError: clusters have their own registries.
    """
    if any(one.registry for one in clusters):
        raise ActionRequiredError(
            f"The sink {_class_of(sink)} can't decode records by several schema registries.",
            next_step="take `registry` out of what the metadata service says, if all clusters have the pipeline's; or "
            "have the sink's package pin records by sluice.schemas.pinner.RecordPinner.",
        )
    return topics_of(clusters)


def _class_of(sink: object) -> str:
    return f"{type(sink).__module__}.{type(sink).__qualname__}"


class MakesSink(Protocol):
    """The type of a section's `connector`."""

    def __call__(self, pipeline: Any, jvm: Any = None, registries: Any = ...) -> Sink[Any]:
        """The sink of one pipeline.

        Args:
            pipeline: the whole pipeline, since rows depend on more than the sink's own section.
            jvm: opens a JVM, for a sink that needs one; by default it starts its own.
            registries: settings of a schema registry, by its connection's id.
        """
        ...
