"""Which offsets an interval reads: the immutable plan that START-COMMIT carries."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol import coverage
from sluice.protocol.coverage import Coverage
from sluice.protocol.identity import Topic, other_logs
from sluice.protocol.losses import (
    Lost,
    OffsetLoss,
    OnOffsetLoss,
    find_lost,
    losses_of_replaced_logs,
    resume,
    still_valid,
)
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds, Remark

ASSUMED_RECORD_BYTES = 1024


@dataclass(frozen=True)
class Limits:
    """Bounds of one interval over all partitions. Bytes are converted to records by the last interval's average."""

    max_records: int
    max_bytes: int | None = None
    average_record_bytes: float | None = None

    def records(self) -> int:
        """The most offsets that one interval may take; at least one, so that it always progresses."""
        if self.max_bytes is None:
            return self.max_records
        by_bytes = int(self.max_bytes / (self.average_record_bytes or ASSUMED_RECORD_BYTES))
        return max(1, min(self.max_records, by_bytes))


@dataclass(frozen=True)
class Grouping:
    """Into how many ranges an interval's partitions are grouped.

    Attributes:
        at_most: the most ranges.
        records: about the most offsets of a range; None for as many ranges as there may be.
    """

    at_most: int = 1
    records: int | None = None

    @classmethod
    def by_work(cls, at_most: int, records: int, size: int, average_record_bytes: float | None) -> Grouping:
        """As many ranges as keep each below so many records and bytes, by the last interval's average."""
        return cls(at_most, Limits(records, size, average_record_bytes).records())

    def number(self, spans: Sequence[int]) -> int:
        """The number of ranges for partitions of these spans.

        A partition is never shared by two ranges, so that no range can be smaller than the largest one.
        """
        if self.records is None:
            return self.at_most
        whole = max(self.records, *spans, 1)
        return max(1, min(self.at_most, -(-sum(spans) // whole)))


@dataclass(frozen=True)
class IntervalPlan:
    """What one interval reads.

    Attributes:
        ranges: the partitions that have something to read, grouped, the largest group first; one Spark job writes
            each group.
        idle: partitions with nothing to read, as zero-length ranges at their position.
        losses: offsets given up under `on_offset_loss`.
        behind: partitions in which the limits left records for the next interval.
        moves: whether a position must be committed even if there is nothing to read, because it can't be derived from
            the table's checkpoint again: a first interval that starts at the log's end, or a loss that was resumed.
        covered: offsets of the window that aren't read because they are in the table already.
        out_of_order: partitions of which the table has offsets after some of those read.
        rests_on: where a partition would have begun if the table didn't have, or a person hadn't passed over, what
            comes before its range.
        remarks: warnings about partitions.
    """

    ranges: tuple[tuple[OffsetRange, ...], ...]
    idle: tuple[OffsetRange, ...] = ()
    losses: tuple[OffsetLoss, ...] = ()
    behind: frozenset[TopicPartition] = frozenset()
    moves: bool = False
    covered: int = 0
    out_of_order: frozenset[TopicPartition] = frozenset()
    rests_on: Mapping[TopicPartition, int] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read and no position to record, so that the interval opens nothing."""
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
    grouping: Grouping,
    on_offset_loss: OnOffsetLoss,
    table: str,
) -> IntervalPlan:
    """Plan `[start, end)` for every partition that has something to read.

    Args:
        checkpoint: the table's committed next offsets.
        state: the clusters' present state.
        starting: where partitions begin in the table's first interval. A partition that appears later always starts at
            its earliest offset: records written before it was discovered must not be lost.
        limits: bounds of the interval, shared out in proportion to each partition's backlog.
        grouping: how many Spark jobs.
        on_offset_loss: what to do if committed offsets can't be read any more.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: committed offsets are lost and the policy is `fail`.
        RetryableError: a partition has no leader, and the topic was never read.
    """
    others = other_logs(checkpoint, state.log_ids)
    losses = losses_of_replaced_logs(checkpoint, state, others, on_offset_loss, table)
    known = {topic: set(checkpoint.known_partitions(*topic)) for topic in others}
    backlog: list[OffsetRange] = []
    settled: dict[TopicPartition, Coverage] = {}
    covered: dict[TopicPartition, Coverage] = {}
    rests_on: dict[TopicPartition, int] = {}
    moves = False
    for bounds in sorted(state.partitions, key=lambda b: b.topic_partition):
        tp = bounds.topic_partition
        committed = checkpoint.next_offset(tp)
        of_another_log = others.get((tp.cluster, tp.topic))
        if of_another_log and tp in known[tp.cluster, tp.topic]:
            lost = Lost(of_another_log, another_log=True)
            losses.append(resume(bounds, checkpoint.end_of_known(tp), lost, on_offset_loss, table))
            start = losses[-1].resumed_at
        elif committed is None:
            topic = checkpoint.topic(tp.cluster, tp.topic)
            first_interval = topic is None or not topic.partitions  # a backfill alone leaves no position
            wanted = starting.get(tp, "earliest") if first_interval else "earliest"
            start = _first_start(bounds, wanted)
            # "latest" is a moment: it must be recorded for an empty topic, too, or its first records would be skipped.
            moves = moves or start > bounds.log_start or wanted == "latest"
            found = find_lost(bounds, start, checkpoint, state)
            if found:  # a backfill leaves no position from which to know
                at = checkpoint.end_of_settled(tp)
                losses.append(replace(resume(bounds, at, found, on_offset_loss, table), resumed_at=start))
        else:
            found = find_lost(bounds, committed, checkpoint, state)
            start = committed
            if found:
                losses.append(resume(bounds, committed, found, on_offset_loss, table))
                start = losses[-1].resumed_at
        loss = losses[-1] if losses and losses[-1].topic_partition == tp else None
        settled[tp] = still_valid(checkpoint.settled(tp), loss)
        covered[tp] = still_valid(checkpoint.covered(tp), loss)
        begin, start = start, coverage.first_missing(settled[tp], start)
        if start > begin:
            rests_on[tp] = begin
        backlog.append(OffsetRange(tp, start, max(start, bounds.window_end)))
    taken = _share([_up_to_settled(r, settled[r.topic_partition]) for r in backlog], limits.records())
    behind = frozenset(t.topic_partition for t, r in zip(taken, backlog, strict=True) if t.end < r.end)
    return IntervalPlan(
        ranges=_group([r for r in taken if r.span], grouping),
        idle=(*(r for r in taken if not r.span), *_left_out(checkpoint, state, others, table)),
        losses=tuple(losses),
        behind=behind,
        moves=moves or bool(losses),
        out_of_order=_out_of_order(taken, covered),
        rests_on=rests_on,
        remarks=_without_outdated(state.remarks, backlog),
    )


def plan_window(
    checkpoint: Checkpoint,
    partitions: Sequence[PartitionBounds],
    windows: Mapping[TopicPartition, tuple[int, int]],
    *,
    with_passed_over: bool,
    grouping: Grouping,
    table: str,
) -> IntervalPlan:
    """Plan a window's offsets that the table doesn't have: a backfill, or a range that a person requested.

    The limits of an interval don't apply: the whole window was requested, and the run is done once it is read.

    Args:
        checkpoint: the table's checkpoint.
        partitions: the partitions' present bounds.
        windows: `[start, end)` for each requested partition. Past the log's end there is nothing to read.
        with_passed_over: whether to read offsets that a person has passed over, too.
        grouping: how many Spark jobs.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: requested offsets are gone from the log, or a partition doesn't exist.
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
                **tp._asdict(),
            )
        taken = checkpoint.covered(tp) if with_passed_over else checkpoint.settled(tp)
        found = coverage.missing(taken, start, min(end, here.log_end))
        asked += max(0, min(end, here.log_end) - start)
        if found and found[0][0] < here.log_start:
            raise ActionRequiredError(
                "Retention or a delete has removed offsets of this window that the table doesn't have.",
                next_step=f"start the window at offset {here.log_start} or later.",
                table=table,
                **tp._asdict(),
                wanted=found[0][0],
                log_start=here.log_start,
            )
        pieces += [OffsetRange(tp, *piece) for piece in found]
    return IntervalPlan(
        ranges=_group(pieces, grouping),
        covered=asked - coverage.size((piece.start, piece.end) for piece in pieces),
        out_of_order=_out_of_order(pieces, {tp: checkpoint.covered(tp) for tp in windows}),
    )


def plan_again(
    ranges: Sequence[OffsetRange],
    checkpoint: Checkpoint,
    partitions: Sequence[PartitionBounds],
    *,
    grouping: Grouping,
    table: str,
) -> IntervalPlan:
    """Plan to read offsets again that the table has.

    Raises:
        ActionRequiredError: the source doesn't have them any more, or the table has moved on to another log.
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
                "The interval can't be read again: the source doesn't have all of its offsets any more.",
                next_step="leave the table's rows as they are; they are the only remains of these records.",
                table=table,
                wanted=r,
                log_start=here.log_start if here else None,
                log_end=here.log_end if here else None,
            )
    return IntervalPlan(ranges=_group([r for r in ranges if r.span], grouping))


def _up_to_settled(r: OffsetRange, settled: Coverage) -> OffsetRange:
    """The range up to the first offset that was read or passed over already; the next interval reads the rest."""
    ahead = [start for start, _ in settled if r.start < start < r.end]
    return OffsetRange(r.topic_partition, r.start, min(ahead)) if ahead else r


def _out_of_order(
    ranges: Iterable[OffsetRange], covered: Mapping[TopicPartition, Coverage]
) -> frozenset[TopicPartition]:
    """Partitions with rows of later offsets in the table; passed-over offsets have no rows."""
    late = {tp: spans[-1][1] for tp, spans in covered.items() if spans}
    return frozenset(r.topic_partition for r in ranges if r.span and late.get(r.topic_partition, 0) > r.start)


def _first_start(bounds: PartitionBounds, wanted: int | str) -> int:
    if wanted == "earliest":
        return bounds.log_start
    if wanted == "latest":
        return bounds.log_end
    return min(max(int(wanted), bounds.log_start), bounds.log_end)


def _left_out(checkpoint: Checkpoint, state: ClusterState, others: Collection[Topic], table: str) -> list[OffsetRange]:
    """The positions of partitions without a leader: the others are read without them, and they catch up later."""
    found = []
    for tp in state.leaderless:
        if (tp.cluster, tp.topic) in others:
            continue  # its old position means nothing now
        position, topic = checkpoint.next_offset(tp), checkpoint.topic(tp.cluster, tp.topic)
        if position is not None:
            found.append(OffsetRange(tp, position, position))
        elif tp.cluster not in state.skipped and (topic is None or not topic.partitions):
            # Of a cluster that doesn't answer no partition gets a position: its first interval is still to come.
            raise RetryableError(
                "A partition has no leader, so it isn't known where a first interval of its topic starts.",
                next_step="bring its brokers up; the step is retried.",
                table=table,
                **tp._asdict(),
            )
    return found


def refuse_leaderless(partitions: Iterable[TopicPartition], state: ClusterState, table: str) -> None:
    """Refuse to read requested offsets while some of them can't be read.

    Raises:
        RetryableError: a partition has no leader.
    """
    for tp in sorted(set(partitions) & set(state.leaderless)):
        raise RetryableError(
            "A partition of the window has no leader.",
            next_step="bring its brokers up; the step is retried.",
            table=table,
            **tp._asdict(),
        )


def _without_outdated(remarks: Iterable[Remark], backlog: Iterable[OffsetRange]) -> tuple[Remark, ...]:
    """The remarks that still apply: without those on offsets that the table has passed."""
    position = {r.topic_partition: r.start for r in backlog}
    return tuple(r for r in remarks if r.offset is None or r.offset >= position.get(r.topic_partition, 0))


def _share(backlog: Sequence[OffsetRange], limit: int) -> list[OffsetRange]:
    """Share the limit in proportion to backlog; no partition starves; the remainder goes to the first ones."""
    total = sum(r.span for r in backlog)
    if total <= limit:
        return list(backlog)
    waiting = sum(1 for r in backlog if r.span)
    floor = 1 if waiting <= limit else 0  # by proportion alone, a small share would be rounded to nothing, for ever
    quota = [floor + (r.span - floor) * (limit - floor * waiting) // total if r.span else 0 for r in backlog]
    left = limit - sum(quota)
    for i, r in enumerate(backlog):
        extra = min(left, r.span - quota[i])
        quota[i] += extra
        left -= extra
    return [OffsetRange(r.topic_partition, r.start, r.start + q) for r, q in zip(backlog, quota, strict=True)]


def _group(ranges: Sequence[OffsetRange], grouping: Grouping) -> tuple[tuple[OffsetRange, ...], ...]:
    """Form groups of about the same span: the largest partition first, each into the lightest group.

    The largest group comes first: where groups wait for their turn, none that takes long begins last.
    """
    number = grouping.number([r.span for r in ranges])
    groups: list[list[OffsetRange]] = [[] for _ in range(number)]
    heap = [(0, i) for i in range(number)]
    for r in sorted(ranges, key=lambda r: (-r.span, r.topic_partition)):
        load, i = heapq.heappop(heap)
        groups[i].append(r)
        heapq.heappush(heap, (load + r.span, i))
    return tuple(tuple(sorted(g)) for g in sorted(groups, key=lambda g: (-sum(r.span for r in g), sorted(g))) if g)
