"""Sources and sinks as a write job sees them: offsets become records, and rows become files, both in Spark.

A section names their factories (`SourceOptions.reader`, `SinkOptions.row_writer`), and START-COMMIT names the sections,
so that a job on any machine finds them among the packages installed there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from sluice.connectors import registry
from sluice.errors import ActionRequiredError, SluiceError
from sluice.protocol.committable import Committable
from sluice.protocol.identity import LogId
from sluice.protocol.messages import PlannedRange, StartCommit, TableSpec

DataFrame = Any
"""A `pyspark.sql.DataFrame`; loading a pipeline file imports this module, but must not import Spark."""


UNREADABLE = "_sluice_unreadable"
"""The column for the fault of a source's row, in words; null for a valid row. A faulty one is a bad record."""


PINNED_TYPE = "_sluice_type"
"""The key in `ReadsAsPinned.pinned` for the type that values are brought to, as Spark's JSON; not there without one."""


class SourceReader(Protocol):
    """Reads planned offsets of one source in one Spark session."""

    def read(self, ranges: Sequence[PlannedRange], isolation_level: str, *, headers: bool = False) -> DataFrame:
        """The records of `[start, end)` of each range, each partition of the source at most once among them.

        A read that can't deliver all of them must fail: missing records would be taken for offsets without a record.
        Each range is one Spark partition, in the order of the ranges, with its records in their order.

        Args:
            ranges: what to read.
            isolation_level: which transactions' records are read: the value of the section's `read_isolation`.
            headers: whether to include the records' headers.

        Returns:
            Columns `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp, `timestampType` int, `key`
            and `value` binary, or `value` a struct where values are rows, with `UNREADABLE` beside it if a row may have
            values that its types don't hold; with headers also `headers`, an array of `key` string and `value` binary.
        """
        ...

    def classified(self, error: Exception, start: StartCommit, ranges: Sequence[PlannedRange]) -> SluiceError | None:
        """The error to report for an exception that the source caused; None for all others."""
        ...


@runtime_checkable
class DividesRanges(Protocol):
    """A reader that can have several Spark tasks read one range."""

    def read_divided(
        self, planned: PlannedRange, tasks: int, isolation_level: str, *, headers: bool = False
    ) -> DataFrame:
        """The same records as `SourceReader.read` of this range alone, divided at offsets in between.

        Args:
            planned: what to read.
            tasks: the number of Spark partitions; each has a stretch of the range, in the order of the offsets.
            isolation_level: see `SourceReader.read`.
            headers: see `SourceReader.read`.
        """
        ...


@dataclass(frozen=True)
class Delivered:
    """One range that was read in full with others.

    Attributes:
        planned: the range.
        records: their number.
        bytes: the size of their values.
        last: the last one's offset; None without records.
        newest: the latest of their times, in milliseconds since 1970; None without records.
        task: the Spark partition of `Gathered.frame` that has them all; None without records.
    """

    planned: PlannedRange
    records: int = 0
    bytes: int = 0
    last: int | None = None
    newest: int | None = None
    task: int | None = None


@dataclass(frozen=True)
class Gathered:
    """Ranges that were read one after another.

    Attributes:
        frame: their records, with the columns of `SourceReader.read`; None if no range was read in full.
        tasks: the number of its Spark partitions.
        delivered: the ranges that were read in full.
        unfit: the ranges that `SourceReader.read` has to read instead.
    """

    frame: DataFrame
    tasks: int
    delivered: tuple[Delivered, ...]
    unfit: tuple[PlannedRange, ...] = ()


@runtime_checkable
class GathersRanges(Protocol):
    """A reader that can read many ranges of few records without a Spark task for each."""

    def gather(
        self, ranges: Sequence[PlannedRange], per_task: int, isolation_level: str, *, headers: bool = False
    ) -> Gathered:
        """The same records as `SourceReader.read` of these ranges, counted; it may stop after some of them.

        A range's records are in one Spark partition, in their order. Each call delivers a range, or finds one unfit.

        Args:
            ranges: what to read, of one cluster.
            per_task: about how many records each Spark partition is to have.
            isolation_level: see `SourceReader.read`.
            headers: see `SourceReader.read`.
        """
        ...


