"""A sink that keeps rows and checkpoint together on a timeline, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from sluice.errors import ActionRequiredError
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import Checkpoint
from sluice.protocol.quarantine import Quarantined
from sluice.records.plan import RecordPlan

InstantState = Literal["absent", "pending", "completed"]


@dataclass
class Completion:
    """What lies on the timeline of one instant that is completed.

    Attributes:
        action: what kind of instant it is.
        files: names of the files that complete it, by their times: one, unless two processes have.
        requested: whether the file with which it began is still there, which a roll-back takes away.
    """

    action: str
    files: list[str] = field(default_factory=list)
    requested: bool = False

    def is_after(self, instant: str) -> bool:
        """Whether it was completed, the last time, after an instant began; it may have been where no name says when."""
        _, _, completed = self.files[-1].partition(".")[0].partition("_")
        return not completed or completed > instant


@dataclass(frozen=True)
class Registered:
    """The files that one completion of an instant names, and how many of them aren't there any more."""

    files: int
    lost: int

    @property
    def is_void(self) -> bool:
        """Whether nothing is left of what it names: what it did has been rolled back."""
        return 0 < self.files == self.lost


@dataclass(frozen=True)
class WrittenInterval:
    """A committed interval: our note of it, the file groups that it wrote by table partition, and its checkpoint."""

    instant: str
    note: Mapping[str, Any]
    file_groups: Mapping[str, tuple[str, ...]]
    checkpoint: Checkpoint


class Table(Protocol):
    """A table that exists, opened by one process.

    Raises (all methods):
        RetryableError: the storage doesn't answer, or this machine's clock is too far behind the table's.
        ActionRequiredError: it may not be used.
    """

    writer: TableSpec
    clock_wait: timedelta

    @property
    def process(self) -> str:
        """The process in which this table's commits are carried out, as `sluice.process.identity` has it."""
        ...

    # What stands committed

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the newest commit that holds a checkpoint, None where none does."""
        ...

    def is_empty(self) -> bool:
        """Whether the table has no completed commit at all."""
        ...

    def state_of(self, instant: str) -> InstantState:
        """Where an instant stands on the timeline now."""
        ...

    def written_by(self, instant: str) -> WrittenInterval | None:
        """What a committed interval of ours wrote, None where the instant is no commit of ours (any more)."""
        ...

    def replayed_by(self, instant: str) -> str | None:
        """The last committed replay that has put its rows in place of an interval's; None if none has."""
        ...

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:
        """File groups of an append interval that don't hold its rows any more, and what took them away."""
        ...

    # The two phases of a commit

    def await_clock(self) -> None:
        """Wait until this machine's clock is later than all that stands on the table's timeline."""
        ...

    def new_instant(self) -> str:
        """A new instant, later than all that stands on the timeline. Nothing is written."""
        ...

    def open(self, instant: str, *, replaces: bool = False) -> None:
        """Put the instant on the timeline; `replaces`: its commit will take file groups off the table."""
        ...

    def written_as(self, writer: TableSpec) -> Table:
        """The same table, written as an interval has pinned it."""
        ...

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """Commit what the participants have written, with the extra metadata: visible together, or not at all."""
        ...

    def rollback(self, instant: str) -> bool:
        """Roll a pending instant back with all its files; False where it is not pending (any more)."""
        ...

    def finish_rollbacks(self) -> list[str]:
        """Finish roll-backs that were begun and never completed; the instants that they took off the timeline."""
        ...

    # What processes leave that stood still for too long

    def completions(self) -> dict[str, Completion]:
        """The completed commits as they lie on the timeline, by instant."""
        ...

    def registered(self, completion: str) -> Registered:
        """What a file of the timeline that completes an instant names."""
        ...

    def take_off(self, instant: str, files: list[str]) -> None:
        """Delete files that complete an instant."""
        ...

    def marker_partitions(self, instant: str) -> set[str]:
        """Table partitions in which files of an instant were opened; by a zombie, if the instant has ended."""
        ...

    def partitions_on_storage(self) -> set[str]:
        """The table's partitions as they lie on storage, also those that no commit has named.

        It may cost as much as listing the whole table: asked for only where nothing else says where a late attempt has
        written.
        """
        ...

    def sweep(self, committed: Mapping[str, set[str]], partitions: Iterable[str]) -> list[str]:
        """Delete files that a zombie finished after its interval was over; returns what was deleted.

        Args:
            committed: for each ended instant the paths that its commit registered, none for one that was rolled back.
            partitions: the table partitions to look at.
        """
        ...


class Maintenance(Protocol):
    """Table services: what keeps a table quick to read, and its timeline short. The caller holds the table."""

    @property
    def writer(self) -> TableSpec:
        """The table as START-COMMIT of a service names it, with the services' settings."""
        ...

    def pending(self, service: str) -> list[str]:
        """Instants of plans that were made but not completed, oldest first."""
        ...

    def plan(self, service: str) -> str | None:
        """Plan a compaction or a clustering; its instant, or None where there is nothing to do yet."""
        ...

    def take_off(self, instant: str) -> None:
        """Take a clustering's plan off the timeline, with all that a dead attempt at it has written."""
        ...

    def clean(self) -> int:
        """Delete file versions that no kept commit reads; the number of files deleted."""
        ...

    def archive(self) -> int:
        """Move old instants from the active timeline into the archived one; how many fewer are active."""
        ...

    def serve_metadata_table(self) -> None:
        """Compact, clean and archive the metadata table, each if it is due."""
        ...


