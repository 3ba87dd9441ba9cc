"""Writes a decoded range under an instant that the coordinator opened, through Hudi's own Spark writers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.hudi.options import KEY_GENERATORS, key_generator, write_config, write_options
from sluice.protocol.messages import StartCommit, TableWriter
from sluice.spark.read import observed
from sluice.spark.records import KAFKA_COLUMNS

_WRITE_TOKEN = re.compile(r"_(\d+)-\d+-\d+_")
_KEPT = "sluice_kept"
_WINS = "_sluice_wins"
_RECORD_ARGS = "org.apache.hudi.HoodieCreateRecordUtils$createHoodieRecordRddArgs"


@dataclass(frozen=True)
class Written:
    """What a write left behind: Hudi's write stats, the Java Dataset whose run they are of, and rows left out."""

    stats: tuple[dict[str, Any], ...]
    dataset: Any
    skipped: int = 0

    @property
    def records(self) -> int:
        """Rows written."""
        return sum(int(stat["numWrites"]) for stat in self.stats)

    def file_groups_by_task(self) -> dict[int, list[str]]:
        """File group ids by Spark task: an append's task reads one Kafka partition, and file names carry the task."""
        groups: dict[int, list[str]] = {}
        for stat in self.stats:
            token = _WRITE_TOKEN.search(str(stat["path"]))
            if token:
                groups.setdefault(int(token.group(1)), []).append(str(stat["fileId"]))
        return groups


