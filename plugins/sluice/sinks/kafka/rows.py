"""Reads the records of the sink's topics as consumers see them, for comparisons with the source's records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sluice.connectors.data import INSTANT, reader_of
from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import PlannedRange, TableSpec
from sluice.rows.changes import CHANGE, DELETE
from sluice.rows.reading import read_range
from sluice.sinks.kafka.cluster import target_settings
from sluice.sinks.kafka.log import KEPT, Commit, TableLog
from sluice.sinks.kafka.offsets import Offsets
from sluice.sinks.kafka.options.names import log_of, way_of_writing
from sluice.sinks.kafka.options.pinned import PinnedTopic
from sluice.sinks.kafka.records import HEADERS, checked_records, written_records

_COMMITTED: Final = "read_committed"
_FORGOTTEN: Final = f"the sink's log doesn't say where their records are: it has the last {KEPT} intervals"
_OTHERWISE: Final = "they were written with other columns, encoders or schemas than the pipeline has now"
_GONE: Final = "retention has taken their records out of the topic, or it was made anew"
_COMPACTED: Final = "the topic is compacted, which takes earlier records of a key out of it"


class TopicRows:
    """The records of a pipeline's topics; see `sluice.connectors.data.ReadsWritten`.

    For appends, the log gives the range of offsets of each interval's records. For upserts, topics are read as a whole,
    and each key's last record counts, as with compaction.
    """

    key = ("topic", "key")
    compared = ("topic", "key", "value", "headers", "timestamp")

    def __call__(self, spark: SparkSession, writer: TableSpec, instants: Collection[str] | None = None) -> DataFrame:
        """The records of intervals, each with its instant, or the last one of each key.

        Raises:
            ActionRequiredError: all records are requested, but some are gone, or were written in another way.
            RetryableError: the cluster doesn't answer.
        """
        settings, commits = _log(writer)
        if instants is None:
            return self._last_of_each_key(spark, writer, settings, commits)
        asked = [one for one in commits if one.instant in instants]
        spans = [
            (one.instant, topic, partition, start, end)
            for one in asked
            for topic, each in one.spans.items()
            for partition, start, end in each
        ]
        bounds: dict[tuple[str, int], tuple[int, int]] = {}
        for _, topic, partition, start, end in spans:
            first, last = bounds.get((topic, partition), (start, end))
            bounds[topic, partition] = min(first, start), max(last, end)
        records = _read(spark, settings, bounds)
        whose = spark.createDataFrame(spans, "instant string, t string, p int, start bigint, end bigint")
        here = (records["topic"] == whose["t"]) & (records["partition"] == whose["p"])
        here &= (records["offset"] >= whose["start"]) & (records["offset"] < whose["end"])
        columns = _columns(writer, settings, {topic for topic, _ in bounds})
        return records.join(F.broadcast(whose), here).select(*columns, whose["instant"].alias(INSTANT))

    def beyond(self, writer: TableSpec, instants: Collection[str]) -> Mapping[str, str]:
        """The intervals whose records are unknown, gone, or written in another way, each with the reason."""
        settings, commits = _log(writer)
        known, way, offsets = {one.instant: one for one in commits}, way_of_writing(writer), Offsets(settings)
        topics = {topic for one in commits if one.instant in instants for topic in one.spans}
        starts, ends = offsets.starts(topics), offsets.ends(topics, committed=True)
        compacted = cache(lambda topic: offsets.config(topic).compacted)

        def reason(commit: Commit | None) -> str | None:
            if commit is None or (not commit.spans and commit.records + commit.tombstones):
                return _FORGOTTEN
            if commit.written != way:
                return _OTHERWISE
            for topic, spans in commit.spans.items():
                first, last = starts.get(topic, {}), ends.get(topic, {})
                if any(first.get(p, end) > start or last.get(p, 0) < end for p, start, end in spans):
                    return _GONE
                if compacted(topic):
                    return _COMPACTED
            return None

        reasons = {instant: reason(known.get(instant)) for instant in instants}
        return {instant: words for instant, words in reasons.items() if words is not None}

    def needs_record_time(self, writer: TableSpec) -> bool:
        """Whether records have the timestamps of the source's records."""
        return PinnedTopic.of(writer).needs_record_time

    def checked(self, spark: SparkSession, writer: TableSpec, rows: DataFrame) -> DataFrame:
        """The rows with the reason if their topic refuses a record, by the topic's present settings."""
        return checked_records(spark, writer, rows)

    def written(self, spark: SparkSession, writer: TableSpec, rows: DataFrame, kept: Collection[str]) -> DataFrame:
        """Rows as records, encoded as by a write job."""
        frame = written_records(spark, writer, rows, kept)
        if CHANGE in kept:  # a null in the value's column deletes the key as well
            frame = frame.withColumn(CHANGE, F.when(F.col("value").isNull(), DELETE).otherwise(F.col(CHANGE)))
        return frame.withColumn("headers", _headers())

    def _last_of_each_key(
        self, spark: SparkSession, writer: TableSpec, settings: KafkaSettings, commits: list[Commit]
    ) -> DataFrame:
        topics = {topic for one in commits for topic in one.topics}
        offsets = Offsets(settings)
        starts, ends = offsets.starts(topics), offsets.ends(topics, committed=True)
        first = next((one for one in commits if one.number == 1), None)
        ours = {(topic, p): start for topic, each in (first.spans if first else {}).items() for p, start, _ in each}
        words = None
        if commits and (commits[0].since != 1 or commits[0].written != way_of_writing(writer)):
            words = _OTHERWISE
        elif topics - starts.keys() or any(
            start > ours.get((topic, p), 0) for topic, each in starts.items() for p, start in each.items()
        ):
            words = _GONE
        if words is not None:
            raise ActionRequiredError(
                f"The topics can't be compared as a whole: {words}.",
                next_step="compare them with the system that produced the records.",
                table=writer.path,
            )
        bounds = {
            (topic, p): (starts[topic].get(p, 0), end)
            for topic, each in ends.items()
            for p, end in each.items()
            if starts[topic].get(p, 0) < end
        }
        records = _read(spark, settings, bounds)
        newest = Window.partitionBy("topic", "partition", "key").orderBy(F.col("offset").desc())
        last = records.withColumn("_sluice_place", F.row_number().over(newest)).where("_sluice_place = 1")
        return last.where("value IS NOT NULL").select(*_columns(writer, settings, topics))


