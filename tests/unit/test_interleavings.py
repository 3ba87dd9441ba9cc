"""Coordinators that overtake, kill and outlive each other, each with the stretch of the control topic that it reads.

The steps are the product's: START reads from a commit some intervals back, `commit` from its own START-COMMIT, whoever
finds a decided commit of a dead process takes its lease and finishes it. Offsets are checked by nothing but the
protocol here: the coordinator's own check of moved offsets is left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from protocol_messages import TABLE, abort, ack, end, start, status

from sluice.protocol.messages import ControlMessage
from sluice.protocol.transaction import State, TableLog, Transaction

Steps = Iterator[None]


@dataclass(frozen=True)
class Commit:
    """A commit on the timeline."""

    instant: str
    begin: int
    end: int
    control_offset: int


@dataclass
class World:
    topic: list[ControlMessage] = field(default_factory=list)
    timeline: list[Commit] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    instants: int = 0
    at_work: set[str] = field(default_factory=set)  # processes that are in the middle of Hudi's commit
    overlaps: int = 0

    def send(self, message: ControlMessage) -> int:
        self.topic.append(message)
        return len(self.topic) - 1

    def read(self, first: int) -> TableLog:
        return self.extend(TableLog(TABLE), first)

    def extend(self, log: TableLog, first: int | None = None) -> TableLog:
        begin = log.position if first is None else first
        return log.extend(list(enumerate(self.topic))[begin:])

    def committed(self, instant: str) -> bool:
        return any(c.instant == instant for c in self.timeline)


def _interval(world: World, name: str) -> Steps:
    """One DAG run: start, write, commit; each `yield` is where it may be killed or overtaken."""
    for _ in range(3):
        read_position = len(world.topic)
        yield
        done = world.timeline[-4:]
        begin = done[-1].end if done else 0
        yield
        log = world.read(done[0].control_offset if done else 0)
        yield
        unfinished = log.unfinished()
        if unfinished is not None:
            yield from _settle(world, name, log, unfinished)
            continue
        world.instants += 1
        instant = f"{world.instants:04}"
        offset = world.send(start(instant, read_position=read_position, valid_through=None))
        yield
        if world.extend(log).transactions[instant].state is not State.OPEN:
            continue
        world.send(status(instant))
        yield
        log = world.read(offset)
        if log.transactions[instant].state is State.OPEN:
            yield from _carry_out(world, name, log, log.transactions[instant], begin)
        return


def _settle(world: World, name: str, log: TableLog, unfinished: Transaction) -> Steps:
    if not world.committed(unfinished.id):
        begin = world.timeline[-1].end if world.timeline else 0
        yield from _carry_out(world, name, log, unfinished, begin)
    else:
        yield
        world.send(ack(unfinished.id))


def _carry_out(world: World, name: str, log: TableLog, transaction: Transaction, begin: int) -> Steps:
    lease = transaction.lease
    if lease is not None and lease.holder in world.alive:
        return  # busy: the step is retried later
    yield
    offset = world.send(end(transaction.id, takes_over=transaction.lease_offset, holder=name))
    yield
    world.extend(log)
    if transaction.state is not State.DECIDED or transaction.lease_offset != offset:
        return
    world.overlaps += bool(world.at_work & world.alive)
    world.at_work.add(name)
    yield
    if not world.committed(transaction.id):
        world.timeline.append(Commit(transaction.id, begin, begin + 10, transaction.start_offset))
    world.at_work.discard(name)
    yield
    world.send(ack(transaction.id))


def _abort(world: World, rng: random.Random) -> Steps:
    """The abort task of some run: what it finds undecided ends with ABORT-COMMIT, unless END-COMMIT came first."""
    done = world.timeline[-1:]
    log = world.read(done[0].control_offset if done else 0)
    yield
    found = [t for t in log.transactions.values() if t.state not in (State.COMMITTED, State.DECIDED)]
    if found:
        chosen = rng.choice(found)
        world.send(abort(chosen.id, lease_offset=chosen.lease_offset))
    yield


def _play(world: World, rng: random.Random, agents: dict[str, Steps]) -> None:
    world.alive |= set(agents)
    while agents:
        name = rng.choice(sorted(agents))
        finished = next(agents[name], "finished") == "finished"
        if finished or rng.random() < 0.04:  # or killed
            del agents[name]
            world.alive.discard(name)


def _a_random_history(seed: int) -> World:
    rng = random.Random(seed)
    world = World()
    for round_ in range(3):
        agents = {f"run-{round_}-{i}": _interval(world, f"run-{round_}-{i}") for i in range(4)}
        agents |= {f"abort-{round_}-{i}": _abort(world, rng) for i in range(2)}
        _play(world, rng, agents)
    return world


def _gaps(world: World) -> list[tuple[Commit, Commit]]:
    return [(a, b) for a, b in zip(world.timeline, world.timeline[1:], strict=False) if a.end != b.begin]


@pytest.mark.parametrize("seed", range(500))
def test_no_offsets_are_committed_twice_and_no_two_processes_commit_at_once(seed):
    world = _a_random_history(seed)
    assert _gaps(world) == []
    assert world.overlaps == 0


@pytest.mark.parametrize("seed", range(100))
def test_whatever_has_happened_a_run_that_nobody_disturbs_commits(seed):
    world = _a_random_history(seed)
    before = len(world.timeline)
    for _ in _interval(world, "last"):
        pass
    assert len(world.timeline) > before
    assert _gaps(world) == []
    assert world.read(0).unfinished() is None


def test_the_histories_above_are_full_of_events():
    worlds = [_a_random_history(seed) for seed in range(100)]
    states = {t.state for world in worlds for t in world.read(0).transactions.values()}
    assert states >= set(State) - {State.OPEN}
    assert sum(len(world.timeline) for world in worlds) > 200


@pytest.mark.parametrize("rule", ["turns", "superseding", "lease"])
def test_without_any_one_of_its_rules_the_protocol_fails(rule, monkeypatch):
    """The property is not empty: each rule that is taken away shows."""
    apply = TableLog._apply

    def without(log: TableLog, offset: int, message: ControlMessage) -> None:
        if rule == "turns":
            log._last_turn = -1
        apply(log, offset, message)
        transaction = log.get(message.transaction)
        if rule == "superseding" and transaction is not None:
            for other in log.transactions.values():
                other.state = State.OPEN if other.state is State.SUPERSEDED else other.state
        if rule == "lease" and transaction is not None and message.type == "END-COMMIT":
            transaction.lease_offset = offset

    monkeypatch.setattr(TableLog, "_apply", without)
    broken = 0
    for seed in range(500):
        world = _a_random_history(seed)
        broken += bool(_gaps(world) or world.overlaps)
    assert broken


def _verdicts(log: TableLog, first: int) -> dict[str, tuple[State, int, str | None]]:
    """What a fold says of the transactions that began at an offset or after it."""
    found = [t for t in log.transactions.values() if t.start_offset >= first]
    return {t.id: (t.state, t.lease_offset, t.reason) for t in found}


@pytest.mark.parametrize("seed", range(100))
def test_what_a_fold_says_does_not_depend_on_where_it_starts(seed):
    """Everybody folds from the START of a transaction that counted when it was sent: a commit's, or its own."""
    world = _a_random_history(seed)
    whole = world.read(0)
    for transaction in whole.transactions.values():
        if transaction.state is State.VOID:
            continue  # its coordinator plans again, so nobody folds from there
        first = transaction.start_offset
        later = world.read(first)
        assert _verdicts(later, first) == _verdicts(whole, first)
        for of in (TableLog.unfinished, TableLog.holder):
            mine, its = of(whole), of(later)
            assert (mine and mine.id) == (its and its.id) or (mine is not None and mine.start_offset < first)
