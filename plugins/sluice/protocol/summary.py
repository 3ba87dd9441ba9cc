"""A summary of a transaction, from the control topic, without Hudi's bulky write stats."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Final, NamedTuple

from sluice.errors import Recovery
from sluice.protocol.messages import NO_LEASE
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.policy import IntervalKind, policy_of
from sluice.protocol.transaction import State

_UNDER_WAY = (State.OPEN, State.DECIDED)
_CAME_TO_NOTHING = (State.ABORTED, State.SUPERSEDED, State.VOID)


class PlannedPartition(NamedTuple):
    """One partition of a plan: offsets `[start, end)`, and the log's end at that time (None if unknown)."""

    cluster: str
    topic: str
    partition: int
    start: int
    end: int
    log_end: int | None
    behind: bool

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.cluster, self.topic, self.partition)


class ReadPartition(NamedTuple):
    """An attempt's result for one partition; bytes are those of the records' values."""

    cluster: str
    topic: str
    partition: int
    start: int
    next_offset: int
    records: int
    gaps: int
    bytes: int
    max_timestamp: datetime | None


@dataclass(slots=True, kw_only=True)
class Figures:
    """What an attempt has read and written: whole numbers, whose sum over an interval's ranges is the interval's.

    Attributes:
        bytes_read: of the values of all records.
        bytes_written: of all files, by Hudi's write stats.
        gaps: offsets that held no record.
        files: how many files it wrote; `file_groups`: how many file groups they belong to.
    """

    records_read: int = 0
    records_written: int = 0
    records_deleted: int = 0
    records_quarantined: int = 0
    records_filtered: int = 0
    records_skipped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    gaps: int = 0
    files: int = 0
    file_groups: int = 0


FIGURES: Final = tuple(one.name for one in fields(Figures))
"""The names of all figures."""


@dataclass(slots=True)
class Attempt(Figures):
    """One attempt at a range, from its WRITE-STATUS.

    Attributes:
        attempt: its random id.
        began: when it began; None if its release didn't report that.
        ended: the time of its WRITE-STATUS.
        counts: it is the one whose files are committed: the first whole, successful status of its range.
        parts: how many messages its status travels in; `parts_seen` of them are in the topic.
        error: why it failed; None if it succeeded.
        recovery: how to recover from the error.
        partitions: the result for each partition; empty if the transaction was thinned.
    """

    attempt: str
    began: datetime | None
    ended: datetime
    parts: int
    parts_seen: int = 0
    counts: bool = False
    error: str | None = None
    recovery: Recovery | None = None
    partitions: tuple[ReadPartition, ...] = ()


@dataclass(slots=True)
class RangeSummary:
    """One range of the plan, and the attempts at it, oldest first."""

    planned: tuple[PlannedPartition, ...]
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def counting(self) -> Attempt | None:
        """The attempt whose files are committed; None if there is none yet."""
        return next((a for a in self.attempts if a.counts), None)


