"""Which offsets an interval reads: the immutable plan that START-COMMIT carries."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sluice.errors import ActionRequiredError
from sluice.protocol import coverage
from sluice.protocol.coverage import Coverage
from sluice.protocol.identity import LogIds, Topic, other_logs
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition

OnOffsetLoss = Literal["fail", "earliest", "latest"]
ASSUMED_RECORD_BYTES = 1024


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
class ClusterState:
    """Everything that planning asks of the clusters, read once."""

    partitions: Sequence[PartitionBounds]
    cluster_ids: Mapping[str, str | None]
    topic_ids: Mapping[tuple[str, str], str | None]

    @property
    def log_ids(self) -> LogIds:
        """Which logs these are."""
        return LogIds(self.cluster_ids, self.topic_ids)


@dataclass(frozen=True)
class Limits:
    """Bounds of one interval over all partitions. Bytes are turned into records by the last interval's average."""

    max_records: int
    max_bytes: int | None = None
    average_record_bytes: float | None = None

    def records(self) -> int:
        """The most offsets that one interval may take, at least one, so that it always gets on."""
        if self.max_bytes is None:
            return self.max_records
        by_bytes = int(self.max_bytes / (self.average_record_bytes or ASSUMED_RECORD_BYTES))
        return max(1, min(self.max_records, by_bytes))


@dataclass(frozen=True)
class OffsetLoss:
    """Offsets that can't be read any more, and where the pipeline's `on_offset_loss` goes on.

    `another_log` where the offsets that the table knows are of a log that is gone, and say nothing of this one.
    """

    topic_partition: TopicPartition
    committed: int
    resumed_at: int
    reason: str
    another_log: bool = False

    def __str__(self) -> str:
        return f"{self.topic_partition} committed {self.committed}, resumed at {self.resumed_at}: {self.reason}"


