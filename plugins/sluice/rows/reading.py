"""Reads exactly the planned offsets of a range, and counts the delivered records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from sluice.connectors.data import DividesRanges, Gathered, SourceReader
from sluice.errors import IntervalError
from sluice.identifiers import quoted
from sluice.jvm.sql import columns, literal
from sluice.protocol.messages import PartitionResult, PlannedRange
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.window import record_time
from sluice.rows.observed import metric

_OBSERVED = "sluice"
_TASK = "_sluice_task"
CLUSTER = "cluster"
TOPIC = "kafka_topic"
"""Columns of records of streams: the cluster's name, and the topic's own. Theirs in rows is in `topic`."""
_AT_A_TIME = 16
"""Partitions that are read and counted together: the cost of counting a record grows only with their number."""

_GATHERED = "gathered"

Observe = Callable[[DataFrame, str, Sequence[PlannedRange]], DataFrame]
"""Gets each of a range's reads with its name and ranges, and may add its own observations."""


def read_range(
    readers: Callable[[str], SourceReader],
    planned: Sequence[PlannedRange],
    isolation_level: str,
    *,
    headers: bool = False,
    watch: Observe | None = None,
    of_streams: bool = False,
    division: Sequence[int] = (),
) -> DataFrame:
    """The records of `[start, end)` of each range, counted, one Spark task for each range that isn't divided.

    One read has one stretch of a partition; if a backfill leaves out covered offsets, further stretches are separate
    reads. So are further partitions if there are many: an observed metric checks each record for each partition that it
    counts. And so is a range that is divided.

    Args:
        readers: the source's reader of a cluster.
        planned: what to read.
        isolation_level: whose records are read.
        headers: with the records' headers as a column.
        watch: observes the reads.
        of_streams: with the columns `CLUSTER` and `TOPIC`, and the topics' names in rows in `topic`.
        division: the number of tasks for each range, as of `divided`, of readers that can; empty for one each.
    """
    reads, tasks = [], 0
    for number, batch in enumerate(_batches(planned, division)):
        ranges = [planned[i] for i in batch]
        reader, of_one = readers(ranges[0].cluster), division[batch[0]] if division else 1
        read: DataFrame
        if of_one > 1:
            assert isinstance(reader, DividesRanges)
            read = reader.read_divided(ranges[0], of_one, isolation_level, headers=headers)
        else:
            read = reader.read(ranges, isolation_level, headers=headers)
        if of_streams:
            read = _named(read, ranges[0])
        # The task is a column, since observed metrics must be deterministic. A union's tasks are those of its parts, in
        # order, each part's from 0.
        read = read.selectExpr("*", f"spark_partition_id() + {tasks} AS {quoted(_TASK)}")
        sized = isinstance(read.schema["value"].dataType, BinaryType)
        read = read.observe(f"{_OBSERVED}_{number}", *_aggregates(planned, batch, sized=sized, several=of_one > 1))
        reads.append(watch(read, str(number), ranges) if watch is not None else read)
        tasks += len(ranges) * of_one
    return reduce(DataFrame.union, reads)


def read_gathered(gathered: Sequence[Gathered], *, watch: Observe | None = None, of_streams: bool = False) -> DataFrame:
    """The records of ranges that were gathered, some of each cluster, counted once more.

    Args:
        gathered: at least one, each with records or ranges without any.
        watch: see `read_range`.
        of_streams: see `read_range`.
    """
    reads = []
    for number, one in enumerate(gathered):
        ranges = [d.planned for d in one.delivered]
        read = _named(one.frame, ranges[0]) if of_streams else one.frame
        name = f"{_GATHERED}_{number}"
        read = read.observe(f"{_OBSERVED}_{name}", F.count(F.lit(1)).alias("records"))
        reads.append(watch(read, name, ranges) if watch is not None else read)
    return reduce(DataFrame.union, reads)


def _named(read: DataFrame, one: PlannedRange) -> DataFrame:
    """With the columns of records of streams, by one of the ranges of their cluster."""
    prefix = one.named_topic.removesuffix(one.topic)
    read = read.withColumns({CLUSTER: F.lit(one.cluster), TOPIC: F.col("topic")})
    return read.withColumn("topic", F.concat(F.lit(prefix), F.col("topic"))) if prefix else read


