"""The quarantine: a table of a pipeline's bad records, each unchanged and with its problem. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sluice.identifiers import suffixed
from sluice.protocol.identity import LogId
from sluice.protocol.mapping import Log
from sluice.protocol.messages import StartCommit, WriteStatus
from sluice.protocol.settlement import committed_statuses
from sluice.protocol.transaction import State, Transaction
from sluice.records.settings import Errors

SCHEMA = (
    "kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT, kafka_timestamp TIMESTAMP, kafka_key BINARY, "
    "kafka_value BINARY, kafka_headers ARRAY<STRUCT<key: STRING, value: BINARY>>, reason STRING, stage STRING, "
    "table_name STRING, table_path STRING, dag_id STRING, run_id STRING, range_number INT, attempt STRING, day STRING, "
    "kafka_topic_id STRING, kafka_cluster_id STRING"
)
"""Its columns as Spark DDL; the instant is in Hudi's own `_hoodie_commit_time`. See docs/bad-records.md.

New columns go at the end: a table of an earlier release gets them with its next commit, null in its existing rows.
"""
PARTITION_FIELD = "day"
INSTANT = "instant"
"""A further column, for a sink whose rows don't say by themselves which interval has written them."""


@dataclass(frozen=True)
class Quarantined:
    """A bad record in the quarantine.

    Attributes:
        left_out: the parts of the record that the quarantine lacks, in words; None if it is complete.
    """

    instant: str
    topic: str
    partition: int
    offset: int
    reason: str
    stage: str
    range_number: int
    run_id: str
    log: LogId
    timestamp: datetime | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    left_out: str | None = None

    @property
    def place(self) -> str:
        """Its place in Kafka: `topic[partition]@offset`."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


def quarantine_path(table_path: str, errors: Errors) -> str:
    """The path of a pipeline's quarantine."""
    return errors.quarantine or suffixed(table_path, "_quarantine")


def day_of(instant: str) -> str:
    """The quarantine's partition that holds an interval's bad records: the day of its instant, `2026-01-31`."""
    return f"{instant[:4]}-{instant[4:6]}-{instant[6:8]}"


def log_read(start: StartCommit, topic: str) -> LogId:
    """The log of a topic that an interval reads, by the topic's name in rows."""
    for r in start.offset_ranges:
        if r.named_topic == topic:
            return start.log_ids.of(r.cluster, r.topic)
    for cluster, topics in start.topic_ids.items():
        if topic in topics:
            return start.log_ids.of(cluster, topic)
    return LogId()


def logs_by_row_topic(start: StartCommit) -> dict[str, Log]:
    """The cluster and the topic that an interval reads, by the topic's name in rows."""
    return {r.named_topic: (r.cluster, r.topic) for r in start.offset_ranges}


def why_not_again(log: LogId, now: LogId) -> str | None:
    """Why a record must not be sent to its topic again; None if it may.

    Args:
        log: the log that the record is in, as far as known.
        now: the topic's present log.
    """
    if now.topic and not log.topic:
        return "it isn't known of which log they are"
    return log.other_than(now)


def set_aside(transaction: Transaction) -> dict[int, WriteStatus]:
    """The committed statuses that name rows in the quarantine, by range."""
    found = committed_statuses(transaction)
    return {number: status for number, status in found.items() if status.records_quarantined}


def may_have_left_files(transaction: Transaction) -> bool:
    """Whether attempts may have left files in the quarantine that no commit has dealt with.

    A committed interval without bad records has none, since every attempt read the same records.
    """
    if transaction.start.quarantine is None:
        return False
    return transaction.state is not State.COMMITTED or bool(set_aside(transaction))


def registered_files(transaction: Transaction) -> set[str]:
    """The files that a committed transaction registered in the quarantine, relative to it."""
    return {c.path for status in set_aside(transaction).values() for c in status.quarantine_stats}
