"""Waits until workers have written ranges, or until it is certain that they won't."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial

from sluice.control.presence import Presence
from sluice.control.topic import ControlTopic
from sluice.protocol.claims import Verdict, Waiting

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady() -> float:
    """Monotonic seconds, including suspend (`CLOCK_BOOTTIME`)."""
    return time.clock_gettime(CLOCK)


def wait_for_workers(
    control: ControlTopic, table: str, control_offset: int, ranges: Iterable[int], group: str, claim_within: float
) -> dict[int, Verdict]:
    """Wait until each range is written, has failed, or has to be written by a separate Spark job.

    Args:
        control: the control topic.
        table: the table as the messages name it.
        control_offset: the START-COMMIT's offset.
        ranges: the ranges' numbers.
        group: the group of workers.
        claim_within: seconds within which a worker has to claim a range.

    Returns:
        The verdict on each range; none is `wait`.

    Raises:
        RetryableError, ActionRequiredError: the control topic can't be read.
    """
    waiting = {number: Waiting(number, claim_within, steady) for number in ranges}
    presence, found, stop = Presence(control.settings), dict[int, Verdict](), threading.Event()
    are_there = partial(presence.has_workers, group)
    table_log = control.table_log(table, control_offset)

    def look() -> None:
        transaction = table_log.at(control_offset)
        for number, one in waiting.items():
            if number not in found and (verdict := one.judge(transaction, are_there)) is not Verdict.WAIT:
                found[number] = verdict
        if len(found) == len(waiting):
            stop.set()

    look()
    for _ in control.follow(table_log, stop):
        look()
    return found
