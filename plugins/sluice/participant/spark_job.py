"""A participant's job on Spark: from a source's records to the rows of a sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial, reduce
from itertools import islice
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from sluice.connectors.data import (
    PINNED_TYPE,
    ChecksAfterRead,
    DividesRanges,
    Gathered,
    GathersRanges,
    IdentifiesLogs,
    ReadsAsPinned,
    SinkWriter,
    SourceReader,
    check_of,
    reader_of,
    takes_any_order,
    takes_gathered,
    wants_record_time,
    write_gathered,
    writer_of,
)
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.kafka.config import Connections, KafkaSettings, connections_of_environment
from sluice.logs import log
from sluice.participant.participant import Assignment, NotHereError, Participant
from sluice.participant.parts import (
    AT_ONCE,
    Part,
    can_be_gathered,
    can_be_parted,
    joined,
    parted,
    per_task,
    thin,
    topics_at_once,
)
from sluice.participant.quarantine import SetAside, in_quarantine, set_aside, together
from sluice.participant.session import Sessions, own_session, readable_error
from sluice.protocol.identity import refuse_logs_elsewhere
from sluice.protocol.mapping import ClusterAddress
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.records.plan import Format
from sluice.rows.changes import require_truncates_apply
from sluice.rows.placement import KeyCheck
from sluice.rows.reading import (
    Observe,
    counted,
    counted_gathered,
    divided,
    partition_results,
    read_gathered,
    read_range,
    tasks_of,
)
from sluice.rows.records import RecordChain, bad_record


def participant(
    assignment: Assignment, source: Any, control: KafkaSettings, connections: Connections | None = None
) -> Participant:
    """A participant that reads and writes with Spark.

    Args:
        assignment: its command-line arguments.
        source: the settings of the source's connection.
        control: the cluster that holds the control topic.
        connections: the settings of a Kafka connection by its id, for clusters of streams; the environment's by
            default.
    """
    job = SparkJob(source, connections or connections_of_environment(source))
    return Participant(assignment, ControlTopic(control, assignment.control_topic), job)


class SparkJob:
    """Reads and writes in a Spark session, with the source and the sink that START-COMMIT names.

    Args:
        source: the settings of the source's connection.
        connections: the settings of a Kafka connection by its id.
        sessions: opens the session of a job; by default this process's own, which ends with the job.
    """

    def __init__(self, source: Any, connections: Connections, sessions: Sessions = own_session) -> None:
        self._source = source
        self._connections = connections
        self._sessions = sessions

    @contextmanager
    def running(self, start: StartCommit) -> Iterator[RunningSparkJob]:
        """The job in a session that lasts as long as the block.

        Raises:
            ActionRequiredError: a connector is not installed here.
        """
        reader, writer = reader_of(start.source), writer_of(start.sink)
        with self._sessions(f"sluice {start.dag_id} {start.transaction}") as (spark, cancel):
            clusters = start.streams.clusters if start.streams is not None else {}
            pinned = partial(pinned_reader, partial(reader, spark), start.records.value)
            readers = readers_of(pinned, self._source, self._connections, clusters)
            yield RunningSparkJob(spark, readers, partial(writer, spark), cancel)


def pinned_reader(reader: Callable[[Any], SourceReader], value: Format, settings: Any) -> SourceReader:
    """The reader of one interval.

    Args:
        reader: makes the source's, of settings.
        value: how the interval's values are read.
        settings: those of the source's connection.
    """
    made = reader(settings)
    if not isinstance(made, ReadsAsPinned):
        return made
    of_type = {PINNED_TYPE: json.dumps(value.struct)} if value.struct is not None else {}
    return made.pinned({**value.options, **of_type})


def readers_of(
    reader: Callable[[Any], SourceReader],
    source: Any,
    connections: Connections,
    clusters: Mapping[str, ClusterAddress],
) -> Callable[[str], SourceReader]:
    """The readers of clusters by their names, each made when it is first needed.

    Args:
        reader: makes one, of settings.
        source: the settings of the source's connection.
        connections: the settings of a Kafka connection by its id.
        clusters: where each cluster of streams is; the source's connection leads to any other.
    """

    @cache
    def of(cluster: str) -> SourceReader:
        address = clusters.get(cluster)
        if address is None:
            return reader(source)
        return reader(connections(address.connection).at(cluster, address.bootstrap_servers))

    return of


class RunningSparkJob:
    """Reads and writes one range in a Spark session.

    Args:
        spark: the session.
        readers: the source's reader of a cluster.
        writer_of: makes the sink's writer, of a START-COMMIT and the attempt.
        cancel_spark: cancels Spark's work for this range.
    """

    def __init__(
        self,
        spark: SparkSession,
        readers: Callable[[str], SourceReader],
        writer_of: Callable[[StartCommit, str], SinkWriter],
        cancel_spark: Callable[[], None],
    ) -> None:
        self._spark = spark
        self._readers = readers
        self._writer_of = writer_of
        self._cancel_spark = cancel_spark
        self._cancelled = False

    def write(self, start: StartCommit, number: int, attempt: str, check: Callable[[], None]) -> dict[str, Any]:
        """Read, decode and write the range; see `RunningJob`."""
        self._require_planned_logs(start, number)
        quarantine = cache(lambda: self._writer_of(in_quarantine(start), attempt))
        # Several tables one after the other: each has its own converters, columns and staging.
        found = [
            self._write_table(one, number, attempt, quarantine) for one in start.of_each_table() if one.ranges[number]
        ]
        self._require_unchanged(start.ranges[number])
        check()
        return _results(joined([whole for whole, _ in found]), together([aside for _, aside in found]))

    def _require_unchanged(self, planned: Sequence[PlannedRange]) -> None:
        for cluster in sorted({r.cluster for r in planned}):
            reader = self._readers(cluster)
            if isinstance(reader, ChecksAfterRead):
                reader.require_unchanged([r for r in planned if r.cluster == cluster])

    def _require_planned_logs(self, start: StartCommit, number: int) -> None:
        """Check that this job's connections lead to the logs that the interval was planned on.

        Raises:
            NotHereError: they don't, or the cluster can't be reached.
        """
        topics: dict[str, set[str]] = {}
        for planned in (*start.ranges[number], *start.later):
            topics.setdefault(planned.cluster, set()).add(planned.topic)
        try:
            for cluster, of in topics.items():
                reader = self._readers(cluster)
                if isinstance(reader, IdentifiesLogs):
                    here = reader.log_ids(of)
                    refuse_logs_elsewhere(start.log_ids, cluster, here, table=start.table, instant=start.transaction)
        except SluiceError as error:
            raise NotHereError(error) from error

    def _write_table(
        self, start: StartCommit, number: int, attempt: str, quarantine: Callable[[], SinkWriter]
    ) -> tuple[Part, SetAside]:
        """Write the range's records of one table, the only one in `start`."""
        spark, planned = self._spark, start.ranges[number]
        writer = self._writer_of(start, attempt)
        writing = _Writing(spark, start, self._readers, writer)
        here = {r.topic_partition for r in planned}
        writing.remember_deletes([r for r in start.later if r.topic_partition in here])
        parts = []
        for ranges, gathered in writing.lots(planned):
            if self._cancelled:  # `cancel` stops only the part that was running
                raise RuntimeError("the job was cancelled")
            parts.append(writing.part(ranges, start.emptied_at, gathered=gathered))
        whole = joined(parts)
        if whole.left_out.changes.truncates:
            require_truncates_apply(start, whole.left_out.changes)
            # Rare enough to write a second time and commit only that write's stats: the table isn't read unless its
            # rows must be removed.
            whole = writing.part(planned, format(whole.left_out.changes.emptied_at, "f"), truncates=True)
        reach("participant.after_write")
        read_again = partial(self._read_again, start)
        left_out, of = whole.left_out, (number, attempt)
        return whole, set_aside(spark, start, left_out, read_again, quarantine, of, writer)

    def cancel(self) -> None:
        """Cancel Spark's work, and start no more."""
        self._cancelled = True
        self._cancel_spark()

    def classified(self, error: Exception, start: StartCommit, number: int) -> SluiceError:
        """The error to report; see `RunningJob`."""
        if isinstance(error, SluiceError):
            return error
        if isinstance(error, NotHereError):
            return error.error
        error = readable_error(error)
        planned = start.ranges[number]
        reader = self._readers(planned[0].cluster)
        return reader.classified(error, start, planned) or _classified(error, start, planned)

    def _read_again(
        self, start: StartCommit, planned: Sequence[PlannedRange], may_share: bool
    ) -> Iterator[tuple[DataFrame, bool]]:
        """Read bad records for the quarantine; see `sluice.participant.quarantine.Read`."""
        of_streams, cores = start.streams is not None, self._spark.sparkContext.defaultParallelism
        for ranges, gathered in _gathered(start, self._readers, planned, cores, may_share=may_share, headers=True):
            if gathered:
                yield read_gathered(gathered, of_streams=of_streams), True
                continue
            for i in range(0, len(ranges), AT_ONCE):
                some = ranges[i : i + AT_ONCE]
                read = read_range(self._readers, some, start.isolation_level, headers=True, of_streams=of_streams)
                yield read, False


