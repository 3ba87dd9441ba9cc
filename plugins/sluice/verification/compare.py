"""The Spark side of `sluice verify`: rows of a topic's offsets against rows of the table, by count and checksum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sluice.connectors.data import INSTANT, ReadsRows, SourceReader
from sluice.jvm.sql import adaptive
from sluice.protocol.messages import PlannedRange, TableSpec
from sluice.records.plan import RecordPlan
from sluice.rows.changes import CHANGE, DELETES
from sluice.rows.reading import read_range
from sluice.rows.records import RecordChain, parse_ddl
from sluice.verification.verify import WHOLE_TABLE, Compared

_OFFSET = "_kafka_offset"


def compare(spark: SparkSession, reader: SourceReader, rows_of: ReadsRows, task: Mapping[str, Any]) -> list[Compared]:
    """Compare what the task names; `sluice.verification.verify` writes it."""
    writer = TableSpec.model_validate(task["writer"])
    chain = RecordChain(spark, RecordPlan.model_validate(task["records"]), writer)
    names = parse_ddl(spark, writer.schema_ddl).names
    in_topic = _topic(spark, reader, task, chain, names)
    in_table = rows_of(spark, writer)
    if task["record_key"]:
        in_topic = _last_versions(in_topic, task["record_key"], writer.ordering_fields)
        if CHANGE in in_topic.columns:
            in_topic = in_topic.where(~F.col(CHANGE).isin(*DELETES))
        in_table = in_table.withColumn(INSTANT, F.lit(WHOLE_TABLE))
    with adaptive(spark):
        topic, table = _fingerprints(in_topic, names), _fingerprints(in_table, names)
    nothing = (0, 0)
    return [
        Compared(instant, topic.get(instant, nothing)[0], table.get(instant, nothing)[0], same)
        for instant in (interval["instant"] for interval in task["intervals"])
        for same in [topic.get(instant, nothing) == table.get(instant, nothing)]
    ]


def _topic(
    spark: SparkSession,
    reader: SourceReader,
    task: Mapping[str, Any],
    chain: RecordChain,
    names: Sequence[str],
) -> DataFrame:
    ranges = [(i["instant"], PlannedRange(**r)) for i in task["intervals"] for r in i["ranges"]]
    joined = _adjoining([r for _, r in ranges])
    rows = chain.rows(read_range(lambda _cluster: reader, joined, task["isolation_level"]))
    whose = spark.createDataFrame(
        [(instant, r.topic, r.partition, r.start, r.end) for instant, r in ranges],
        "instant string, topic string, partition int, start bigint, end bigint",
    )
    here = (F.col("_kafka_topic") == F.col("topic")) & (F.col("_kafka_partition") == F.col("partition"))
    here &= (F.col(_OFFSET) >= F.col("start")) & (F.col(_OFFSET) < F.col("end"))
    fields = [rows[f"`{name}`"] for name in (*names, *({CHANGE} & set(rows.columns)))]
    return rows.join(F.broadcast(whose), here).select(*fields, rows[_OFFSET], whose["instant"].alias(INSTANT))


def _adjoining(ranges: Sequence[PlannedRange]) -> list[PlannedRange]:
    """The same offsets in as few ranges as there can be: each is a read of its own."""
    merged: list[PlannedRange] = []
    for r in sorted(ranges, key=lambda r: (r.topic_partition, r.start)):
        last = merged[-1] if merged else None
        if last and last.topic_partition == r.topic_partition and last.end == r.start:
            merged[-1] = last.model_copy(update={"end": r.end})
        else:
            merged.append(r)
    return merged


def _last_versions(rows: DataFrame, key: Sequence[str], ordering: Sequence[str]) -> DataFrame:
    newest = [*(F.col(f"`{name}`").desc() for name in ordering), F.col(_OFFSET).desc()]
    place = F.row_number().over(Window.partitionBy(*(F.col(f"`{name}`") for name in key)).orderBy(*newest))
    return rows.withColumn("_sluice_place", place).where(F.col("_sluice_place") == 1)


def _fingerprints(rows: DataFrame, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Count and checksum of the rows by instant; a sum of hashes doesn't know their order, but sees a row twice."""
    hashed: Column = F.xxhash64(*(F.to_json(F.struct(F.col(f"`{name}`"))) for name in names))
    counted = rows.groupBy(INSTANT).agg(
        F.count(F.lit(1)).alias("rows"), F.sum(hashed.cast("decimal(38,0)")).alias("checksum")
    )
    return {row[INSTANT]: (int(row["rows"]), int(row["checksum"])) for row in counted.collect()}
