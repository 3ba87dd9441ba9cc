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
    """Everything that planning needs to know of the clusters, read once.

    Attributes:
        partitions: those that can be read.
        leaderless: those without a leader, about which nothing is known now.
        leader_epochs: of those that can be read, if the broker gives them.
        truncated: the offset from which a partition's records are not those that the table has read.
        remarks: warnings about partitions.
        skipped: clusters that don't answer, and are left out; what is known of their partitions is in `leaderless`.
        unread: those of them of which the table may lack records of any time: no interval has read anything yet,
            whatever a backfill has, or it isn't known which cluster it is.
        waits: whether a topic isn't read yet, since another has to be read before; or rows of any time aren't, which an
            interval has no room for, or which wait for an open transaction.
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

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """Those that can be read and those that can't."""
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

    @property
    def log_ids(self) -> LogIds:
        """The ids of the logs."""
        return LogIds(self.cluster_ids, self.topic_ids)