@dataclass(frozen=True)
class IntervalPlan:
    """What one interval reads.

    Attributes:
        ranges: the partitions that have something to read, grouped; one Spark job writes each group.
        idle: partitions with nothing to read, as zero-length ranges at their position.
        losses: offsets given up under `on_offset_loss`.
        behind: partitions of which the limits left records for the next interval.
        moves: a position must be committed even if there is nothing to read, because the table's checkpoint would not
            lead to it again: a first interval that starts at the log's end, or a loss that was resumed.
        covered: offsets of the window that are in the table already, which is why they aren't read.
        out_of_order: partitions of which offsets after some of those read are in the table already.
    """

    ranges: tuple[tuple[OffsetRange, ...], ...]
    idle: tuple[OffsetRange, ...] = ()
    losses: tuple[OffsetLoss, ...] = ()
    behind: frozenset[TopicPartition] = frozenset()
    moves: bool = False
    covered: int = 0
    out_of_order: frozenset[TopicPartition] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Nothing to read and no position to record: the interval opens nothing."""
        return not self.ranges and not self.moves

    @property
    def offset_ranges(self) -> tuple[OffsetRange, ...]:
        """All offset ranges, over all groups."""
        return tuple(r for group in self.ranges for r in group)


def plan_interval(
    checkpoint: Checkpoint,
    state: ClusterState,
    *,
    starting: Mapping[TopicPartition, int | Literal["earliest", "latest"]],
    limits: Limits,
    number_of_ranges: int,
    on_offset_loss: OnOffsetLoss,
    table: str,
) -> IntervalPlan:
    """Plan `[start, end)` for every partition that has something to read.

    Args:
        checkpoint: the table's committed next offsets.
        state: what the clusters say now.
        starting: where a partition begins on the table's first interval. A partition that appears later starts at its
            earliest offset whatever stands here: records written before it was discovered must not be lost.
        limits: bounds of the interval, shared out in proportion to each partition's backlog.
        number_of_ranges: how many Spark jobs at most.
        on_offset_loss: what to do where committed offsets can't be read any more.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: committed offsets are lost and the policy is `fail`.
    """
    others = other_logs(checkpoint, state.log_ids)
    losses = _gone_with_their_log(checkpoint, state, others, on_offset_loss, table)
    known = {topic: set(checkpoint.known_partitions(*topic)) for topic in others}
    backlog: list[OffsetRange] = []
    settled: dict[TopicPartition, Coverage] = {}
    covered: dict[TopicPartition, Coverage] = {}
    moves = False
    for bounds in sorted(state.partitions, key=lambda b: b.topic_partition):
        tp = bounds.topic_partition
        committed = checkpoint.next_offset(tp)
        of_another_log = others.get((tp.cluster, tp.topic))
        if of_another_log and tp in known[tp.cluster, tp.topic]:
            lost = (of_another_log, True)
            losses.append(_resume(bounds, checkpoint.end_of_known(tp), lost, on_offset_loss, table))
            start = losses[-1].resumed_at
        elif committed is None:
            topic = checkpoint.topic(tp.cluster, tp.topic)
            first_interval = topic is None or not topic.partitions  # a backfill alone leaves no position
            wanted = starting.get(tp, "earliest") if first_interval else "earliest"
            start = _first_start(bounds, wanted)
            # "latest" is a moment: an empty topic's has to be recorded too, or what comes next would be passed over.
            moves = moves or start > bounds.log_start or wanted == "latest"
        else:
            reason = _lost(bounds, committed)
            start = committed
            if reason:
                losses.append(_resume(bounds, committed, reason, on_offset_loss, table))
                start = losses[-1].resumed_at
        forgotten = bool(losses) and losses[-1].topic_partition == tp and losses[-1].another_log
        settled[tp] = () if forgotten else checkpoint.settled(tp)
        covered[tp] = () if forgotten else checkpoint.covered(tp)
        start = coverage.first_missing(settled[tp], start)
        backlog.append(OffsetRange(tp, start, max(start, bounds.window_end)))
    taken = _share([_up_to_settled(r, settled[r.topic_partition]) for r in backlog], limits.records())
    behind = frozenset(t.topic_partition for t, r in zip(taken, backlog, strict=True) if t.end < r.end)
    return IntervalPlan(
        ranges=_group([r for r in taken if r.span], number_of_ranges),
        idle=tuple(r for r in taken if not r.span),
        losses=tuple(losses),
        behind=behind,
        moves=moves or bool(losses),
        out_of_order=_out_of_order(taken, covered),
    )


def plan_window(
    checkpoint: Checkpoint,
    partitions: Sequence[PartitionBounds],
    windows: Mapping[TopicPartition, tuple[int, int]],
    *,
    with_passed_over: bool,
    number_of_ranges: int,
    table: str,
) -> IntervalPlan:
    """Plan the offsets of a window that the table doesn't have: a backfill, or a range that a person named.

    The limits of an interval don't apply: the window is what was asked for, and its run is done when it is read.

    Args:
        checkpoint: what the table has.
        partitions: what the cluster says of the partitions now.
        windows: `[start, end)` of each partition that is asked for. Past the log's end there is nothing to read.
        with_passed_over: offsets that a person has passed over are read, too.
        number_of_ranges: how many Spark jobs at most.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: offsets that were asked for are gone from the log, or a partition doesn't exist.
    """
    bounds = {b.topic_partition: b for b in partitions}
    pieces: list[OffsetRange] = []
    asked = 0
    for tp, (start, end) in sorted(windows.items()):
        here = bounds.get(tp)
        if here is None:
            raise ActionRequiredError(
                "The window names a partition that the pipeline's topics don't have.",
                next_step="correct the topic or the partition.",
                table=table,
                topic=tp.topic,
                partition=tp.partition,
            )
        taken = checkpoint.covered(tp) if with_passed_over else checkpoint.settled(tp)
        found = coverage.missing(taken, start, min(end, here.log_end))
        asked += max(0, min(end, here.log_end) - start)
        if found and found[0][0] < here.log_start:
            raise ActionRequiredError(
                "Retention or a delete has removed offsets of this window that the table doesn't have.",
                next_step=f"start the window at offset {here.log_start} or later.",
                table=table,
                topic=tp.topic,
                partition=tp.partition,
                wanted=found[0][0],
                log_start=here.log_start,
            )
        pieces += [OffsetRange(tp, *piece) for piece in found]
    return IntervalPlan(
        ranges=_group(pieces, number_of_ranges),
        covered=asked - coverage.size((piece.start, piece.end) for piece in pieces),
        out_of_order=_out_of_order(pieces, {tp: checkpoint.covered(tp) for tp in windows}),
    )


def plan_again(
    ranges: Sequence[OffsetRange],
    checkpoint: Checkpoint,
    partitions: Sequence[PartitionBounds],
    *,
    number_of_ranges: int,
    table: str,
) -> IntervalPlan:
    """Plan offsets that the table has, to read them again.

    Raises:
        ActionRequiredError: Kafka doesn't have them any more, or the table has gone on from another log.
    """
    bounds = {b.topic_partition: b for b in partitions}
    for r in ranges:
        if coverage.missing(checkpoint.covered(r.topic_partition), r.start, r.end):
            raise ActionRequiredError(
                "The interval can't be read again: its offsets are of a log that was given up as lost.",
                next_step="leave the table's rows as they are: the records that they came from are gone.",
                table=table,
                wanted=r,
            )
        here = bounds.get(r.topic_partition)
        if here is None or r.start < here.log_start or r.end > here.end_of_records:
            raise ActionRequiredError(
                "The interval can't be read again: Kafka doesn't have all of its offsets any more.",
                next_step="leave the table's rows as they are; they are what is left of these records.",
                table=table,
                wanted=r,
                log_start=here.log_start if here else None,
                log_end=here.log_end if here else None,
            )
    return IntervalPlan(ranges=_group([r for r in ranges if r.span], number_of_ranges))


def _up_to_settled(r: OffsetRange, settled: Coverage) -> OffsetRange:
    """The range up to the first offset that is read or passed over already; the rest is the next interval's."""
    ahead = [start for start, _ in settled if r.start < start < r.end]
    return OffsetRange(r.topic_partition, r.start, min(ahead)) if ahead else r


