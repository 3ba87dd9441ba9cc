"""Where keys are, and where they belong, as columns: Kafka's own murmur2 and Spark's crc32, inside generated code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.protocol.messages import StartCommit
from sluice.protocol.placement import PARTITIONERS, Misplaced, PlacedKeys
from sluice.spark.changes import Seen
from sluice.spark.read import observed
from sluice.spark.static_call import static_call

_OBSERVED = "sluice_keys"
_UTILS = "org.apache.kafka.common.utils.Utils"
_KEYLESS = "keyless"


def murmur2(spark: SparkSession, data: Column) -> Column:
    """Kafka's murmur2 of bytes, as a signed integer; null of null. Catalyst calls Kafka's own method."""
    return static_call(spark, _UTILS, "murmur2", "IntegerType", data)


def partition_by(spark: SparkSession, partitioner: str, key: Column, partitions: int) -> Column:
    """The partition to which a partitioner sends a key; null of null."""
    if partitioner == "murmur2":
        return murmur2(spark, key).bitwiseAND(0x7FFFFFFF) % partitions
    if partitioner == "crc32":
        return (F.crc32(key) % partitions).cast("int")
    raise ValueError(f"unknown partitioner {partitioner}")


class KeyCheck:
    """Counts the records of a range that are not where a partitioner would put them, and those without a key.

    It does nothing where the interval's keys are not checked, and of a topic with one partition.
    """

    def __init__(self, spark: SparkSession, start: StartCommit, number: int) -> None:
        self._spark = spark
        self._topics: list[tuple[str, int]] = []
        placement = start.placement
        if placement is not None and placement.kind == "checked":
            topics = sorted({r.topic for r in start.ranges[number]})
            self._topics = [(t, n) for t in topics if (n := placement.partitions.get(t, 0)) > 1]
            self._one_topic = len(topics) == 1
        # Debezium's truncates and messages have no key, and are no rows: the change step counts what is one.
        self._events = start.records.changes is not None

    def watch(self, records: DataFrame) -> DataFrame:
        """The same records, counted as they go by."""
        return records.observe(_OBSERVED, *self._aggregates()) if self._topics else records

    def _aggregates(self) -> list[Column]:
        columns = []
        for i, (topic, partitions) in enumerate(self._topics):
            here = F.lit(True) if self._one_topic else F.col("topic") == topic
            wrong = {_KEYLESS: F.col("key").isNull()}
            for name in PARTITIONERS:
                wrong[name] = partition_by(self._spark, name, F.col("key"), partitions) != F.col("partition")
            for name, condition in wrong.items():
                columns += [
                    F.count(F.when(here & condition, 1)).alias(f"{name}_{i}"),
                    F.min(F.when(here & condition, F.struct("offset", "partition"))).alias(f"first_{name}_{i}"),
                ]
        return columns

    def found(self, dataset: Any, changes: Seen) -> tuple[PlacedKeys, ...]:
        """What the run that wrote `dataset` has counted, by topic."""
        if not self._topics:
            return ()
        counts = observed(dataset, _OBSERVED)
        found = []
        for i, (topic, _) in enumerate(self._topics):
            keyless = _misplaced(counts, _KEYLESS, i)
            if self._events:
                keyless = changes.keyless.get(topic)
            some = {name: m for name in PARTITIONERS if (m := _misplaced(counts, name, i)) is not None}
            found.append(PlacedKeys(topic=topic, keyless=keyless, misplaced=some))
        return tuple(found)


def _misplaced(counts: Mapping[str, Any], name: str, i: int) -> Misplaced | None:
    records = int(counts[f"{name}_{i}"] or 0)
    if not records:
        return None
    first = counts[f"first_{name}_{i}"]
    return Misplaced(records=records, offset=int(first.getAs("offset")), partition=int(first.getAs("partition")))
