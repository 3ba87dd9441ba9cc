"""When records that have arrived start an interval."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sluice.protocol.arrivals import ArrivalRule, Arrivals
from sluice.protocol.history import TableHistory
from sluice.protocol.messages import AckCommit, ControlMessage
from sluice.protocol.offsets import TopicPartition

from .protocol_messages import INSTANT, TABLE, TIME, abort, ack, end, planned, start, status

PARTITION = TopicPartition("kafka", "t", 0)
LATER = "20260101000100000"
MINUTE = timedelta(minutes=1)


def _acknowledged(transaction: str = INSTANT) -> AckCommit:
    return ack(transaction).model_copy(update={"offsets": (planned(0),)})


def _read_on(transaction: str, position: int, **more: Any) -> ControlMessage:
    begun = start(transaction, read_position=position, **more)
    return begun.model_copy(update={"ranges": ((planned(0, 10, 20),),)})


COMMITTED = (start(INSTANT), status(INSTANT), end(INSTANT), _acknowledged())  # at TIME, offsets [0, 10)


def _history(*messages: ControlMessage) -> TableHistory:
    return TableHistory(TABLE).extend(enumerate(messages))


def _due(history: TableHistory, log_end: int, after: timedelta = MINUTE, known: Arrivals | None = None) -> int | None:
    asked = known or Arrivals(ArrivalRule(records=100, at_most_every=MINUTE))
    return asked.due(history, {PARTITION: log_end}, TIME + after)


def test_the_offsets_since_the_last_commit_count():
    assert _due(_history(), 100) == 100
    assert _due(_history(), 99) is None
    assert _due(_history(*COMMITTED), 110) == 100
    assert _due(_history(*COMMITTED), 109) is None


def test_partitions_count_together_and_one_with_fewer_than_committed_takes_nothing_off():
    arrivals = Arrivals(ArrivalRule(records=100, at_most_every=MINUTE))
    ends = {PARTITION: 5, TopicPartition("kafka", "t", 1): 60, TopicPartition("kafka", "t", 2): 40}
    assert arrivals.due(_history(*COMMITTED), ends, TIME + MINUTE) == 100


def test_what_a_table_will_not_read_does_not_count():
    arrivals = Arrivals(ArrivalRule(records=100, at_most_every=MINUTE, counts_new_ones=True))
    assert _due(_history(), 1000, known=arrivals) is None
    assert _due(_history(), 1099, known=arrivals) is None
    assert _due(_history(), 1100, known=arrivals) == 100


def test_a_start_follows_another_after_a_while_however_that_was_started():
    assert _due(_history(*COMMITTED), 1000, MINUTE / 2) is None
    assert _due(_history(*COMMITTED), 1000, MINUTE) == 990


def test_a_run_that_was_asked_for_is_waited_for():
    arrivals = Arrivals(ArrivalRule(records=100, at_most_every=MINUTE))
    assert _due(_history(), 1000, MINUTE, arrivals) == 1000
    assert _due(_history(), 1000, MINUTE * 5.5, arrivals) is None
    assert _due(_history(*COMMITTED), 1000, MINUTE * 1.5, arrivals) is None
    assert _due(_history(*COMMITTED), 1000, MINUTE * 2, arrivals) == 990
    assert _due(_history(*COMMITTED), 1000, MINUTE * 6.5, arrivals) is None
    assert _due(_history(*COMMITTED), 1000, MINUTE * 7, arrivals) == 990  # it didn't come


def test_an_open_interval_is_waited_for():
    opened = _read_on(LATER, 4)
    assert _due(_history(*COMMITTED, opened), 1000) is None
    assert _due(_history(*COMMITTED, opened, abort(LATER)), 1000) == 990


def test_after_two_starts_without_a_commit_the_clock_alone_starts():
    arrivals = Arrivals(ArrivalRule(records=100, at_most_every=MINUTE))
    found = [_due(_history(), 1000, MINUTE * n, arrivals) for n in (1, 6, 11, 16)]
    assert found == [1000, 1000, None, None]
    assert _due(_history(*COMMITTED), 1000, MINUTE * 17, arrivals) == 990


@pytest.mark.parametrize(("kind", "expected"), [("continue", None), ("backfill", 990)])
def test_intervals_that_have_failed_are_known_from_the_log(kind, expected):
    """So a triggerer that starts anew doesn't try again what two runs have failed at."""
    failed: list[ControlMessage] = []
    for number in (2, 3):
        instant, position = f"2026010100000{number}000", len(COMMITTED) + len(failed)
        failed += [_read_on(instant, position, kind=kind), abort(instant)]
    assert _due(_history(*COMMITTED, *failed), 1000) == expected
