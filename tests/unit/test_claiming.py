"""What a worker decides, told by hand: renewals whose answer was lost, claims that were lost, ranges that fail."""

from __future__ import annotations

import pytest

from sluice import __version__
from sluice.errors import ActionRequiredError, RetryableError
from sluice.participant.claiming import _TO_END, Claiming, End, RangeId, ServedTable, Terms
from sluice.participant.participant import NotHereError
from sluice.protocol.claims import MOST_TAKERS, is_known_from, is_left_by_workers
from sluice.protocol.messages import Claim, ControlMessage

from .protocol_messages import TABLE, abort, envelope, start, status

TOPIC = "control"
INSTANT = "20260101000000000"
LEASE = 30.0


class Desk:
    """A worker named `a` at a control topic that a test holds in its hands."""

    def __init__(self, slots: int = 2, workers: tuple[str, ...] = ("a",)) -> None:
        self.now = 1000.0
        self.log: list[ControlMessage] = []
        self.begun: list[RangeId] = []
        self.cancelled: list[RangeId] = []
        self.ails: End | None = None
        self.loses_answers = self.loses_claims = False
        self._heard = 0
        served = ServedTable(self, None, 600.0)  # type: ignore[arg-type]
        self.claiming = Claiming(
            Terms("a", LEASE, slots), {(TOPIC, TABLE): served}, self, lambda: workers, lambda: self.now, lambda: True,
            self._begin,
        )  # fmt: skip

    def health_problem(self) -> End | None:
        return self.ails

    def send(self, message: ControlMessage) -> int:
        if self.loses_claims:
            raise RetryableError("not sent", next_step="-")
        self.log.append(message)
        if self.loses_answers:
            raise RetryableError("timed out", next_step="-")
        return len(self.log) - 1

    def _begin(self, range_id: RangeId, *_: object) -> Desk:
        self.begun.append(range_id)
        return self

    def cancel(self) -> None:
        self.cancelled.append(self.begun[-1])

    def step(self, seconds: float = 0.0, *messages: ControlMessage) -> None:
        """Let time pass, hear of all that stands in the log, and step until nothing more is said at once."""
        self.now += seconds
        self.log += messages
        for _ in range(3):
            while self._heard < len(self.log):
                self.claiming.said(TOPIC, self._heard, self.log[self._heard])
                self._heard += 1
            self.claiming.step()

    def claims(self) -> list[Claim]:
        return [m for m in self.log if isinstance(m, Claim)]


def _start(ranges: int = 1, instant: str = INSTANT, **more: object) -> ControlMessage:
    return start(instant, ranges=ranges, release=__version__, **more)


def _others_claim(takes_over: int, worker: str = "b", **more: object) -> Claim:
    return Claim(**envelope(INSTANT), worker=worker, range=0, lease=LEASE, takes_over=takes_over, **more)


def test_it_claims_writes_and_renews():
    desk = Desk()
    desk.step(0, _start())
    assert [p.number for p in desk.begun] == [0]
    desk.step(11)
    assert [(c.takes_over, c.released) for c in desk.claims()] == [(-1, False), (1, False)]
    (held,) = desk.claiming.held
    assert held == (desk.begun[0], INSTANT, 1000.0, 1011.0, 1000.0)
    assert desk.claiming.ticked == 1011.0
    desk.claiming.ended(desk.begun[0], None)
    desk.step(1, status(INSTANT, 0))
    assert desk.claiming.held == ()
    assert desk.claiming.ticked == 1012.0


def test_a_renewal_that_came_to_the_log_though_its_answer_was_lost_is_the_one_that_the_next_names():
    desk = Desk()
    desk.step(0, _start())
    desk.loses_answers = True
    desk.step(11)
    desk.loses_answers = False
    desk.step(11)
    assert [c.takes_over for c in desk.claims()] == [-1, 1, 2]


def test_it_renews_no_claim_that_another_has_taken_over():
    desk = Desk()
    desk.step(0, _start())
    desk.step(31, _others_claim(1))
    desk.step(11)
    assert [c.worker for c in desk.claims()] == ["a", "b"]


