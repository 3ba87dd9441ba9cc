"""What a worker decides: which ranges it claims, when it renews a claim, what it writes next, and when it ends.

Without threads and without waiting: it is told what happened, and steps on when it is asked to. What a claim is worth
is in `sluice.protocol.claims`.
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
from sluice.participant.participant import Assignment, RangeJob
from sluice.protocol.claims import Claims, Steady, first_choice, is_known_from, is_unwritten
from sluice.protocol.confine import start_digest
from sluice.protocol.messages import NO_LEASE, Claim, ControlMessage
from sluice.protocol.transaction import TableLog, Transaction

_TICK = 1.0  # seconds after which it looks again, whatever it is told
_PATIENCE = 2.0  # seconds for which a range is left to the worker that should take it
_SPARED = 2 * _PATIENCE  # for which one without a free slot leaves it to others, who look after `_PATIENCE`
_RENEWALS = 3  # in each lease
_TO_END = 60.0  # seconds for which a cancelled range may go on before the worker gives itself up


class Place(NamedTuple):
    """A range of a transaction: its control topic and table, the offset of its START-COMMIT, and its number."""

    topic: str
    table: str
    start_offset: int
    number: int


@dataclass(frozen=True)
class Terms:
    """How a worker works.

    Attributes:
        name: its own, told from all others.
        lease: seconds for which a claim lasts.
        slots: how many ranges it writes at once.
        longest_stay: seconds after which it ends, so that another begins afresh; None for ever.
        described: what its claims tell people of it besides, `Claim`'s `began` and `memory`.
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
    """

    control: ControlLog
    job: RangeJob
    timeout: float
    fits: Callable[[Transaction], str | None] = lambda _transaction: None


class Application(Protocol):
    """What a worker writes by."""

    def ailment(self) -> End | None:
        """Why it can't go on, without waiting; None while its JVM runs, answers, and has memory left."""
        ...


class Attempt(Protocol):
    """A range that is being written."""

    def cancel(self) -> None:
        """Make it end soon, without waiting for that."""
        ...


Begin = Callable[[Place, Assignment, ServedTable], Attempt]
"""Begins to write a range beside what goes on already; `Claiming.ended` is told when that has ended."""


class End(StrEnum):
    """Why a worker ends."""

    ASKED = "it was asked to"
    OLD = "its time is over"
    NEW_CODE = "another release, or other pipeline files, are in use now"
    SICK = "its Spark application can't go on"
    STUCK = "a range did not end when it was cancelled"
    SILENT = "its JVM does not answer"

    @property
    def leaves_threads(self) -> bool:
        """Whether threads are stuck that nobody can end: the process ends without waiting for them."""
        return self in (End.STUCK, End.SILENT)


@dataclass
class _Held:
    offset: int
    renewed: float
    began: float | None = None
    cancelled: float | None = None
    attempt: Attempt | None = None
    is_lost: bool = False  # another has taken it over, since this worker stood still


@dataclass
class _State:
    logs: dict[tuple[str, str], TableLog] = field(default_factory=dict)
    due: dict[Place, float] = field(default_factory=dict)
    spared: set[Place] = field(default_factory=set)  # left to others once, since there was no slot
    offered: set[Place] = field(default_factory=set)  # claimed, and given back once, since another had nothing to do
    asked: dict[Place, int] = field(default_factory=dict)  # offsets of claims sent, not yet read back
    held: dict[Place, _Held] = field(default_factory=dict)
    waiting: deque[Place] = field(default_factory=deque)
    left: deque[Place] = field(default_factory=lambda: deque(maxlen=1000))  # those that it couldn't write
    first: dict[str, int] = field(default_factory=dict)  # from where on each control topic was read
    ends: dict[str, int] = field(default_factory=dict)  # where each ended when reading of it began
    changed: set[tuple[str, str]] = field(default_factory=set)  # tables of which something new was heard
    looked: float = float("-inf")  # when it last looked at all of them


