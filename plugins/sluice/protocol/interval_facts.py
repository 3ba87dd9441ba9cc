"""One transaction's outcome in a small value, for alerts, metrics, asset events and lineage.

It is folded from the control topic's messages, so the answer is always the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from pydantic import Field

from sluice.protocol.messages import PlannedRange, RecordCounts, StartCommit, WriteStatus
from sluice.protocol.policy import IntervalKind
from sluice.protocol.settlement import (
    committed_ranges,
    committed_statuses,
    count_records,
    positions_after,
    valid_through,
)
from sluice.protocol.transaction import State, Transaction

_MANY = 500  # partitions; the facts are kept in Airflow's database, for each run


class IntervalFacts(RecordCounts):
    """A transaction's outcome and figures.

    Attributes:
        instant: the transaction's id on Hudi's timeline.
        planned: the offsets to read, by partition. Here and in `stands` topics of streams are named for people, by
            cluster and topic.
        stands: each partition's present position (of more than 500 partitions, those with offsets to read), as
            `[start, end)` of this transaction's offsets: `end` is the next offset to be read. Without a commit `start`
            and `end` are equal. For a window or a replay, which doesn't move the position, only the offsets that it
            committed.
        records_read: records that Kafka delivered; the other counts are their outcomes. All are 0 before a commit.
        bytes_read: bytes of the records' values.
        bytes_written: bytes of the files that the commit added.
        behind: whether limits left records for the next interval, and all of this one's offsets were committed.
        lag_records: offsets that were left unread when the interval was planned; None if unknown.
        cluster_records: records that each cluster delivered, where streams are read.
        cluster_bytes: bytes of these records' values.
        losses: offsets that were given up under `on_offset_loss`, in words.
        remarks: warnings about partitions, such as a missing leader.
        write_seconds: from START-COMMIT to the last WRITE-STATUS; None before that.
        reason: why it was aborted.
    """

    instant: str
    run_id: str
    kind: IntervalKind = "continue"
    state: State
    planned: tuple[PlannedRange, ...] = ()
    stands: tuple[PlannedRange, ...] = ()
    bytes_read: int = 0
    bytes_written: int = 0
    behind: bool = False
    lag_records: int | None = None
    cluster_records: dict[str, int] = Field(default_factory=dict)
    cluster_bytes: dict[str, int] = Field(default_factory=dict)
    valid_through: datetime | None = None
    losses: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    write_seconds: float | None = None
    reason: str | None = None

    @property
    def quarantine_rate(self) -> float:
        """The part of the records that was quarantined, from 0 to 1."""
        return self.records_quarantined / self.records_read if self.records_read else 0.0


def interval_facts(transaction: Transaction) -> IntervalFacts:
    """The facts of a transaction, by its messages so far."""
    start = transaction.start
    reported = committed_statuses(transaction) if transaction.state is State.COMMITTED else {}
    statuses = tuple(reported.values())
    of_streams = start.streams is not None
    records, sizes = Counter[str](), Counter[str]()
    for status in statuses:
        for p in status.partitions:
            records[p.cluster] += p.records_read
            sizes[p.cluster] += p.bytes_read
    return IntervalFacts(
        instant=transaction.id,
        run_id=start.run_id,
        kind=start.kind,
        state=transaction.state,
        planned=_named(start, start.offset_ranges),
        stands=_named(start, _stands(start, reported)),
        **count_records(reported),
        bytes_read=sizes.total(),
        bytes_written=sum(c.bytes for status in statuses for c in status.stats),
        behind=len(reported) == len(start.ranges) and any(r.behind for r in (*start.offset_ranges, *start.idle)),
        lag_records=_lag(start),
        cluster_records=dict(records) if of_streams else {},
        cluster_bytes=dict(sizes) if of_streams else {},
        valid_through=valid_through(start, reported) if reported else None,
        losses=start.losses_in_words,
        remarks=start.remarks,
        write_seconds=_write_seconds(transaction, statuses),
        reason=transaction.reason,
    )


def _stands(start: StartCommit, reported: Mapping[int, WriteStatus]) -> tuple[PlannedRange, ...]:
    if start.policy.moves_positions != "planned":
        return tuple(PlannedRange.of(r) for r in committed_ranges(reported))
    positions = positions_after(start, reported)
    partitions = (*start.offset_ranges, *start.idle)
    if len(partitions) > _MANY:
        partitions = start.offset_ranges
    return tuple(r.model_copy(update={"end": positions[r.topic_partition]}) for r in partitions)


def _named(start: StartCommit, ranges: Iterable[PlannedRange]) -> tuple[PlannedRange, ...]:
    if start.streams is None:
        return tuple(ranges)
    return tuple(r.model_copy(update={"row_topic": f"{r.cluster}/{r.topic}"}) for r in ranges)


def _lag(start: StartCommit) -> int | None:
    """None for a window or a replay: records after it are not lag."""
    partitions = (*start.offset_ranges, *start.idle) if start.policy.reads == "onward" else ()
    known = [max(0, r.log_end - r.end) for r in partitions if r.log_end is not None]
    return sum(known) if known else None


def _write_seconds(transaction: Transaction, statuses: tuple[WriteStatus, ...]) -> float | None:
    last = max((status.time for status in statuses), default=None)
    return (last - transaction.start.time).total_seconds() if last else None
