"""A participant's job on Spark: from Kafka's records to the files of a Hudi table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from sluice.control.topic import ControlTopic
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.participant.participant import Assignment, Participant
from sluice.participant.parts import Part, joined, parted
from sluice.participant.quarantine import SetAside, set_aside
from sluice.participant.session import spark_session
from sluice.protocol.messages import PartitionResult, PlannedRange, StartCommit
from sluice.rows.placement import KeyCheck
from sluice.rows.records import RecordChain, bad_record
from sluice.sinks.hudi.truncate import require_truncates_apply
from sluice.sinks.hudi.writer import HudiWriter, Written
from sluice.sources.kafka.driver_settings import java_settings
from sluice.sources.kafka.reader import Observe, counted, partition_results, read_range


def participant(assignment: Assignment, source: KafkaSettings, control: KafkaSettings) -> Participant:
    """A participant that reads by Spark."""
    return Participant(assignment, ControlTopic(control, assignment.control_topic), SparkJob(source))


class SparkJob:
    """Reads ranges of one cluster in a Spark session."""

    def __init__(self, source: KafkaSettings) -> None:
        self._source = source

    @contextmanager
    def running(self, start: StartCommit) -> Iterator[RunningSparkJob]:
        """A session that lasts as long as the block."""
        spark = spark_session(f"sluice {start.dag_id} {start.transaction}")
        try:
            yield RunningSparkJob(spark, self._source)
        finally:
            with suppress(Py4JError, OSError):  # where the JVM is lost there is nothing to stop
                spark.stop()


class RunningSparkJob:
    """Reads and writes one range in a Spark session."""

    def __init__(self, spark: SparkSession, source: KafkaSettings) -> None:
        self._spark = spark
        self._source = source
        self._cancelled = False

    def write(self, start: StartCommit, number: int, attempt: str, check: Callable[[], None]) -> dict[str, Any]:
        """Read, decode and write the range; see `RunningJob`."""
        spark, planned = self._spark, start.ranges[number]
        writing = _Writing(spark, start, java_settings(spark, self._source))
        here = {r.topic_partition for r in planned}
        writing.remember_deletes([r for r in start.later if r.topic_partition in here])
        parts = []
        for ranges in parted(start, planned, spark.sparkContext.defaultParallelism):
            if self._cancelled:  # what was cancelled is the part that ran, if one did
                raise RuntimeError("the job was cancelled")
            parts.append(writing.part(ranges, start.emptied_at))
        whole = joined(parts)
        if whole.left_out.changes.truncates:
            require_truncates_apply(start, whole.left_out.changes)
            # Rare enough for a second write, of which alone the stats are committed: what is in the table isn't read
            # before it is known that it has to go.
            whole = writing.part(planned, format(whole.left_out.changes.emptied_at, "f"), truncates=True)
        reach("participant.after_write")
        aside = set_aside(spark, start, whole.left_out, partial(self._read_again, start), (number, attempt))
        check()
        return _results(whole, aside)

    def cancel(self) -> None:
        """Cancel what Spark is at, and begin nothing more."""
        self._cancelled = True
        self._spark.sparkContext.cancelAllJobs()

    def classified(self, error: Exception, start: StartCommit, number: int) -> SluiceError:
        """What an error means; see `RunningJob`."""
        return _classified(error, start, start.ranges[number])

    def _read_again(self, start: StartCommit, planned: Sequence[PlannedRange]) -> DataFrame:
        return read_range(
            self._spark, java_settings(self._spark, self._source), planned, start.isolation_level, headers=True
        )


class _Writing:
    """What writes an interval's ranges, some at a time."""

    def __init__(self, spark: SparkSession, start: StartCommit, kafka: Mapping[str, str]) -> None:
        self._spark = spark
        self._start = start
        self._kafka = kafka
        self._writer = HudiWriter(spark, start)

    def remember_deletes(self, later: Sequence[PlannedRange]) -> None:
        """Leave out what offsets that the table has already have deleted."""
        if later:
            self._writer.remember_deletes(self._chain(later).rows(self._read(later)))

    def part(self, ranges: Sequence[PlannedRange], emptied_at: str | None, *, truncates: bool = False) -> Part:
        """Write some ranges by one Spark job; see `HudiWriter.write`."""
        keys, chain = KeyCheck(self._spark, self._start, ranges), self._chain(ranges)
        written = self._writer.write(chain.rows(self._read(ranges, keys.watch)), emptied_at, truncates=truncates)
        left_out, counts = chain.counts(written.dataset), counted(written.dataset, ranges)
        return Part(
            records_read=int(counts["records"]),
            records_written=written.records,
            stats=written.stats,
            left_out=left_out,
            keys=keys.found(written.dataset, left_out.changes),
            partitions=self._results(ranges, counts, written),
            skipped=written.skipped,
            void=written.void,
            truncated=written.truncated,
        )

    def _results(
        self, ranges: Sequence[PlannedRange], counts: Mapping[str, Any], written: Written
    ) -> tuple[PartitionResult, ...]:
        if self._start.placement is not None and self._start.placement.buckets is not None:
            return partition_results(ranges, counts, {})
        if self._start.writer.operation == "append":
            return partition_results(ranges, counts, written.file_groups_by_task())
        tasks = {f"task_{i}": r.partition for i, r in enumerate(ranges)}
        return partition_results(ranges, {**counts, **tasks}, _by_kafka_partition(written))

    def _chain(self, ranges: Sequence[PlannedRange]) -> RecordChain:
        return RecordChain(self._spark, self._start.records, self._start.writer, ranges)

    def _read(self, ranges: Sequence[PlannedRange], watch: Observe | None = None) -> DataFrame:
        headers = "headers" in self._start.records.columns.values()
        return read_range(self._spark, self._kafka, ranges, self._start.isolation_level, headers=headers, watch=watch)


