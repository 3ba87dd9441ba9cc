"""The transactions of a table in short: what the control topic tells of each, without Hudi's bulky write stats.

Made for looking back (a page, a command line) over thousands of transactions, and for being extended as messages come.
Which state a transaction is in is `TableLog`'s verdict and nobody else's. It is only handed what it needs for that: a
transaction that is neither open nor decided is taken out of it, and put back when a late message names it. So folding
takes the same time for the ten thousandth transaction as for the tenth, and comes to the same states as a `TableLog`
that keeps all messages; a test compares the two.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from sys import intern
from typing import NamedTuple

from sluice.errors import Recovery
from sluice.protocol.messages import (
    NO_LEASE,
    AbortCommit,
    AckCommit,
    ControlMessage,
    EndCommit,
    IntervalKind,
    PlannedRange,
    StartCommit,
    WriteStatus,
)
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.transaction import State, TableLog, Transaction

_UNDER_WAY = (State.OPEN, State.DECIDED)


class PlannedPartition(NamedTuple):
    """One partition of a plan: offsets `[start, end)`, and where its log ended then (None where nobody asked)."""

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

    @property
    def lag_left(self) -> int | None:
        """Offsets after the planned end that were in the log when the interval was planned."""
        return None if self.log_end is None else max(self.log_end - self.end, 0)


class ReadPartition(NamedTuple):
    """What an attempt did with one partition; bytes are those of the records' values."""

    cluster: str
    topic: str
    partition: int
    start: int
    next_offset: int
    records: int
    gaps: int
    bytes: int
    max_timestamp: datetime | None


@dataclass(slots=True)
class Attempt:
    """One attempt at a range, from its WRITE-STATUS.

    Attributes:
        attempt: its random id.
        began: when it began, None where its release didn't say.
        ended: the time of its WRITE-STATUS.
        counts: it is the one whose files are committed: the first whole, successful status of its range.
        parts: how many messages its status travels in; `parts_seen` of them stand in the topic.
        error: why it failed, None where it succeeded.
        recovery: what is to be done about the error.
        bytes_written: of all files, by Hudi's write stats.
        files: how many files it wrote; `file_groups`: how many file groups they belong to.
    """

    attempt: str
    began: datetime | None
    ended: datetime
    parts: int
    parts_seen: int = 0
    counts: bool = False
    error: str | None = None
    recovery: Recovery | None = None
    records_read: int = 0
    records_written: int = 0
    records_quarantined: int = 0
    records_skipped: int = 0
    bytes_written: int = 0
    files: int = 0
    file_groups: int = 0
    partitions: tuple[ReadPartition, ...] = ()

    @property
    def bytes_read(self) -> int:
        """Bytes of the values of all records."""
        return sum(p.bytes for p in self.partitions)

    @property
    def gaps(self) -> int:
        """Offsets that held no record."""
        return sum(p.gaps for p in self.partitions)


@dataclass(slots=True)
class RangeSummary:
    """One range of the plan, and the attempts at it, oldest first."""

    planned: tuple[PlannedPartition, ...]
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def counting(self) -> Attempt | None:
        """The attempt whose files are committed, None while there is none."""
        return next((a for a in self.attempts if a.counts), None)


@dataclass(slots=True)
class TransactionSummary:
    """One transaction. Times are those that the senders' clocks gave the messages.

    Attributes:
        instant: the Hudi instant, which is the transaction's id.
        state: as `TableLog` has it.
        kind: what it is for; `reason` in a person's words; `replays` the instant that a replay reads again.
        service: the table service of a `service` transaction.
        started, decided, acknowledged, aborted: the times of START, the first END, ACK and the ABORT that counted.
        valid_through: the time up to which the table is complete; before ACK up to which it will be.
        ranges: what each write job reads, with its attempts; `idle`: partitions with nothing to read.
        passed_over: offsets that a correction leaves out.
        losses: offsets that were given up, in words.
        replaced_file_groups: how many file groups its commit takes off the table.
        missing: ranges that END-COMMIT left out, under `on_missing_range: commit`.
        committed: where each partition stands after it, from ACK.
        abort_reason: why it was aborted.
        superseded_by: the instant whose START took the table over.
        takeovers: how often another process took over the lease on carrying its commit out.
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
    replaced_file_groups: int = 0
    missing: tuple[int, ...] = ()
    committed: tuple[tuple[TopicPartition, int], ...] = ()
    abort_reason: str | None = None
    superseded_by: str | None = None
    takeovers: int = 0
    lease_offset: int = NO_LEASE
    offsets: array[int] = field(default_factory=lambda: array("q"))

    @property
    def start_offset(self) -> int:
        """Where its START stands in the control topic."""
        return self.offsets[0]

    @property
    def planned(self) -> tuple[PlannedPartition, ...]:
        """All partitions of the plan, those without records last."""
        return (*(p for r in self.ranges for p in r.planned), *self.idle)

    @property
    def ended(self) -> datetime | None:
        """When it was over: the time of ACK or ABORT."""
        return self.acknowledged or self.aborted

    @property
    def under_way(self) -> bool:
        """Neither committed nor out of the race."""
        return self.state in _UNDER_WAY

    def counting(self) -> Iterator[Attempt]:
        """The attempts whose files are committed, a range each."""
        return (a for r in self.ranges if (a := r.counting) is not None)

    def total(self, what: str) -> int:
        """The sum of one of the counting attempts' numbers, such as `records_read`, `bytes_read` or `gaps`."""
        return sum(getattr(a, what) for a in self.counting())

    def errors(self) -> int:
        """How many attempts failed."""
        return sum(a.error is not None for r in self.ranges for a in r.attempts)

    def lag_left(self) -> int | None:
        """Offsets left in the log when it was planned, over all partitions; None where nobody asked."""
        lags = [lag for p in self.planned if (lag := p.lag_left) is not None]
        return sum(lags) if lags else None


