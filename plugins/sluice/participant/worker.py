"""A worker: it claims ranges of open transactions and writes them as participants do, for as long as it stays.

RFC-32's participants are long-lived and follow the control topic; so are these. One thread decides (`Claiming`). Other
threads pass events to it: followers of control topics pass messages, writers of ranges their ends.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sluice.errors import SluiceError
from sluice.logs import log
from sluice.participant.claiming import Application, Claiming, End, HeldClaim, RangeId, ServedTable, Terms
from sluice.participant.figures import Figures
from sluice.participant.participant import Assignment, NotHereError, Participant
from sluice.protocol.claims import Steady
from sluice.protocol.messages import ControlMessage, WriteStatus


@dataclass(frozen=True)
class _Ended:
    range_id: RangeId
    error: Exception | None


@dataclass(frozen=True)
class _Began:
    topic: str
    position: int
    end: int


@dataclass(frozen=True)
class _Said:
    topic: str
    messages: Sequence[tuple[int, ControlMessage]]


class _Attempt:
    """An attempt, cancelled in a separate thread: Spark may not answer, and the deciding thread mustn't block."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant

    def cancel(self) -> None:
        threading.Thread(target=self._participant.cancel, name="sluice-cancelling", daemon=True).start()


class Worker:
    """Writes ranges until it has to end.

    Args:
        terms: how it works.
        tables: the tables that it writes, by control topic and table.
        application: its Spark application.
        workers: the names of the group's present workers, including its own.
        steady: a monotonic clock, in seconds.
        is_current: whether release and pipeline files are unchanged since it began.
        figures: count what it does.

    Attributes:
        tables: the tables that it writes.
    """

    def __init__(
        self,
        terms: Terms,
        tables: Mapping[tuple[str, str], ServedTable],
        application: Application,
        workers: Callable[[], tuple[str, ...]],
        steady: Steady,
        is_current: Callable[[], bool] = lambda: True,
        figures: Figures | None = None,
    ) -> None:
        self._terms = terms
        self.tables = tables
        self._steady = steady
        self._figures = figures or Figures()
        self._events: queue.SimpleQueue[_Began | _Said | _Ended | None] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(terms.slots, thread_name_prefix="sluice-range")
        self._claiming = Claiming(
            terms, tables, application, workers, steady, is_current, self._begin, self._figures.claimed
        )

    def reads_from(self, topic: str, position: int, end: int) -> None:
        """Note the offset from which a control topic is read, and its end; called by its follower, before `said`."""
        self._events.put(_Began(topic, position, end))

    def said(self, topic: str, messages: Sequence[tuple[int, ControlMessage]]) -> None:
        """Queue messages with their offsets, all to be taken in before the next decision; for the topic's follower."""
        self._events.put(_Said(topic, messages))

    def end(self, why: End = End.ASKED) -> None:
        """Claim no more, finish running ranges, and return; safe from any thread and from a signal handler."""
        self._claiming.end(why)
        self._events.put(None)

    @property
    def why(self) -> End | None:
        """Why it ends; None while it keeps working."""
        return self._claiming.why

    @property
    def ticked(self) -> float:
        """When its loop last ran, by its clock."""
        return self._claiming.ticked

    @property
    def held(self) -> tuple[HeldClaim, ...]:
        """Its claims that count."""
        return self._claiming.held

    def run(self) -> End:
        """Work, and return why it ended; ranges that it held are written or released by then."""
        log.info("worker", name=self._terms.name, slots=self._terms.slots, tables=len(self.tables))
        claiming = self._claiming
        try:
            while not claiming.is_over:
                self._hear()
                claiming.step()
        finally:
            claiming.give_all_back()
            # A range that doesn't end blocks its thread for good: the process exits without joining it.
            stuck = claiming.why is not None and claiming.why.leaves_threads
            self._pool.shutdown(wait=not stuck, cancel_futures=True)
        why = claiming.why or End.ASKED
        log.info("worker ends", name=self._terms.name, because=why.value)
        return why

    def _hear(self) -> None:
        """Wait for events, and take all of them in."""
        try:
            news = self._events.get(timeout=self._claiming.until_next())
        except queue.Empty:
            return
        while True:
            if isinstance(news, _Said):
                for offset, message in news.messages:
                    self._claiming.said(news.topic, offset, message)
            elif isinstance(news, _Began):
                self._claiming.reads_from(news.topic, news.position, news.end)
            elif news is not None:
                self._claiming.ended(news.range_id, news.error)
            try:
                news = self._events.get_nowait()
            except queue.Empty:
                return

    def _begin(self, range_id: RangeId, assignment: Assignment, served: ServedTable) -> _Attempt:
        participant = Participant(assignment, served.control, served.job, leaves=True)
        self._pool.submit(self._write, range_id, served, participant)
        return _Attempt(participant)

    def _write(self, range_id: RangeId, served: ServedTable, participant: Participant) -> None:
        began = self._steady()
        status: WriteStatus | None = None
        error: Exception | None = None
        try:
            status = participant.run()
        except SluiceError as reported:
            error = reported
            log.error(str(reported), recovery=reported.recovery)
        except NotHereError as not_here:
            error = not_here
            log.warning("a range is left to others", table=range_id.table, range=range_id.number, reason=str(not_here))
        except Exception as unexpected:
            error = unexpected
            log.exception("a range could not be written", table=range_id.table, range=range_id.number)
        finally:
            self._events.put(_Ended(range_id, error))
        if status is not None:
            self._figures.wrote(served, status, self._steady() - began)
        elif error is not None:
            self._figures.failed(served, error)