def _results(whole: Part, aside: SetAside) -> dict[str, Any]:
    """The fields of WRITE-STATUS that say what was written."""
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
        "stats": whole.stats,
        "quarantine_stats": aside.stats,
        "first_bad": aside.first,
    }


def _classified(error: Exception, start: StartCommit, planned: Sequence[PlannedRange]) -> SluiceError:
    if isinstance(error, SluiceError):
        return error
    text = str(error)
    bad = bad_record(text, start.table, start.transaction)
    if bad is not None:
        return bad
    where = {"table": start.table, "instant": start.transaction}
    if "failOnDataLoss" in text or "OffsetOutOfRange" in text or "Cannot fetch offset" in text:
        return ActionRequiredError(
            "Planned offsets could not be read: retention or a delete removed them while the interval ran.",
            next_step="the next interval says which offsets are lost and obeys source.kafka.on_offset_loss.",
            **where,
        )
    if "long overflow" in text and "DateTimeUtils" in text:
        return ActionRequiredError(
            "A record is dated after the year 294246, which is later than Spark holds.",
            next_step="find it (kafka-console-consumer.sh with print.timestamp=true and print.offset=true), pass over "
            "its offset, as docs/backfill.md says; limit message.timestamp.after.max.ms of the topic.",
            offsets=", ".join(map(str, planned)),
            **where,
        )
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
    log.error(text)  # Spark's own loggers, which would say it a few times over, are off
    reason = next((line.strip() for line in text.splitlines() if "Caused by" in line), text.strip().splitlines()[0])
    return RetryableError(
        "The Spark job failed.",
        next_step="the task is retried; if it comes back, read the Spark log above.",
        reason=reason[:1000],
        **where,
    )


def _out_of_memory(error: Exception, text: str) -> str | None:
    """What to say of an error that memory is behind, for certain or most likely; None of any other.

    Spark ends its JVM where a task runs out of memory; a kernel that ends it says nothing at all.
    """
    if "OutOfMemoryError" in text or "exit code 52" in text:
        return "The Spark job ran out of memory."
    if (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)) or isinstance(error, ConnectionError):
        return "Spark's JVM was lost while the range was written; most likely it ran out of memory."
    if "ExecutorLostFailure" in text:
        return "Spark lost an executor while the range was written; most likely it ran out of memory."
    return None


def _by_kafka_partition(written: Written) -> dict[int, list[str]]:
    """File group ids of an upsert, whose first eight digits are the Kafka partition."""
    groups: dict[int, list[str]] = {}
    for stat in written.stats:
        groups.setdefault(int(str(stat["fileId"])[:8]), []).append(str(stat["fileId"]))
    return groups
