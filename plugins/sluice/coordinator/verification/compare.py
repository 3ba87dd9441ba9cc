"""The Spark side of `sluice verify`: rows of a topic's offsets against rows of the table, by count and checksum."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sluice.connectors.data import INSTANT, MADE, PLACE, KnowsRefused, ReadsRows, ReadsWritten, SourceReader
from sluice.coordinator.verification.verify import WHOLE_TABLE, Compared, Verification
from sluice.identifiers import quoted
from sluice.jvm.sql import adaptive
from sluice.protocol.messages import PlannedRange, TableSpec
from sluice.records.changes import POSITION
from sluice.records.plan import RecordPlan
from sluice.rows.changes import CHANGE, DELETES
from sluice.rows.json_text import as_json
from sluice.rows.reading import read_range
from sluice.rows.records import RECORD_TIME, RecordChain, parse_ddl

_OFFSET = "_kafka_offset"


Readers = Callable[[str], SourceReader]


_FIRST, _LAST = "_sluice_first_log", "_sluice_last_log"


def compare(spark: SparkSession, readers: Readers, rows_of: ReadsRows, task: Mapping[str, Any]) -> Verification:
    """Carry out the task's comparison; `sluice.coordinator.verification.verify` writes the task.

    Args:
        spark: the session.
        readers: the source's reader of a cluster, by the cluster's present name.
        rows_of: reads the table.
        task: what to compare.
    """
    writer = TableSpec.model_validate(task["writer"])
    given = parse_ddl(spark, writer.schema_ddl).names
    instants = None if task["whole"] else [interval["instant"] for interval in task["intervals"]]
    encodes, beyond = rows_of if isinstance(rows_of, ReadsWritten) else None, {}
    if encodes is not None:
        given = [*encodes.compared]
        if instants is not None:
            beyond = dict(encodes.beyond(writer, instants))
            instants = [instant for instant in instants if instant not in beyond]
            task = {**task, "intervals": [one for one in task["intervals"] if one["instant"] not in beyond]}
    in_table = rows_of(spark, writer, instants)
    names = [name for name in in_table.columns if name not in (INSTANT, *PLACE) and (encodes or name in given)]
    if task["whole"]:
        in_table = in_table.withColumn(INSTANT, F.lit(WHOLE_TABLE))
    elif INSTANT not in in_table.columns:
        ranges = [(i["instant"], PlannedRange(**r)) for i in task["intervals"] for r in i["ranges"]]
        in_table = _with_instants(spark, in_table, ranges, names)
    topic: dict[str, tuple[int, int]] = {}
    keys_left_out = 0
    with adaptive(spark):
        for named, intervals in groupby(sorted(task["intervals"], key=_clusters_then), _clusters_then):
            here = partial(_reader_of, readers, json.loads(named))
            rows = _records(spark, here, task, list(intervals), names, rows_of)
            key, ordering = task["record_key"], writer.ordering_fields
            if key and encodes is not None:  # the last record sent is the last version, whatever orders them
                key, ordering = encodes.key, ()
            if key:
                rows, in_table, keys_left_out = _last_versions(
                    rows, in_table, key, ordering, keys_stay=task["keys_stay"]
                )
            topic |= _fingerprints(rows, names)
        table = _fingerprints(in_table, names)
    nothing = (0, 0)
    compared = tuple(
        Compared(instant, topic.get(instant, nothing)[0], table.get(instant, nothing)[0], same)
        for instant in (interval["instant"] for interval in task["intervals"])
        for same in [topic.get(instant, nothing) == table.get(instant, nothing)]
    )
    left_out = tuple(name for name in given if name not in names and name != POSITION)
    return Verification(
        compared,
        columns_left_out=left_out,
        keys_left_out=keys_left_out,
        not_in_table=tuple(beyond),
        why_not=tuple(sorted({*beyond.values()})),
    )


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
    rows_of: ReadsRows,
) -> DataFrame:
    """The rows that the records of some intervals come to, encoded where the sink does so."""
    encodes = rows_of if isinstance(rows_of, ReadsWritten) else None
    refuses = rows_of if isinstance(rows_of, KnowsRefused) else None
    writer = TableSpec.model_validate(task["writer"])
    plan = RecordPlan.model_validate(task["records"])
    now = intervals[0]["clusters"]
    plan = plan.under_names({r["cluster"]: now.get(r["cluster"], r["cluster"]) for i in intervals for r in i["ranges"]})
    timed = encodes is not None and encodes.needs_record_time(writer)
    # Without tolerance, every record in the topic was accepted, whatever its present limit.
    check = partial(refuses.checked, spark, writer) if refuses is not None and plan.errors.tolerance == "all" else None
    chain = RecordChain(spark, plan, writer, of_streams=task["of_streams"], record_time=timed, check=check)
    headers = "headers" in plan.columns.values()
    if encodes is None:
        return _topic(spark, readers, task, intervals, chain, {*names, *writer.ordering_fields}, headers=headers)
    wanted = {*parse_ddl(spark, writer.schema_ddl).names, RECORD_TIME}
    rows = _topic(spark, readers, task, intervals, chain, wanted, headers=headers)
    written: DataFrame = encodes.written(spark, writer, rows, [*({CHANGE} & set(rows.columns)), *PLACE, INSTANT])
    return written


def _topic(
    spark: SparkSession,
    readers: Readers,
    task: Mapping[str, Any],
    intervals: Sequence[Mapping[str, Any]],
    chain: RecordChain,
    names: Collection[str],
    *,
    headers: bool,
) -> DataFrame:
    ranges = [(i["instant"], PlannedRange(**r)) for i in intervals for r in i["ranges"]]
    joined = _adjoining([r for _, r in ranges])
    read = read_range(readers, joined, task["isolation_level"], headers=headers, of_streams=task["of_streams"])
    rows = chain.rows(read)
    made = (name for name in rows.columns if name in names or name.startswith(MADE))
    kept = [*made, *({CHANGE} & set(rows.columns)), *PLACE]
    return _with_instants(spark, rows, ranges, kept)


def _with_instants(
    spark: SparkSession, rows: DataFrame, ranges: Sequence[tuple[str, PlannedRange]], names: Sequence[str]
) -> DataFrame:
    """Columns of those rows whose records are in the ranges of an interval, with that interval's instant."""
    whose = spark.createDataFrame(
        [(instant, r.named_topic, r.partition, r.start, r.end) for instant, r in ranges],
        "instant string, topic string, partition int, start bigint, end bigint",
    )
    topic, partition, offset = (rows[name] for name in PLACE)
    here = (topic == whose["topic"]) & (partition == whose["partition"])
    here &= (offset >= whose["start"]) & (offset < whose["end"])
    fields = [rows[quoted(name)] for name in names]
    return rows.join(F.broadcast(whose), here).select(*fields, whose["instant"].alias(INSTANT))


