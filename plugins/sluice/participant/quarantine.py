"""Sets a range's bad records aside: a second pass over the offsets around them writes them to the quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.connectors.data import SinkWriter, check_of, takes_gathered, wants_record_time, write_gathered
from sluice.errors import IntervalError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.protocol.bad_records import certainly_too_many
from sluice.protocol.committable import Committable
from sluice.protocol.messages import BadRecord, PlannedRange, StartCommit
from sluice.protocol.quarantine import INSTANT, day_of, log_read
from sluice.rows.records import KAFKA_COLUMNS, PROBLEM, RECORD, Counted, RecordChain, parse_ddl

Read = Callable[[Sequence[PlannedRange], bool], Iterable[tuple[DataFrame, bool]]]
"""Reads planned ranges with headers, some after others, and says of each frame whether its ranges were gathered.

The second argument is whether they may be.
"""


@dataclass(frozen=True)
class SetAside:
    """A range's bad records in the quarantine: their number, the committables, and the first record."""

    records: int = 0
    committables: tuple[Committable, ...] = ()
    first: BadRecord | None = None


def set_aside(
    spark: SparkSession,
    start: StartCommit,
    counted: Counted,
    read: Read,
    quarantine: Callable[[], SinkWriter],
    attempt: tuple[int, str],
    of: SinkWriter,
) -> SetAside:
    """Write a range's bad records to the quarantine, under the interval's instant.

    Args:
        spark: the session.
        start: the interval's START-COMMIT.
        counted: the first pass's counts.
        read: reads ranges again.
        quarantine: the sink's writer of the quarantine, one for the whole attempt.
        attempt: the range's number and the attempt's id.
        of: the writer of the good ones, whose sink doesn't take every row: it sees the same as in the first pass.

    Raises:
        ActionRequiredError: there are more than the pipeline tolerates.
        IntervalError: the second pass did not find the records that the first counted.
    """
    if not counted.bad:
        return SetAside()
    assert start.quarantine is not None
    chain = RecordChain(
        spark,
        start.records,
        start.writer,
        of_streams=start.streams is not None,
        record_time=wants_record_time(of),
        check=check_of(of),
    )
    first = _first(chain, counted, read)
    error = certainly_too_many(start, counted.bad, first)
    if error is not None:
        raise error
    reach("participant.before_quarantine")
    writer = quarantine()
    committables: list[Committable] = []
    for records, gathered in read([span.narrowed() for span in counted.spans], takes_gathered(writer)):
        rows = _rows(chain.bad(records), start, attempt)
        written = write_gathered(writer, rows) if gathered else writer.write(rows)
        committables += written.committables
    found = sum(c.rows for c in committables)
    if found != counted.bad:
        raise IntervalError(
            "The bad records counted differ from the bad records found when they were read again.",
            next_step="nothing was committed; run the interval again. A condition that says different things of one "
            "record, such as rand() or current_timestamp() in a transform, would be why.",
            table=start.table,
            instant=start.transaction,
            counted=counted.bad,
            found=found,
        )
    reach("participant.after_quarantine")
    log.warning(
        "bad records were set aside",
        instant=start.transaction,
        range=attempt[0],
        records=found,
        first=str(first),
        quarantine=start.quarantine.path,
    )
    return SetAside(found, tuple(committables), first)


def in_quarantine(start: StartCommit) -> StartCommit:
    """The interval as the quarantine's writer sees it."""
    return start.model_copy(update={"writer": start.quarantine, "keep_newer": False})


def together(found: Sequence[SetAside]) -> SetAside:
    """The bad records of all of an interval's tables."""
    return SetAside(
        sum(one.records for one in found),
        tuple(c for one in found for c in one.committables),
        next((one.first for one in found if one.first is not None), None),
    )


def _first(chain: RecordChain, counted: Counted, read: Read) -> BadRecord | None:
    ((records, _),) = read([counted.spans[0].only_first()], False)
    found = chain.bad(records).select(*KAFKA_COLUMNS, PROBLEM).head()
    return None if found is None else BadRecord(topic=found[0], partition=found[1], offset=found[2], reason=found[3])


def _rows(bad: DataFrame, start: StartCommit, attempt: tuple[int, str]) -> DataFrame:
    """Rows with the quarantine's columns as START-COMMIT pinned them, in that order, and `KAFKA_COLUMNS`."""
    assert start.quarantine is not None
    pinned = [field.name for field in parse_ddl(bad.sparkSession, start.quarantine.schema_ddl)]
    record = F.col(RECORD)
    logs = {r.named_topic: log_read(start, r.named_topic) for r in start.ranges[attempt[0]]}
    rows = bad.select(
        F.col("_kafka_topic").alias("kafka_topic"),
        F.col("_kafka_partition").alias("kafka_partition"),
        F.col("_kafka_offset").alias("kafka_offset"),
        record["timestamp"].alias("kafka_timestamp"),
        record["key"].alias("kafka_key"),
        record["value"].alias("kafka_value"),
        record["headers"].alias("kafka_headers"),
        F.col(PROBLEM).alias("reason"),
        F.coalesce(record["stage"], F.lit("row")).alias("stage"),
        F.lit(start.writer.name).alias("table_name"),
        F.lit(start.table).alias("table_path"),
        F.lit(start.dag_id).alias("dag_id"),
        F.lit(start.run_id).alias("run_id"),
        F.lit(attempt[0]).alias("range_number"),
        F.lit(attempt[1]).alias("attempt"),
        F.lit(day_of(start.transaction)).alias("day"),
        F.lit(start.transaction).alias(INSTANT),
        _by_topic({topic: log.topic for topic, log in logs.items()}).alias("kafka_topic_id"),
        _by_topic({topic: log.cluster for topic, log in logs.items()}).alias("kafka_cluster_id"),
        *KAFKA_COLUMNS,
    )
    return rows.select(*pinned, *KAFKA_COLUMNS)


def _by_topic(values: Mapping[str, str | None]) -> Column:
    """The value for a record's topic; null if there is none."""
    known = [F.lit(part) for topic, value in values.items() if value is not None for part in (topic, value)]
    return F.create_map(*known)[F.col("_kafka_topic")] if known else F.lit(None).cast("string")
