"""The transaction participant: writes one range of an interval and answers with WRITE-STATUS (RFC-32)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from sluice.control.topic import ControlTopic
from sluice.errors import ActionRequiredError, IntervalError, RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.participant.quarantine import SetAside, set_aside
from sluice.participant.session import spark_session
from sluice.protocol.confine import require_digest
from sluice.protocol.messages import PlannedRange, StartCommit, WriteStatus
from sluice.protocol.placement import PlacedKeys
from sluice.protocol.transaction import TableLog, Transaction
from sluice.redact import redact_text
from sluice.rows.placement import KeyCheck
from sluice.rows.records import Counted, RecordChain, bad_record
from sluice.sinks.hudi.truncate import require_truncates_apply
from sluice.sinks.hudi.writer import HudiWriter, Written
from sluice.sources.kafka.driver_settings import java_settings
from sluice.sources.kafka.reader import counted, partition_results, read_range


@dataclass(frozen=True)
class Assignment:
    """What a write job is told on its command line; all else stands in the START-COMMIT at that offset."""

    table: str
    control_topic: str
    control_offset: int
    range: int
    digest: str | None = None


class Participant:
    """One attempt at one range."""

    def __init__(self, assignment: Assignment, source: KafkaSettings, control: KafkaSettings) -> None:
        self._assignment = assignment
        self._source = source
        self._control = ControlTopic(control, assignment.control_topic)
        self._attempt = str(uuid.uuid4())
        self._began = datetime.now(UTC)

    def run(self) -> None:
        """Write the range and report it.

        Raises:
            SluiceError: the range could not be written; a failed WRITE-STATUS has told the coordinator why.
        """
        self._control.expect_to_send()
        table_log = self._control.table_log(self._assignment.table, self._assignment.control_offset)
        transaction = self._transaction(table_log)
        try:
            status = self._write(transaction, table_log)
            self._control.send(status)  # a status that no message holds has to be told, too
        except SluiceError as error:
            self._report_failure(transaction, error)
            raise
        reach("participant.after_write_status")
        log.info("WRITE-STATUS", **self._place(transaction), read=status.records_read, written=status.records_written)

    def _transaction(self, table_log: TableLog) -> Transaction:
        for transaction in table_log.transactions.values():
            if transaction.start_offset == self._assignment.control_offset:
                require_digest(transaction.start, self._assignment.digest)
                if not transaction.is_open:
                    raise _ended(transaction)
                return transaction
        raise IntervalError(
            "The control topic holds no START-COMMIT of this table at that offset.",
            next_step="run the whole interval again, from start_commit.",
            table=self._assignment.table,
            control_offset=self._assignment.control_offset,
        )

    def _write(self, transaction: Transaction, table_log: TableLog) -> WriteStatus:
        start = transaction.start
        planned = start.ranges[self._assignment.range]
        log.info("reading", **self._place(transaction), offsets=[str(r) for r in planned])
        reach("participant.before_write")
        spark = spark_session(f"sluice {start.dag_id} {start.transaction}")
        try:
            with Watch(self._control, table_log, transaction, spark) as watch:
                try:
                    return self._write_open(spark, transaction, watch)
                except Exception as error:
                    if watch.ended:
                        raise _ended(transaction) from error
                    raise _classify(error, start, start.ranges[self._assignment.range]) from error
        finally:
            with suppress(Py4JError, OSError):  # where the JVM is lost there is nothing to stop
                spark.stop()

    def _write_open(self, spark: SparkSession, transaction: Transaction, watch: Watch) -> WriteStatus:
        start = transaction.start
        planned = start.ranges[self._assignment.range]
        headers = "headers" in start.records.columns.values()
        kafka = java_settings(spark, self._source)
        keys = KeyCheck(spark, start, self._assignment.range)
        records = read_range(spark, kafka, planned, start.isolation_level, headers=headers, watch=keys.watch)
        chain = RecordChain(spark, start.records, start.writer, planned)
        writer = HudiWriter(spark, start)
        here = {r.topic_partition for r in planned}
        later = [r for r in start.later if r.topic_partition in here]
        if later:
            rows = chain.rows(read_range(spark, kafka, later, start.isolation_level, headers=headers))
            writer.remember_deletes(rows)
        written = writer.write(chain.rows(records), start.emptied_at)
        left_out = chain.counts(written.dataset)
        if left_out.changes.truncates:
            require_truncates_apply(start, left_out.changes)
            # Rare enough for a second write, of which alone the stats are committed: what is in the table isn't read
            # before it is known that it has to go.
            emptied_at = format(left_out.changes.emptied_at, "f")
            written = writer.write(chain.rows(records), emptied_at, truncates=True)
            left_out = chain.counts(written.dataset)
        reach("participant.after_write")
        again = partial(self._read_again, spark, start)
        aside = set_aside(spark, start, chain, left_out, again, (self._assignment.range, self._attempt))
        watch.check()
        return self._status(start, written, left_out, keys.found(written.dataset, left_out.changes), aside)

    def _read_again(self, spark: SparkSession, start: StartCommit, planned: Sequence[PlannedRange]) -> DataFrame:
        return read_range(spark, java_settings(spark, self._source), planned, start.isolation_level, headers=True)

    def _status(
        self, start: StartCommit, written: Written, left_out: Counted, keys: tuple[PlacedKeys, ...], aside: SetAside
    ) -> WriteStatus:
        planned = start.ranges[self._assignment.range]
        counts = counted(written.dataset, planned)
        groups = written.file_groups_by_task() if start.writer.operation == "append" else _by_kafka_partition(written)
        if start.placement is not None and start.placement.buckets is not None:
            groups = {}
        elif start.writer.operation == "upsert":
            counts |= {f"task_{i}": r.partition for i, r in enumerate(planned)}
        return WriteStatus(
            **self._envelope(start),
            range=self._assignment.range,
            attempt=self._attempt,
            began=self._began,
            records_read=int(counts["records"]),
            records_written=written.records,
            records_deleted=left_out.deleted - written.void.deleted,
            records_quarantined=aside.records,
            records_filtered=left_out.filtered,
            records_skipped=written.skipped + written.void.records,
            rows_moved=left_out.moved - written.void.moved,
            rows_truncated=written.truncated,
            keys=keys,
            emptied_at=format(left_out.changes.emptied_at, "f") if left_out.changes.truncates else None,
            partitions=partition_results(planned, counts, groups),
            stats=written.stats,
            quarantine_stats=aside.stats,
            first_bad=aside.first,
        )

    def _report_failure(self, transaction: Transaction, error: SluiceError) -> None:
        status = WriteStatus(
            **self._envelope(transaction.start),
            range=self._assignment.range,
            attempt=self._attempt,
            began=self._began,
            error=redact_text(str(error))[:20_000],
            recovery=error.recovery,
        )
        try:
            self._control.send(status)
        except SluiceError as unsent:  # the first error is the one to tell; this one only hides it from the coordinator
            log.warning("the failure could not be reported to the control topic", reason=str(unsent))

    def _envelope(self, start: StartCommit) -> dict[str, Any]:
        same = start.model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id"})
        return {**same, "sender": f"participant {self._assignment.range}", "time": datetime.now(UTC)}

    def _place(self, transaction: Transaction) -> dict[str, Any]:
        return {"instant": transaction.id, "range": self._assignment.range, "attempt": self._attempt[:8]}


class Watch:
    """Follows the control topic while Spark writes, and cancels the job once the transaction has ended.

    A zombie that goes on after its interval would close files under a committed instant. Awaiting the message stops it
    at once; what it manages to close in between, the next START sweeps up.
    """

    def __init__(
        self, control: ControlTopic, table_log: TableLog, transaction: Transaction, spark: SparkSession
    ) -> None:
        self._control = control
        self._log = table_log
        self._transaction = transaction
        self._spark = spark
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="sluice-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether the transaction is not open any more."""
        return not self._transaction.is_open

    def check(self) -> None:
        """Read the control topic to its end, and raise if the transaction is not open any more."""
        self._stop.set()
        self._thread.join()
        self._control.extend(self._log)
        if self.ended:
            raise _ended(self._transaction)

    def _follow(self) -> None:
        reach("participant.watch")
        try:
            for _ in self._control.follow(self._log, self._stop):
                if self.ended:
                    log.warning("the interval is over; stopping the write", instant=self._transaction.id)
                    self._spark.sparkContext.cancelAllJobs()
                    return
        except SluiceError as error:  # `check` reads the topic again before anything is reported
            log.warning("the control topic can't be followed while writing", reason=str(error))


def _ended(transaction: Transaction) -> IntervalError:
    return IntervalError(
        f"The transaction is not open any more: it is {transaction.state.value}. Nothing of this attempt will be seen.",
        next_step="none for this task; if rows are missing, run the next interval.",
        table=transaction.start.table,
        instant=transaction.id,
    )


def _classify(error: Exception, start: StartCommit, planned: Sequence[PlannedRange]) -> SluiceError:
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
