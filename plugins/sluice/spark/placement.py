"""Where keys are, and where they belong, as columns: Kafka's own murmur2 and Spark's crc32, inside generated code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from sluice.protocol.placement import KeyPlacement, Misplaced, PlacedKeys

_UTILS = "org.apache.kafka.common.utils.Utils"
_KEYLESS = "keyless"


def murmur2(spark: SparkSession, data: Column) -> Column:
    """Kafka's murmur2 of bytes, as a signed integer; null of null. Catalyst calls Kafka's own method."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    utils = jvm.java.lang.Class.forName(_UTILS, True, loader)
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    integer = jvm.org.apache.spark.sql.types.DataTypes.IntegerType
    arguments = sequence([data._jc.expr()])
    invoke = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
    return Column(
        jvm.org.apache.spark.sql.Column(invoke(utils, integer, "murmur2", arguments, sequence([]), True, False, True))
    )


def partition_by(spark: SparkSession, partitioner: str, key: Column, partitions: int) -> Column:
    """The partition to which a partitioner sends a key; null of null."""
    if partitioner == "murmur2":
        return murmur2(spark, key).bitwiseAND(0x7FFFFFFF) % partitions
    if partitioner == "crc32":
        return (F.crc32(key) % partitions).cast("int")
    raise ValueError(f"unknown partitioner {partitioner}")


def placement_aggregates(
    spark: SparkSession, placement: KeyPlacement, topics: Iterable[str], partitioners: Iterable[str]
) -> list[Column]:
    """Counts of records that are not where a partitioner would put them, and of those without a key, by topic.

    A topic with one partition has no wrong places.
    """
    topics = sorted(set(topics))
    columns = []
    for i, topic in enumerate(topics):
        partitions = placement.partitions.get(topic, 0)
        if partitions < 2:
            continue
        here = F.lit(True) if len(topics) == 1 else F.col("topic") == topic
        wrong = {_KEYLESS: F.col("key").isNull()}
        for name in partitioners:
            wrong[name] = partition_by(spark, name, F.col("key"), partitions) != F.col("partition")
        for name, condition in wrong.items():
            first = F.struct(F.col("offset"), F.col("partition"))
            columns += [
                F.count(F.when(here & condition, 1)).alias(f"{name}_{i}"),
                F.min(F.when(here & condition, first)).alias(f"first_{name}_{i}"),
            ]
    return columns


def placed_keys(
    counts: Mapping[str, Any], placement: KeyPlacement, topics: Iterable[str], partitioners: Iterable[str]
) -> tuple[PlacedKeys, ...]:
    """What the aggregates found, by topic."""
    found = []
    for i, topic in enumerate(sorted(set(topics))):
        if placement.partitions.get(topic, 0) < 2:
            continue
        wrong = {name: _misplaced(counts, name, i) for name in (_KEYLESS, *partitioners)}
        keyless = wrong.pop(_KEYLESS)
        some = {name: m for name, m in wrong.items() if m is not None}
        found.append(PlacedKeys(topic=topic, keyless=keyless, misplaced=some))
    return tuple(found)


def _misplaced(counts: Mapping[str, Any], name: str, i: int) -> Misplaced | None:
    records = int(counts[f"{name}_{i}"] or 0)
    if not records:
        return None
    first = counts[f"first_{name}_{i}"]
    return Misplaced(records=records, offset=int(first.getAs("offset")), partition=int(first.getAs("partition")))
