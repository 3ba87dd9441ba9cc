"""The Spark side of `sluice verify`: rows of a topic's offsets against rows of the table, by count and checksum."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
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


Readers = Callable[[str], SourceReader]


def compare(spark: SparkSession, readers: Readers, rows_of: ReadsRows, task: Mapping[str, Any]) -> list[Compared]:
    """Compare what the task names; `sluice.verification.verify` writes it.

    Args:
        spark: the session.
        readers: the source's reader of a cluster, by the cluster's present name.
        rows_of: reads the table.
        task: what to compare.
    """
    writer = TableSpec.model_validate(task["writer"])
    names = parse_ddl(spark, writer.schema_ddl).names
    in_table = rows_of(spark, writer)
    if task["record_key"]:
        in_table = in_table.withColumn(INSTANT, F.lit(WHOLE_TABLE))
    topic: dict[str, tuple[int, int]] = {}
    with adaptive(spark):
        table = _fingerprints(in_table, names)
        for named, intervals in groupby(sorted(task["intervals"], key=_clusters_then), _clusters_then):
            present = json.loads(named)
            here = partial(_reader_of, readers, present)
            topic |= _fingerprints(_records(spark, here, task, list(intervals), names), names)
    nothing = (0, 0)
    return [
        Compared(instant, topic.get(instant, nothing)[0], table.get(instant, nothing)[0], same)
        for instant in (interval["instant"] for interval in task["intervals"])
        for same in [topic.get(instant, nothing) == table.get(instant, nothing)]
    ]


def _clusters_then(interval: Mapping[str, Any]) -> str:
    """The names that clusters had in an interval, where these are others now: a column may have them."""
    return json.dumps(interval["clusters"], sort_keys=True)


def _reader_of(readers: Readers, present: Mapping[str, str], then: str) -> SourceReader:
    return readers(present.get(then, then))


def _records(
    spark: SparkSession,
    readers: Readers,
    task: Mapping[str, Any],
    intervals: Sequence[Mapping[str, Any]],
    names: Sequence[str],
) -> DataFrame:
    """The rows that the records of some intervals come to."""
    writer = TableSpec.model_validate(task["writer"])
    plan = RecordPlan.model_validate(task["records"])
    now = intervals[0]["clusters"]
    plan = plan.under_names({r["cluster"]: now.get(r["cluster"], r["cluster"]) for i in intervals for r in i["ranges"]})
    chain = RecordChain(spark, plan, writer, of_streams=task["of_streams"])
    rows = _topic(spark, readers, task, intervals, chain, names)
    if not task["record_key"]:
        return rows
    rows = _last_versions(rows, task["record_key"], writer.ordering_fields)
    return rows.where(~F.col(CHANGE).isin(*DELETES)) if CHANGE in rows.columns else rows


def _topic(
    spark: SparkSession,
    readers: Readers,
    task: Mapping[str, Any],
    intervals: Sequence[Mapping[str, Any]],
    chain: RecordChain,
    names: Sequence[str],
) -> DataFrame:
    ranges = [(i["instant"], PlannedRange(**r)) for i in intervals for r in i["ranges"]]
    joined = _adjoining([r for _, r in ranges])
    rows = chain.rows(read_range(readers, joined, task["isolation_level"], of_streams=task["of_streams"]))
    whose = spark.createDataFrame(
        [(instant, r.named_topic, r.partition, r.start, r.end) for instant, r in ranges],
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