class HudiWriter:
    """The writer of one interval in this Spark application."""

    def __init__(self, spark: SparkSession, start: StartCommit) -> None:
        self._spark = spark
        self._start = start
        self._writer = writer = start.writer
        self._instant = start.transaction
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._hudi = jvm.org.apache.hudi
        self._options = write_options(writer)
        self._config = write_config(self._jvm, writer, self._options)
        self._context = self._hudi.client.common.HoodieSparkEngineContext(spark._jsc)
        # Not through a write client: its initTable sets up and compacts the metadata table, which two participants at
        # a time would do against each other. That is the coordinator's, at START.
        self._table = self._hudi.table.HoodieSparkTable.create(self._config, self._context)

    def write(self, frame: DataFrame) -> Written:
        """Write the records; nothing is visible until the coordinator commits the stats."""
        return self._upsert(frame) if self._writer.operation == "upsert" else self._append(frame)

    def _append(self, frame: DataFrame) -> Written:
        """Row writer without sorting: no shuffle, one file group for each Kafka partition and table partition."""
        helper = self._hudi.HoodieDatasetBulkInsertHelper
        rows = frame.drop(*KAFKA_COLUMNS)
        partitioner = self._hudi.execution.bulkinsert.NonSortPartitionerWithRows()
        table_config = self._table.getMetaClient().getTableConfig()
        prepared = helper.prepareForBulkInsert(rows._jdf, self._config, table_config, partitioner, self._instant)
        statuses = helper.bulkInsert(prepared, self._instant, self._table, self._config, False, False).collectAsList()
        return Written(self._stats(statuses), rows._jdf)  # Hudi runs this query and builds its own on the rows

    def _upsert(self, frame: DataFrame) -> Written:
        """Records tagged with their file group beforehand, so that Hudi looks nothing up.

        Kafka sends a key to one partition, so (topic, partition, table partition) names the file group of a key, as
        RFC-32 has it.
        """
        operation = self._hudi.common.model.WriteOperationType.UPSERT_PREPPED
        tagged = self._tag(frame)
        if self._start.keep_newer:
            tagged = self._without_older(tagged)
        schema = self._hudi.common.schema.HoodieSchema.parse(self._writer.schema_avro)
        parameters = self._jvm.java.util.HashMap()
        for name, value in self._options.items():
            parameters.put(name, value)
        arguments = getattr(self._jvm, _RECORD_ARGS)(
            tagged._jdf,
            self._config,
            self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(parameters),
            self._writer.name,
            "hoodie",
            self._hudi.common.schema.HoodieSchemaUtils.addMetadataFields(schema),
            schema,
            operation,
            self._instant,
            True,  # the meta columns are on the rows already
            False,
            True,
            self._table.getMetaClient().getTableConfig(),
        )
        records = self._hudi.data.HoodieJavaRDD.of(self._hudi.HoodieCreateRecordUtils.createHoodieRecordRdd(arguments))
        result = self._table.upsertPrepped(self._context, self._instant, records)
        statuses = result.getWriteStatuses().collectAsList()
        skipped = int(observed(tagged._jdf, _KEPT)["skipped"]) if self._start.keep_newer else 0
        return Written(self._stats(statuses), tagged._jdf, skipped)

    def _tag(self, frame: DataFrame) -> DataFrame:
        writer = self._writer
        key = _key_column(writer)
        path = _partition_path(writer)
        group = file_group_column(path)
        meta = [
            F.lit(self._instant).alias("_hoodie_commit_time"),
            F.lit("").alias("_hoodie_commit_seqno"),
            key.alias("_hoodie_record_key"),
            path.alias("_hoodie_partition_path"),
            F.concat(group, F.lit(f"_0-0-0_{self._instant}.parquet")).alias("_hoodie_file_name"),
        ]
        columns = [c for c in frame.columns if c not in KAFKA_COLUMNS]
        return frame.select(*meta, *columns)

    def _without_older(self, tagged: DataFrame) -> DataFrame:
        """Without the records of which the table has a version that isn't older.

        They were read out of their order: offsets after them are in the table. A record's row is written where the
        table has none of its key, has one that the interval which is replayed wrote, or has one with a smaller value
        of the ordering fields. Hudi's own merge would let the record win a tie, since it is committed later.
        """
        identity = ("_hoodie_record_key", "_hoodie_partition_path")
        known = ("_hoodie_commit_time", *self._writer.ordering_fields)
        table = self._spark.read.format("hudi").load(self._writer.path)
        there = table.select(*(F.col(f"`{name}`").alias(f"_there_{name}") for name in (*identity, *known)))
        same = [F.col(name) == F.col(f"_there_{name}") for name in identity]
        joined = tagged.join(there, same, "left")
        wins = F.col("_there__hoodie_record_key").isNull()
        wins |= F.col("_there__hoodie_commit_time") == F.lit(self._start.replays or "")
        if self._writer.ordering_fields:
            ours = F.struct(*(F.col(f"`{name}`").alias(name) for name in self._writer.ordering_fields))
            theirs = F.struct(*(F.col(f"`_there_{name}`").alias(name) for name in self._writer.ordering_fields))
            wins |= ours > theirs
        marked = joined.withColumn(_WINS, F.coalesce(wins, F.lit(False)))
        counted = marked.observe(_KEPT, F.count(F.when(~F.col(_WINS), 1)).alias("skipped"))
        return counted.where(F.col(_WINS)).select(*(F.col(f"`{name}`") for name in tagged.columns))

    def _stats(self, statuses: Any) -> tuple[dict[str, Any], ...]:
        to_json = self._hudi.common.util.JsonUtils.toString
        stats = []
        for i in range(statuses.size()):
            status = statuses.get(i)
            if status.hasErrors():
                errors = status.getErrors()
                raise RuntimeError(f"Hudi could not write {errors.size()} records: {list(errors.values())[:1]}")
            stats.append(_compact(json.loads(to_json(status.getStat()))))
        return tuple(stats)


def _compact(stat: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stat.items() if value is not None}


def file_group_column(partition_path: Any) -> Any:
    """File group id: Kafka partition in front, for people, then a hash of topic and table partition."""
    return F.concat(
        F.lpad(F.col("_kafka_partition").cast("string"), 8, "0"),
        F.lit("-"),
        F.md5(F.concat_ws("/", F.col("_kafka_topic"), partition_path)),
        F.lit("-0"),
    )


def _key_column(writer: TableWriter) -> Any:
    """Hudi's record key as the table's key generator makes it: the value, or `name:value,…` for the complex one."""
    fields = writer.record_key
    if len(fields) == 1 and key_generator(writer) != KEY_GENERATORS["complex"]:
        return F.col(f"`{fields[0]}`").cast("string")
    return F.concat_ws(",", *(F.concat(F.lit(f"{f}:"), F.col(f"`{f}`").cast("string")) for f in fields))


def _partition_path(writer: TableWriter) -> Any:
    """Hudi's partition path, hive style (`name=value`) where the table asks for it."""
    hive = writer.options.get("hoodie.datasource.write.hive_style_partitioning", "false").lower() == "true"
    parts = [
        F.concat(F.lit(f"{f}="), F.col(f"`{f}`").cast("string")) if hive else F.col(f"`{f}`").cast("string")
        for f in writer.partition_fields
    ]
    return F.concat_ws("/", *parts) if parts else F.lit("")
