"""When records that have arrived start an interval: a rule over a table's history and its topics' ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from sluice.protocol.history import TableHistory
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.policy import policy_of

_PATIENCE = timedelta(minutes=5)  # for a run that was asked for to open its interval, before another one is
_TRIES = 2  # starts without a commit, after which only the clock starts an interval: a bad record fails each of them


@dataclass(frozen=True)
class ArrivalRule:
    """When to start.

    Attributes:
        records: how many offsets must have arrived since the ones that the table has committed.
        at_most_every: the least time between two starts.
        counts_new_ones: whether a partition of which nothing was committed counts from the end at which it was first
            seen, since the table won't read what is before; otherwise it counts from offset 0.
    """

    records: int
    at_most_every: timedelta
    counts_new_ones: bool = False


class Arrivals:
    """Watches one table; it remembers the starts that it asked for."""

    def __init__(self, rule: ArrivalRule) -> None:
        self._rule = rule
        self._first_seen: dict[TopicPartition, int] = {}
        self._committed = ""
        self._asked: tuple[datetime, str] | None = None  # when, and the newest interval then
        self._tries = 0

    def due(self, history: TableHistory, ends: Mapping[TopicPartition, int], now: datetime) -> int | None:
        """How many offsets wait, if they start an interval now, which then counts as asked for; otherwise None.

        Args:
            history: the table's, read after `ends`: so what a commit has read meanwhile doesn't count.
            ends: the present ends of its partitions.
            now: the time, in UTC.
        """
        waiting = sum(max(end - self._position(history, tp, end), 0) for tp, end in ends.items())
        committed = history.last_committed.instant if history.last_committed is not None else ""
        if committed != self._committed:
            self._committed, self._tries = committed, 0
        newest = next((t for t in history.newest() if t.service is None), None)
        if (
            waiting < self._rule.records
            or any(t.under_way for t in history.transactions.values())
            or (newest is not None and now - newest.started < self._rule.at_most_every)
            or self._awaits(newest.instant if newest is not None else "", now)
            or max(self._tries, _failed(history, committed)) >= _TRIES
        ):
            return None
        self._asked = now, newest.instant if newest is not None else ""
        self._tries += 1
        return waiting

    def _awaits(self, newest: str, now: datetime) -> bool:
        """Whether it is too early to ask again: a run may be queued, or start slowly."""
        if self._asked is None:
            return False
        asked, then = self._asked
        return now - asked < (max(self._rule.at_most_every, _PATIENCE) if newest == then else self._rule.at_most_every)

    def _position(self, history: TableHistory, partition: TopicPartition, end: int) -> int:
        committed = history.committed.get(partition)
        if committed is not None:
            return committed[0]
        return self._first_seen.setdefault(partition, end) if self._rule.counts_new_ones else 0


def _failed(history: TableHistory, committed: str) -> int:
    """How many intervals that read on have ended without a commit since the last one."""
    since = takewhile(lambda t: t.instant != committed, history.newest())
    return sum(not t.under_way and policy_of(t.kind).moves_positions == "planned" for t in since)
