"""Kafka's records as a write job reads them: planned offsets of some partitions, by Spark's own Kafka source."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from sluice.connectors.data import Gathered
from sluice.errors import ActionRequiredError, SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.protocol.identity import LogId
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.sources.kafka.cluster import KafkaCluster
from sluice.sources.kafka.driver_settings import java_settings
from sluice.sources.kafka.gathered import gathered
from sluice.sources.kafka.gathering import Gathering
from sluice.sources.kafka.logs_here import log_ids_here

# After each fetch Spark asks the broker where the partition begins and ends, behind a fetch that its client has already
# sent for what comes next. At a partition's end that one waits, by default for half a second in each partition, for
# records that no plan has.
_NOTHING_TO_WAIT_FOR = {"fetch.max.wait.ms": "20"}
# Further settings of Java's client don't hold for librdkafka, except for these, which are translated.
_OF_BOTH = ("client.id", "client.rack")


class KafkaReader:
    """Reads one cluster in one Spark session; see `sluice.connectors.data.SourceReader`.

    Raises:
        ActionRequiredError: something that secures the connection can't be carried over to Spark; it is named.
    """

    def __init__(self, spark: SparkSession, settings: KafkaSettings) -> None:
        self._spark = spark
        self._name = settings.name
        self._kafka = settings
        self._settings = java_settings(spark, settings)
        self._same_logs: dict[str, bool] = {}

    def log_ids(self, topics: Collection[str]) -> dict[str, LogId]:
        """The ids of the cluster and topics that are read; see `sluice.connectors.data.IdentifiesLogs`."""
        return log_ids_here(self._spark, self._settings, topics, self._name)

    def read(self, ranges: Sequence[PlannedRange], isolation_level: str, *, headers: bool = False) -> DataFrame:
        """A range ends when its position reaches the planned end, whatever gaps are before it.

        `failOnDataLoss` makes Spark fail if offsets are out of range instead of reading less.
        """
        return self._read(ranges, isolation_level, headers=headers).load()

    def read_divided(
        self, planned: PlannedRange, tasks: int, isolation_level: str, *, headers: bool = False
    ) -> DataFrame:
        """Stretches of equal spans; see `sluice.connectors.data.DividesRanges`.

        Spark divides one range into just as many as `minPartitions`, and several into about as many.
        """
        return self._read([planned], isolation_level, headers=headers).option("minPartitions", str(tasks)).load()

    def gather(
        self, ranges: Sequence[PlannedRange], per_task: int, isolation_level: str, *, headers: bool = False
    ) -> Gathered:
        """Read by one client of librdkafka's in the driver; see `sluice.connectors.data.GathersRanges`.

        That is left to Spark where its client has separate settings, or where librdkafka finds other logs.
        """
        java = self._kafka.java_options
        if not set(java) <= set(_OF_BOTH) or not self._finds_the_same_logs({r.topic for r in ranges}):
            return Gathered(None, 0, (), tuple(ranges))
        settings = replace(self._kafka, librdkafka={**self._kafka.librdkafka, **java})
        whole, unfit = Gathering(settings, isolation_level, headers=headers).read(ranges)
        return gathered(self._spark, whole, unfit, per_task, headers=headers)

    def _finds_the_same_logs(self, topics: set[str]) -> bool:
        """Whether both clients are led to the same logs: the planned ones were compared with Java's alone."""
        new = sorted(topics - self._same_logs.keys())
        if new:
            try:
                here = KafkaCluster(self._kafka).log_ids(new)
            except SluiceError as error:
                log.warning("partitions are read one by one: librdkafka got no answer", reason=str(error))
                return False
            java = self.log_ids(new)
            self._same_logs |= {t: java[t].other_than(here.of(self._name, t)) is None for t in new}
        return all(self._same_logs[topic] for topic in topics)

    def _read(self, ranges: Sequence[PlannedRange], isolation_level: str, *, headers: bool) -> DataFrameReader:
        assign: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for r in ranges:
            assign.setdefault(r.topic, []).append(r.partition)
            starts.setdefault(r.topic, {})[str(r.partition)] = r.start
            ends.setdefault(r.topic, {})[str(r.partition)] = r.end
        settings = {**_NOTHING_TO_WAIT_FOR, **self._settings}
        reader = self._spark.read.format("kafka").options(**{f"kafka.{k}": v for k, v in settings.items()})
        return (
            reader.option("kafka.isolation.level", isolation_level)
            .option("assign", json.dumps(assign))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "true")
            .option("includeHeaders", str(headers).lower())
        )

    def classified(self, error: Exception, start: StartCommit, ranges: Sequence[PlannedRange]) -> SluiceError | None:
        """The error for offsets that are gone, and for times that Spark can't represent."""
        text = str(error)
        where = {"table": start.table, "instant": start.transaction}
        if "failOnDataLoss" in text or "OffsetOutOfRange" in text or "Cannot fetch offset" in text:
            return ActionRequiredError(
                "Planned offsets could not be read: retention or a delete removed them while the interval ran.",
                next_step="the next interval says which offsets are lost and obeys the source's `on_offset_loss`.",
                **where,
            )
        if "long overflow" in text and "DateTimeUtils" in text:
            return ActionRequiredError(
                "A record is dated after the year 294246, which is later than Spark holds.",
                next_step="find it (kafka-console-consumer.sh with print.timestamp=true and print.offset=true), pass "
                "over its offset, as docs/backfill.md says; limit message.timestamp.after.max.ms of the topic.",
                offsets=", ".join(map(str, ranges)),
                **where,
            )
        return None
