"""Writes a decoded range under an instant that the coordinator opened, through Hudi's Spark writers."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.connectors.data import Written
from sluice.errors import RetryableError
from sluice.identifiers import quoted
from sluice.jvm.sql import adaptive, literal
from sluice.logs import log
from sluice.protocol.committable import Committable
from sluice.protocol.messages import PlannedRange, StartCommit, TableSpec
from sluice.records.changes import POSITION
from sluice.records.folders import HIVE_STYLE, URL_ENCODED, folder, is_on
from sluice.rows.changes import CHANGE, DELETES
from sluice.rows.observed import observed
from sluice.rows.records import KAFKA_COLUMNS, parse_ddl
from sluice.sinks.hudi.attempts import allow_several_writers, number_tasks_apart
from sluice.sinks.hudi.truncate import after, emptied, rows_truncated, void
from sluice.sinks.hudi.write_config import KEY_GENERATORS, key_generator, write_config, write_options

_WRITE_TOKEN = re.compile(r"_(\d+)-\d+-\d+_")
_KEPT = "sluice_kept"
_WINS = "_sluice_wins"
_IN_ORDER = "_sluice_in_order"
_IS_DELETED = "_hoodie_is_deleted"
_DELETED_AT = "_sluice_deleted_at"
_FEW = 500_000
_DIGITS = 8  # of the Kafka partition in a file group's id
_GROUPS_OF_A_TASK = 256  # each task looks its table partitions up anew
_IDENTITY = ("_hoodie_record_key", "_hoodie_partition_path")
_RECORD_ARGS = "org.apache.hudi.HoodieCreateRecordUtils$createHoodieRecordRddArgs"


@dataclass(frozen=True)
class HudiWritten(Written):
    """The result of Hudi's writers, with write stats as committables.

    Attributes:
        named_by: the source of a file group's rows in its name: the Spark task for an append, the Kafka partition for
            an upsert (`file_group_of`); None for hashed keys, whose names don't have it.
    """

    named_by: Literal["task", "partition"] | None = None

    def file_groups(self, ranges: Sequence[PlannedRange], tasks: Sequence[Sequence[int]]) -> dict[int, Sequence[str]]:
        """See `Written`. By the names of files and file groups."""
        if self.named_by is None:
            return {}
        if self.named_by == "task":
            return self._by_tasks(tasks)
        found: dict[int, Sequence[str]] = {}
        written: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for one in self.committables:
            group = str(one.payload["fileId"])
            written[group[:_DIGITS]].append((group, one.partition))
        for i, r in enumerate(ranges):
            here = written.get(f"{r.partition:0{_DIGITS}d}", ())
            found[i] = [group for group, path in here if group == file_group_of(r.named_topic, r.partition, path)]
        return found

    def _by_tasks(self, tasks: Sequence[Sequence[int]]) -> dict[int, Sequence[str]]:
        groups: defaultdict[int, list[str]] = defaultdict(list)
        for one in self.committables:
            task = _WRITE_TOKEN.search(one.path)
            if task:
                groups[int(task.group(1))].append(str(one.payload["fileId"]))
        return {i: [group for number in of for group in groups.get(number, ())] for i, of in enumerate(tasks)}


class HudiWriter:
    """The writer of one interval in this Spark application."""

    def __init__(self, spark: SparkSession, start: StartCommit, attempt: str = "") -> None:  # noqa: ARG002 - see attempts.py
        number_tasks_apart(spark)
        self._spark = spark
        self._start = start
        self._writer = writer = start.writer
        self._instant = start.transaction
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._hudi = jvm.org.apache.hudi
        self._options = write_options(writer)
        # Hudi recognizes deletes by a column of the written records, which the table's schema in commits doesn't have.
        changes = start.records.changes is not None
        self._schema_avro = _with_deleted(writer.schema_avro) if changes else writer.schema_avro
        given = writer.model_copy(update={"schema_avro": self._schema_avro})
        self._config = write_config(self._jvm, given, self._options)
        self._later_deletes: DataFrame | None = None
        self._context = self._hudi.client.common.HoodieSparkEngineContext(spark._jsc)
        # Not through a write client: its initTable creates and compacts the metadata table, in which concurrent
        # participants would conflict. The coordinator does that at START.
        self._table = self._hudi.table.HoodieSparkTable.create(self._config, self._context)
        allow_several_writers(self._config, self._table.getMetaClient())
        # Of an upsert's records with one key and equal values of the ordering field, the last to arrive wins.
        self.any_order = not writer.upserts
        if writer.operation == "upsert":
            # Earlier releases pinned the pipeline file's option in START-COMMIT, but upserts didn't obey it.
            encoded = str(self._table.getMetaClient().getTableConfig().getUrlEncodePartitioning())
            self._writer = writer.model_copy(update={"options": {**writer.options, URL_ENCODED: encoded}})
        if self._table.shouldTrackSuccessRecords():
            log.warning(
                "the table has an index of its records, or is said to: every key written comes to the driver, whose "
                "memory has to grow with the interval's records",
                table=writer.name,
                index=str(self._config.getIndexType()),
            )

    def write(self, frame: DataFrame, emptied_at: str | None = None, *, truncates: bool = False) -> Written:
        """Write the records; nothing is visible until the coordinator commits the stats.

        Args:
            frame: the rows, with `KAFKA_COLUMNS`, and `CHANGE` where the pipeline has changes.
            emptied_at: the position at which the source's table was emptied; earlier rows are void.
            truncates: whether the table may still have such rows, since the truncate is in this interval.
        """
        return self._write(frame, emptied_at, truncates=truncates)

    def write_gathered(self, frame: DataFrame, emptied_at: str | None = None) -> Written:
        """See `sluice.connectors.data.WritesGathered`. A task of an upsert writes many file groups."""
        return self._write(frame, emptied_at, groups_of_a_task=_GROUPS_OF_A_TASK)

    def _write(
        self, frame: DataFrame, emptied_at: str | None, *, truncates: bool = False, groups_of_a_task: int = 1
    ) -> Written:
        if self._writer.operation == "append":
            return self._append(frame)
        if emptied_at is not None:
            frame = after(frame, emptied_at)
        tagged = self._tag(frame)
        truncates = truncates and self._has_rows()
        if truncates and emptied_at is not None:
            tagged = tagged.unionByName(self._emptied(emptied_at))
        written = self._upsert(tagged, groups_of_a_task)
        if emptied_at is None:
            return written
        truncated = rows_truncated(written.dataset) if truncates else 0
        soft = truncated if self._soft else 0
        return replace(written, void=void(written.dataset), truncated=truncated, soft_truncated=soft)

    def remember_deletes(self, later: DataFrame) -> None:
        """Leave out records whose row was deleted later: Hudi remembers the order only until it compacts.

        Args:
            later: the rows of offsets that are already in the table.
        """
        tagged = self._tag(later).where(F.col(_IS_DELETED))
        with adaptive(self._spark):  # otherwise a few deletes become 200 tasks
            newest = tagged.groupBy(*_IDENTITY).agg(F.max(POSITION).alias(_DELETED_AT))
            newest = newest.localCheckpoint()  # its plan has observations with the same names as the write's
            few = newest.limit(_FEW + 1).count() <= _FEW
        self._later_deletes = F.broadcast(newest) if few else newest

    def _without_deleted(self, tagged: DataFrame, deletes: DataFrame) -> DataFrame:
        joined = tagged.join(deletes, list(_IDENTITY), "left")
        lost = F.coalesce(~F.col(_IS_DELETED) & (F.col(_DELETED_AT) > F.col(POSITION)), F.lit(False))
        counted = joined.withColumn(_WINS, ~lost).observe(_KEPT, F.count(F.when(lost, 1)).alias("skipped"))
        return counted.where(F.col(_WINS)).select(*(F.col(quoted(name)) for name in tagged.columns))

    def _has_rows(self) -> bool:
        """Whether anything is committed: without a commit the table has no columns to read."""
        return (
            not self._table.getMetaClient().getActiveTimeline().getCommitsTimeline().filterCompletedInstants().empty()
        )

    def _emptied(self, emptied_at: str) -> DataFrame:
        """The table's rows that a truncate deletes, tagged with the file groups in which they are."""
        table = self._spark.read.format("hudi").load(self._writer.path)
        meta = {
            "_hoodie_commit_time": F.lit(self._instant),
            "_hoodie_commit_seqno": F.lit(""),
            "_hoodie_record_key": F.col("_hoodie_record_key"),
            "_hoodie_partition_path": F.col("_hoodie_partition_path"),
            # For a row in a log file, this column has only the file group's id.
            "_hoodie_file_name": F.concat(
                F.substring_index("_hoodie_file_name", "_", 1), F.lit(f"_0-0-0_{self._instant}.parquet")
            ),
        }
        meta[_IS_DELETED] = F.lit(not self._soft)
        columns = parse_ddl(self._spark, self._writer.schema_ddl)
        return emptied(table, columns, emptied_at, meta, soft=self._soft)

    @property
    def _soft(self) -> bool:
        changes = self._start.records.changes
        return changes is not None and changes.delete == "soft"

    def _append(self, frame: DataFrame) -> Written:
        """Row writer without sorting: no shuffle, one file group for each task that reads, and table partition."""
        helper = self._hudi.HoodieDatasetBulkInsertHelper
        partitioner = self._hudi.execution.bulkinsert.NonSortPartitionerWithRows()
        table_config = self._table.getMetaClient().getTableConfig()
        prepared = helper.prepareForBulkInsert(frame._jdf, self._config, table_config, partitioner, self._instant)
        rows = self._named(DataFrame(prepared, self._spark))  # Hudi executes the frame's query, and another on its rows
        statuses = helper.bulkInsert(rows._jdf, self._instant, self._table, self._config, False, True).collectAsList()
        return HudiWritten(self._committables(statuses), frame._jdf, named_by="task")

    def _named(self, prepared: DataFrame) -> DataFrame:
        """Rows with keys made of topic, partition and offset of their records, which are unique in the table.

        Hudi numbers the rows of each Spark task, from 0 in every application: rows of two ranges of an interval would
        get the same keys and sequence numbers.
        """
        topics = sorted({r.named_topic for group in self._start.ranges for r in group})
        number = "0"
        if len(topics) > 1:
            numbers = (f"WHEN {literal(topic)} THEN {i}" for i, topic in enumerate(topics[1:], 1))
            number = f"CASE `_kafka_topic` {' '.join(numbers)} ELSE 0 END"
        name = f"concat_ws('_', '{self._instant}', {number}, `_kafka_partition`, `_kafka_offset`)"
        given = {"_hoodie_commit_time": f"'{self._instant}'", "_hoodie_commit_seqno": name}
        if not self._writer.record_key:
            given["_hoodie_record_key"] = name
        columns = [c for c in prepared.columns if c not in KAFKA_COLUMNS]
        return prepared.selectExpr(*(f"{given[c]} AS {quoted(c)}" if c in given else quoted(c) for c in columns))

    def _upsert(self, tagged: DataFrame, groups_of_a_task: int) -> Written:
        """Write records that are tagged with their file group, so that Hudi needs no index lookup.

        Kafka sends a key to one partition, so (topic, partition, table partition) determines the key's file group, as
        in RFC-32.

        Args:
            tagged: the records.
            groups_of_a_task: the number of file groups that one Spark task writes, if the others have work, too.
        """
        operation = self._hudi.common.model.WriteOperationType.UPSERT_PREPPED
        by_arrival = _IN_ORDER in tagged.columns
        if by_arrival:
            tagged = self._without_older(tagged)
        if self._later_deletes is not None:
            tagged = self._without_deleted(tagged, self._later_deletes)
        schema = self._hudi.common.schema.HoodieSchema.parse(self._schema_avro)
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
        joined = by_arrival or self._later_deletes is not None
        with adaptive(self._spark) if joined else nullcontext():  # Spark plans here, also for Hudi's later steps
            rdd = self._hudi.HoodieCreateRecordUtils.createHoodieRecordRdd(arguments)
        records = self._hudi.data.HoodieJavaRDD.of(rdd)
        result = self._table.upsertPrepped(self._context, self._instant, records)
        statuses = self._statuses(result.getWriteStatuses(), groups_of_a_task)
        skipped = 0
        if joined:
            skipped = int(observed(tagged._jdf, _KEPT)["skipped"])
        named_by: Literal["partition"] | None = "partition" if self._buckets is None else None
        return HudiWritten(self._committables(statuses), tagged._jdf, skipped, named_by=named_by)

    def _statuses(self, written: Any, groups_of_a_task: int) -> Any:
        """Have Spark write, by a task for each file group, which is a Spark partition, or for several."""
        rdd = self._hudi.data.HoodieJavaRDD.getJavaRDD(written)
        groups = rdd.getNumPartitions()
        tasks = max(self._spark.sparkContext.defaultParallelism, -(-groups // groups_of_a_task))
        return (rdd.coalesce(tasks, False) if tasks < groups else rdd).collect()

    def _tag(self, frame: DataFrame) -> DataFrame:
        writer = self._writer
        key = _key_column(writer)
        path = _partition_path(writer)
        group = self._file_group(key, path)
        wanted = [
            f"'{self._instant}' AS `_hoodie_commit_time`",
            "'' AS `_hoodie_commit_seqno`",
            f"{key} AS `_hoodie_record_key`",
            f"{path} AS `_hoodie_partition_path`",
            f"concat({group}, '_0-0-0_{self._instant}.parquet') AS `_hoodie_file_name`",
            *(quoted(c) for c in frame.columns if c not in (*KAFKA_COLUMNS, CHANGE)),
        ]
        if CHANGE in frame.columns:
            wanted.append(f"`{CHANGE}` IN ({', '.join(map(literal, DELETES))}) AS {quoted(_IS_DELETED)}")
        elif self._start.keep_newer:
            wanted.append(f"{_in_order(self._start.out_of_order)} AS {quoted(_IN_ORDER)}")
        return frame.selectExpr(*wanted)

    def _file_group(self, key: str, path: str) -> str:
        return file_group_column(path) if self._buckets is None else hashed_file_group(key, path, self._buckets)

    @property
    def _buckets(self) -> int | None:
        """The number of file groups per table partition for hashed keys; None if the Kafka partition decides."""
        placement = self._start.placement
        return None if placement is None else placement.buckets

    def _without_older(self, tagged: DataFrame) -> DataFrame:
        """Leave out records if the table has a version of their key that isn't older.

        These records are read out of order: later offsets are in the table. A record's row is written if the table has
        no row with its key, or one that the replayed interval wrote, or one with smaller values of the ordering fields.
        In Hudi's merge the record would win a tie, since it is committed later. That is right for partitions that are
        read in order, so all their records are written.
        """
        known = ("_hoodie_commit_time", *self._writer.ordering_fields)
        table = self._spark.read.format("hudi").load(self._writer.path)
        there = table.select(*(F.col(quoted(name)).alias(f"_there_{name}") for name in (*_IDENTITY, *known)))
        same = [F.col(name) == F.col(f"_there_{name}") for name in _IDENTITY]
        joined = tagged.join(there, same, "left")
        wins = F.col(_IN_ORDER) | F.col("_there__hoodie_record_key").isNull()
        wins |= F.col("_there__hoodie_commit_time") == F.lit(self._start.replays or "")
        if self._writer.ordering_fields:
            ours = F.struct(*(F.col(quoted(name)).alias(name) for name in self._writer.ordering_fields))
            theirs = F.struct(*(F.col(f"`_there_{name}`").alias(name) for name in self._writer.ordering_fields))
            wins |= ours > theirs
        marked = joined.withColumn(_WINS, F.coalesce(wins, F.lit(False)))
        counted = marked.observe(_KEPT, F.count(F.when(~F.col(_WINS), 1)).alias("skipped"))
        return counted.where(F.col(_WINS)).select(
            *(F.col(quoted(name)) for name in tagged.columns if name != _IN_ORDER)
        )

    def _committables(self, statuses: Any) -> tuple[Committable, ...]:
        found = self._jvm.java.util.ArrayList()
        for i in range(statuses.size()):
            status = statuses.get(i)
            if status.hasErrors():
                raise refused_records(status, table=self._writer.path, instant=self._instant)
            found.add(status.getStat())
        stats = json.loads(self._hudi.common.util.JsonUtils.toString(found))
        return tuple(Committable.of_wire(_compact(stat)) for stat in stats)


def refused_records(status: Any, **where: str) -> RetryableError:
    """The error for records that Hudi could not write. It quotes neither keys nor Hudi's errors, which have values.

    Args:
        status: Hudi's write status of one file group.
        where: the place, for the error.
    """
    errors = status.getErrors()
    kinds = sorted({str(error.getClass().getSimpleName()) for error in errors.values()})
    return RetryableError(
        f"Hudi could not write {status.getTotalErrorRecords()} records.",
        next_step="the task is retried; if it comes back, run it once with SLUICE_JAVA_LOG_LEVEL=error, so that Hudi "
        "names records and causes in the Spark log: that has values of the records.",
        **where,
        file_group=str(status.getFileId()),
        errors=", ".join(kinds) or None,
    )


def _compact(stat: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stat.items() if value is not None}


def _with_deleted(schema_avro: str) -> str:
    """The schema with Hudi's column for deletes appended."""
    schema = json.loads(schema_avro)
    schema["fields"].append({"name": _IS_DELETED, "type": ["null", "boolean"], "default": None})
    return json.dumps(schema)


def hashed_file_group(key: str, partition_path: str, buckets: int) -> str:
    """SQL for a file group's id: the bucket by crc32, for readability, and a hash of the table partition.

    The arguments `key` and `partition_path` are SQL, too.
    """
    bucket = f"lpad(cast(crc32(cast({key} AS BINARY)) % {buckets} AS STRING), 8, '0')"
    return f"concat({bucket}, '-', md5(concat_ws('/', 'hashed over {buckets}', {partition_path})), '-0')"


def file_group_of(topic: str, partition: int, partition_path: str) -> str:
    """The id that `file_group_column` gives to a Kafka partition's file group in a table partition."""
    place = hashlib.md5(f"{topic}/{partition_path}".encode(), usedforsecurity=False)
    return f"{partition:0{_DIGITS}d}-{place.hexdigest()}-0"


def file_group_column(partition_path: str) -> str:
    """SQL for a file group's id: the Kafka partition, for readability, and a hash of topic and table partition."""
    number = f"lpad(cast(`_kafka_partition` AS STRING), {_DIGITS}, '0')"
    return f"concat({number}, '-', md5(concat_ws('/', `_kafka_topic`, {partition_path})), '-0')"


def _in_order(out_of_order: Mapping[str, Sequence[int]]) -> str:
    """SQL for whether a record's partition is read in order: the table has no rows of its later offsets."""
    late = ["true"] if not out_of_order else []
    for topic, partitions in out_of_order.items():
        among = f"`_kafka_partition` IN ({', '.join(map(str, partitions))})" if partitions else "false"
        late.append(f"(`_kafka_topic` = {literal(topic)} AND {among})")
    return f"(NOT ({' OR '.join(late)}))"


def _key_column(writer: TableSpec) -> str:
    """SQL for Hudi's record key, as made by the table's key generator: a value, or `name:value,…` for complex keys."""
    fields = writer.record_key
    if len(fields) == 1 and key_generator(writer) != KEY_GENERATORS["complex"]:
        return f"cast({quoted(fields[0])} AS STRING)"
    parts = (f"concat({literal(f'{f}:')}, cast({quoted(f)} AS STRING))" for f in fields)
    return f"concat_ws(',', {', '.join(parts)})"


def _partition_path(writer: TableSpec) -> str:
    """SQL for Hudi's partition path, in hive style (`name=value`) if the table's options say so.

    An empty value gets the same folder as from Hudi's key generators: else its rows would be in the table's root.
    """
    hive, encoded = (is_on(writer.options, option) for option in (HIVE_STYLE, URL_ENCODED))
    parts = []
    for name in writer.partition_fields:
        value = folder(f"cast({quoted(name)} AS STRING)", encoded=encoded)
        parts.append(f"concat({literal(f'{name}=')}, {value})" if hive else value)
    return f"concat_ws('/', {', '.join(parts)})" if parts else "''"
