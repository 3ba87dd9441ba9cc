"""A summary of each of a table's transactions, from the control topic, without Hudi's bulky write stats.

Made for looking back over thousands of transactions (page, command line), and for being extended as messages arrive.
Only `TableLog` decides a transaction's state, and it holds only the messages that it needs for that: a transaction that
is neither open nor decided is removed from it, and put back when a late message names it. So folding the ten thousandth
transaction takes no longer than the tenth, and the states are the same as those of a `TableLog` that keeps all
messages; a test compares the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from sys import intern

from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.messages import (
    COUNTS,
    SUMS,
    AbortCommit,
    AckCommit,
    ControlMessage,
    EndCommit,
    MappingSeen,
    PlannedRange,
    StartCommit,
    WriteStatus,
)
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.policy import policy_of
from sluice.protocol.summary import Attempt, PlannedPartition, RangeSummary, ReadPartition, TransactionSummary
from sluice.protocol.transaction import State, TableLog, Transaction
from sluice.protocol.workers_seen import WorkersSeen

__all__ = [
    "Attempt",
    "PlannedPartition",
    "RangeSummary",
    "ReadPartition",
    "TableHistory",
    "TransactionSummary",
    "fold",
]

_UNDER_WAY = (State.OPEN, State.DECIDED)


class TableHistory:
    """All transactions of one table in the control topic, oldest first; extended as messages arrive.

    Args:
        table: the table's path.
        remembers: how many transactions to keep; the oldest are dropped first. None keeps all.
        partitions: how many per-partition values to keep; the oldest transactions lose theirs first. None keeps all.

    Attributes:
        transactions: by instant, in the order of their STARTs.
        committed: each partition's position, and the instant whose ACK moved it there. A replay or a service moves
            nothing; a backfill, a range or a correction does so only if it continues from the committed position.
        valid_through: the time up to which the table is complete, by the last ACK of an interval that reads on.
        replayed_by: the committed replays of an instant, oldest first.
        last_committed: the transaction that was acknowledged last.
        streams: the mapping by which the last transaction was planned; None where the pipeline names its topics.
        workers: the workers that have claimed its ranges lately, and the ranges that they hold.
    """

    def __init__(self, table: str, *, remembers: int | None = None, partitions: int | None = None) -> None:
        self.table = table
        self.transactions: dict[str, TransactionSummary] = {}
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.replayed_by: dict[str, list[str]] = {}
        self.last_committed: TransactionSummary | None = None
        self.valid_through: datetime | None = None
        self.streams: KnownStreams | None = None
        self.workers = WorkersSeen()
        self._remembers, self._partitions = remembers, partitions
        self._kept_partitions = 0
        self._not_thinned: deque[TransactionSummary] = deque()
        self._log = TableLog(table)
        self._runs: dict[tuple[str, str], list[TransactionSummary]] = {}
        self._dag_ids: dict[str, None] = {}

    @property
    def position(self) -> int:
        """The control-topic offset up to which messages are folded."""
        return self._log.position

    def extend(self, messages: Iterable[tuple[int, ControlMessage]]) -> TableHistory:
        """Fold further messages, in order, as (control-topic offset, message); other tables' messages are skipped."""
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
        """All transactions, newest first."""
        return reversed(self.transactions.values())

    def failures_in_a_row(self) -> int:
        """How many transactions were aborted since the last commit."""
        aborted = 0
        for transaction in self.newest():
            if transaction.state is State.COMMITTED:
                break
            aborted += transaction.state is State.ABORTED
        return aborted

    def dag_ids(self) -> tuple[str, ...]:
        """The DAGs whose runs started transactions, the latest first."""
        return tuple(reversed(self._dag_ids))

    def keep(self, remembers: int | None, partitions: int | None) -> None:
        """Change the limits of `__init__`, and drop at once what exceeds them."""
        self._remembers, self._partitions = remembers, partitions
        self._drop_oldest()

    # Folding -------------------------------------------------------------------------------------------------------

    def _fold(self, offset: int, message: ControlMessage) -> None:
        if isinstance(message, MappingSeen):  # of no transaction
            self._log.position = offset + 1
            return
        known = self.transactions.get(message.transaction)
        if known is not None and known.instant not in self._log.transactions:
            self._put_back(known)
        under_way = [t for t in self._log.transactions.values() if t.is_open]
        self._log.extend([(offset, _without_files(message))])
        transaction = self._log.get(message.transaction)
        if transaction is None:  # its START has left the topic
            return
        if known is None and isinstance(message, StartCommit):
            known = self._start(message, transaction)
            for earlier in under_way:
                if earlier.state is State.SUPERSEDED:
                    self.transactions[earlier.id].superseded_by = known.instant
        if known is None:
            return
        known.offsets.append(offset)
        before = known.partitions_kept()
        _note(known, message, transaction)
        self.workers.fold(message, transaction)
        if isinstance(message, AckCommit) and transaction.state is State.COMMITTED:
            self._acknowledged(known, message)
        self._kept_partitions += known.partitions_kept() - before
        self._settle()
        self.workers.keep_open([t.id for t in self._log.transactions.values() if t.is_open], message.time)
        self._drop_oldest()

    def _start(self, message: StartCommit, transaction: Transaction) -> TransactionSummary:
        if message.service is None:
            self.streams = message.streams
        last = next(self.newest(), None)
        as_before = last is not None and last.cluster_ids == message.cluster_ids
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
            losses=message.losses_in_words,
            remarks=message.remarks,
            cluster_ids=last.cluster_ids if last is not None and as_before else message.cluster_ids,
            replaced_file_groups=sum(map(len, message.replaced_file_groups.values())),
            offsets_planned=sum(r.end - r.start for r in message.offset_ranges),
        )
        known = [(p.start, p.end, p.log_end) for p in summary.planned if p.log_end is not None]
        if known:
            summary.lag_planned = sum(max(log_end - end, 0) for _, end, log_end in known)
            summary.lag_before = sum(max(log_end - start, 0) for start, _, log_end in known)
        self._kept_partitions += summary.partitions_kept()
        self._not_thinned.append(summary)
        if message.policy.moves_positions == "planned" and transaction.is_open:
            self._stands_at(summary.planned)
        self.transactions[summary.instant] = summary
        self._runs.setdefault((summary.dag_id, summary.run_id), []).append(summary)
        self._dag_ids.pop(summary.dag_id, None)
        self._dag_ids[summary.dag_id] = None
        return summary

    def _acknowledged(self, known: TransactionSummary, ack: AckCommit) -> None:
        known.committed = tuple((_interned(r), r.end) for r in ack.offsets)
        self.committed |= {_interned(r): (r.end, known.instant) for r in ack.offsets if self._moves(known, r)}
        self.last_committed = known
        if policy_of(known.kind).claims_completeness:
            self.valid_through = ack.valid_through
        if known.replays is not None and known.instant not in (of := self.replayed_by.setdefault(known.replays, [])):
            of.append(known.instant)

    def _stands_at(self, planned: Iterable[PlannedPartition]) -> None:
        """Take over a counting plan's positions: it starts at the table's, which may be past covered offsets."""
        for p in planned:
            stood, instant = self.committed.get(p.topic_partition, (p.start, ""))
            if stood != p.start:
                self.committed[p.topic_partition] = (p.start, instant)

    def _moves(self, known: TransactionSummary, acknowledged: PlannedRange) -> bool:
        moves = policy_of(known.kind).moves_positions
        if moves != "adjoining":
            return moves == "planned"
        stands, _ = self.committed.get(acknowledged.topic_partition, (-1, ""))
        return acknowledged.start <= stands < acknowledged.end

    def _settle(self) -> None:
        """Take over all states, and drop from the log the transactions that are no longer open or decided."""
        for transaction in list(self._log.transactions.values()):
            self.transactions[transaction.id].state = transaction.state
            if transaction.state not in _UNDER_WAY:
                del self._log.transactions[transaction.id]

    def _drop_oldest(self) -> None:
        """Thin or drop the oldest transactions, up to the first that is under way."""
        while self._partitions is not None and self._kept_partitions > self._partitions and len(self._not_thinned) > 1:
            if self._not_thinned[0].under_way:
                break
            oldest = self._not_thinned.popleft()
            self._kept_partitions -= oldest.partitions_kept()
            oldest.thin()
        while self._remembers is not None and len(self.transactions) > self._remembers:
            oldest = next(iter(self.transactions.values()))
            if oldest.under_way:
                break
            self._forget(oldest)

    def _forget(self, oldest: TransactionSummary) -> None:
        del self.transactions[oldest.instant]
        if self._not_thinned and self._not_thinned[0] is oldest:
            self._not_thinned.popleft()
            self._kept_partitions -= oldest.partitions_kept()
        run = (oldest.dag_id, oldest.run_id)
        self._runs[run].remove(oldest)
        if not self._runs[run]:
            del self._runs[run]
        self.replayed_by.pop(oldest.instant, None)

    def _put_back(self, known: TransactionSummary) -> None:
        """Put a transaction back for a late message, whose verdict needs its state and lease but not its plan."""
        start = StartCommit.model_construct(
            table=self.table, transaction=known.instant, epoch=known.epoch, ranges=((),) * len(known.ranges)
        )
        late = Transaction(start, known.start_offset, known.state, lease_offset=known.lease_offset)
        self._log.transactions[known.instant] = late