class _Writing:
    """Writes an interval's ranges, a few at a time."""

    def __init__(
        self, spark: SparkSession, start: StartCommit, readers: Callable[[str], SourceReader], writer: SinkWriter
    ) -> None:
        self._spark = spark
        self._start = start
        self._readers = readers
        self._writer = writer

    def remember_deletes(self, later: Sequence[PlannedRange]) -> None:
        """Leave out rows that later offsets, already in the table, have deleted."""
        if later:
            self._writer.remember_deletes(self._chain(later).rows(self._read(later)))

    def lots(self, planned: Sequence[PlannedRange]) -> Iterator[tuple[Sequence[PlannedRange], Sequence[Gathered]]]:
        """The ranges that each Spark job writes, with their records where many were read together."""
        start, cores = self._start, self._spark.sparkContext.defaultParallelism
        may_share = takes_gathered(self._writer) and can_be_gathered(start, planned)
        headers, topics = self._with_headers, topics_at_once(start)
        found = _gathered(start, self._readers, planned, cores, may_share=may_share, headers=headers, topics=topics)
        if not can_be_parted(start):
            yield _in_one(planned, found)
            return
        for ranges, gathered in found:
            if gathered:
                yield ranges, gathered
            else:
                yield from ((some, ()) for some in parted(start, ranges, cores))

    def part(
        self,
        ranges: Sequence[PlannedRange],
        emptied_at: str | None,
        *,
        truncates: bool = False,
        gathered: Sequence[Gathered] = (),
    ) -> Part:
        """Write some ranges in one Spark job; see `SinkWriter.write`.

        Args:
            ranges: these ranges.
            emptied_at: see `SinkWriter.write`.
            truncates: see `SinkWriter.write`.
            gathered: the records of the first of them, if they were read already.
        """
        keys, chain = KeyCheck(self._spark, self._start, ranges), self._chain(ranges)
        known = sum(len(one.delivered) for one in gathered)
        others = ranges[known:]
        division = self._division(others)
        reads = []
        if gathered:
            reads.append(read_gathered(gathered, watch=keys.watch, of_streams=self._start.streams is not None))
        if others:
            reads.append(self._read(others, keys.watch, division))
        rows = chain.rows(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), reads))
        if gathered:
            written = write_gathered(self._writer, rows, emptied_at)
        else:
            written = self._writer.write(rows, emptied_at, truncates=truncates)
        left_out, dataset = chain.counts(written.dataset), written.dataset
        counts = []
        if gathered:
            counts.append((ranges[:known], counted_gathered(dataset, gathered)))
        if others:
            counts.append((others, counted(dataset, others, division)))
        return Part(
            records_read=sum(int(found["records"]) for _, found in counts),
            records_written=written.records,
            committables=written.committables,
            left_out=left_out,
            keys=keys.found(written.dataset, left_out.changes),
            partitions=tuple(
                result
                for some, found in counts
                for result in partition_results(some, found, written.file_groups(some, tasks_of(some, found)))
            ),
            skipped=written.skipped,
            void=written.void,
            truncated=written.truncated,
        )

    @property
    def _with_headers(self) -> bool:
        return "headers" in self._start.records.columns.values()

    def _chain(self, ranges: Sequence[PlannedRange]) -> RecordChain:
        start = self._start
        return RecordChain(
            self._spark,
            start.records,
            start.writer,
            ranges,
            of_streams=start.streams is not None,
            record_time=wants_record_time(self._writer),
            check=check_of(self._writer),
        )

    def _division(self, ranges: Sequence[PlannedRange]) -> tuple[int, ...]:
        """How many tasks read each range."""
        worth = self._start.records_per_task
        if worth is None or not takes_any_order(self._writer):
            return ()
        if not all(isinstance(self._readers(cluster), DividesRanges) for cluster in {r.cluster for r in ranges}):
            return ()
        return divided(ranges, self._spark.sparkContext.defaultParallelism, worth)

    def _read(
        self, ranges: Sequence[PlannedRange], watch: Observe | None = None, division: Sequence[int] = ()
    ) -> DataFrame:
        return read_range(
            self._readers,
            ranges,
            self._start.isolation_level,
            headers=self._with_headers,
            watch=watch,
            of_streams=self._start.streams is not None,
            division=division,
        )


