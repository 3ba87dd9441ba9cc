"""A worker: it claims ranges of open transactions and writes them as participants do, for as long as it stays.

RFC-32's participants live on and follow the control topic; so do these. One thread decides (`Claiming`), and is told by
others: of messages by those that follow the control topics, of ranges that have ended by those that write them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sluice.errors import SluiceError
from sluice.logs import log
from sluice.participant.claiming import Application, Claiming, End, Place, ServedTable, Terms
from sluice.participant.participant import Assignment, Participant
from sluice.protocol.claims import Steady
from sluice.protocol.messages import ControlMessage


@dataclass(frozen=True)
class _Ended:
    place: Place
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
    """A participant's, cancelled in a thread of its own: Spark may not answer, and the thread that decides goes on."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant

    def cancel(self) -> None:
        threading.Thread(target=self._participant.cancel, name="sluice-cancelling", daemon=True).start()


class Worker:
    """Writes ranges until it is told to end.

    Args:
        terms: how it works.
        tables: what it writes, by control topic and table.
        application: what it writes by.
        workers: the names of the workers that are there, itself among them.
        steady: a clock that nobody sets.
        is_current: whether release and pipeline files are still those that it began with.
    """

    def __init__(
        self,
        terms: Terms,
        tables: Mapping[tuple[str, str], ServedTable],
        application: Application,
        workers: Callable[[], tuple[str, ...]],
        steady: Steady,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        self._terms = terms
        self._tables = tables
        self._told: queue.SimpleQueue[_Began | _Said | _Ended | None] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(terms.slots, thread_name_prefix="sluice-range")
        self._claiming = Claiming(terms, tables, application, workers, steady, is_current, self._begin)

    def reads_from(self, topic: str, position: int, end: int) -> None:
        """Note from where on a control topic is read, and where it ended; called by who follows it, before `said`."""
        self._told.put(_Began(topic, position, end))

    def said(self, topic: str, messages: Sequence[tuple[int, ControlMessage]]) -> None:
        """Take messages in, with their offsets, all before it decides anything; called by who follows the topic."""
        self._told.put(_Said(topic, messages))

    def end(self, why: End = End.ASKED) -> None:
        """Claim no more, end what is being written, and return; safe from any thread, and from a signal's handler."""
        self._claiming.end(why)
        self._told.put(None)

    def run(self) -> End:
        """Work, and return why it ended; what it held then is written, or given back."""
        log.info("worker", name=self._terms.name, slots=self._terms.slots, tables=len(self._tables))
        claiming = self._claiming
        try:
            while not claiming.is_over:
                self._hear()
                claiming.step()
        finally:
            claiming.give_all_back()
            # A range that doesn't end has its thread for good: the process ends without it.
            stuck = claiming.why is not None and claiming.why.leaves_threads
            self._pool.shutdown(wait=not stuck, cancel_futures=True)
        why = claiming.why or End.ASKED
        log.info("worker ends", name=self._terms.name, because=why.value)
        return why

    def _hear(self) -> None:
        """Wait for news, and take all of it in."""
        try:
            news = self._told.get(timeout=self._claiming.until_next())
        except queue.Empty:
            return
        while True:
            if isinstance(news, _Said):
                for offset, message in news.messages:
                    self._claiming.said(news.topic, offset, message)
            elif isinstance(news, _Began):
                self._claiming.reads_from(news.topic, news.position, news.end)
            elif news is not None:
                self._claiming.ended(news.place, news.error)
            try:
                news = self._told.get_nowait()
            except queue.Empty:
                return

    def _begin(self, place: Place, assignment: Assignment, served: ServedTable) -> _Attempt:
        participant = Participant(assignment, served.control, served.job)
        self._pool.submit(self._write, place, participant)
        return _Attempt(participant)

    def _write(self, place: Place, participant: Participant) -> None:
        error: Exception | None = None
        try:
            participant.run()
        except SluiceError as reported:
            error = reported
            log.error(str(reported), recovery=reported.recovery)
        except Exception as unexpected:
            error = unexpected
            log.exception("a range could not be written", table=place.table, range=place.number)
        finally:
            self._told.put(_Ended(place, error))