def _without_files(message: ControlMessage) -> ControlMessage:
    """The message without its committables, which take most memory and which no verdict needs."""
    if not isinstance(message, WriteStatus):
        return message
    return message.model_copy(update={"stats": (), "quarantine_stats": ()})


def _planned(ranges: Iterable[PlannedRange]) -> tuple[PlannedPartition, ...]:
    return tuple(PlannedPartition(*_interned(r), r.start, r.end, r.log_end, r.behind) for r in ranges)


def _interned(r: PlannedRange) -> TopicPartition:
    return TopicPartition(intern(r.cluster), intern(r.topic), r.partition)


def _note(known: TransactionSummary, message: ControlMessage, transaction: Transaction) -> None:
    """Record a message's content, after the verdict on it."""
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
        return  # a range that isn't in the plan is never committed
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
    attempt.bytes_written += sum(c.bytes for c in status.stats)
    if status.part == 0:  # every part repeats these
        for name in COUNTS:
            setattr(attempt, name, getattr(status, name))
        for name in SUMS:
            setattr(attempt, name, sum(getattr(p, name) for p in status.partitions))
        attempt.file_groups = len({group for p in status.partitions for group in p.file_groups})
        attempt.partitions = tuple(
            ReadPartition(
                intern(p.cluster), intern(p.topic), p.partition, p.start, p.next_offset, p.records_read, p.gaps,
                p.bytes_read, p.max_timestamp,
            )
            for p in status.partitions
        )  # fmt: skip


def fold(
    messages: Iterable[tuple[int, ControlMessage]],
    into: dict[str, TableHistory],
    *,
    remembers: int | None = None,
    partitions: int | None = None,
) -> Mapping[str, TableHistory]:
    """Fold messages of any tables into their tables' histories, creating new histories with the limits."""
    for offset, message in messages:
        history = into.get(message.table)
        if history is None:
            history = into[message.table] = TableHistory(message.table, remembers=remembers, partitions=partitions)
        history.extend([(offset, message)])
    return into
