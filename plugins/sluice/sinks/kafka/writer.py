"""Encodes an interval's rows, and stages the records as Parquet files in a folder of this attempt alone.

No consumer sees staged records: the commit sends them to Kafka, in one transaction with the offsets.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from sluice.connectors.data import SinkWriter, Written
from sluice.errors import ActionRequiredError
from sluice.failpoints import reach
from sluice.jvm.causes import causes
from sluice.jvm.sql import columns
from sluice.protocol.messages import StartCommit
from sluice.rows.changes import CHANGE
from sluice.rows.observed import observed
from sluice.sinks.files.remote import OBJECTS, remote_storage
from sluice.sinks.files.storage import Storage, local_folder
from sluice.sinks.kafka.options.names import staging_folder, way_of_writing
from sluice.sinks.kafka.options.pinned import PinnedTopic
from sluice.sinks.kafka.records import checked_records, written_records
from sluice.sinks.kafka.staged import committable
from sluice.sinks.kafka.staging import checksum, local_staging
from sluice.storages import of_job

_STAGED: Final = "sluice_staged"
_RECORDS_IN_A_FILE: Final = 50_000  # the commit reads a file on remote storage into memory as a whole


class KafkaWriter(SinkWriter):
    """One attempt's staged records.

    Args:
        spark: the job's session.
        start: the interval's START-COMMIT.
        attempt: the attempt's id.
    """

    def __init__(self, spark: SparkSession, start: StartCommit, attempt: str) -> None:
        self._spark, self._start = spark, start
        self._pinned = PinnedTopic.of(start.writer)
        self._folder = staging_folder(start.transaction, attempt)
        self._parts = itertools.count()
        self.needs_record_time = self._pinned.needs_record_time

    def checked(self, rows: DataFrame) -> DataFrame:
        """Encode the rows, and mark records that their topic refuses; see `sluice.connectors.data.ChecksRows`."""
        return checked_records(self._spark, self._start.writer, rows)

    def write(self, rows: DataFrame, emptied_at: str | None = None, *, truncates: bool = False) -> Written:  # noqa: ARG002
        """Encode and stage the rows; see `sluice.connectors.data.SinkWriter`.

        Raises:
            ActionRequiredError: the staging path can't be written to.
        """
        folder = f"{self._folder}/{next(self._parts)}"
        frame = written_records(self._spark, self._start.writer, rows)
        deleted = "`value` IS NULL" if CHANGE in rows.columns else "false"
        frame = frame.observe(
            _STAGED, *columns([f"count_if(NOT ({deleted})) AS records", f"count_if({deleted}) AS tombstones"])
        )
        reach("kafka_sink.before_staging")
        storage = self._storage()
        self._save(frame, f"{self._pinned.staging}/{folder}")
        counts = observed(frame._jdf, _STAGED)
        records, tombstones = int(counts["records"]), int(counts["tombstones"])
        sizes = sorted(storage.files(folder).items())  # by task, and so in the order of the ranges
        files = {name: (size, checksum(storage, f"{folder}/{name}")) for name, size in sizes}
        if not files and records + tombstones:
            raise ActionRequiredError(
                "What Spark's tasks have staged is not where this process looks for it.",
                next_step="give the sink a `staging` that is the same place for all machines, such as hdfs://…: a "
                "local path is each executor's own disk. Nothing was committed.",
                table=self._start.table,
                instant=self._start.transaction,
            )
        way = way_of_writing(self._start.writer)  # computed here, since the commit doesn't know the registry's schemas
        smallest = min(group.takes.bytes for group in self._pinned.groups)
        return Written((committable(folder, files, records, tombstones, way, smallest),), frame._jdf)

    def write_gathered(self, rows: DataFrame, emptied_at: str | None = None) -> Written:
        """See `sluice.connectors.data.WritesGathered`. Records are staged in the order in which a task has them."""
        return self.write(rows, emptied_at)

    # Files

    def _save(self, frame: DataFrame, target: str) -> None:
        """Execute the frame's own plan, which also counts its records, and write Parquet files."""
        run = frame._jdf.queryExecution().toRdd()
        session: Any = self._spark._jsparkSession
        rows = DataFrame(session.internalCreateDataFrame(run, frame._jdf.schema(), False), self._spark)
        writing = (
            rows.write.option("maxRecordsPerFile", _RECORDS_IN_A_FILE)
            .option("compression", "snappy")
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        )
        if target.startswith(OBJECTS):
            # Tasks put their files there themselves, since a rename is a copy on S3; the commit compares counts, and so
            # detects files of tasks that died.
            writing = writing.option("mapreduce.fileoutputcommitter.algorithm.version", "2")
        try:
            writing.parquet(target)
        except Py4JJavaError as error:
            known = of_job(causes(error.java_exception), target, "the sink's `staging`")
            if known is None:
                raise
            raise known from error

    def _storage(self) -> Storage:
        local = local_folder(self._pinned.staging)
        if local is not None:
            return local_staging(local)
        jvm: Any = self._spark._jvm
        context: Any = self._spark._jsc
        return remote_storage(jvm, context.hadoopConfiguration(), self._pinned.staging)
