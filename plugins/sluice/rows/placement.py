"""Where keys are, and where they belong, as columns: Kafka's own murmur2 and Spark's crc32, inside generated code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.jvm.static_call import static_call
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.protocol.placement import PARTITIONERS, Misplaced, PlacedKeys, together
from sluice.rows.changes import ChangeCounts
from sluice.rows.observed import observed

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
    """Counts the records that are not where a partitioner would put them, and those without a key.

    It does nothing if the interval's keys are not checked, or a topic has one partition. It counts in each read
    separately, since a record is checked for each topic that is counted together with its own, which could be many.
    """

    def __init__(self, spark: SparkSession, start: StartCommit, ranges: Sequence[PlannedRange]) -> None:
        self._spark = spark
        self._partitions: dict[str, int] = {}
        self._watched: dict[str, list[str]] = {}
        self._wrong: dict[tuple[str, int], Column] = {}
        placement = start.placement
        if placement is not None and placement.kind == "checked":
            topics = sorted({r.named_topic for r in ranges})
            self._partitions = {t: n for t in topics if (n := placement.partitions.get(t, 0)) > 1}
        # Debezium's truncates and messages have no key and aren't rows: the change step counts keyless rows.
        self._events = start.records.changes is not None

    def watch(self, records: DataFrame, name: str, ranges: Sequence[PlannedRange]) -> DataFrame:
        """The same records, counted in passing: the records of some ranges, which are read together."""
        read = {r.named_topic for r in ranges}
        topics = sorted(read & self._partitions.keys())
        if not topics:
            return records
        self._watched[name] = topics
        return records.observe(f"{_OBSERVED}_{name}", *self._aggregates(topics, one_topic=len(read) == 1))

    def _aggregates(self, topics: Sequence[str], *, one_topic: bool) -> list[Column]:
        columns = []
        for i, topic in enumerate(topics):
            here = F.lit(True) if one_topic else F.col("topic") == topic
            wrong = {_KEYLESS: F.col("key").isNull()}
            for name in PARTITIONERS:
                wrong[name] = self._is_wrong(name, self._partitions[topic])
            for name, condition in wrong.items():
                columns += [
                    F.count(F.when(here & condition, 1)).alias(f"{name}_{i}"),
                    F.min(F.when(here & condition, F.struct("offset", "partition"))).alias(f"first_{name}_{i}"),
                ]
        return columns

    def _is_wrong(self, name: str, partitions: int) -> Column:
        """Cached for each number of partitions, since it takes many calls to the JVM."""
        if (name, partitions) not in self._wrong:
            place = partition_by(self._spark, name, F.col("key"), partitions)
            self._wrong[name, partitions] = place != F.col("partition")
        return self._wrong[name, partitions]

    def found(self, dataset: Any, changes: ChangeCounts) -> tuple[PlacedKeys, ...]:
        """The counts of the run that wrote `dataset`, by topic."""
        seen: dict[str, dict[str, list[Misplaced | None]]] = {topic: {} for topic in self._partitions}
        for watched, topics in self._watched.items():
            counts = observed(dataset, f"{_OBSERVED}_{watched}")
            for i, topic in enumerate(topics):
                for name in (_KEYLESS, *PARTITIONERS):
                    seen[topic].setdefault(name, []).append(_misplaced(counts, name, i))
        found = []
        for topic, wrong in seen.items():
            some = {name: m for name in PARTITIONERS if (m := together(wrong[name])) is not None}
            keyless = changes.keyless.get(topic) if self._events else together(wrong[_KEYLESS])
            found.append(PlacedKeys(topic=topic, keyless=keyless, misplaced=some))
        return tuple(found)


def _misplaced(counts: Mapping[str, Any], name: str, i: int) -> Misplaced | None:
    records = int(counts[f"{name}_{i}"] or 0)
    if not records:
        return None
    first = counts[f"first_{name}_{i}"]
    return Misplaced(records=records, offset=int(first.getAs("offset")), partition=int(first.getAs("partition")))