def _gathered(
    start: StartCommit,
    readers: Callable[[str], SourceReader],
    planned: Sequence[PlannedRange],
    cores: int,
    *,
    may_share: bool,
    headers: bool,
    topics: int | None = None,
) -> Iterator[tuple[list[PlannedRange], list[Gathered]]]:
    """Ranges with their records, as many as are held at once; last, without records, the ranges that Spark is to read.

    Args:
        start: the interval's START-COMMIT.
        readers: returns a cluster's reader.
        planned: the ranges.
        cores: of Spark.
        may_share: whether ranges may share tasks and files.
        headers: whether to read headers.
        topics: of how many topics ranges are gathered at once; None for all.
    """
    gathers = may_share and all(isinstance(readers(c), GathersRanges) for c in {r.cluster for r in planned})
    waiting = thin(planned) if gathers else []
    others = _without(planned, waiting)
    while waiting:
        of_cluster: dict[str, list[PlannedRange]] = {}
        for r in _of_topics(waiting, topics):
            of_cluster.setdefault(r.cluster, []).append(r)
        found = []
        for cluster, some in of_cluster.items():
            reader = readers(cluster)
            assert isinstance(reader, GathersRanges)
            found.append(reader.gather(some, per_task(waiting, cores), start.isolation_level, headers=headers))
        unfit = [r for one in found for r in one.unfit]
        delivered = [d.planned for one in found for d in one.delivered]
        others += unfit
        waiting = _without(waiting, [*unfit, *delivered])
        if delivered:
            yield delivered, [one for one in found if one.delivered]
    if others:
        yield others, []