@runtime_checkable
class ReadsAsPinned(Protocol):
    """A reader whose source's values are rows or typed: what to select for them, START-COMMIT has pinned."""

    def pinned(self, reading: Mapping[str, str]) -> SourceReader:
        """The same reader for one interval.

        Args:
            reading: the options of the interval's values: `sluice.connectors.source.RowSchema.reading`, or those of
                the section's `value`; and `PINNED_TYPE`.
        """
        ...


@runtime_checkable
class IdentifiesLogs(Protocol):
    """A reader that reports the ids of its logs: its settings may lead to other logs than the planner's did."""

    def log_ids(self, topics: Collection[str]) -> Mapping[str, LogId]:
        """The ids of each topic's log, as they are found by the settings that records are read with.

        They are compared with START-COMMIT's before anything is read.

        Args:
            topics: topics that are to be read.

        Raises:
            RetryableError: the source doesn't answer.
            ActionRequiredError: a topic isn't there, or the source may not be read.
        """
        ...


@runtime_checkable
class ChecksAfterRead(Protocol):
    """A reader of what others may change meanwhile, such as files."""

    def require_unchanged(self, ranges: Sequence[PlannedRange]) -> None:
        """Check, after the ranges were read and before the result is reported, that they are as they were planned.

        Raises:
            SluiceError: something was changed, so that records of two states may have been read.
        """
        ...


class MakesReader(Protocol):
    """The type of a section's `reader`."""

    def __call__(self, spark: Any, settings: Any) -> SourceReader:
        """The reader of one write job.

        Args:
            spark: the job's `SparkSession`.
            settings: the settings of the source's connection, if it has one.
        """
        ...


@dataclass(frozen=True)
class VoidChanges:
    """Changes from before a truncate, which are void.

    Attributes:
        records: their number.
        deleted: how many of them would delete a row.
        moved: how many further deletes come from changes that would move a row.
    """

    records: int = 0
    deleted: int = 0
    moved: int = 0


@dataclass(frozen=True)
class Written:
    """The result of a write.

    Attributes:
        committables: the results to be named in the commit.
        dataset: the Java Dataset that was run; the counts of records are its observed metrics.
        skipped: records that the table has a newer version of.
        void: changes from before a truncate.
        truncated: rows that a truncate removed.
        soft_truncated: how many of them stay as rows marked as deleted.
    """

    committables: tuple[Committable, ...]
    dataset: Any
    skipped: int = 0
    void: VoidChanges = field(default_factory=VoidChanges)
    truncated: int = 0
    soft_truncated: int = 0

    @property
    def records(self) -> int:
        """Rows written for records, rather than for a truncate."""
        return sum(c.rows for c in self.committables) - self.soft_truncated

    def file_groups(
        self,
        ranges: Sequence[PlannedRange],  # noqa: ARG002 - for sinks that have file groups
        tasks: Sequence[Sequence[int]],  # noqa: ARG002
    ) -> Mapping[int, Sequence[str]]:
        """Ids of the file groups that hold each range's rows, by the range's index; empty if the sink doesn't know.

        Args:
            ranges: the ranges that were read.
            tasks: the Spark partitions in which each of them was read; empty for one without records.
        """
        return {}


class SinkWriter(Protocol):
    """Writes rows under one interval's instant, where no reader sees them before the commit.

    Also a base class: a subclass has to override only the methods for its sink's capabilities.
    """

    needs_record_time: bool = False
    """Whether rows are to have the record's own time beside its place (`sluice.rows.records.RECORD_TIME`)."""
    any_order: bool = False
    """Whether the table is the same in whatever order a range's rows come, so that several tasks may read it."""

    def write(self, rows: DataFrame, emptied_at: str | None = None, *, truncates: bool = False) -> Written:
        """Write rows in a single run of the frame, since running it counts the records.

        Args:
            rows: the table's columns, the record's place (`sluice.rows.records.KAFKA_COLUMNS`), and the kind of change
                (`sluice.rows.changes.CHANGE`) if the pipeline has changes.
            emptied_at: the position at which the source's table was emptied: rows before it are void. Only for sinks
                that can `truncate`.
            truncates: whether the table still has such rows.
        """
        ...

    def remember_deletes(self, later: DataFrame) -> None:  # noqa: ARG002
        """Leave rows out that are deleted by offsets which the table has already. For sinks that can `delete` alone.

        Args:
            later: the rows of offsets that the table has already.

        Raises:
            ActionRequiredError: the writer doesn't implement it, though its sink has the capability to delete.
        """
        raise ActionRequiredError(
            f"The writer {type(self).__qualname__} can't leave out what was deleted later.",
            next_step="correct the sink's package: give it `remember_deletes`, or take `delete` out of the "
            "capabilities. Nothing was written.",
        )