def _log(writer: TableSpec) -> tuple[KafkaSettings, list[Commit]]:
    """The cluster, and the commits in the log, newest first."""
    connection, topic = log_of(writer.path)
    settings = target_settings(connection)
    log = TableLog(settings, topic)
    try:
        return settings, log.read().commits
    finally:
        log.close()


def _read(spark: SparkSession, settings: KafkaSettings, bounds: Mapping[tuple[str, int], tuple[int, int]]) -> DataFrame:
    """The committed records in ranges of offsets."""
    if not bounds:
        return spark.createDataFrame(
            [], f"topic string, partition int, offset bigint, key binary, value binary, headers {HEADERS}, "
            "timestamp timestamp"
        )  # fmt: skip
    reader = reader_of("kafka")(spark, settings)
    ranges = [
        PlannedRange(cluster=settings.name, topic=topic, partition=partition, start=start, end=end)
        for (topic, partition), (start, end) in sorted(bounds.items())
    ]
    return read_range(lambda _: reader, ranges, _COMMITTED, headers=True)


def _columns(writer: TableSpec, settings: KafkaSettings, topics: Iterable[str]) -> list[Column]:
    """The comparable columns of a record: the timestamp only if the sink takes it from the source's record."""
    columns = [F.col("topic"), F.col("key"), F.col("value"), _headers().alias("headers")]
    offsets = Offsets(settings)
    pinned = PinnedTopic.of(writer)
    if pinned.needs_record_time and not any(offsets.config(topic).dates_anew for topic in topics):
        columns.append(F.unix_millis("timestamp").alias("timestamp"))
    if pinned.partitioner == "same":
        columns.append(F.col("partition"))
    return columns


def _headers() -> Column:
    """Headers, with null for an empty list."""
    return F.when(F.size("headers") > 0, F.col("headers").cast(HEADERS))


table_rows = TopicRows()