def _in_one(
    planned: Sequence[PlannedRange], found: Iterator[tuple[list[PlannedRange], list[Gathered]]]
) -> tuple[Sequence[PlannedRange], list[Gathered]]:
    """The ranges of one job, from `_gathered`: without records, if more were gathered than are held at once."""
    (ranges, gathered), *further = islice(found, 2)
    if any(of_others for _, of_others in further):
        log.info("partitions are read one by one: their records are more than are held at once")
        return planned, []
    return [*ranges, *(r for others, _ in further for r in others)], gathered


def _of_topics(planned: Sequence[PlannedRange], number: int | None) -> list[PlannedRange]:
    """The ranges of the first topics."""
    first = set(list(dict.fromkeys(r.named_topic for r in planned))[:number])
    return [r for r in planned if r.named_topic in first]


def _without(planned: Sequence[PlannedRange], some: Sequence[PlannedRange]) -> list[PlannedRange]:
    left_out = {(r.topic_partition, r.start) for r in some}
    return [r for r in planned if (r.topic_partition, r.start) not in left_out]


def _results(whole: Part, aside: SetAside) -> dict[str, Any]:
    """The fields of WRITE-STATUS for the written rows."""
    left_out, void = whole.left_out, whole.void
    return {
        "records_read": whole.records_read,
        "records_written": whole.records_written,
        "records_deleted": left_out.deleted - void.deleted,
        "records_quarantined": aside.records,
        "records_filtered": left_out.filtered,
        "records_skipped": whole.skipped + void.records,
        "rows_moved": left_out.moved - void.moved,
        "rows_truncated": whole.truncated,
        "keys": whole.keys,
        "emptied_at": format(left_out.changes.emptied_at, "f") if left_out.changes.truncates else None,
        "partitions": whole.partitions,
        "stats": whole.committables,
        "quarantine_stats": aside.committables,
        "first_bad": aside.first,
    }


def _classified(error: Exception, start: StartCommit, planned: Sequence[PlannedRange]) -> SluiceError:
    text = str(error)
    bad = bad_record(text, start.table, start.transaction)
    if bad is not None:
        return bad
    where = {"table": start.table, "instant": start.transaction}
    memory = _out_of_memory(error, text)
    if memory is not None:
        return RetryableError(
            memory,
            next_step="the task is retried; if it comes back, raise write.driver_memory (on a cluster also "
            "spark.executor.memory in write.conf). A record that no memory holds can be passed over, as "
            "docs/bad-records.md says.",
            offsets=", ".join(map(str, planned)),
            **where,
        )
    log.error(text)  # Spark's own loggers, which would repeat it, are off
    reason = next((line.strip() for line in text.splitlines() if "Caused by" in line), text.strip().splitlines()[0])
    return RetryableError(
        "The Spark job failed.",
        next_step="the task is retried; if it comes back, read the Spark log above.",
        reason=reason[:1000],
        **where,
    )


def _out_of_memory(error: Exception, text: str) -> str | None:
    """The message for an error that is caused by memory, certainly or probably; None for any other.

    Spark ends its JVM if a task runs out of memory; a JVM killed by the kernel leaves no message at all.
    """
    if "OutOfMemoryError" in text or "exit code 52" in text:
        return "The Spark job ran out of memory."
    lost = isinstance(error, Py4JError | ConnectionError)  # a Java error has become its text
    if lost or "SparkContext was shut down" in text:  # because the JVM ended: nothing else stops it during a job
        return "Spark's JVM was lost while the range was written; most likely it ran out of memory."
    if "ExecutorLostFailure" in text:
        return "Spark lost an executor while the range was written; most likely it ran out of memory."
    return None
