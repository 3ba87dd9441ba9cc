"""What the clusters say of a pipeline's topics when an interval is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sluice.protocol.identity import LogIds
from sluice.protocol.offsets import TopicPartition

_SHOWN = 20  # remarks in one message


@dataclass(frozen=True)
class PartitionBounds:
    """What a cluster says of one partition when the interval is planned.

    Attributes:
        log_start: earliest offset that retention or a delete has left.
        log_end: the last stable offset, or the high watermark where uncommitted reads are asked for.
        high_watermark: the end of the log with records of open transactions, so never before `log_end`.
        window_start: first offset of the interval's window, where times bound it from below.
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
        """Past the last record, committed or not. A committed offset beyond it can only be of another log."""
        return max(self.log_end, self.high_watermark)


@dataclass(frozen=True)
class Remark:
    """Something to tell of a partition: why its records wait, or are read otherwise than by their times.

    `offset` is where that begins: once the table has come past it there is nothing more to tell. None until then.
    """

    topic_partition: TopicPartition
    what: str
    offset: int | None = None

    def __str__(self) -> str:
        return f"{self.topic_partition}: {self.what}"


def summarize(remarks: Sequence[Remark]) -> tuple[str, ...]:
    """The first remarks in words, and how many more there are."""
    shown = [str(r) for r in remarks[:_SHOWN]]
    return (*shown, f"and {len(remarks) - _SHOWN} more partitions") if len(remarks) > _SHOWN else tuple(shown)


@dataclass(frozen=True)
class ClusterState:
    """Everything that planning asks of the clusters, read once.

    Attributes:
        partitions: those that can be read.
        leaderless: those of which nothing can be asked now, since they have no leader.
        leader_epochs: of those that can be read, where the broker tells it.
        truncated: the offset from which on a partition's records are others than those that the table has read.
        remarks: what is to be told.
    """

    partitions: Sequence[PartitionBounds]
    cluster_ids: Mapping[str, str | None]
    topic_ids: Mapping[tuple[str, str], str | None]
    leaderless: Sequence[TopicPartition] = ()
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    truncated: Mapping[TopicPartition, int] = field(default_factory=dict)
    remarks: Sequence[Remark] = ()

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """Those that can be read and those that can't."""
        return [*(b.topic_partition for b in self.partitions), *self.leaderless]

    def valid_through(self, before: datetime | None) -> datetime | None:
        """The time up to which the table will be complete: not later than before where a partition is left out."""
        times = [b.valid_through for b in self.partitions]
        if self.leaderless:
            return min([before, *times]) if before is not None else None
        return min(times, default=None)

    @property
    def log_ids(self) -> LogIds:
        """Which logs these are."""
        return LogIds(self.cluster_ids, self.topic_ids)