@runtime_checkable
class WritesGathered(Protocol):
    """A writer whose sink keeps the order of a range's rows, and that takes several ranges from one Spark task."""

    def write_gathered(self, rows: DataFrame, emptied_at: str | None = None) -> Written:
        """As `SinkWriter.write`, of a frame whose Spark partitions have the rows of several ranges each.

        The ranges of a Spark partition come one after the other, each with its rows in their order and as a whole.
        They have few rows, so that what the sink does for each of them should not cost a task.

        Args:
            rows: see `SinkWriter.write`.
            emptied_at: see `SinkWriter.write`.
        """
        ...


REFUSED = "_sluice_refused"
"""The column for the fault of a row found by `ChecksRows`, in words; null for a valid row."""
MADE = "_sluice_made_"
"""The prefix of columns that a writer's check of rows made, and that are passed back to the writer unchanged."""


@runtime_checkable
class ChecksRows(Protocol):
    """A writer whose sink doesn't accept every row; refused rows are bad records."""

    def checked(self, rows: DataFrame) -> DataFrame:
        """The same rows with `REFUSED`, and columns `MADE`; deterministic, since rows are checked twice.

        Args:
            rows: as of `SinkWriter.write`, with the fault of records that are bad already
                (`sluice.rows.records.PROBLEM`). Columns of such a record may be null where the table's aren't.
        """
        ...


def check_of(writer: SinkWriter) -> Callable[[DataFrame], DataFrame] | None:
    """The check of rows of a writer's sink; None if it accepts all."""
    return writer.checked if isinstance(writer, ChecksRows) else None


def wants_record_time(writer: SinkWriter) -> bool:
    """Whether rows are to have the record's own time beside them; a writer need not be a subclass of `SinkWriter`."""
    return bool(getattr(writer, "needs_record_time", False))


def takes_any_order(writer: SinkWriter) -> bool:
    """Whether several tasks may read a range for the writer; see `SinkWriter.any_order`."""
    return bool(getattr(writer, "any_order", False))


def takes_gathered(writer: SinkWriter) -> bool:
    """Whether one task may bring several ranges to the writer, each in its order."""
    return takes_any_order(writer) or isinstance(writer, WritesGathered)


def write_gathered(writer: SinkWriter, rows: DataFrame, emptied_at: str | None = None) -> Written:
    """Write rows of ranges that were gathered, by a writer that takes them."""
    if isinstance(writer, WritesGathered):
        return writer.write_gathered(rows, emptied_at)
    return writer.write(rows, emptied_at)


class MakesWriter(Protocol):
    """The type of a section's `row_writer`."""

    def __call__(self, spark: Any, start: StartCommit, attempt: str) -> SinkWriter:
        """The writer of one attempt.

        Args:
            spark: the job's `SparkSession`.
            start: the interval's START-COMMIT; its `writer` is the table, or its quarantine.
            attempt: the attempt's id: two attempts at a range may write at the same time, but only one is committed.
        """
        ...


class ServiceJob(Protocol):
    """Carries out a table service's plan in two steps: readers see nothing before the second."""

    @property
    def process(self) -> int:
        """The id of the process that completes the service."""
        ...

    def await_clock(self) -> None:
        """Wait until this machine's clock is later than every instant on the table's timeline."""
        ...

    def pending(self) -> Sequence[str]:
        """Instants of the service's plans, oldest first."""
        ...

    def write(self, instant: str) -> Callable[[], None]:
        """Carry out the plan at an instant; the returned function commits it."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


class MakesServiceJob(Protocol):
    """The type of a section's `service_job`."""

    def __call__(self, spark: Any, start: StartCommit) -> ServiceJob:
        """The job of one service.

        Args:
            spark: the job's `SparkSession`.
            start: the service's START-COMMIT.
        """
        ...