def _out_of_order(
    ranges: Iterable[OffsetRange], covered: Mapping[TopicPartition, Coverage]
) -> frozenset[TopicPartition]:
    """Partitions of which the table has rows of later offsets. What was passed over has none, so it has no order."""
    late = {tp: spans[-1][1] for tp, spans in covered.items() if spans}
    return frozenset(r.topic_partition for r in ranges if r.span and late.get(r.topic_partition, 0) > r.start)


def _first_start(bounds: PartitionBounds, wanted: int | str) -> int:
    if wanted == "earliest":
        return bounds.log_start
    if wanted == "latest":
        return bounds.log_end
    return min(max(int(wanted), bounds.log_start), bounds.log_end)


def _gone_with_their_log(
    checkpoint: Checkpoint, state: ClusterState, others: Mapping[Topic, str], policy: OnOffsetLoss, table: str
) -> list[OffsetLoss]:
    """The losses of partitions that the log which is there now doesn't have."""
    there = {b.topic_partition for b in state.partitions}
    losses = []
    for (cluster, topic), reason in others.items():
        for tp in checkpoint.known_partitions(cluster, topic):
            if tp in there:
                continue
            if policy == "fail":
                raise _loss(tp, checkpoint.end_of_known(tp), reason, table)
            losses.append(OffsetLoss(tp, checkpoint.end_of_known(tp), 0, reason, another_log=True))
    return losses


def _lost(bounds: PartitionBounds, committed: int) -> tuple[str, bool] | None:
    """Why the committed offset can't be read on from, and whether that is because the log is another one."""
    if committed < bounds.log_start:
        return f"retention or a delete has removed the records up to {bounds.log_start}", False
    if committed > bounds.end_of_records:
        return f"the committed offset is past the log's end {bounds.end_of_records}", True
    return None


def _resume(
    bounds: PartitionBounds, committed: int, lost: tuple[str, bool], policy: OnOffsetLoss, table: str
) -> OffsetLoss:
    tp = bounds.topic_partition
    reason, another_log = lost
    if policy == "fail":
        raise _loss(tp, committed, reason, table, log_start=bounds.log_start, log_end=bounds.log_end)
    resumed = bounds.log_start if policy == "earliest" else bounds.log_end
    return OffsetLoss(tp, committed, resumed, reason, another_log)


def _loss(tp: TopicPartition, committed: int, reason: str, table: str, **bounds: int) -> ActionRequiredError:
    return ActionRequiredError(
        f"Committed offsets can't be read any more: {reason}.",
        next_step="find out what was lost; then set source.kafka.on_offset_loss to earliest (go on from what is "
        "left) or latest (go on from now) for one run, and back to fail.",
        table=table,
        topic=tp.topic,
        partition=tp.partition,
        committed_offset=committed,
        **bounds,
    )


def _share(backlog: Sequence[OffsetRange], limit: int) -> list[OffsetRange]:
    """Share the limit out in proportion to backlog; no partition starves; the remainder goes first come."""
    total = sum(r.span for r in backlog)
    if total <= limit:
        return list(backlog)
    waiting = sum(1 for r in backlog if r.span)
    floor = 1 if waiting <= limit else 0  # a proportion alone would round a small partition's down to nothing, for ever
    quota = [floor + (r.span - floor) * (limit - floor * waiting) // total if r.span else 0 for r in backlog]
    left = limit - sum(quota)
    for i, r in enumerate(backlog):
        extra = min(left, r.span - quota[i])
        quota[i] += extra
        left -= extra
    return [OffsetRange(r.topic_partition, r.start, r.start + q) for r, q in zip(backlog, quota, strict=True)]


def _group(ranges: Iterable[OffsetRange], number: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Group into at most `number` ranges of about the same span: the largest first, each to the lightest group."""
    groups: list[list[OffsetRange]] = [[] for _ in range(number)]
    heap = [(0, i) for i in range(number)]
    for r in sorted(ranges, key=lambda r: (-r.span, r.topic_partition)):
        load, i = heapq.heappop(heap)
        groups[i].append(r)
        heapq.heappush(heap, (load + r.span, i))
    return tuple(tuple(sorted(g)) for g in sorted(groups) if g)
