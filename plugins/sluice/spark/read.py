"""Reads exactly the planned offsets of a range, and counts what Kafka delivered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.protocol.messages import PartitionResult, PlannedRange
from sluice.protocol.offsets import TopicPartition

_OBSERVED = "sluice"
_TASK = "_sluice_task"


def read_range(
    spark: SparkSession,
    java_settings: Mapping[str, str],
    planned: Sequence[PlannedRange],
    isolation_level: str,
    *,
    headers: bool = False,
) -> DataFrame:
    """A DataFrame of Kafka's columns that reads `[start, end)` of each range, one Spark task for each.

    A range ends where its position reaches the planned end, whatever gaps lie before it. `failOnDataLoss` makes
    Spark fail where offsets are out of range instead of going on with less. Spark's source reads one stretch of a
    partition; where a backfill goes round what is covered, further stretches are reads of their own.

    `headers`: with the records' headers as a column.
    """
    reads = [_read(spark, java_settings, layer, isolation_level, headers) for layer in _layers(planned)]
    # The task is a column, since an observed metric may not hold what is not deterministic.
    frame = reduce(DataFrame.union, reads).withColumn(_TASK, F.spark_partition_id())
    return frame.observe(_OBSERVED, *_aggregates(planned))


def _layers(planned: Sequence[PlannedRange]) -> list[list[PlannedRange]]:
    """The ranges, so shared out that no layer has two of the same partition."""
    layers: list[dict[TopicPartition, PlannedRange]] = []
    for r in planned:
        layer = next((known for known in layers if r.topic_partition not in known), None)
        if layer is None:
            layers.append(layer := {})
        layer[r.topic_partition] = r
    return [list(layer.values()) for layer in layers]


def _read(
    spark: SparkSession,
    java_settings: Mapping[str, str],
    planned: Sequence[PlannedRange],
    isolation_level: str,
    headers: bool,
) -> DataFrame:
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for r in planned:
        assign.setdefault(r.topic, []).append(r.partition)
        starts.setdefault(r.topic, {})[str(r.partition)] = r.start
        ends.setdefault(r.topic, {})[str(r.partition)] = r.end
    reader = spark.read.format("kafka").options(**{f"kafka.{k}": v for k, v in java_settings.items()})
    return (
        reader.option("kafka.isolation.level", isolation_level)
        .option("assign", json.dumps(assign))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(headers).lower())
        .load()
    )


def _aggregates(planned: Sequence[PlannedRange]) -> list[Column]:
    columns = [F.count(F.lit(1)).alias("records")]
    one_topic = len({r.topic for r in planned}) == 1  # then names, which cost much more than numbers, need no comparing
    one_stretch = len({r.topic_partition for r in planned}) == len(planned)
    for i, r in enumerate(planned):
        here = F.col("partition") == r.partition
        if not one_topic:
            here &= F.col("topic") == r.topic
        if not one_stretch:
            here &= (F.col("offset") >= r.start) & (F.col("offset") < r.end)
        columns += [
            F.count(F.when(here, 1)).alias(f"records_{i}"),
            F.max(F.when(here, F.col("offset"))).alias(f"offset_{i}"),
            F.max(F.when(here, F.col("timestamp"))).alias(f"timestamp_{i}"),
            F.sum(F.when(here, F.length("value"))).alias(f"bytes_{i}"),
            F.max(F.when(here, F.col(_TASK))).alias(f"task_{i}"),
        ]
    return columns


def observed(frame: Any, name: str = _OBSERVED) -> dict[str, Any]:
    """The counts of the run that wrote `frame` (a Java Dataset whose own query execution was run)."""
    metrics = frame.queryExecution().observedMetrics()
    if not metrics.contains(name):
        raise RuntimeError(f"Spark delivered no counts for the range ({name})")
    row = metrics.apply(name)
    return {field: row.getAs(field) for field in list(row.schema().fieldNames())}


def partition_results(
    planned: Sequence[PlannedRange], counts: Mapping[str, Any], file_groups: Mapping[int, Sequence[str]]
) -> tuple[PartitionResult, ...]:
    """What was done with each partition.

    Args:
        planned: the range's partitions, in the order in which they were counted.
        counts: what `observed` returned.
        file_groups: file group ids by the Spark task that wrote them.
    """
    results = []
    for i, r in enumerate(planned):
        records = int(counts[f"records_{i}"] or 0)
        last = counts[f"offset_{i}"]
        if last is not None and not r.start <= last < r.end:
            raise RuntimeError(f"Kafka delivered offset {last} outside of {r}")
        time = counts[f"timestamp_{i}"]
        results.append(
            PartitionResult(
                **r.model_dump(include={"cluster", "topic", "partition", "start"}),
                next_offset=r.end,  # Spark's reader ends there or fails
                records_read=records,
                gaps=r.end - r.start - records,
                bytes_read=int(counts[f"bytes_{i}"] or 0),
                max_timestamp=datetime.fromtimestamp(time.getTime() / 1000, UTC) if time is not None else None,
                file_groups=tuple(sorted(set(file_groups.get(counts[f"task_{i}"], ())))),
            )
        )
    return tuple(results)