def _adjoining(ranges: Sequence[PlannedRange]) -> list[PlannedRange]:
    """The same offsets in as few ranges as possible: each is a separate read."""
    merged: list[PlannedRange] = []
    for r in sorted(ranges, key=lambda r: (r.topic_partition, r.start)):
        last = merged[-1] if merged else None
        if last and last.topic_partition == r.topic_partition and last.end == r.start:
            merged[-1] = last.model_copy(update={"end": r.end})
        else:
            merged.append(r)
    return merged


def _last_versions(
    rows: DataFrame, in_table: DataFrame, record_key: Sequence[str], ordering: Sequence[str], *, keys_stay: bool
) -> tuple[DataFrame, DataFrame, int]:
    """The expected rows, by the sink's rules: a key's largest record by the ordering columns, of equal ones by offset.

    Offsets order versions within one partition only. Where keys may move and no column orders their versions, those of
    several partitions are left out on either side, and counted.
    """
    key = [quoted(name) for name in record_key]
    of_key = Window.partitionBy(*map(F.col, key))
    newest = [*(F.col(quoted(name)).desc() for name in ordering), F.col(_OFFSET).desc()]
    topic, partition, _ = map(F.col, PLACE)
    log = F.struct(topic, partition)
    ranked = rows.select(
        "*",
        F.row_number().over(of_key.orderBy(*newest)).alias("_sluice_place"),
        F.min(log).over(of_key).alias(_FIRST),
        F.max(log).over(of_key).alias(_LAST),
    )
    last, scattered = ranked.where(F.col("_sluice_place") == 1), 0
    if not ordering and not keys_stay:
        last = last.persist()
        moved = last.where(F.col(_FIRST) != F.col(_LAST)).select(*key)
        scattered = moved.count()
        if scattered:
            last = last.where(F.col(_FIRST) == F.col(_LAST))
            in_table = in_table.join(moved, list(record_key), "left_anti")
    kept = last.where(~F.col(CHANGE).isin(*DELETES)) if CHANGE in rows.columns else last
    return kept, in_table, scattered


def _fingerprints(rows: DataFrame, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Count and checksum of the rows by instant; a sum of hashes doesn't know their order, but sees a row twice."""
    hashed: Column = F.xxhash64(*(as_json(F.struct(F.col(quoted(name)))) for name in names))
    counted = rows.groupBy(INSTANT).agg(
        F.count(F.lit(1)).alias("rows"), F.sum(hashed.cast("decimal(38,0)")).alias("checksum")
    )
    return {row[INSTANT]: (int(row["rows"]), int(row["checksum"])) for row in counted.collect()}