T = TypeVar("T", bound=Table)
T_contra = TypeVar("T_contra", bound=Table, contravariant=True)


class Sink(Protocol[T]):
    """Where one pipeline's rows go, in tables of a kind of its own.

    All that a sink has to have. A quarantine, table services and catalogs are further below, each by itself.
    """

    def open(self) -> AbstractContextManager[T]:
        """The table, for as long as the block; created on first use.

        Raises:
            ActionRequiredError: it can't be used, or differs from the pipeline in what a table keeps for life.
        """
        ...

    def look(self) -> AbstractContextManager[T | None]:
        """The table for looking only, None where it was never written."""
        ...

    def pin(self, table: T, last: RecordPlan | None, topics: tuple[str, ...]) -> tuple[RecordPlan, TableSpec]:
        """How the next interval's records are read, and how its rows are written.

        Args:
            table: the table, whose last commit says which columns it has.
            last: what the table's last START-COMMIT pinned, None where it isn't known any more.
            topics: the topics that are read.

        Raises:
            ActionRequiredError: a schema can't be read, or the rows don't fit the table.
            RetryableError: a registry doesn't answer.
        """
        ...


# What a sink may have besides, as its capabilities say


@runtime_checkable
class KeepsQuarantine(Protocol[T]):
    """A sink that sets bad records aside, in a table of their own (capability `quarantine`)."""

    def pin_quarantine(self, table: T, writer: TableSpec) -> TableSpec:
        """The table of bad records as START-COMMIT names it, of a table that is written so."""
        ...

    def open_quarantine(self, table: T, pinned: TableSpec) -> T:
        """The table of bad records, created on first use.

        Raises:
            ActionRequiredError: at its path is another table.
        """
        ...

    def bad_records(self, paths: Sequence[str]) -> Iterator[Quarantined]:
        """The records in files of the table of bad records, in the order of the paths and of their rows.

        Args:
            paths: relative to that table.

        Raises:
            RetryableError, ActionRequiredError: they can't be read.
        """
        ...


@runtime_checkable
class TellsCatalogs(Protocol):
    """A sink of whose tables catalogs can be told (capability `catalogs`)."""

    def sync_catalogs(self) -> list[str]:
        """Tell each catalog that the pipeline names of the table as it is now; their names.

        Raises:
            RetryableError: a catalog did not take it; the table's commits stand, and the next call makes up for it.
            ActionRequiredError: what it needs is not installed, or permission is missing.
        """
        ...


@runtime_checkable
class HasServices(Protocol[T_contra]):
    """A sink whose tables have services (capability `services`)."""

    def maintenance(self, table: T_contra) -> Maintenance:
        """The table's services, for whoever holds the table."""
        ...


def quarantine_of(sink: Sink[T]) -> KeepsQuarantine[T]:
    """The sink, known to set bad records aside.

    Raises:
        ActionRequiredError: it doesn't.
    """
    if not isinstance(sink, KeepsQuarantine):
        raise _lacks(sink, KeepsQuarantine, "quarantine")
    return sink


def catalogs_of(sink: Sink[Any]) -> TellsCatalogs:
    """The sink, known to tell catalogs.

    Raises:
        ActionRequiredError: it doesn't.
    """
    if not isinstance(sink, TellsCatalogs):
        raise _lacks(sink, TellsCatalogs, "catalogs")
    return sink


def services_of(sink: Sink[T]) -> HasServices[T]:
    """The sink, known to have table services.

    Raises:
        ActionRequiredError: it has none.
    """
    if not isinstance(sink, HasServices):
        raise _lacks(sink, HasServices, "services")
    return sink


def _lacks(sink: object, part: type, capability: str) -> ActionRequiredError:
    """Files that ask for what a sink can't do are refused when they are loaded: its section said that it can."""
    name = f"{type(sink).__module__}.{type(sink).__qualname__}"
    return ActionRequiredError(
        f"The sink {name} has no {capability}, though its section's capabilities say so.",
        next_step=f"correct the sink's package: give it what sluice.connectors.sink.{part.__name__} has, or take "
        f"`{capability}` out of the capabilities.",
    )


class MakesSink(Protocol):
    """What a section's `connector` names."""

    def __call__(self, pipeline: Any, jvm: Any = None, registries: Any = ...) -> Sink[Any]:
        """The sink of one pipeline.

        Args:
            pipeline: the whole file, since rows are made of more than the sink's own section.
            jvm: opens a JVM, for a sink that works in one; it starts its own by default.
            registries: where a schema registry is, by its connection's id.
        """
        ...
