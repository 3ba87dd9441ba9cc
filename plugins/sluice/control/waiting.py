"""Waits until workers have written ranges, or it is known that they won't."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from sluice.control.presence import Presence
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError, SluiceError
from sluice.logs import log
from sluice.protocol.claims import Verdict, Waiting

_ASK_AGAIN = 2.0  # seconds for which an answer of who is there is good
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady() -> float:
    """Seconds on a clock that nobody sets, and that counts while the machine is suspended."""
    return time.clock_gettime(CLOCK)


def presence_of(control: ControlTopic, group: str) -> Callable[[], bool]:
    """What tells whether a worker of the group is there; it asks Kafka every two seconds at most.

    Where Kafka can't say just now, one may be: `claim_within` bounds the wait. Where it may not say, it is as if none
    were, and each range is written by a Spark job of its own.
    """
    presence = Presence(control.settings)
    asked: list[tuple[float, bool]] = []

    def are_there() -> bool:
        now = steady()
        if not asked or now - asked[-1][0] >= _ASK_AGAIN:
            try:
                found = bool(presence.members(group))
            except RetryableError:
                found = True
            except SluiceError as error:
                log.warning("it isn't known whether workers are there", reason=str(error))
                found = False
            asked[:] = [(now, found)]
        return asked[-1][1]

    return are_there


def wait_for_workers(
    control: ControlTopic, table: str, control_offset: int, ranges: Iterable[int], group: str, claim_within: float
) -> dict[int, Verdict]:
    """Wait until each range is written, has failed, or is to be written by a Spark job of its own.

    Args:
        control: the control topic.
        table: the table as the messages name it.
        control_offset: where the START-COMMIT stands.
        ranges: the ranges' numbers.
        group: the group of workers.
        claim_within: seconds within which a worker has to claim a range.

    Returns:
        What became of each range; none of them is `wait`.

    Raises:
        RetryableError, ActionRequiredError: the control topic can't be read.
    """
    waiting = {number: Waiting(number, claim_within, steady) for number in ranges}
    workers, found, stop = presence_of(control, group), dict[int, Verdict](), threading.Event()
    table_log = control.table_log(table, control_offset)

    def look() -> None:
        transaction = table_log.at(control_offset)
        for number, one in waiting.items():
            if number not in found and (verdict := one.judge(transaction, workers)) is not Verdict.WAIT:
                found[number] = verdict
        if len(found) == len(waiting):
            stop.set()

    look()
    for _ in control.follow(table_log, stop):
        look()
    return found
