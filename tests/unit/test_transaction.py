"""The state of transactions, folded from the control topic."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from protocol_messages import TABLE, abort, ack, end, start, status

from sluice.protocol.messages import ControlMessage, Moved
from sluice.protocol.transaction import State, TableLog


def fold(*messages: ControlMessage) -> TableLog:
    return TableLog(TABLE).extend(enumerate(messages))


def test_the_way_of_a_committed_transaction():
    log = fold(start("1"))
    assert log.transactions["1"].state is State.OPEN
    log.extend([(1, status("1")), (2, end("1"))])
    assert log.transactions["1"].state is State.DECIDED
    assert log.unfinished() is log.transactions["1"]
    log.extend([(3, ack("1"))])
    assert log.transactions["1"].state is State.COMMITTED
    assert log.holder() is None


def test_a_later_start_supersedes_an_open_one_which_then_cannot_be_decided():
    log = fold(start("1"), start("2", read_position=1), end("1"))
    assert log.transactions["1"].state is State.SUPERSEDED
    assert log.holder() is log.transactions["2"]


@pytest.mark.parametrize("turn", [start("1"), end("1"), ack("1"), abort("1")], ids=["START", "END", "ACK", "ABORT"])
def test_a_start_is_void_if_the_table_had_a_turn_since_it_was_planned(turn):
    first = [] if turn.type == "START-COMMIT" else [start("1")]
    messages = [*first, turn]
    log = fold(*messages, start("2", read_position=len(messages) - 1))
    assert log.transactions["2"].state is State.VOID


def test_a_start_is_void_while_another_transaction_is_decided_and_unfinished():
    assert fold(start("1"), end("1"), start("2", read_position=2)).transactions["2"].state is State.VOID


def test_a_void_start_supersedes_nobody():
    log = fold(start("1"), start("2", read_position=0))
    assert log.transactions["1"].state is State.OPEN


def test_the_first_of_end_and_abort_wins():
    assert fold(start("1"), end("1"), abort("1")).transactions["1"].state is State.DECIDED
    assert fold(start("1"), abort("1"), end("1")).transactions["1"].state is State.ABORTED


def test_what_was_aborted_is_not_acknowledged_by_one_that_stood_still():
    messages = (start("1"), end("1"), end("1", takes_over=1), abort("1", lease_offset=2), ack("1"))
    assert fold(*messages).transactions["1"].state is State.ABORTED, "its files are deleted"


def test_what_is_decided_is_given_up_only_by_the_holder_of_the_lease():
    messages = (start("1"), end("1"), end("1", takes_over=1))
    assert fold(*messages, abort("1", lease_offset=1)).transactions["1"].state is State.DECIDED
    assert fold(*messages, abort("1", lease_offset=2)).transactions["1"].state is State.ABORTED


def test_of_two_that_take_over_the_same_lease_one_gets_it():
    log = fold(start("1"), end("1"), end("1", takes_over=1, holder="b"), end("1", takes_over=1, holder="c"))
    assert log.transactions["1"].lease_offset == 2
    assert log.transactions["1"].lease.holder == "b"


def test_what_was_decided_does_not_change_with_a_further_end():
    log = fold(start("1", ranges=2), end("1", reported=(0,), missing=(1,)), end("1", reported=(0, 1), takes_over=1))
    assert log.transactions["1"].end.missing == (1,)


def test_a_status_sent_twice_or_by_a_second_attempt_counts_once():
    first = status("1", attempt="a", stats=({"fileId": "a", "numWrites": 10},))
    second = status("1", attempt="b", stats=({"fileId": "b", "numWrites": 10},))
    log = fold(start("1"), first, first, second)
    assert log.transactions["1"].status_of(0).stats[0].payload["fileId"] == "a"
    assert log.transactions["1"].missing_ranges() == ()


def test_a_failed_attempt_is_no_status_but_its_reason_is_known():
    log = fold(start("1"), status("1", error="bad record", recovery="act"))
    assert log.transactions["1"].missing_ranges() == (0,)
    assert log.transactions["1"].failure_of(0).error == "bad record"


def test_other_tables_messages_are_passed_over():
    other = start("1").model_copy(update={"table": "file:///lake/other"})
    assert fold(other).transactions == {}


def test_a_log_that_is_extended_twice_with_the_same_messages_does_not_change():
    messages = list(enumerate([start("1"), status("1"), end("1")]))
    log = TableLog(TABLE).extend(messages)
    log.extend(messages)
    assert log.transactions["1"].lease_offset == 2


# Whatever the interleaving of coordinators, two transactions planned from the same offsets are never both committed. --


@dataclass
class World:
    """A table and its control topic; `commits` are the (start, end) offsets that the timeline holds."""

    topic: list[ControlMessage] = field(default_factory=list)
    commits: list[tuple[int, int]] = field(default_factory=list)

    def send(self, message: ControlMessage) -> int:
        self.topic.append(message)
        return len(self.topic) - 1

    def log(self) -> TableLog:
        return fold(*self.topic)

    def position(self) -> int:
        return self.commits[-1][1] if self.commits else 0


def coordinator(world: World, name: str, rng: random.Random):
    """One run of the protocol; each `yield` is a point at which it may be stopped for ever or overtaken."""
    read_position = len(world.topic)
    yield
    planned_from = world.position()
    yield
    if world.log().unfinished() is not None:
        return
    yield
    world.send(start(name, read_position=read_position))
    yield
    if world.log().transactions[name].state is not State.OPEN:
        return
    world.send(status(name))
    yield
    if rng.random() < 0.2:
        world.send(abort(name))
        return
    offset = world.send(end(name))
    yield
    mine = world.log().transactions[name]
    if mine.state is not State.DECIDED or mine.lease_offset != offset:
        return
    yield
    world.commits.append((planned_from, planned_from + 10))
    yield
    world.send(ack(name))


@pytest.mark.parametrize("seed", range(400))
def test_no_interleaving_commits_the_same_offsets_twice(seed):
    rng = random.Random(seed)
    world = World()
    alive = [coordinator(world, f"{i:02}", rng) for i in range(6)]
    while alive:
        chosen = rng.choice(alive)
        try:
            next(chosen)
        except StopIteration:
            alive.remove(chosen)
            continue
        if rng.random() < 0.02:
            alive.remove(chosen)  # killed
    starts = [first for first, _ in world.commits]
    assert starts == sorted(set(starts)), world.commits
    assert all(this[1] == following[0] for this, following in zip(world.commits, world.commits[1:], strict=False))


def test_the_interleavings_above_can_fail():
    """The same coordinators without the rule of turns do commit offsets twice: the property is not empty."""
    rng = random.Random(1)
    broken = 0
    for _ in range(200):
        world = World()
        alive = [coordinator(world, f"{i:02}", rng) for i in range(4)]
        world.log = lambda world=world: _without_turns(world)  # type: ignore[method-assign]
        while alive:
            chosen = rng.choice(alive)
            if next(chosen, "done") == "done":
                alive.remove(chosen)
        starts = [first for first, _ in world.commits]
        broken += starts != sorted(set(starts))
    assert broken


def _without_turns(world: World) -> TableLog:
    log = TableLog(TABLE)
    for offset, message in enumerate(world.topic):
        log._last_turn = -1
        log.extend([(offset, message)])
    return log


def moved(read_position: int) -> Moved:
    envelope = start("9").model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id", "sender", "time"})
    return Moved(**envelope, read_position=read_position, to="x")


def test_a_table_that_has_moved_begins_and_commits_nothing_here_any_more():
    log = fold(start("1"), moved(1), end("1"), start("2", read_position=3))
    assert (log.moved.to, log.unfinished()) == ("x", None)
    assert [t.state for t in log.transactions.values()] == [State.SUPERSEDED, State.VOID]


@pytest.mark.parametrize("turn", [start("1"), end("1"), ack("1"), abort("1")], ids=["START", "END", "ACK", "ABORT"])
def test_a_table_does_not_move_on_what_may_have_changed(turn):
    first = [] if turn.type == "START-COMMIT" else [start("1")]
    messages = [*first, turn]
    log = fold(*messages, moved(len(messages) - 1))
    assert log.moved is None
    state = log.transactions["1"].state
    assert log.extend([(len(messages) + 1, moved(len(messages) + 1))]).transactions["1"].state is (
        State.SUPERSEDED if state is State.OPEN else state
    )
    assert (log.moved is None) == (state is State.DECIDED)