def test_it_begins_no_range_that_another_has_taken_over_while_it_had_no_slot():
    desk = Desk(slots=1)
    desk.step(0, _start(ranges=2))
    assert len(desk.begun) == 1
    waits = 1 - desk.begun[0].number
    claimed = max(i for i, m in enumerate(desk.log) if isinstance(m, Claim) and m.range == waits)
    desk.step(0, Claim(**envelope(INSTANT), worker="b", range=waits, lease=LEASE, takes_over=claimed))
    desk.claiming.ended(desk.begun[0], None)
    desk.step()
    assert len(desk.begun) == 1


def test_what_it_could_not_write_it_gives_back_and_never_claims_again():
    desk = Desk()
    desk.step(0, _start())
    desk.claiming.ended(desk.begun[0], ValueError("nobody has thought of this"))
    for _ in range(4):
        desk.step(LEASE)
    assert [c.released for c in desk.claims()] == [False, True]


def test_what_is_not_here_is_left_to_others_and_ends_a_worker_that_has_read_it_before():
    """Its connection was changed since it began: one that begins now has the present one."""
    elsewhere = NotHereError(ActionRequiredError("another cluster", next_step="-"))
    for has_read, error, why in (
        (False, elsewhere, None),
        (True, NotHereError(RetryableError("down", next_step="-")), None),
        (True, elsewhere, End.ELSEWHERE),
    ):
        desk = Desk()
        desk.step(0, _start())
        if has_read:
            desk.claiming.ended(desk.begun[-1], None)
            desk.step(0, status(INSTANT, 0))
            desk.step(0, abort(INSTANT))
            desk.step(0, _start(instant="20260101000100000", read_position=len(desk.log)))
        desk.claiming.ended(desk.begun[-1], error)
        desk.step()
        assert (desk.claims()[-1].released, desk.claiming.why) == (True, why)


def test_a_failure_that_could_not_be_reported_is_left_to_others_when_the_claim_has_run_out():
    desk = Desk()
    desk.step(0, _start())
    desk.claiming.ended(desk.begun[0], RetryableError("no", next_step="-"))
    desk.step(LEASE + 1)
    assert len(desk.claims()) == 1


def test_a_range_that_workers_have_taken_three_times_is_left_to_its_task():
    desk = Desk()
    desk.loses_claims = True
    desk.step(0, _start())
    for number in range(MOST_TAKERS):
        desk.step(LEASE + 1, _others_claim(number if number else -1, worker=f"dies{number}"))
    desk.loses_claims = False
    desk.step(LEASE + 1)
    assert not [c for c in desk.claims() if c.worker == "a"]


def test_a_claim_that_is_renewed_is_taken_once():
    desk = Desk()
    desk.step(0, _start())
    for _ in range(10):
        desk.step(11)
    (transaction,) = desk.claiming._state.logs[TOPIC, TABLE].transactions.values()
    assert len(desk.claims()) > MOST_TAKERS
    assert not is_left_by_workers(transaction, 0)


def test_a_claim_runs_out_though_other_tables_are_talked_of_all_the_time():
    desk = Desk()
    desk.step(0, _start(), _others_claim(-1))
    for number in range(70):
        other = abort("20250101000000000").model_copy(update={"table": f"file:///lake/other{number}"})
        desk.now += 0.5
        desk.log.append(other)
        desk.claiming.said(TOPIC, len(desk.log) - 1, other)
        desk.claiming.step()
    assert [c.worker for c in desk.claims()] == ["b", "a"]


def test_claims_of_two_topics_at_the_same_offset_have_leases_of_their_own():
    desk = Desk()
    desk.claiming._tables["other", TABLE] = desk.claiming._tables[TOPIC, TABLE]  # type: ignore[index]
    for topic in (TOPIC, "other"):
        instant = INSTANT if topic == TOPIC else "20260101000000001"
        claim = Claim(**envelope(instant), worker="b", range=0, lease=LEASE, takes_over=-1)
        for offset, message in enumerate([_start(instant=instant), claim]):
            desk.claiming.said(topic, offset, message)
        desk.claiming.step()
        desk.now += LEASE - 1
    desk.now += 0.5
    desk.claiming.step()
    assert {c.transaction for c in desk.claims()} == {INSTANT}


