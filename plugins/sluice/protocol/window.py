"""Where a window by record times ends in a log with records dated in the future.

Kafka returns the first record that is dated at a given time or later. A record dated 2099 would be that record for all
times to come, and no record after it would ever belong to a window. So records dated too far ahead don't bound a
window: they are placed by their offsets, and the bound is searched for behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

FIRST_TIME, LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
"""The first millisecond of the year 1 and the last of the year 9999, in ms since 1970: the limits of a datetime."""
Bound = Generator[int, bool, int]
_Log = TypeVar("_Log")


def first_past(start: int, end: int) -> Bound:
    """The first offset in `[start, end)` from which records are past a bound, or `end`.

    Each offset that it yields is a question: is the first well-dated record from there past the bound? It asks about
    twice as often as the distance has binary digits. If times don't rise with offsets there are several answers; it
    always finds the same one, since its questions depend on `start` alone.
    """
    if start >= end or (yield start):
        return min(start, end)
    step = 1
    while start + step < end and not (yield start + step):
        step *= 2
    before, past = start + step // 2, start + step
    while past - before > 1:
        middle = (before + past) // 2
        if middle >= end or (yield middle):
            past = middle
        else:
            before = middle
    return min(past, end)


def find_all(
    searches: Mapping[_Log, Bound], ask: Callable[[Mapping[_Log, int]], Mapping[_Log, bool]]
) -> dict[_Log, int]:
    """Run several searches in parallel: each call of `ask` answers one question of every search."""
    found: dict[_Log, int] = {}
    answers: dict[_Log, bool | None] = dict.fromkeys(searches)
    while answers:
        questions: dict[_Log, int] = {}
        for log, answer in answers.items():
            try:
                questions[log] = next(searches[log]) if answer is None else searches[log].send(answer)
            except StopIteration as done:
                found[log] = done.value
        answers = dict(ask(questions)) if questions else {}
    return found


def record_time(milliseconds: int) -> datetime:
    """A record's time, or the nearest one that a datetime can hold."""
    within = min(max(milliseconds, FIRST_TIME), LAST_TIME)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=within)