@dataclass(slots=True)
class TransactionSummary:
    """One transaction. Times are those of the messages, by their senders' clocks.

    Attributes:
        instant: the Hudi instant, which is the transaction's id.
        state: as `TableLog` has it.
        kind: its purpose; `reason` in a person's words; `replays` the instant that a replay reads again.
        service: the table service of a `service` transaction.
        started, decided, acknowledged, aborted: the times of START, the first END, ACK and the ABORT that counted.
        valid_through: the time up to which the table is complete; before ACK up to which it will be.
        ranges: what each write job reads, with its attempts; `idle`: partitions with nothing to read.
        passed_over: offsets that a correction leaves out.
        losses: offsets that were given up, in words.
        remarks: warnings about partitions, such as a missing leader.
        cluster_ids: Kafka's own ids of the clusters that it reads, by their names at that time.
        replaced_file_groups: how many file groups its commit takes off the table.
        missing: ranges that END-COMMIT left out, under `on_missing_range: commit`.
        committed: each partition's position after it, from ACK.
        abort_reason: why it was aborted.
        superseded_by: the instant whose START took the table over.
        takeovers: how often another process took over the lease on carrying its commit out.
        offsets_planned: how many offsets its ranges have.
        lag_planned: offsets after its plan that were in the log then, `lag_before` those from the plan's start on; None
            if they weren't queried.
        thinned: its per-partition values were dropped, to save memory; its messages can be read again at `offsets`.
        offsets: the control-topic offsets of its messages, in order, START's first.
    """

    instant: str
    table: str
    epoch: int
    dag_id: str
    run_id: str
    kind: IntervalKind
    state: State
    started: datetime
    reason: str | None = None
    replays: str | None = None
    service: str | None = None
    decided: datetime | None = None
    acknowledged: datetime | None = None
    aborted: datetime | None = None
    valid_through: datetime | None = None
    ranges: tuple[RangeSummary, ...] = ()
    idle: tuple[PlannedPartition, ...] = ()
    passed_over: tuple[PlannedPartition, ...] = ()
    losses: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    cluster_ids: Mapping[str, str | None] = field(default_factory=dict)
    replaced_file_groups: int = 0
    missing: tuple[int, ...] = ()
    committed: tuple[tuple[TopicPartition, int], ...] = ()
    abort_reason: str | None = None
    superseded_by: str | None = None
    takeovers: int = 0
    lease_offset: int = NO_LEASE
    offsets_planned: int = 0
    lag_planned: int | None = None
    lag_before: int | None = None
    thinned: bool = False
    offsets: array[int] = field(default_factory=lambda: array("q"))

    @property
    def start_offset(self) -> int:
        """The control-topic offset of its START."""
        return self.offsets[0]

    @property
    def planned(self) -> tuple[PlannedPartition, ...]:
        """All partitions of the plan, those without records last."""
        return (*(p for r in self.ranges for p in r.planned), *self.idle)

    @property
    def ended(self) -> datetime | None:
        """When it ended: the time of ACK or ABORT."""
        return self.acknowledged or self.aborted

    @property
    def lag_left(self) -> int | None:
        """How many offsets it leaves in the log, by the log's ends when it was planned; None if unknown.

        None for a window, a replay or a service: only an interval that reads on says what waits. One that came to
        nothing leaves everything that it had planned.
        """
        if policy_of(self.kind).reads != "onward":
            return None
        return self.lag_before if self.state in _CAME_TO_NOTHING else self.lag_planned

    def lag_left_in(self, p: PlannedPartition) -> int | None:
        """The same for one partition of its plan."""
        if policy_of(self.kind).reads != "onward" or p.log_end is None:
            return None
        return max(p.log_end - (p.start if self.state in _CAME_TO_NOTHING else p.end), 0)

    @property
    def under_way(self) -> bool:
        """Whether it is open or decided."""
        return self.state in _UNDER_WAY

    def counting(self) -> Iterator[Attempt]:
        """The attempts whose files are committed, one for each range."""
        return (a for r in self.ranges if (a := r.counting) is not None)

    def total(self, what: str) -> int:
        """The sum of one of the counting attempts' `FIGURES`."""
        return sum(getattr(a, what) for a in self.counting())

    def errors(self) -> int:
        """How many attempts failed."""
        return sum(a.error is not None for r in self.ranges for a in r.attempts)

    def partitions_kept(self) -> int:
        """How many per-partition values it holds, which take most of its memory."""
        read = sum(len(a.partitions) for r in self.ranges for a in r.attempts)
        return len(self.planned) + len(self.passed_over) + len(self.committed) + read

    def thin(self) -> None:
        """Drop the per-partition values; all sums stay."""
        self.thinned, self.idle, self.passed_over, self.committed = True, (), (), ()
        for r in self.ranges:
            r.planned = ()
            for attempt in r.attempts:
                attempt.partitions = ()
