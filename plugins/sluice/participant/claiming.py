"""A worker's decisions: the ranges to claim, when to renew a claim, the range to write next, and when to end.

It has no threads and never blocks: `Worker` passes events in and calls `step`. The rules of claims are in
`sluice.protocol.claims`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from sluice import __version__
from sluice.connectors.log import ControlLog
from sluice.errors import SluiceError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.participant.participant import Assignment, NotHereError, RangeJob
from sluice.protocol.claims import Claims, Steady, first_choice, is_known_from, is_unwritten
from sluice.protocol.confine import start_digest
from sluice.protocol.messages import NO_LEASE, Claim, ControlMessage
from sluice.protocol.transaction import TableLog, Transaction

_TICK = 1.0  # seconds between looks at all tables, with or without events
_PATIENCE = 2.0  # seconds for which a range is left to its first choice of worker
_DEFERRED = 2 * _PATIENCE  # for which a worker without a free slot leaves it to others, which claim after `_PATIENCE`
_RENEWALS = 3  # in each lease
_TO_END = 60.0  # seconds that a cancelled range has to end before the worker ends itself


class RangeId(NamedTuple):
    """A range of a transaction: its control topic and table, the offset of its START-COMMIT, and its number."""

    topic: str
    table: str
    start_offset: int
    number: int


@dataclass(frozen=True)
class Terms:
    """A worker's settings.

    Attributes:
        name: its unique name.
        lease: seconds for which a claim lasts.
        slots: how many ranges it writes at once.
        longest_stay: seconds after which it ends, for a fresh one to replace it; None for no limit.
        described: further fields of its claims, for people: `Claim`'s `began` and `memory`.
    """

    name: str
    lease: float = 30.0
    slots: int = 2
    longest_stay: float | None = None
    described: Callable[[], Mapping[str, Any]] = dict


@dataclass(frozen=True)
class ServedTable:
    """A table that a worker writes.

    Attributes:
        control: its control topic.
        job: starts the jobs that read and write its ranges.
        timeout: seconds that one attempt at a range may take.
        fits: why a transaction can't be written here, None if it can.
        pipeline: the pipeline's name.
        name: the table's name.
    """

    control: ControlLog
    job: RangeJob
    timeout: float
    fits: Callable[[Transaction], str | None] = lambda _transaction: None
    pipeline: str = ""
    name: str = ""


class HeldClaim(NamedTuple):
    """A claim that counts, of a range that isn't written yet; times are those of the worker's clock.

    Attributes:
        range_id: the range.
        instant: of its transaction.
        since: when the claim was known to count.
        renewed: when it was last renewed.
        began: when writing began; None while it waits for a slot.
    """

    range_id: RangeId
    instant: str
    since: float
    renewed: float
    began: float | None


class Application(Protocol):
    """The Spark application that a worker runs in."""

    def health_problem(self) -> End | None:
        """Why it has to end, without blocking; None while its JVM runs, answers, and has memory left."""
        ...


class Attempt(Protocol):
    """A range that is being written."""

    def cancel(self) -> None:
        """Make it end soon, without blocking."""
        ...


Begin = Callable[[RangeId, Assignment, ServedTable], Attempt]
"""Starts to write a range, beside running ones; its end is passed to `Claiming.ended`."""


class End(StrEnum):
    """Why a worker ends."""

    ASKED = "it was asked to"
    OLD = "its longest stay is over"
    ELSEWHERE = "its connections no longer lead to the logs that it has read before"
    NEW_CODE = "another release, or other pipeline files, are in use now"
    UNHEALTHY = "its Spark application is lost or out of memory"
    RANGE_HUNG = "a range did not end when it was cancelled"
    JVM_UNRESPONSIVE = "its JVM does not answer"
    CONTROL_TOPICS_LOST = "it can't follow its control topics"

    @property
    def leaves_threads(self) -> bool:
        """Whether threads may be stuck for good: the process exits without joining them."""
        return self in (End.RANGE_HUNG, End.JVM_UNRESPONSIVE)


@dataclass
class _Held:
    offset: int
    instant: str
    since: float
    renewed: float
    began: float | None = None
    cancelled: float | None = None
    attempt: Attempt | None = None
    is_lost: bool = False  # another has taken it over, since this worker was suspended


@dataclass
class _State:
    logs: dict[tuple[str, str], TableLog] = field(default_factory=dict)
    due: dict[RangeId, float] = field(default_factory=dict)
    deferred: set[RangeId] = field(default_factory=set)  # left to others once, since there was no slot
    returned: set[RangeId] = field(default_factory=set)  # claimed, and given back once, since another had nothing to do
    pending_claims: dict[RangeId, int] = field(default_factory=dict)  # offsets of claims sent, not yet read back
    held: dict[RangeId, _Held] = field(default_factory=dict)
    waiting: deque[RangeId] = field(default_factory=deque)
    failed: deque[RangeId] = field(default_factory=lambda: deque(maxlen=1000))  # ranges that it couldn't write
    read: set[tuple[str, str]] = field(default_factory=set)  # tables whose ranges it has written
    first: dict[str, int] = field(default_factory=dict)  # from where on each control topic was read
    ends: dict[str, int] = field(default_factory=dict)  # where each ended when reading of it began
    changed: set[tuple[str, str]] = field(default_factory=set)  # tables with new messages
    looked: float = float("-inf")  # when it last looked at all of them


class Claiming:
    """Claims ranges of open transactions and starts writing them; it reports no results itself.

    One thread calls all but `end`.

    Args:
        terms: how it works.
        tables: the tables that it writes, by control topic and table.
        application: its Spark application.
        workers: the names of the group's present workers, including its own.
        steady: a monotonic clock, in seconds.
        is_current: whether release and pipeline files are unchanged since it began.
        begin: begins to write a range.
        claimed: called with the table of each claim that counts.

    Attributes:
        ticked: when it last took a step, or part of one, by `steady`; to be read from any thread.
        held: its claims that count, as of its last step; to be read from any thread.
    """

    def __init__(
        self,
        terms: Terms,
        tables: Mapping[tuple[str, str], ServedTable],
        application: Application,
        workers: Callable[[], tuple[str, ...]],
        steady: Steady,
        is_current: Callable[[], bool],
        begin: Begin,
        claimed: Callable[[ServedTable], None] = lambda _served: None,
    ) -> None:
        self._terms = terms
        self._tables = tables
        self._application = application
        self._workers = workers
        self._is_current = is_current
        self._steady = steady
        self._begin_range = begin
        self._claims = Claims(steady)
        self._state = _State()
        self._refused: deque[str] = deque(maxlen=1000)  # transactions whose skipping was logged
        self._end: End | None = None
        self._claimed = claimed
        self._began = self.ticked = steady()
        self.held: tuple[HeldClaim, ...] = ()

    # Events ---------------------------------------------------------------------------------------------------------

    def reads_from(self, topic: str, position: int, end: int) -> None:
        """A topic is read from offset `position`: earlier messages are unknown, those from offset `end` are new."""
        self._state.first[topic] = position
        self._state.ends[topic] = end

    def said(self, topic: str, offset: int, message: ControlMessage) -> None:
        """Take a message of a control topic in."""
        key = (topic, message.table)
        table_log = self._state.logs.setdefault(key, TableLog(message.table))
        if offset < table_log.position:  # the topic was made again
            table_log = self._state.logs[key] = TableLog(message.table)
        table_log.extend([(offset, message)])
        table_log.forget_ended()
        self._state.changed.add(key)

    def ended(self, range_id: RangeId, error: Exception | None) -> None:
        """A range that was begun has ended; with an error if it could not be written."""
        held = self._state.held.get(range_id)
        if held is None:
            return
        if error is None:
            del self._state.held[range_id]
            self._state.read.add((range_id.topic, range_id.table))
            return
        self._state.failed.append(range_id)
        # A worker whose own connections were never right would begin with the same ones again.
        if (
            isinstance(error, NotHereError)
            and error.is_for_a_person
            and (range_id.topic, range_id.table) in self._state.read
        ):
            self.end(End.ELSEWHERE)
        if isinstance(error, SluiceError):  # reported by a failed WRITE-STATUS, or the claim expires
            del self._state.held[range_id]
        else:  # nothing was reported: another worker may claim it
            self._give_back(range_id)
        self._end_if_ill()

    def end(self, why: End = End.ASKED) -> None:
        """Claim no more, and end once running ranges are written; safe from any thread and from a signal handler."""
        self._end = self._end or why

    @property
    def why(self) -> End | None:
        """Why it ends; None while it keeps working."""
        return self._end

    @property
    def is_over(self) -> bool:
        """Whether it has ended: no range is being written, or running ones can't be waited for."""
        return self._end is not None and (self._end.leaves_threads or not self._state.held)

    def until_next(self) -> float:
        """Seconds after which to call `step` without an event."""
        soonest = min(self._state.due.values(), default=self._steady() + _TICK)
        return min(_TICK, max(0.0, soonest - self._steady()))

    # Decisions ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Check events, the clock and its own health, and take every action that is due."""
        state, now = self._state, self._steady()
        self.ticked = now
        changed, state.changed = state.changed, set()
        if now - state.looked >= _TICK:  # claims also expire without any message on their table
            state.looked, changed = now, set(state.logs)
            self._claims.forget({name for table_log in state.logs.values() for name in table_log.transactions})
        for key in sorted(changed):
            self._consider(key)
        self._look_at_itself()
        self._claim()
        self._renew()
        self._begin()
        self._return_waiting()
        self.held = tuple(
            HeldClaim(range_id, one.instant, one.since, one.renewed, one.began) for range_id, one in state.held.items()
        )

    def give_all_back(self) -> None:
        """Release claims on ranges that it hasn't written, so that others needn't wait for them to expire."""
        for range_id in list(self._state.held):
            self._give_back(range_id)
        for range_id, sent in self._state.pending_claims.items():
            self._release(range_id, sent)
        self._state.pending_claims.clear()

    def _consider(self, key: tuple[str, str]) -> None:
        """Note which of a table's ranges may be claimed and when, and which of this worker's claims count."""
        topic, table = key
        table_log, state = self._state.logs[key], self._state
        open_ = {range_id: t for t in table_log.transactions.values() for range_id in _range_ids(topic, table, t)}
        known = {*state.due, *state.deferred, *state.returned, *state.pending_claims}
        for range_id in [p for p in known if (p.topic, p.table) == key and p not in open_]:
            state.due.pop(range_id, None)
            state.deferred.discard(range_id)
            state.returned.discard(range_id)
            state.pending_claims.pop(range_id, None)
        for range_id, transaction in open_.items():
            self._settle_claim(range_id, transaction)
            may = (
                range_id not in state.held
                and range_id not in state.pending_claims
                and self._may_claim(range_id, transaction)
            )
            if not may:
                state.due.pop(range_id, None)
            elif range_id not in state.due:
                state.due[range_id] = self._steady() + self._defers_for(range_id, transaction)

    def _defers_for(self, range_id: RangeId, transaction: Transaction) -> float:
        """Seconds for which others may claim a range before this worker does."""
        if range_id in self._state.returned:
            return _DEFERRED
        _, last = transaction.claims.get(range_id.number, (NO_LEASE, None))
        if last is not None and last.released and self._has_slot():
            return 0.0
        first = first_choice(self._workers(), range_id.topic, transaction.id, range_id.number)
        return 0.0 if first in (None, self._terms.name) else _PATIENCE

    def _settle_claim(self, range_id: RangeId, transaction: Transaction) -> None:
        """Hold the range if the claim that was sent for it counts, else drop it."""
        sent = self._state.pending_claims.get(range_id)
        if sent is None:
            return
        table_log = self._state.logs[range_id.topic, range_id.table]
        if table_log.position <= sent:
            return  # not read back yet
        del self._state.pending_claims[range_id]
        offset, _ = transaction.claims.get(range_id.number, (NO_LEASE, None))
        if offset == sent:
            self._state.held[range_id] = _Held(sent, transaction.id, now := self._steady(), now)
            self._state.waiting.append(range_id)
            self._claimed(self._tables[range_id.topic, range_id.table])
            reach("worker.after_claim")

    def _may_claim(self, range_id: RangeId, transaction: Transaction) -> bool:
        if self._end is not None or range_id in self._state.failed:
            return False
        if not self._claims.may_claim(transaction, range_id.number):
            return False
        start = transaction.start
        misfit = self._tables[range_id.topic, range_id.table].fits(transaction)
        if not is_known_from(self._state.first.get(range_id.topic, 0), start):
            misfit = "it was planned before what this worker has read of the control topic"
        if start.release != __version__:
            if transaction.start_offset >= self._state.ends.get(range_id.topic, 0):
                log.warning("the interval is of another release", instant=transaction.id, release=start.release)
                self.end(End.NEW_CODE)
                return False
            # The interval is older than this worker: a worker that begins now would be of this one's release.
            misfit = f"it was planned by release {start.release}, before this worker began"
        if misfit is not None and transaction.id not in self._refused:
            self._refused.append(transaction.id)
            log.warning("an interval is left to its own Spark jobs", instant=transaction.id, reason=misfit)
        return misfit is None

    def _claim(self) -> None:
        """Claim ranges that are due; without a free slot, only after others had time to."""
        now = self._steady()
        for range_id, due in list(self._state.due.items()):
            if due > now and not (range_id in self._state.deferred and self._has_slot()):
                continue
            if self._may_defer(range_id):
                self._state.deferred.add(range_id)
                self._state.due[range_id] = now + _DEFERRED
                continue
            del self._state.due[range_id]
            transaction = self._transaction(range_id)
            if transaction is not None and self._may_claim(range_id, transaction):
                last, _ = transaction.claims.get(range_id.number, (NO_LEASE, None))
                reach("worker.before_claim")
                sent = self._send(range_id, transaction, takes_over=last)
                if sent is not None:
                    self._state.pending_claims[range_id] = sent

    def _has_slot(self) -> bool:
        return len(self._state.held) + len(self._state.pending_claims) < self._terms.slots

    def _may_defer(self, range_id: RangeId) -> bool:
        """Whether to leave the range to another worker: no slot is free here, and it hasn't been deferred yet."""
        if range_id in self._state.deferred or self._has_slot():
            return False
        return any(name != self._terms.name for name in self._workers())

    def _return_waiting(self) -> None:
        """Release ranges that wait for a slot here, the last one first, while other workers are idle.

        Each range once: an idle worker may be one that can't write it.
        """
        state = self._state
        waiting = [range_id for range_id in reversed(state.waiting) if range_id not in state.returned]
        if not waiting:
            return
        idle = len(set(self._workers()) - {self._terms.name} - self._busy())
        unclaimed = sum(map(self._is_unclaimed, state.returned))
        for range_id in waiting[: max(0, idle - unclaimed)]:
            state.waiting.remove(range_id)
            state.returned.add(range_id)
            state.deferred.add(range_id)
            self._give_back(range_id)

    def _is_unclaimed(self, range_id: RangeId) -> bool:
        """Whether a range that this worker released is still unclaimed, as far as it knows."""
        transaction = self._transaction(range_id)
        if transaction is None or range_id in self._state.held or not is_unwritten(transaction, range_id.number):
            return False
        _, last = transaction.claims.get(range_id.number, (NO_LEASE, None))
        return last is not None and last.worker == self._terms.name

    def _busy(self) -> set[str]:
        """The workers that have claimed a range, as far as this one knows."""
        open_ = [t for table_log in self._state.logs.values() for t in table_log.transactions.values() if t.is_open]
        ranges = [(t, n) for t in open_ for n in range(len(t.start.ranges)) if is_unwritten(t, n)]
        claims = [self._claims.standing(t, n) for t, n in ranges]
        return {claim.worker for claim in claims if claim is not None}

    def _renew(self) -> None:
        now = self._steady()
        for range_id, held in list(self._state.held.items()):
            if now - held.renewed < self._terms.lease / _RENEWALS:
                continue
            transaction = self._transaction(range_id)
            if transaction is not None and self._is_its_own(range_id, held, transaction):
                sent = self._send(range_id, transaction, takes_over=held.offset)
                held.offset = sent if sent is not None else held.offset
            held.renewed = now

    def _is_its_own(self, range_id: RangeId, held: _Held, transaction: Transaction) -> bool:
        """Whether its claim still counts, by the messages read so far.

        A renewal may be in the log though its send failed: then the next claim names that one.
        """
        last, claim = transaction.claims.get(range_id.number, (NO_LEASE, None))
        if claim is not None and claim.worker == self._terms.name:
            held.offset = max(held.offset, last)
        elif last > held.offset and not held.is_lost:
            held.is_lost = True
            log.warning(
                "a claim has run out, and another worker has the range", table=range_id.table, range=range_id.number
            )
        return not held.is_lost

    def _begin(self) -> None:
        """Start claimed ranges in free slots: first those of tables without a running range."""
        state = self._state
        running = [p.table for p, held in state.held.items() if held.began is not None]
        while state.waiting and len(running) < self._terms.slots:
            range_id = min(state.waiting, key=lambda p: running.count(p.table))
            state.waiting.remove(range_id)
            held, transaction = state.held[range_id], self._transaction(range_id)
            may = transaction is not None and is_unwritten(transaction, range_id.number)
            if transaction is None or not may or not self._is_its_own(range_id, held, transaction):
                del state.held[range_id]
                continue
            held.began = self._steady()
            digest = start_digest(transaction.start)
            assignment = Assignment(range_id.table, range_id.topic, range_id.start_offset, range_id.number, digest)
            running.append(range_id.table)
            held.attempt = self._begin_range(range_id, assignment, self._tables[range_id.topic, range_id.table])

    def _give_back(self, range_id: RangeId) -> None:
        held, transaction = self._state.held.pop(range_id), self._transaction(range_id)
        if transaction is not None and self._is_its_own(range_id, held, transaction):
            self._release(range_id, held.offset)

    def _release(self, range_id: RangeId, offset: int) -> None:
        transaction = self._transaction(range_id)
        if transaction is not None and is_unwritten(transaction, range_id.number):
            self._send(range_id, transaction, takes_over=offset, released=True)

    def _look_at_itself(self) -> None:
        """End, or cancel ranges, when their time is up."""
        now = self._steady()
        if self._terms.longest_stay is not None and now - self._began >= self._terms.longest_stay:
            self.end(End.OLD)
        if not self._is_current():
            self.end(End.NEW_CODE)
        self._end_if_ill(writes_go_on=bool(self._state.held))
        if self._end is not None:
            while self._state.waiting:
                self._give_back(self._state.waiting.popleft())
        for range_id, held in self._state.held.items():
            self._cancel_if_late(range_id, held, now)

    def _end_if_ill(self, *, writes_go_on: bool = False) -> None:
        """End if its application is unhealthy.

        A heap may be full while ranges are written; an unresponsive JVM writes none.

        Args:
            writes_go_on: whether ranges are being written and none has failed.
        """
        health_problem = self._application.health_problem()
        if health_problem is End.JVM_UNRESPONSIVE:
            self._end = health_problem  # overrides any other reason: its running ranges would never end
        elif health_problem is not None and not writes_go_on:
            self.end(health_problem)

    def _cancel_if_late(self, range_id: RangeId, held: _Held, now: float) -> None:
        timeout = self._tables[range_id.topic, range_id.table].timeout
        if held.began is None or held.attempt is None or now - held.began < timeout:
            return
        if held.cancelled is None:
            held.cancelled = now
            log.error(
                "a range takes longer than write.timeout; it is cancelled", table=range_id.table, range=range_id.number
            )
            held.attempt.cancel()
        elif now - held.cancelled >= _TO_END:
            self._end = End.RANGE_HUNG

    def _transaction(self, range_id: RangeId) -> Transaction | None:
        return self._state.logs[range_id.topic, range_id.table].at(range_id.start_offset)

    def _send(
        self, range_id: RangeId, transaction: Transaction, *, takes_over: int, released: bool = False
    ) -> int | None:
        """Send a claim; None where that failed, which costs time and nothing else."""
        start = transaction.start
        claim = Claim(
            **start.model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id"}),
            sender=f"worker {self._terms.name}",
            time=datetime.now(UTC),
            range=range_id.number,
            worker=self._terms.name,
            lease=self._terms.lease,
            takes_over=takes_over,
            released=released,
            **self._terms.described(),
        )
        try:
            return self._tables[range_id.topic, range_id.table].control.send(claim)
        except SluiceError as error:
            log.warning("a claim could not be sent", reason=str(error))
            return None
        finally:
            self.ticked = self._steady()


def _range_ids(topic: str, table: str, transaction: Transaction) -> list[RangeId]:
    if not transaction.is_open:
        return []
    return [RangeId(topic, table, transaction.start_offset, n) for n in range(len(transaction.start.ranges))]