def divided(planned: Sequence[PlannedRange], cores: int, records_per_task: int) -> tuple[int, ...]:
    """The number of tasks for each range: one, unless its offsets are more than a core's share of all.

    A quarter more than that is left to one task: it costs less than another task for a small rest.

    Args:
        planned: what one Spark job reads.
        cores: the number of tasks that run at once.
        records_per_task: the share that isn't divided further, however many cores there are.
    """
    spans = [r.end - r.start for r in planned]
    share = max(records_per_task, -(-sum(spans) // cores))
    return tuple(max(1, -((share - 4 * span) // (4 * share))) for span in spans)


def _batches(planned: Sequence[PlannedRange], division: Sequence[int] = ()) -> list[list[int]]:
    """The ranges' indexes in `planned`, in batches of one cluster with neither many ranges nor two of a partition."""
    layers: dict[tuple[int, str, int | None], list[int]] = {}
    seen: Counter[TopicPartition] = Counter()
    for i, r in enumerate(planned):
        alone = i if division and division[i] > 1 else None
        layers.setdefault((seen[r.topic_partition], r.cluster, alone), []).append(i)
        seen[r.topic_partition] += 1
    return [layer[i : i + _AT_A_TIME] for layer in layers.values() for i in range(0, len(layer), _AT_A_TIME)]


def _aggregates(planned: Sequence[PlannedRange], batch: Sequence[int], *, sized: bool, several: bool) -> list[Column]:
    texts = ["count(1) AS records"]
    # A partition is in a batch only once. With one topic, its name isn't compared, which costs much more than a number.
    one_topic = len({planned[i].named_topic for i in batch}) == 1
    for i in batch:
        here = f"`partition` = {planned[i].partition}"
        if not one_topic:
            here += f" AND `topic` = {literal(planned[i].named_topic)}"
        counted_of_each = {
            f"count(CASE WHEN {here} THEN 1 END)": "records",
            f"max(CASE WHEN {here} THEN `offset` END)": "offset",
            f"max(CASE WHEN {here} THEN unix_millis(`timestamp`) END)": "timestamp",
            f"max(CASE WHEN {here} THEN `{_TASK}` END)": "task",
        }
        if several:
            counted_of_each[f"min(CASE WHEN {here} THEN `{_TASK}` END)"] = "first_task"
        if sized:  # a row has no bytes
            counted_of_each[f"sum(CASE WHEN {here} THEN length(`value`) END)"] = "bytes"
        texts += [f"{text} AS {name}_{i}" for text, name in counted_of_each.items()]
    return columns(texts)


def counted(dataset: Any, planned: Sequence[PlannedRange], division: Sequence[int] = ()) -> dict[str, Any]:
    """The counts, per range and in all, of the run that wrote `dataset`, which is made from `read_range`."""
    counts: dict[str, Any] = {"records": 0}
    metrics = dataset.queryExecution().observedMetrics()
    for number in range(len(_batches(planned, division))):
        of_batch = json.loads(metric(metrics, f"{_OBSERVED}_{number}").json())  # numbers only, in one call
        counts["records"] += int(of_batch.pop("records"))
        counts |= of_batch
    return counts


def counted_gathered(dataset: Any, gathered: Sequence[Gathered]) -> dict[str, Any]:
    """As `counted`, of a run whose dataset is made from `read_gathered`.

    Raises:
        IntervalError: the run had more or fewer records than were gathered.
    """
    counts: dict[str, Any] = {"records": 0}
    metrics = dataset.queryExecution().observedMetrics()
    number, tasks = 0, 0
    for i, one in enumerate(gathered):
        found = int(metric(metrics, f"{_OBSERVED}_{_GATHERED}_{i}").getAs("records"))
        known = sum(d.records for d in one.delivered)
        if found != known:
            raise IntervalError(
                "Spark counted other records than the source had delivered.",
                next_step="nothing was committed; run the interval again.",
                delivered=known,
                counted=found,
            )
        counts["records"] += found
        for d in one.delivered:
            counts |= {
                f"records_{number}": d.records,
                f"offset_{number}": d.last,
                f"timestamp_{number}": d.newest,
                f"bytes_{number}": d.bytes,
                f"task_{number}": None if d.task is None else tasks + d.task,
            }
            number += 1
        tasks += one.tasks
    return counts


def tasks_of(planned: Sequence[PlannedRange], counts: Mapping[str, Any]) -> list[range]:
    """The Spark tasks that read each range, from the result of `counted`; none if the range had no records."""
    last = [counts.get(f"task_{i}") for i in range(len(planned))]
    return [range(0) if n is None else range(counts.get(f"first_task_{i}", n), n + 1) for i, n in enumerate(last)]


def partition_results(
    planned: Sequence[PlannedRange], counts: Mapping[str, Any], file_groups: Mapping[int, Sequence[str]]
) -> tuple[PartitionResult, ...]:
    """The result for each partition.

    Args:
        planned: the range's partitions, in the order in which they were counted.
        counts: what `counted` returned.
        file_groups: file group ids by the range's place in `planned`.
    """
    results = []
    for i, r in enumerate(planned):
        records = int(counts[f"records_{i}"] or 0)
        last = counts.get(f"offset_{i}")
        if last is not None and not r.start <= last < r.end:
            raise RuntimeError(f"The source delivered offset {last} outside of {r}")
        time = counts.get(f"timestamp_{i}")
        results.append(
            PartitionResult(
                **r.model_dump(include={"cluster", "topic", "partition", "start"}),
                next_offset=r.end,  # a read ends there or fails
                records_read=records,
                gaps=r.end - r.start - records,
                bytes_read=int(counts.get(f"bytes_{i}") or 0),
                max_timestamp=record_time(int(time)) if time is not None else None,
                file_groups=tuple(sorted(set(file_groups.get(i, ())))),
            )
        )
    return tuple(results)
