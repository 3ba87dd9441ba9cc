"""A lease has run out for its holder before it has for anybody else, whatever their clocks say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sluice.coordinator.lease import Leases
from sluice.coordinator.machine import ThisMachine
from sluice.protocol.messages import EndCommit

TIMEOUT, SKEW = timedelta(minutes=10), timedelta(minutes=5)


class Clock(ThisMachine):
    """This machine with another clock that nobody sets: a test can't wait for minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0

    def steady(self) -> float:
        return self.seconds

    def go(self, **time: float) -> None:
        self.seconds += timedelta(**time).total_seconds()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _lease(ago: timedelta = timedelta(), **fields: object) -> EndCommit:
    """A lease of another machine, by whose clock it was taken so long ago."""
    return EndCommit(
        table="t", transaction="20260101000000000", epoch=1, dag_id="d", run_id="r", sender="coordinator",
        time=datetime.now(UTC) - ago, reported=(0,), holder="another/1/b/n/1", **fields,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ago", "free"),
    [
        (timedelta(minutes=-30), False),
        (timedelta(0), False),
        (TIMEOUT, False),  # a clock that is five minutes ahead would say so at half time
        (TIMEOUT + SKEW - timedelta(seconds=1), False),
        (TIMEOUT + SKEW, True),
    ],
)
def test_who_has_just_come_allows_for_the_difference_of_clocks(clock, ago, free):
    assert Leases("t", TIMEOUT, SKEW, clock).is_free(7, _lease(ago)) is free


@pytest.mark.parametrize("ago", [timedelta(days=-1), timedelta(0), timedelta(minutes=14)])
def test_who_has_watched_goes_by_what_it_has_seen(clock, ago):
    watching, lease = Leases("t", TIMEOUT, SKEW, clock), _lease(ago)
    assert not watching.is_free(7, lease)
    clock.go(minutes=9.9)
    assert not watching.is_free(7, lease)
    clock.go(minutes=0.1)
    assert Leases("t", TIMEOUT, SKEW, clock).is_free(7, lease), "the process has watched, whichever part of it asks"
    assert not watching.is_free(8, _lease(ago)), "renewed"


def test_the_holder_counts_from_before_it_was_sent(clock):
    own = Leases("t", TIMEOUT, SKEW, clock)
    before = clock.steady()
    clock.go(minutes=1)  # sending took so long, or the machine stood still
    own.sent(7, before)
    clock.go(minutes=8.9)
    assert own.is_held_here(7)
    clock.go(minutes=0.1)
    assert not own.is_held_here(7)
    assert not own.is_held_here(8)


def test_what_was_given_back_is_free_at_once(clock):
    assert Leases("t", TIMEOUT, SKEW, clock).is_free(7, _lease(released=True))