class TableHistory:
    """All transactions of one table that the control topic tells of, oldest first; extended as messages come.

    Attributes:
        transactions: by instant, in the order of their STARTs.
        committed: where each partition stands, and the instant whose ACK brought it there. A replay or a service moves
            nothing; a backfill or a named range only where it goes on from what is committed.
        valid_through: the time up to which the table is complete, by the last ACK of an interval that reads on.
        replayed_by: the committed replays of an instant, oldest first.
        last_committed: the transaction that was acknowledged last.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.transactions: dict[str, TransactionSummary] = {}
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.replayed_by: dict[str, list[str]] = {}
        self.last_committed: TransactionSummary | None = None
        self.valid_through: datetime | None = None
        self._log = TableLog(table)
        self._runs: dict[tuple[str, str], list[TransactionSummary]] = {}
        self._dag_ids: dict[str, None] = {}

    @property
    def position(self) -> int:
        """The control-topic offset up to which messages are folded."""
        return self._log.position

    def extend(self, messages: Iterable[tuple[int, ControlMessage]]) -> TableHistory:
        """Fold further messages, as (control-topic offset, message), in order; those of other tables are skipped."""
        for offset, message in messages:
            if message.table == self.table and offset >= self.position:
                self._fold(offset, message)
        return self

    def get(self, instant: str) -> TransactionSummary | None:
        """A transaction by its instant."""
        return self.transactions.get(instant)

    def of_run(self, dag_id: str, run_id: str) -> list[TransactionSummary]:
        """The transactions that one DAG run started, oldest first."""
        return list(self._runs.get((dag_id, run_id), ()))

    def newest(self) -> Iterator[TransactionSummary]:
        """All transactions, the one that started last first."""
        return reversed(self.transactions.values())

    def failures_in_a_row(self) -> int:
        """How many transactions were aborted since the last one that was committed."""
        aborted = 0
        for transaction in self.newest():
            if transaction.state is State.COMMITTED:
                break
            aborted += transaction.state is State.ABORTED
        return aborted

    def dag_ids(self) -> tuple[str, ...]:
        """The DAGs whose runs started transactions, the latest first."""
        return tuple(reversed(self._dag_ids))

    # Folding -------------------------------------------------------------------------------------------------------

    def _fold(self, offset: int, message: ControlMessage) -> None:
        known = self.transactions.get(message.transaction)
        if known is not None and known.instant not in self._log.transactions:
            self._put_back(known)
        under_way = [t for t in self._log.transactions.values() if t.is_open]
        self._log.extend([(offset, _lean(message))])
        transaction = self._log.get(message.transaction)
        if transaction is None:  # its START is older than the topic remembers
            return
        if known is None and isinstance(message, StartCommit):
            known = self._start(message, transaction)
            for earlier in under_way:
                if earlier.state is State.SUPERSEDED:
                    self.transactions[earlier.id].superseded_by = known.instant
        if known is None:
            return
        known.offsets.append(offset)
        _note(known, message, transaction)
        if isinstance(message, AckCommit):
            self._acknowledged(known, message)
        self._settle()

    def _start(self, message: StartCommit, transaction: Transaction) -> TransactionSummary:
        summary = TransactionSummary(
            instant=message.transaction,
            table=self.table,
            epoch=message.epoch,
            dag_id=intern(message.dag_id),
            run_id=message.run_id,
            kind=message.kind,
            state=transaction.state,
            started=message.time,
            reason=message.reason,
            replays=message.replays,
            service=message.service,
            valid_through=message.valid_through,
            ranges=tuple(RangeSummary(_planned(group)) for group in message.ranges),
            idle=_planned(message.idle),
            passed_over=_planned(message.passed_over),
            losses=tuple(
                f"{loss.topic_partition}: committed {loss.committed}, resumed at {loss.resumed_at}: {loss.reason}"
                for loss in message.losses
            ),
            replaced_file_groups=sum(map(len, message.replaced_file_groups.values())),
        )
        self.transactions[summary.instant] = summary
        self._runs.setdefault((summary.dag_id, summary.run_id), []).append(summary)
        self._dag_ids.pop(summary.dag_id, None)
        self._dag_ids[summary.dag_id] = None
        return summary

    def _acknowledged(self, known: TransactionSummary, ack: AckCommit) -> None:
        known.committed = tuple((_interned(r), r.end) for r in ack.offsets)
        self.committed |= {_interned(r): (r.end, known.instant) for r in ack.offsets if self._moves(known, r)}
        self.last_committed = known
        if known.kind == "continue":
            self.valid_through = ack.valid_through
        if known.replays is not None and known.instant not in (of := self.replayed_by.setdefault(known.replays, [])):
            of.append(known.instant)

    def _moves(self, known: TransactionSummary, acknowledged: PlannedRange) -> bool:
        if known.kind in ("continue", "correction"):
            return True
        if known.kind in ("replay", "service"):
            return False
        stands, _ = self.committed.get(acknowledged.topic_partition, (-1, ""))
        return acknowledged.start <= stands < acknowledged.end

    def _settle(self) -> None:
        """Take over all states, and let go of the transactions that are neither open nor decided any more."""
        for transaction in list(self._log.transactions.values()):
            self.transactions[transaction.id].state = transaction.state
            if transaction.state not in _UNDER_WAY:
                del self._log.transactions[transaction.id]

    def _put_back(self, known: TransactionSummary) -> None:
        """A late message is about to be judged: the verdict needs state and lease, and nothing of the plan."""
        start = StartCommit.model_construct(
            table=self.table, transaction=known.instant, epoch=known.epoch, ranges=((),) * len(known.ranges)
        )
        late = Transaction(start, known.start_offset, known.state, lease_offset=known.lease_offset)
        self._log.transactions[known.instant] = late


def _lean(message: ControlMessage) -> ControlMessage:
    """The message without what takes most room and no verdict asks for."""
    return message.model_copy(update={"stats": ()}) if isinstance(message, WriteStatus) else message


def _planned(ranges: Iterable[PlannedRange]) -> tuple[PlannedPartition, ...]:
    return tuple(PlannedPartition(*_interned(r), r.start, r.end, r.log_end, r.behind) for r in ranges)


def _interned(r: PlannedRange) -> TopicPartition:
    return TopicPartition(intern(r.cluster), intern(r.topic), r.partition)


def _note(known: TransactionSummary, message: ControlMessage, transaction: Transaction) -> None:
    """Note what one message adds, after the verdict on it."""
    if isinstance(message, WriteStatus):
        _note_status(known, message, transaction)
    elif isinstance(message, EndCommit) and transaction.lease is message:
        known.takeovers += known.decided is not None and not message.released
        known.decided = known.decided or message.time
        known.missing = transaction.end.missing if transaction.end else ()
        known.lease_offset = transaction.lease_offset
    elif isinstance(message, AckCommit):
        known.acknowledged = known.acknowledged or message.time
        known.valid_through = message.valid_through
    elif isinstance(message, AbortCommit) and transaction.state is State.ABORTED:
        known.aborted, known.abort_reason = known.aborted or message.time, known.abort_reason or message.reason


def _note_status(known: TransactionSummary, status: WriteStatus, transaction: Transaction) -> None:
    if not 0 <= status.range < len(known.ranges):
        return  # of a range that the plan doesn't have; no commit asks for it
    summary = known.ranges[status.range]
    attempt = next((a for a in summary.attempts if a.attempt == status.attempt), None)
    if attempt is None:
        attempt = Attempt(status.attempt, status.began, status.time, status.parts)
        summary.attempts.append(attempt)
    _note_part(attempt, status)
    if summary.counting is None and known.decided is None:
        first = transaction.status_of(status.range)
        attempt.counts = first is not None and first.attempt == status.attempt


def _note_part(attempt: Attempt, status: WriteStatus) -> None:
    attempt.ended = status.time
    attempt.parts_seen += 1
    attempt.error, attempt.recovery = status.error, status.recovery
    attempt.files += len(status.stats)
    attempt.bytes_written += sum(int(stat.get("totalWriteBytes") or 0) for stat in status.stats)
    if status.part == 0:  # every part repeats these
        attempt.records_read, attempt.records_written = status.records_read, status.records_written
        attempt.records_quarantined, attempt.records_skipped = status.records_quarantined, status.records_skipped
        attempt.file_groups = len({group for p in status.partitions for group in p.file_groups})
        attempt.partitions = tuple(
            ReadPartition(
                intern(p.cluster), intern(p.topic), p.partition, p.start, p.next_offset, p.records_read, p.gaps,
                p.bytes_read, p.max_timestamp,
            )
            for p in status.partitions
        )  # fmt: skip


def fold(messages: Iterable[tuple[int, ControlMessage]], into: dict[str, TableHistory]) -> Mapping[str, TableHistory]:
    """Fold messages of any tables into the histories of their tables, making those that are new."""
    for offset, message in messages:
        into.setdefault(message.table, TableHistory(message.table)).extend([(offset, message)])
    return into
