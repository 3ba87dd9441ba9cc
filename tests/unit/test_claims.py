"""Claims of workers: of two at once the first counts, and they run out by the reader's own clock."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol.claims import Claims, Verdict, Waiting, first_choice
from sluice.protocol.transaction import State, TableLog, Transaction

from .protocol_messages import INSTANT, TABLE, abort, ack, claim, end, start, status


class Clock:
    """A clock that nobody sets: a test can't wait for a lease."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def _folded(*messages: Any, ranges: int = 1) -> Transaction:
    log = TableLog(TABLE).extend(enumerate([start(INSTANT, ranges=ranges), *messages]))
    return log.transactions[INSTANT]


def test_of_two_claims_at_once_the_first_counts():
    transaction = _folded(claim("a"), claim("b"))
    assert transaction.claims[0][1].worker == "a"


def test_a_claim_is_renewed_and_taken_over_by_naming_the_last_one():
    transaction = _folded(claim("a"), claim("a", takes_over=1), claim("b", takes_over=1), claim("c", takes_over=2))
    assert transaction.claims[0] == (4, claim("c", takes_over=2))


def test_a_claim_on_a_range_that_the_plan_has_not_counts_for_nothing():
    assert _folded(claim(range=1)).claims == {}


def test_a_claim_is_no_turn():
    log = TableLog(TABLE).extend([(0, start(INSTANT)), (1, claim())])
    log.extend([(2, start("20260101000000001", read_position=1))])
    assert log.transactions["20260101000000001"].is_open


@pytest.mark.parametrize(
    "messages",
    [[], [claim(), claim(takes_over=1, released=True)]],
    ids=["none", "given back"],
)
def test_a_range_may_be_claimed_while_nobody_writes_it(messages):
    assert Claims(Clock()).may_claim(_folded(*messages), 0)


@pytest.mark.parametrize(
    "messages",
    [[claim()], [status(INSTANT)], [status(INSTANT, error="no")], [abort(INSTANT)]],
    ids=["claimed", "written", "failed", "aborted"],
)
def test_a_range_may_not_be_claimed(messages):
    assert not Claims(Clock()).may_claim(_folded(*messages), 0)


def test_a_claim_runs_out_once_it_was_seen_for_its_lease_whatever_its_time_says():
    clock = Clock()
    claims, transaction = Claims(clock), _folded(claim())
    assert not claims.may_claim(transaction, 0)
    clock.seconds += 29.9
    assert not claims.may_claim(transaction, 0)
    clock.seconds += 0.2
    assert claims.may_claim(transaction, 0)


def test_tables_whose_intervals_share_an_instant_have_leases_of_their_own():
    clock = Clock()
    claims, one = Claims(clock), _folded(claim())
    messages = [start(INSTANT), claim(), claim(takes_over=1)]  # the last claim of each stands at another offset
    renamed = [m.model_copy(update={"table": "file:///lake/other"}) for m in messages]
    other = TableLog("file:///lake/other").extend(enumerate(renamed)).transactions[INSTANT]
    for _ in range(3):
        assert not claims.may_claim(one, 0)
        assert not claims.may_claim(other, 0)
        clock.seconds += 10
    assert claims.may_claim(one, 0)
    assert claims.may_claim(other, 0)


def test_workers_find_the_same_first_choice_and_none_has_two_ranges_more_than_another():
    chosen = [first_choice(["a", "b", "c"], "t", INSTANT, n) for n in range(8)]
    assert chosen == [first_choice(["c", "a", "b"], "t", INSTANT, n) for n in range(8)]
    assert sorted(chosen.count(name) for name in "abc") == [2, 3, 3]
    assert first_choice([], "t", INSTANT, 0) is None


def test_intervals_of_one_range_go_to_all_workers():
    chosen = [first_choice(["a", "b", "c"], "t", f"{n:017}", 0) for n in range(300)]
    assert {name: 60 < chosen.count(name) < 140 for name in "abc"} == dict.fromkeys("abc", True)


class TestWaiting:
    def _waiting(self, clock: Clock) -> Waiting:
        return Waiting(0, claim_within=10.0, steady=clock)

    def test_where_no_worker_is_there_the_task_writes_at_once(self):
        assert self._waiting(Clock()).judge(_folded(), lambda: False) is Verdict.SUBMIT

    def test_it_waits_for_a_claim_and_no_longer_than_it_may(self):
        clock = Clock()
        waiting = self._waiting(clock)
        assert waiting.judge(_folded(), lambda: True) is Verdict.WAIT
        clock.seconds += 9.9
        assert waiting.judge(_folded(), lambda: True) is Verdict.WAIT
        clock.seconds = 1010.0
        assert waiting.judge(_folded(), lambda: True) is Verdict.SUBMIT

    def test_it_waits_while_a_claim_is_renewed(self):
        clock = Clock()
        waiting = self._waiting(clock)
        renewals = [claim()]
        for _ in range(5):
            assert waiting.judge(_folded(*renewals), lambda: False) is Verdict.WAIT
            clock.seconds += 20
            renewals.append(claim(takes_over=len(renewals)))

    def test_a_claim_that_has_run_out_is_as_none(self):
        clock = Clock()
        waiting = self._waiting(clock)
        assert waiting.judge(_folded(claim()), lambda: False) is Verdict.WAIT
        clock.seconds += 31
        assert waiting.judge(_folded(claim()), lambda: False) is Verdict.SUBMIT

    def test_a_failure_of_this_try_fails_it_and_one_of_an_earlier_try_has_it_write_by_itself(self):
        failed = [claim(), status(INSTANT, error="no", recovery="retry")]
        waiting = self._waiting(Clock())
        assert waiting.judge(_folded(claim()), lambda: True) is Verdict.WAIT
        assert waiting.judge(_folded(*failed), lambda: True) is Verdict.FAILED
        assert self._waiting(Clock()).judge(_folded(*failed), lambda: True) is Verdict.SUBMIT

    def test_written_stays_written_and_an_aborted_interval_has_ended(self):
        waiting = self._waiting(Clock())
        assert waiting.judge(_folded(status(INSTANT)), lambda: True) is Verdict.WRITTEN
        assert waiting.judge(_folded(abort(INSTANT)), lambda: True) is Verdict.ENDED
        assert waiting.judge(None, lambda: True) is Verdict.ENDED


@pytest.mark.parametrize(("read_up_to", "is_void"), [(1, True), (2, True), (3, False)])
def test_a_start_that_has_not_read_the_last_turn_counts_for_nothing(read_up_to, is_void):
    """What it read ends before its position: a turn at the position itself is one that it doesn't know."""
    log = TableLog(TABLE).extend([(0, start(INSTANT)), (2, abort(INSTANT))])
    log.extend([(3, start("20260101000000001", read_position=read_up_to))])
    assert (log.transactions["20260101000000001"].state is State.VOID) is is_void


@pytest.mark.parametrize(
    ("messages", "unsettled"),
    [
        ([], 7),
        ([abort(INSTANT)], 7),
        ([end(INSTANT), ack(INSTANT)], 7),
        ([end(INSTANT)], 0),
        ([start("20260101000000001", read_position=1)], 0),
    ],
    ids=["no START", "aborted", "committed", "decided", "superseded, and another is open"],
)
def test_the_oldest_start_without_an_end_is_where_the_next_has_to_look_from(messages, unsettled):
    begun = [start(INSTANT), *messages] if messages else []
    log = TableLog(TABLE).extend(enumerate(begun))
    assert log.oldest_unsettled(7) == unsettled
