"""The state of a pipeline's topics when an interval is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sluice.protocol.identity import LogIds
from sluice.protocol.offsets import TopicPartition

_SHOWN = 20  # remarks in one message


@dataclass(frozen=True)
class PartitionBounds:
    """The bounds of one partition when the interval is planned.

    Attributes:
        log_start: earliest offset that retention or a delete has left.
        log_end: the last stable offset, or the high watermark for uncommitted reads.
        high_watermark: the end of the log with records of open transactions, so never before `log_end`.
        window_start: first offset of the interval's window, if times bound it from below.
        window_end: first offset past the interval's window; `log_end` unless times bound it.
        valid_through: the time up to which the table is complete once `window_end` is committed.
    """

    topic_partition: TopicPartition
    log_start: int
    log_end: int
    window_end: int
    valid_through: datetime
    high_watermark: int = -1
    window_start: int = 0

    @property
    def end_of_records(self) -> int:
        """The offset after the last record, committed or not. A committed offset beyond it must be of another log."""
        return max(self.log_end, self.high_watermark)


@dataclass(frozen=True)
class Remark:
    """A warning about a partition: why its records wait, or aren't read by their times.

    `offset` is where that begins: once the table has passed it, the remark no longer applies. None if it always does.
    """

    topic_partition: TopicPartition
    what: str
    offset: int | None = None

    def __str__(self) -> str:
        return f"{self.topic_partition}: {self.what}"


def summarize(remarks: Sequence[Remark], *, by_cluster: bool = False) -> tuple[str, ...]:
    """The first remarks in words, with clusters or without, and how many more there are."""
    shown = [f"{r.topic_partition.cluster}/{r}" if by_cluster else str(r) for r in remarks[:_SHOWN]]
    return (*shown, f"and {len(remarks) - _SHOWN} more partitions") if len(remarks) > _SHOWN else tuple(shown)


@dataclass(frozen=True)
class ClusterState:
    """The clusters' state for planning, read once.

    Attributes:
        partitions: the readable partitions.
        leaderless: partitions without a leader, whose state is unknown.
        leader_epochs: of the readable partitions, if the broker gives them.
        truncated: the offset from which a partition's records differ from the records that the table has read.
        remarks: warnings about partitions.
        skipped: clusters that don't answer, and are left out; their known partitions are in `leaderless`.
        unread: skipped clusters of which the table may lack records of any time: no interval has read them yet (a
            backfill doesn't count), or their identity is unknown.
        waits: whether a topic isn't read yet, since another has to be read first; or rows of any time aren't, for lack
            of room in the interval, or because of an open transaction.
        reading: data for readers of the source's rows, beside that of `SourceOptions.row_schema`: what was found when
            planning, so that they read the same.
    """

    partitions: Sequence[PartitionBounds]
    cluster_ids: Mapping[str, str | None]
    topic_ids: Mapping[tuple[str, str], str | None]
    leaderless: Sequence[TopicPartition] = ()
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    truncated: Mapping[TopicPartition, int] = field(default_factory=dict)
    remarks: Sequence[Remark] = ()
    skipped: Sequence[str] = ()
    unread: Sequence[str] = ()
    waits: bool = False
    reading: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """Readable and leaderless partitions."""
        return [*(b.topic_partition for b in self.partitions), *self.leaderless]

    def valid_through(self, before: datetime | None) -> datetime | None:
        """The time up to which the table will be complete: no later than before if a partition is left out.

        None if a cluster is left out of which no interval has read, as far as is known: its records may be older than
        any time.
        """
        times = [b.valid_through for b in self.partitions]
        if self.unread:
            return None
        if self.leaderless or self.skipped or self.waits:
            return min([before, *times]) if before is not None else None
        return min(times, default=None)

    def unread_after(self, positions: Mapping[TopicPartition, int]) -> int | None:
        """The offsets from positions up to the end of all records; None if a partition or a topic is left out."""
        if self.leaderless or self.skipped or self.waits:
            return None
        ends = {b.topic_partition: b.end_of_records for b in self.partitions}
        return sum(max(0, ends[tp] - position) for tp, position in positions.items() if tp in ends)

    @property
    def log_ids(self) -> LogIds:
        """The ids of the logs."""
        return LogIds(self.cluster_ids, self.topic_ids)