class Claiming:
    """Claims ranges of open transactions, has them written, and reports nothing itself.

    One thread calls all but `end`.

    Args:
        terms: how it works.
        tables: what it writes, by control topic and table.
        application: what it writes by.
        workers: the names of the workers that are there, itself among them.
        steady: a clock that nobody sets.
        is_current: whether release and pipeline files are still those that it began with.
        begin: begins to write a range.
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
        self._refused: deque[str] = deque(maxlen=1000)  # transactions that were told of
        self._end: End | None = None
        self._began = steady()

    # What it is told ----------------------------------------------------------------------------------------------

    def reads_from(self, topic: str, position: int, end: int) -> None:
        """A topic is read from an offset on: what stands before isn't known, what stands from `end` on is new."""
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

    def ended(self, place: Place, error: Exception | None) -> None:
        """A range that was begun has ended; with an error if it could not be written."""
        held = self._state.held.get(place)
        if held is None:
            return
        if error is None:
            del self._state.held[place]
            return
        self._state.left.append(place)
        if isinstance(error, SluiceError):  # which was reported, or the claim runs out
            del self._state.held[place]
        else:  # nothing was reported: somebody else may take it
            self._give_back(place)
        self._end_if_ill()

    def end(self, why: End = End.ASKED) -> None:
        """Claim no more, and end with what is being written; from any thread, and from a signal's handler."""
        self._end = self._end or why

    @property
    def why(self) -> End | None:
        """Why it ends; None while it goes on."""
        return self._end

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and nothing is being written, or what is can't be waited for."""
        return self._end is not None and (self._end.leaves_threads or not self._state.held)

    def until_next(self) -> float:
        """Seconds after which to step on, though nothing was said."""
        soonest = min(self._state.due.values(), default=self._steady() + _TICK)
        return min(_TICK, max(0.0, soonest - self._steady()))

    # What it does -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Look at what was said, at the clock and at itself, and do what is to be done now."""
        state, now = self._state, self._steady()
        changed, state.changed = state.changed, set()
        if now - state.looked >= _TICK:  # claims run out though nobody says anything, or says it of other tables
            state.looked, changed = now, set(state.logs)
            self._claims.forget({name for table_log in state.logs.values() for name in table_log.transactions})
        for key in sorted(changed):
            self._consider(key)
        self._look_at_itself()
        self._claim()
        self._renew()
        self._begin()
        self._offer()

    def give_all_back(self) -> None:
        """Give back what it has claimed and not written: others needn't wait until that has run out."""
        for place in list(self._state.held):
            self._give_back(place)
        for place, sent in self._state.asked.items():
            self._release(place, sent)
        self._state.asked.clear()

    def _consider(self, key: tuple[str, str]) -> None:
        """Note which of a table's ranges may be claimed and when, and which claims of its own count."""
        topic, table = key
        table_log, state = self._state.logs[key], self._state
        open_ = {place: t for t in table_log.transactions.values() for place in _places(topic, table, t)}
        known = {*state.due, *state.spared, *state.offered, *state.asked}
        for place in [p for p in known if (p.topic, p.table) == key and p not in open_]:
            state.due.pop(place, None)
            state.spared.discard(place)
            state.offered.discard(place)
            state.asked.pop(place, None)
        for place, transaction in open_.items():
            self._settle_claim(place, transaction)
            may = place not in state.held and place not in state.asked and self._may_claim(place, transaction)
            if not may:
                state.due.pop(place, None)
            elif place not in state.due:
                state.due[place] = self._steady() + self._leaves_to_others_for(place, transaction)

    def _leaves_to_others_for(self, place: Place, transaction: Transaction) -> float:
        """Seconds for which others may claim a range before this worker does."""
        if place in self._state.offered:
            return _SPARED
        _, last = transaction.claims.get(place.number, (NO_LEASE, None))
        if last is not None and last.released and self._has_slot():
            return 0.0
        first = first_choice(self._workers(), place.topic, transaction.id, place.number)
        return 0.0 if first in (None, self._terms.name) else _PATIENCE

    def _settle_claim(self, place: Place, transaction: Transaction) -> None:
        """Hold the range if the claim that was sent for it is the one that counts, or drop it."""
        sent = self._state.asked.get(place)
        if sent is None:
            return
        table_log = self._state.logs[place.topic, place.table]
        if table_log.position <= sent:
            return  # not read back yet
        del self._state.asked[place]
        offset, _ = transaction.claims.get(place.number, (NO_LEASE, None))
        if offset == sent:
            self._state.held[place] = _Held(sent, self._steady())
            self._state.waiting.append(place)
            reach("worker.after_claim")

    def _may_claim(self, place: Place, transaction: Transaction) -> bool:
        if self._end is not None or place in self._state.left:
            return False
        if not self._claims.may_claim(transaction, place.number):
            return False
        start = transaction.start
        misfit = self._tables[place.topic, place.table].fits(transaction)
        if not is_known_from(self._state.first.get(place.topic, 0), start):
            misfit = "it was planned before what this worker has read of the control topic"
        if start.release != __version__:
            if transaction.start_offset >= self._state.ends.get(place.topic, 0):
                log.warning("the interval is of another release", instant=transaction.id, release=start.release)
                self.end(End.NEW_CODE)
                return False
            # It is older than this worker: one that begins now would be of the same release as this one.
            misfit = f"it was planned by release {start.release}, before this worker began"
        if misfit is not None and transaction.id not in self._refused:
            self._refused.append(transaction.id)
            log.warning("an interval is left to its own Spark jobs", instant=transaction.id, reason=misfit)
        return misfit is None

    def _claim(self) -> None:
        """Claim what is due; without a free slot, after others had time to."""
        now = self._steady()
        for place, due in list(self._state.due.items()):
            if due > now and not (place in self._state.spared and self._has_slot()):
                continue
            if self._may_be_left_to_others(place):
                self._state.spared.add(place)
                self._state.due[place] = now + _SPARED
                continue
            del self._state.due[place]
            transaction = self._transaction(place)
            if transaction is not None and self._may_claim(place, transaction):
                last, _ = transaction.claims.get(place.number, (NO_LEASE, None))
                reach("worker.before_claim")
                sent = self._send(place, transaction, takes_over=last)
                if sent is not None:
                    self._state.asked[place] = sent

    def _has_slot(self) -> bool:
        return len(self._state.held) + len(self._state.asked) < self._terms.slots

    def _may_be_left_to_others(self, place: Place) -> bool:
        """Whether a range would wait here, others are there who may have a slot, and none was left to them before."""
        if place in self._state.spared or self._has_slot():
            return False
        return any(name != self._terms.name for name in self._workers())

    def _offer(self) -> None:
        """Give back what waits here for a slot, the last one first, as long as other workers have nothing to do.

        Each range once: who has nothing to do may be one that can't write it.
        """
        state = self._state
        waiting = [place for place in reversed(state.waiting) if place not in state.offered]
        if not waiting:
            return
        idle = len(set(self._workers()) - {self._terms.name} - self._busy())
        unclaimed = sum(map(self._is_on_offer, state.offered))
        for place in waiting[: max(0, idle - unclaimed)]:
            state.waiting.remove(place)
            state.offered.add(place)
            state.spared.add(place)
            self._give_back(place)

    def _is_on_offer(self, place: Place) -> bool:
        """Whether nobody has claimed a range since this worker gave it back, as far as it knows."""
        transaction = self._transaction(place)
        if transaction is None or place in self._state.held or not is_unwritten(transaction, place.number):
            return False
        _, last = transaction.claims.get(place.number, (NO_LEASE, None))
        return last is not None and last.worker == self._terms.name

    def _busy(self) -> set[str]:
        """The workers that have claimed a range, as far as this one knows."""
        open_ = [t for table_log in self._state.logs.values() for t in table_log.transactions.values() if t.is_open]
        ranges = [(t, n) for t in open_ for n in range(len(t.start.ranges)) if is_unwritten(t, n)]
        claims = [self._claims.standing(t, n) for t, n in ranges]
        return {claim.worker for claim in claims if claim is not None}

    def _renew(self) -> None:
        now = self._steady()
        for place, held in list(self._state.held.items()):
            if now - held.renewed < self._terms.lease / _RENEWALS:
                continue
            transaction = self._transaction(place)
            if transaction is not None and self._is_its_own(place, held, transaction):
                sent = self._send(place, transaction, takes_over=held.offset)
                held.offset = sent if sent is not None else held.offset
            held.renewed = now

    def _is_its_own(self, place: Place, held: _Held, transaction: Transaction) -> bool:
        """Whether its claim is still the one that counts, as far as was heard.

        A renewal may have come to the log though nobody answered: then that is the one to name.
        """
        last, claim = transaction.claims.get(place.number, (NO_LEASE, None))
        if claim is not None and claim.worker == self._terms.name:
            held.offset = max(held.offset, last)
        elif last > held.offset and not held.is_lost:
            held.is_lost = True
            log.warning("a claim has run out, and another worker has the range", table=place.table, range=place.number)
        return not held.is_lost

    def _begin(self) -> None:
        """Write what is claimed, as far as there are slots: first of those tables that have none."""
        state = self._state
        running = [p.table for p, held in state.held.items() if held.began is not None]
        while state.waiting and len(running) < self._terms.slots:
            place = min(state.waiting, key=lambda p: running.count(p.table))
            state.waiting.remove(place)
            held, transaction = state.held[place], self._transaction(place)
            may = transaction is not None and is_unwritten(transaction, place.number)
            if transaction is None or not may or not self._is_its_own(place, held, transaction):
                del state.held[place]
                continue
            held.began = self._steady()
            digest = start_digest(transaction.start)
            assignment = Assignment(place.table, place.topic, place.start_offset, place.number, digest)
            running.append(place.table)
            held.attempt = self._begin_range(place, assignment, self._tables[place.topic, place.table])

    def _give_back(self, place: Place) -> None:
        held, transaction = self._state.held.pop(place), self._transaction(place)
        if transaction is not None and self._is_its_own(place, held, transaction):
            self._release(place, held.offset)

    def _release(self, place: Place, offset: int) -> None:
        transaction = self._transaction(place)
        if transaction is not None and is_unwritten(transaction, place.number):
            self._send(place, transaction, takes_over=offset, released=True)

    def _look_at_itself(self) -> None:
        """End, or cancel a range, where it is time to."""
        now = self._steady()
        if self._terms.longest_stay is not None and now - self._began >= self._terms.longest_stay:
            self.end(End.OLD)
        if not self._is_current():
            self.end(End.NEW_CODE)
        self._end_if_ill(writes_go_on=bool(self._state.held))
        if self._end is not None:
            while self._state.waiting:
                self._give_back(self._state.waiting.popleft())
        for place, held in self._state.held.items():
            self._cancel_if_late(place, held, now)

    def _end_if_ill(self, *, writes_go_on: bool = False) -> None:
        """End if its application can't go on. A heap may be full as long as ranges are written; a mute JVM writes none.

        Args:
            writes_go_on: whether ranges are being written of which none has failed.
        """
        ailment = self._application.ailment()
        if ailment is End.SILENT:
            self._end = ailment  # whatever it was to end for: what it writes would never end
        elif ailment is not None and not writes_go_on:
            self.end(ailment)

    def _cancel_if_late(self, place: Place, held: _Held, now: float) -> None:
        timeout = self._tables[place.topic, place.table].timeout
        if held.began is None or held.attempt is None or now - held.began < timeout:
            return
        if held.cancelled is None:
            held.cancelled = now
            log.error("a range takes longer than write.timeout; it is cancelled", table=place.table, range=place.number)
            held.attempt.cancel()
        elif now - held.cancelled >= _TO_END:
            self._end = End.STUCK

    def _transaction(self, place: Place) -> Transaction | None:
        return self._state.logs[place.topic, place.table].at(place.start_offset)

    def _send(self, place: Place, transaction: Transaction, *, takes_over: int, released: bool = False) -> int | None:
        """Send a claim; None where that failed, which costs time and nothing else."""
        start = transaction.start
        claim = Claim(
            **start.model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id"}),
            sender=f"worker {self._terms.name}",
            time=datetime.now(UTC),
            range=place.number,
            worker=self._terms.name,
            lease=self._terms.lease,
            takes_over=takes_over,
            released=released,
            **self._terms.described(),
        )
        try:
            return self._tables[place.topic, place.table].control.send(claim)
        except SluiceError as error:
            log.warning("a claim could not be sent", reason=str(error))
            return None


def _places(topic: str, table: str, transaction: Transaction) -> list[Place]:
    if not transaction.is_open:
        return []
    return [Place(topic, table, transaction.start_offset, n) for n in range(len(transaction.start.ranges))]
