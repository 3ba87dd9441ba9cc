"""Encodes an interval's rows, and stages the records as Parquet files of this attempt's own.

No consumer sees anything of it: the records go to Kafka with the commit, in one transaction with the offsets.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.connectors.data import SinkWriter, Written
from sluice.errors import ActionRequiredError
from sluice.failpoints import reach
from sluice.jvm.causes import causes
from sluice.jvm.sql import columns, literal
from sluice.protocol.messages import StartCommit
from sluice.records.transforms import quoted
from sluice.rows.changes import CHANGE, DELETES
from sluice.rows.observed import observed
from sluice.rows.records import RECORD_TIME, fails_with, parse_ddl
from sluice.sinks.files.hadoop import refusal
from sluice.sinks.files.remote import OBJECTS, remote_storage
from sluice.sinks.files.storage import LocalStorage, Storage, local_folder
from sluice.sinks.kafka.encoders import encoded, unfit
from sluice.sinks.kafka.names import EACH, STAGED, staging_folder
from sluice.sinks.kafka.shape import shape_of
from sluice.sinks.kafka.staged import committable

_STAGED: Final = "sluice_staged"
_UNFIT: Final = "_unfit"
_RECORDS_IN_A_FILE: Final = 50_000  # a file of remote storage is read whole when it is sent
_OVERHEAD: Final = 128  # bytes of a batch of one record beside key, value and headers, as generous as Kafka's clients


class KafkaWriter(SinkWriter):
    """One attempt's staged records.

    Args:
        spark: the job's session.
        start: the interval's START-COMMIT.
        attempt: the attempt's id.
    """

    def __init__(self, spark: SparkSession, start: StartCommit, attempt: str) -> None:
        self._spark, self._start = spark, start
        self._options: Mapping[str, str] = start.writer.options
        self._folder = staging_folder(start.transaction, attempt)
        self._parts = itertools.count()
        self.needs_record_time = self._options["timestamp"] == "record"

    def write(self, rows: DataFrame, emptied_at: str | None = None, *, truncates: bool = False) -> Written:  # noqa: ARG002
        """Encode and stage the rows; see `sluice.connectors.data.SinkWriter`.

        Raises:
            ActionRequiredError: a record is larger than the topic takes, or the staging path can't be written to.
        """
        folder = f"{self._folder}/{next(self._parts)}"
        frame = self._records(rows)
        deleted = "`value` IS NULL" if CHANGE in rows.columns else "false"
        frame = frame.observe(
            _STAGED, *columns([f"count_if(NOT ({deleted})) AS records", f"count_if({deleted}) AS tombstones"])
        )
        reach("kafka_sink.before_staging")
        self._save(frame, f"{self._options['staging']}/{folder}")
        counts = observed(frame._jdf, _STAGED)
        records, tombstones = int(counts["records"]), int(counts["tombstones"])
        files = dict(sorted(self._storage().files(folder).items()))  # by task, and so in the order of the ranges
        if not files and records + tombstones:
            raise ActionRequiredError(
                "What Spark's tasks have staged is not where this process looks for it.",
                next_step="give the sink a `staging` that is the same place for all machines, such as hdfs://…: a "
                "local path is each executor's own disk. Nothing was committed.",
                table=self._start.table,
                instant=self._start.transaction,
            )
        return Written((committable(folder, files, records, tombstones),), frame._jdf)

    # Records

    def _records(self, rows: DataFrame) -> DataFrame:
        options = self._options
        kinds = parse_ddl(self._spark, self._start.writer.schema_ddl)
        shape = shape_of(options, kinds.names)
        key: Column = F.lit(None).cast("binary")
        if shape.key:
            key = self._encoded("key", shape.key, kinds)
            nothing = F.lit(True)
            for name in shape.key:
                nothing &= F.col(quoted(name)).isNull()
            if len(shape.key) == 1:
                key = F.when(~nothing, key)
        value = self._encoded("value", shape.value, kinds)
        if CHANGE in rows.columns:
            value = F.when(~F.col(CHANGE).isin(*DELETES), value)
        headers = [F.lit(name).alias("key") for name in shape.headers]
        own = [
            F.struct(name, F.col(quoted(column)).cast("string").cast("binary").alias("value"))
            for name, column in zip(headers, shape.headers.values(), strict=True)
        ]
        carried = F.col(quoted(shape.headers_from)) if shape.headers_from else None
        given: Column = F.array(*own) if own else F.lit(None).cast(_HEADERS)
        if carried is not None:
            given = F.concat(F.coalesce(carried, F.array().cast(_HEADERS)), given) if own else carried
        topic = options["topic"]
        made = {
            "topic": F.expr(f"replace({literal(topic)}, {literal(EACH)}, _kafka_topic)")
            if EACH in topic
            else F.lit(topic),
            "key": key,
            "value": value,
            "headers": given.cast(_HEADERS),
            "partition": F.col("_kafka_partition") if options["partitioner"] == "same" else F.lit(None).cast("int"),
            "timestamp": self._time(shape.timestamp),
        }
        place = ["_kafka_topic", "_kafka_partition", "_kafka_offset"]
        parts = [(options["key_encoder"], shape.key), (options["value_encoder"], shape.value)]
        unfits = [one for encoder, names in parts if (one := unfit(encoder, names, kinds)) is not None]
        problem = [F.coalesce(*unfits).alias(_UNFIT)] if unfits else []
        frame = rows.select(*(made[name].alias(name) for name in STAGED), *problem, *place)
        limit = int(options["max_bytes"])
        wrong = [f"WHEN {_UNFIT} IS NOT NULL THEN {fails_with(_UNFIT)}"] if unfits else []
        wrong += [f"WHEN {_SIZE} > {limit} THEN {fails_with(literal(_too_large(limit)))}"] if limit else []
        first = f"CASE {' '.join(wrong)} ELSE topic END AS topic" if wrong else "topic"
        return frame.selectExpr(first, *STAGED[1:])

    def _encoded(self, part: str, names: tuple[str, ...], kinds: StructType) -> Column:
        pinned = json.loads(self._options.get(f"{part}_schema", "{}"))
        return encoded(self._spark, self._options[f"{part}_encoder"], names, kinds, pinned)

    def _time(self, column: str) -> Column:
        if column:
            return F.unix_millis(F.col(quoted(column)).cast("timestamp"))
        return F.unix_millis(F.col(RECORD_TIME)) if self.needs_record_time else F.lit(None).cast("bigint")

    # Files

    def _save(self, frame: DataFrame, target: str) -> None:
        """Run the frame's own plan, by which its records are counted, into Parquet files."""
        run = frame._jdf.queryExecution().toRdd()
        session: Any = self._spark._jsparkSession
        rows = DataFrame(session.internalCreateDataFrame(run, frame._jdf.schema(), False), self._spark)
        writing = (
            rows.write.option("maxRecordsPerFile", _RECORDS_IN_A_FILE)
            .option("compression", "snappy")
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        )
        if target.startswith(OBJECTS):
            # Tasks put their files there themselves: a rename is a copy, and what one leaves that dies is counted.
            writing = writing.option("mapreduce.fileoutputcommitter.algorithm.version", "2")
        try:
            writing.parquet(target)
        except Py4JJavaError as error:
            known = refusal(causes(error.java_exception), target)
            if known is None:
                raise
            raise known from error

    def _storage(self) -> Storage:
        local = local_folder(self._options["staging"])
        if local is not None:
            return LocalStorage(local)
        jvm: Any = self._spark._jvm
        context: Any = self._spark._jsc
        return remote_storage(jvm, context.hadoopConfiguration(), self._options["staging"])


_HEADERS: Final = "array<struct<key:string,value:binary>>"
_SIZE: Final = (
    f"{_OVERHEAD} + coalesce(octet_length(`key`), 0) + coalesce(octet_length(`value`), 0) + coalesce("
    "aggregate(`headers`, 0, (sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0) + 10), 0)"
)


def _too_large(limit: int) -> str:
    return f"its key, value and headers are more than the {limit} bytes that the topic takes (max.message.bytes)"