def test_when_it_ends_it_gives_back_what_was_claimed_and_not_heard_of_yet():
    desk = Desk()
    desk.log.append(_start())
    desk.claiming.said(TOPIC, 0, desk.log[0])
    desk._heard = 1
    desk.claiming.step()
    desk.claiming.end()
    assert desk.claiming.is_over
    desk.claiming.give_all_back()
    assert [(c.takes_over, c.released) for c in desk.claims()] == [(-1, False), (1, True)]


def test_a_failure_with_a_full_heap_ends_it():
    desk = Desk()
    desk.step(0, _start())
    desk.ails = End.UNHEALTHY
    desk.claiming.ended(desk.begun[0], RetryableError("no memory", next_step="-"))
    desk.step(0, status(INSTANT, error="no memory"))
    assert (desk.claiming.is_over, desk.claiming.why) == (True, End.UNHEALTHY)


def test_a_start_is_left_alone_that_looked_at_the_log_before_the_place_where_the_worker_began():
    assert not is_known_from(5, start(INSTANT, read_position=4))
    assert is_known_from(5, start(INSTANT, read_position=5))
    desk = Desk()
    desk.claiming.reads_from(TOPIC, 5, 5)
    desk.log += [abort("20250101000000000")] * 5
    desk.step(0, _start(read_position=4))
    desk.step(LEASE)
    assert not desk.begun


def test_an_interval_whose_start_it_can_t_judge_is_a_turn_all_the_same():
    desk = Desk()
    desk.claiming.reads_from(TOPIC, 5, 5)
    desk.log += [abort("20250101000000000").model_copy(update={"table": "file:///lake/other"})] * 5
    desk.step(0, _start(read_position=4), _start(instant="20260101000000001", read_position=5))
    desk.step(LEASE)
    assert not desk.begun  # the second one doesn't count: the first stands between it and what it looked at


def test_a_full_heap_ends_no_range_that_is_written_and_a_mute_jvm_gives_it_back():
    desk = Desk()
    desk.step(0, _start())
    desk.ails = End.UNHEALTHY
    desk.step(1)
    assert desk.claiming.why is None
    desk.ails = End.JVM_UNRESPONSIVE
    desk.step(1)
    assert (desk.claiming.is_over, desk.claiming.why) == (True, End.JVM_UNRESPONSIVE)
    desk.claiming.give_all_back()
    assert [c.released for c in desk.claims()] == [False, True]


@pytest.mark.parametrize(("end", "why"), [(0, End.NEW_CODE), (1, None)], ids=["new", "there before it began"])
def test_an_interval_of_another_release_ends_it_only_if_that_was_planned_since_it_began(end: int, why: End | None):
    desk = Desk()
    desk.claiming.reads_from(TOPIC, 0, end)
    desk.step(0, _start().model_copy(update={"release": "0.0.1"}))
    desk.step(LEASE)
    assert (desk.claiming.why, desk.claims()) == (why, [])


def test_without_a_free_slot_it_leaves_a_range_to_others_first():
    desk = Desk(slots=1, workers=("a", "b"))
    desk.step(0, _start(ranges=2))
    desk.step(2)  # by now it may claim what isn't its own first choice, too
    assert len(desk.claims()) == 1
    desk.step(5)
    assert {claim.range for claim in desk.claims()} == {0, 1}


def test_a_range_that_it_left_to_others_it_takes_when_a_slot_is_free():
    desk = Desk(slots=1, workers=("a", "b"))
    desk.step(0, _start(ranges=2))
    desk.step(2)
    desk.step(0, status(INSTANT, desk.begun[0].number))
    desk.claiming.ended(desk.begun[0], None)
    desk.step()
    assert {range_id.number for range_id in desk.begun} == {0, 1}


