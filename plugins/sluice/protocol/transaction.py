"""The state of a table's transactions, folded from the control topic, the one log that all readers see alike.

Hudi's timeline has the commits; the control topic decides which transaction may commit. Its offsets order all messages,
so each reader reaches the same verdict without a lock:

- a START counts only if no START, END, ACK or ABORT of the table (a turn) is between the position that its coordinator
  noted before it read the timeline and the START itself, and no other transaction is decided but unfinished at that
  moment: its plan is then known to be based on the table's last offsets;
- the newest START that counts holds the table; every earlier open transaction is superseded, and can't commit any more;
- the first of END and ABORT ends the choice: an END counts only for the transaction that holds the table, and decides
  for commit; after an ABORT no END counts, and no ACK. Until ACK or ABORT of a decided transaction no other is planned;
- an END is also a lease on carrying the commit out. A further END names the lease that it takes over, and counts only
  if that is still the last one (a compare-and-set); an ABORT of a decided transaction counts only from the lease's
  holder.

A fold's verdict on a transaction and all later ones doesn't depend on how far before it the fold began, as long as it
begins at a START that counted when it was sent: that START is itself a turn, all turns after it are in the fold, and
any transaction open before it is superseded by it. That holds for the START of a committed transaction,
and for that of a transaction whose commit is being carried out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from sluice.protocol.messages import (
    NO_LEASE,
    AbortCommit,
    AckCommit,
    Claim,
    ControlMessage,
    EndCommit,
    MappingSeen,
    Moved,
    StartCommit,
    WriteStatus,
    join,
)


class State(StrEnum):
    """The state of a transaction; `docs/design.md` has a diagram."""

    OPEN = "open"
    VOID = "void"
    SUPERSEDED = "superseded"
    DECIDED = "decided"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    """One transaction, by its control messages. `start_offset` is the control-topic offset of its START."""

    start: StartCommit
    start_offset: int
    state: State
    statuses: list[WriteStatus] = field(default_factory=list)
    reason: str | None = None
    opened_in: set[str] = field(default_factory=set)  # table partitions in which files were open when it was ended
    end: EndCommit | None = None
    lease: EndCommit | None = None
    lease_offset: int = NO_LEASE
    claims: dict[int, tuple[int, Claim]] = field(default_factory=dict)  # the last that counts of each range, and where
    takers: dict[int, int] = field(default_factory=dict)  # how often workers have taken each range, renewals apart

    @property
    def id(self) -> str:
        """The transaction id, which is the Hudi instant."""
        return self.start.transaction

    @property
    def is_open(self) -> bool:
        """Whether a participant may still write for it."""
        return self.state is State.OPEN

    def may_be_aborted(self, lease_offset: int) -> bool:
        """Whether an ABORT counts: any before the decision, afterwards only one from the holder of the lease."""
        if self.state is State.DECIDED:
            return lease_offset == self.lease_offset
        return self.state is not State.COMMITTED

    def status_of(self, number: int) -> WriteStatus | None:
        """The first whole, successful status of a range: a second attempt or a repeated message changes nothing."""
        attempts: dict[str, list[WriteStatus]] = {}
        for status in self.statuses:
            if status.range == number and status.error is None:
                parts = attempts.setdefault(status.attempt, [])
                parts.append(status)
                whole = join(parts)
                if whole:
                    return whole
        return None

    def failure_of(self, number: int) -> WriteStatus | None:
        """The last failure reported by a range, if any."""
        failures = [s for s in self.statuses if s.range == number and s.error is not None]
        return failures[-1] if failures else None

    def note(self, offset: int, message: WriteStatus | Claim) -> None:
        """Fold a participant's or a worker's message: a claim counts if it names the range's last one, a status always.

        So of two claims at once only the log's first one counts.
        """
        if isinstance(message, WriteStatus):
            self.statuses.append(message)
            return
        last, before = self.claims.get(message.range, (NO_LEASE, None))
        if message.takes_over == last and message.range < len(self.start.ranges):
            self.claims[message.range] = (offset, message)
            if not message.released and (before is None or before.released or before.worker != message.worker):
                self.takers[message.range] = self.takers.get(message.range, 0) + 1

    def missing_ranges(self) -> tuple[int, ...]:
        """Numbers of the ranges that have not reported."""
        return tuple(i for i in range(len(self.start.ranges)) if self.status_of(i) is None)


class TableLog:
    """All transactions of one table in a stretch of the control topic."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.transactions: dict[str, Transaction] = {}
        self.position = 0
        self.moved: Moved | None = None  # where the table's messages continue
        self.seen: list[tuple[int, MappingSeen]] = []  # the notes of a watcher of its streams, and where they are
        self._last_turn = -1  # offset of the last START, END, ACK or ABORT of this table

    def extend(self, messages: Iterable[tuple[int, ControlMessage]]) -> TableLog:
        """Fold further messages, as (control-topic offset, message), in order."""
        for offset, message in messages:
            if message.table == self.table and offset >= self.position:
                self._apply(offset, message)
            self.position = max(self.position, offset + 1)
        return self

    def get(self, transaction: str) -> Transaction | None:
        """A transaction by its instant."""
        return self.transactions.get(transaction)

    def at(self, offset: int) -> Transaction | None:
        """The transaction whose START is at a control-topic offset."""
        return next((t for t in self.transactions.values() if t.start_offset == offset), None)

    def newest_interval(self) -> Transaction | None:
        """The last transaction that was started to read records, however it ended."""
        return next((t for t in reversed(self.transactions.values()) if t.start.policy.has_instant), None)

    def holder(self) -> Transaction | None:
        """The transaction that holds the table: the newest that is open or decided."""
        held = [t for t in self.transactions.values() if t.state in (State.OPEN, State.DECIDED)]
        return held[-1] if held else None

    def unfinished(self) -> Transaction | None:
        """The transaction that was decided but has no ACK or ABORT yet: the timeline shows whether it was committed."""
        return next((t for t in self.transactions.values() if t.state is State.DECIDED), None)

    def of_run(self, dag_id: str, run_id: str) -> list[Transaction]:
        """Transactions that one DAG run started, oldest first: several if `start_commit` was run again."""
        return [t for t in self.transactions.values() if (t.start.dag_id, t.start.run_id) == (dag_id, run_id)]

    def oldest_unsettled(self, default: int) -> int:
        """The offset of the oldest START without ACK or ABORT, or the default."""
        ended = (State.COMMITTED, State.ABORTED)
        return min((t.start_offset for t in self.transactions.values() if t.state not in ended), default=default)

    def oldest(self, default: int) -> int:
        """The offset of the oldest START in this stretch, however it ended, or the default."""
        return min((t.start_offset for t in self.transactions.values()), default=default)

    def highest_epoch(self) -> int:
        """The highest epoch seen, 0 before the first."""
        return max((t.start.epoch for t in self.transactions.values()), default=0)

    def forget_ended(self) -> None:
        """Drop the transactions that are neither open nor decided, for long-lived followers of a log."""
        held = (State.OPEN, State.DECIDED)
        self.transactions = {name: t for name, t in self.transactions.items() if t.state in held}
        self.seen.clear()

    def _apply(self, offset: int, message: ControlMessage) -> None:
        if isinstance(message, StartCommit):
            self._start(offset, message)
            return
        if isinstance(message, Moved):
            self._move(offset, message)
            return
        if isinstance(message, MappingSeen):
            self.seen.append((offset, message))
            return
        transaction = self.transactions.get(message.transaction)
        if isinstance(message, WriteStatus | Claim):
            if transaction is not None:
                transaction.note(offset, message)
            return
        self._last_turn = offset  # a turn is one, whether or not the fold began before its transaction
        if transaction is None:
            return
        may_end = transaction.state in (State.OPEN, State.DECIDED)
        if isinstance(message, EndCommit) and may_end and message.takes_over == transaction.lease_offset:
            transaction.state, transaction.end = State.DECIDED, transaction.end or message
            transaction.lease, transaction.lease_offset = message, offset
            transaction.opened_in |= set(message.table_partitions)
        elif isinstance(message, AckCommit) and transaction.state is not State.ABORTED:  # its files may be deleted
            transaction.state = State.COMMITTED
        elif isinstance(message, AbortCommit) and transaction.may_be_aborted(message.lease_offset):
            transaction.state, transaction.reason = State.ABORTED, message.reason
            transaction.opened_in |= set(message.table_partitions)

    def _start(self, offset: int, message: StartCommit) -> None:
        known = self.transactions.get(message.transaction)
        if known is not None:  # repeated by the producer; the first one counts
            self._last_turn = offset
            return
        state = State.VOID if self._is_void(message) else State.OPEN
        if state is State.OPEN:
            self._supersede()
        self._last_turn = offset
        self.transactions[message.transaction] = Transaction(message, offset, state)

    def _move(self, offset: int, message: Moved) -> None:
        if not self._is_void(message):
            self._supersede()
            self.moved = message
        self._last_turn = offset

    def _is_void(self, message: StartCommit | Moved) -> bool:
        taken = self._last_turn >= message.read_position
        return taken or self.unfinished() is not None or self.moved is not None

    def _supersede(self) -> None:
        for earlier in self.transactions.values():
            if earlier.state is State.OPEN:
                earlier.state = State.SUPERSEDED