INSTANT = "_sluice_instant"
"""The column of `ReadsRows` for the interval that wrote a row."""
PLACE = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
"""Columns that may replace it: the position of the row's record."""


class ReadsRows(Protocol):
    """The type of a section's `table_rows`."""

    def __call__(self, spark: Any, writer: TableSpec, instants: Collection[str] | None = None) -> DataFrame:
        """A table's rows as its readers find them now: the columns of `writer.schema_ddl`, and `INSTANT` or `PLACE`.

        A column may be missing whose values the table's storage writes in another way than they were given: it is not
        compared, which is said. Where the section's `rows_are_told_apart` is False, neither of the others is needed.

        Args:
            spark: the job's `SparkSession`.
            writer: the table, as an interval would be written now.
            instants: the requested intervals; None for all. Rows of others do no harm.
        """
        ...


@runtime_checkable
class KnowsRefused(Protocol):
    """What `table_rows` may name besides, of a sink whose writer is one that `ChecksRows`."""

    def checked(self, spark: Any, writer: TableSpec, rows: DataFrame) -> DataFrame:
        """As `ChecksRows.checked`, by the sink's present rules."""
        ...


@runtime_checkable
class ReadsWritten(KnowsRefused, Protocol):
    """What `table_rows` may name of a sink whose readers find no columns, but records as it has encoded them.

    `ReadsRows` has the columns of those records then. The rows that the source's records come to are encoded once more,
    and both are compared byte by byte.

    Attributes:
        key: of an upsert's records, the columns that are the same in all versions of one.
        compared: the columns that can be compared at all.
    """

    key: tuple[str, ...]
    compared: tuple[str, ...]

    def __call__(self, spark: Any, writer: TableSpec, instants: Collection[str] | None = None) -> DataFrame:
        """See `ReadsRows`. Columns of `compared` may be missing.

        Raises:
            ActionRequiredError: all are requested, and some of them can't be compared.
        """
        ...

    def beyond(self, writer: TableSpec, instants: Collection[str]) -> Mapping[str, str]:
        """The intervals that can't be compared, each with the reason in words.

        Args:
            writer: the table, as an interval would be written now.
            instants: the requested intervals.
        """
        ...

    def needs_record_time(self, writer: TableSpec) -> bool:
        """Whether `written` wants the record's own time, as `SinkWriter` has it."""
        ...

    def written(self, spark: Any, writer: TableSpec, rows: DataFrame, kept: Collection[str]) -> DataFrame:
        """Rows as the sink would write them.

        Args:
            spark: the job's `SparkSession`.
            writer: the table, as an interval would be written now.
            rows: the columns of the table, `PLACE`, and the kind of change where the pipeline has changes.
            kept: columns of the rows to keep beside.
        """
        ...


def rows_of(name: str) -> ReadsRows:
    """What reads a sink's tables, by its section's name.

    Raises:
        ActionRequiredError: it is not installed here.
    """
    found: ReadsRows = _named("sink", name, "table_rows")
    return found


def reader_of(name: str) -> MakesReader:
    """The factory of a source's reader, by its section's name.

    Raises:
        ActionRequiredError: it is not installed here.
    """
    found: MakesReader = _named("source", name, "reader")
    return found


def writer_of(name: str) -> MakesWriter:
    """The factory of a sink's writer, by its section's name.

    Raises:
        ActionRequiredError: it is not installed here.
    """
    found: MakesWriter = _named("sink", name, "row_writer")
    return found


def service_of(name: str) -> MakesServiceJob:
    """The factory of the job for a sink's table services, by its section's name.

    Raises:
        ActionRequiredError: it is not installed here.
    """
    found: MakesServiceJob = _named("sink", name, "service_job")
    return found


def _named(kind: registry.Kind, name: str, part: Literal["reader", "row_writer", "service_job", "table_rows"]) -> Any:
    section = registry.section(kind, name)
    if section is None:
        raise ActionRequiredError(
            f"The {kind} `{name}` is not installed where the Spark driver runs.",
            next_step="install its package there, as where Airflow loads the pipeline file.",
        )
    reference = getattr(section, part)
    if not reference:
        raise ActionRequiredError(
            f"The {kind} `{name}` has nothing that works in a Spark job.",
            next_step=f"have its section say `{part}`, as sluice.connectors.data explains.",
        )
    return registry.load(reference)