def test_alone_it_claims_all_at_once():
    desk = Desk(slots=1)
    desk.step(0, _start(ranges=3))
    assert {claim.range for claim in desk.claims()} == {0, 1, 2}


def _all_claimed(slots: int, ranges: int) -> Desk:
    """A worker that has claimed all ranges, since `b` had no slot either, and writes as many as it can."""
    desk = Desk(slots, workers=("a", "b"))
    busy = Claim(**envelope("20260101000000001"), worker="b", range=0, lease=10 * LEASE, takes_over=-1)
    other = _start(instant="20260101000000001").model_copy(update={"table": "file:///lake/other"})
    desk.claiming._tables[TOPIC, other.table] = desk.claiming._tables[TOPIC, TABLE]  # type: ignore[index]
    desk.step(0, other, busy.model_copy(update={"table": other.table}), _start(ranges=ranges))
    desk.step(2)
    desk.step(5)
    assert {claim.range for claim in desk.claims() if claim.worker == "a"} == set(range(ranges))
    assert len(desk.begun) == slots
    return desk


def _b_is_idle(desk: Desk) -> None:
    written = status("20260101000000001").model_copy(update={"table": "file:///lake/other"})
    desk.step(0, written)


def test_what_waits_for_a_slot_is_given_back_when_another_worker_has_nothing_to_do_one_for_each():
    desk = _all_claimed(slots=1, ranges=4)
    assert not [claim for claim in desk.claims() if claim.released]
    _b_is_idle(desk)
    desk.step(1)
    (given,) = [claim for claim in desk.claims() if claim.released]
    assert given.range not in {range_id.number for range_id in desk.begun}
    at = desk.log.index(given)
    desk.step(0, Claim(**envelope(INSTANT), worker="b", range=given.range, lease=LEASE, takes_over=at))
    desk.step(1)
    assert len([claim for claim in desk.claims() if claim.released]) == 1
    desk.step(0, status(INSTANT, given.range))  # and b is idle again
    assert len([claim for claim in desk.claims() if claim.released]) == 2


def test_what_was_given_back_and_nobody_took_it_claims_again_and_keeps():
    desk = _all_claimed(slots=1, ranges=2)
    _b_is_idle(desk)
    (given,) = [claim for claim in desk.claims() if claim.released]
    desk.step(3)
    assert [claim for claim in desk.claims() if claim.range == given.range][-1] == given
    for _ in range(10):
        desk.step(2)
    those = [claim.released for claim in desk.claims() if claim.range == given.range]
    assert (those.count(True), those[-1]) == (1, False)


def test_what_another_gave_back_it_claims_at_once_where_it_has_a_slot():
    for order in ("a", "b"), ("b", "c"):  # whoever is the first choice
        desk = Desk(workers=("a", *order))
        desk.step(0, _start(), _others_claim(-1), _others_claim(1, released=True))
        assert [claim.worker for claim in desk.claims()] == ["b", "b", "a"]


def test_a_range_that_takes_longer_than_its_timeout_is_cancelled_once():
    desk = Desk()
    desk.step(0, _start())
    desk.step(599.9)
    assert desk.cancelled == []
    desk.step(0.1)
    assert [range_id.number for range_id in desk.cancelled] == [0]
    desk.step(_TO_END - 0.1)
    assert len(desk.cancelled) == 1
    assert desk.claiming.why is None


def test_a_worker_ends_whose_cancelled_range_goes_on_for_too_long():
    desk = Desk()
    desk.step(0, _start())
    desk.step(600)
    desk.step(_TO_END)
    assert (desk.claiming.why, desk.claiming.is_over) == (End.RANGE_HUNG, True)


def test_a_range_that_waits_for_a_slot_is_not_late():
    desk = Desk(slots=1, workers=("a",))
    desk.step(0, _start(ranges=2))
    (first,) = desk.begun
    desk.step(590)
    desk.claiming.ended(first, None)
    desk.step(0, status(INSTANT, first.number))
    desk.step(20)
    assert (len(desk.begun), desk.cancelled) == (2, [])
