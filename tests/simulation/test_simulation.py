"""Histories of the real coordinator and participants over parts that break: nothing is lost, nothing doubled."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from sluice.coordinator import Run, Started
from sluice.errors import IntervalError, RetryableError
from sluice.protocol.messages import AbortCommit, EndCommit
from sluice.protocol.request import Request
from sluice.protocol.transaction import State

from .campaign import in_its_world, play
from .history import History
from .kafka import TOPIC
from .lake import Instant
from .mutants import (
    LEAVES_IN_THE_LOG,
    LEAVES_THE_TURN,
    LOOKS_AT_THE_TURN,
    LOOKS_ONCE,
    MUTANTS,
    SHOWS_AT_ONCE,
    known_seeds,
)
from .world import Process, ViolationError, World

HISTORIES = 600
_BLOCKS = 6
_MOST = 1000  # histories until a missing rule has to be noticed, where the seed that is known notices it no more
SEEDS = known_seeds((Path(__file__).parents[2] / "docs" / "simulation.md").read_text())


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_no_history_loses_or_doubles_a_row(block):
    size = HISTORIES // _BLOCKS
    violated = {seed: error for seed in range(block * size, (block + 1) * size) for error in [play(seed)[0]] if error}
    assert not violated, f"tell one with: python -m tests.simulation {next(iter(violated))}"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_taken_out_is_missed(name):
    seeds = [SEEDS[name], *range(_MOST)]
    assert play(SEEDS[name])[0] is None, "what this history says is no word of the rule: nothing is taken out"
    with MUTANTS[name]():
        assert any(play(seed)[0] for seed in seeds), "the histories say nothing of this rule"


def test_a_history_is_told_and_made_again_by_its_seed():
    error, story = play(7, tell=True)
    assert error is None
    assert any("sends START-COMMIT" in line for line in story)
    assert play(7, tell=True) == (error, story)


@pytest.fixture
def history() -> History:
    return _made_by_hand(1, "hudi")


def _made_by_hand(seed: int, sink: str) -> History:
    """An append table whose history is made by hand, one run committed; the seed's table is one of that sink."""
    made = History(seed)
    assert made.sink == sink
    made.operation, made.max_records, made.faulty, made.loss = "append", 40, False, "earliest"
    made.world.produce(12, 6)
    assert made._quiet_run().state == "committed"
    return made


def _written(history: History, run: Run) -> Started:
    """A run up to where it can be committed, when all clocks have passed the last instant."""
    history.world.clock += timedelta(seconds=500)
    started = history._alone(lambda p: history.coordinator(p).start(run), "start")
    for number in range(len(started.ranges)):
        history._alone(history._work_of(started, number, is_broken=False), "write")
    return started


def _up_to(history: History, process: Process, words: str) -> None:
    """Let a process go on up to before a call."""
    while words not in process.doing:
        history.world.resume(process)
        assert process.state == "ready", process.error


def _to_its_end(history: History, process: Process) -> None:
    while process.state == "ready":
        history.world.resume(process)


def _commit_up_to(history: History, words: str) -> tuple[Started, Process]:
    """An interval that is written, and its commit, which stands still before a call."""
    history.world.produce(6, 6)
    run = Run("orders", "commits", Request())
    started = _written(history, run)
    committer = history.world.spawn("commit", lambda p: history._commit(p, run, started), faults=False)
    _up_to(history, committer, words)
    return started, committer


def test_a_decided_replay_whose_rows_were_moved_is_given_up(history):
    """Nobody can carry it out any more; as long as it was decided, nothing else could begin."""
    world = history.world
    (instant,) = world.timeline
    run = Run("orders", "replay", Request(kind="replay", instant=instant))
    started = _written(history, run)
    committer = world.spawn("commit", lambda p: history._commit(p, run, started), faults=False)
    messages = world.topics[history.pipeline.control_topic]
    world.clock += timedelta(seconds=500)
    while not isinstance(messages[-1], EndCommit):
        world.resume(committer)
        assert committer.state == "ready", committer.error
    world.kill(committer)
    world.cluster([path for path, file in world.committed_files().items() if file.partition == "p0"])

    world.produce(6, 6)
    assert history._quiet_run().state == "committed"
    (given_up,) = [m for m in messages if isinstance(m, AbortCommit)]
    assert given_up.transaction == started.instant
    assert "its rows are in other file groups now" in given_up.reason
    history.check_rows(complete=True)


def test_who_acknowledges_too_late_is_not_told_that_it_is_committed(history):
    """Another process took the lease over and gave the transaction up between the last look and ACK-COMMIT."""
    started, committer = _commit_up_to(history, "sends ACK")
    messages = history.world.topics[history.pipeline.control_topic]
    lease = next(
        offset for offset, m in enumerate(messages) if offset > started.control_offset and m.type == "END-COMMIT"
    )
    messages.append(messages[lease].model_copy(update={"takes_over": lease, "holder": "another"}))
    same = messages[lease].model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id", "sender", "time"})
    messages.append(AbortCommit(**same, reason="taken for dead", standing_offsets=(), lease_offset=len(messages) - 1))
    _to_its_end(history, committer)
    assert isinstance(committer.error, IntervalError)
    assert "aborted" in str(committer.error)
    history._settle()


def test_an_abort_that_looked_before_the_commit_was_completed_looks_again(history):
    """It took the lease of a commit that stood by then, and aborted it (seed 1488)."""
    world = history.world
    started, committer = _commit_up_to(history, "completes")
    world.clock += timedelta(seconds=700)
    run = Run("orders", "commits", Request())
    aborter = world.spawn("abort", lambda p: history.coordinator(p).abort(run), faults=False)
    _up_to(history, aborter, "sends END")
    world.resume(committer)
    assert world.timeline[started.instant].completed
    world.kill(committer)
    _to_its_end(history, aborter)
    assert aborter.outcome.state == "committed"
    assert not any(isinstance(m, AbortCommit) for m in world.topics[history.pipeline.control_topic])
    history._settle()


def test_a_commit_that_is_completed_after_all_is_not_given_up_by_who_took_its_lease(history):
    """Its own commit moved the offsets: that is no reason to abort it."""
    world = history.world
    started, committer = _commit_up_to(history, "completes")
    world.clock += timedelta(seconds=700)
    other = world.spawn("start", lambda p: history.coordinator(p).start(Run("orders", "next", Request())), faults=False)
    _up_to(history, other, "sends END")
    world.resume(other)
    _to_its_end(history, committer)
    _to_its_end(history, other)
    assert committer.outcome.state == "committed"
    assert not any(isinstance(m, AbortCommit) for m in world.topics[history.pipeline.control_topic])
    assert world.timeline[started.instant].completed
    history._settle()


def _abort_beside_a_commit(history: History, commits_up_to: str, aborts_up_to: str) -> tuple[Started, Process, Process]:
    """A commit stands still beyond its lease, and an abort of its interval, too: what was begun, and both."""
    started, committer = _commit_up_to(history, commits_up_to)
    history.world.clock += timedelta(seconds=850)
    run = Run("orders", "commits", Request())
    aborting = history.world.spawn("abort", lambda p: history.coordinator(p).abort(run), faults=False)
    _up_to(history, aborting, aborts_up_to)
    return started, committer, aborting


def _aborted_while_its_commit_completes(history: History) -> tuple[Instant, bool]:
    """An abort has looked, and is about to take the lease: the instant then, and whether it gives the interval up."""
    world = history.world
    started, committer, aborting = _abort_beside_a_commit(history, "completes", "sends END")
    _up_to(history, committer, "sends ACK")
    _to_its_end(history, aborting)
    gives_up = any(isinstance(m, AbortCommit) for m in world.topics[history.pipeline.control_topic])
    _to_its_end(history, committer)
    return world.timeline.get(started.instant, Instant("commit")), gives_up


def test_an_abort_looks_again_when_it_has_the_lease(history):
    """Another writer may have put its rows elsewhere by then: they would stay when the commit is taken off."""
    instant, gives_up = _aborted_while_its_commit_completes(history)
    assert instant.completed
    assert not gives_up
    history._settle()


def test_an_abort_that_looks_once_is_missed(history):
    with LOOKS_ONCE():
        assert _aborted_while_its_commit_completes(history)[1]


_OF_A_DATABASE = 23  # a seed whose table is a database's


def _aborted_before_its_commit_completes() -> History:
    """A database's commit stands still while its interval is aborted, and goes on before it is rolled back."""
    history = _made_by_hand(_OF_A_DATABASE, "jdbc")
    world = history.world
    _, committer, aborting = _abort_beside_a_commit(history, "completes", "begins to roll")
    world.resume(committer)
    _to_its_end(history, aborting)
    _to_its_end(history, committer)
    assert any(isinstance(m, AbortCommit) for m in world.topics[history.pipeline.control_topic])
    return history


def test_a_database_s_commit_has_no_turn_any_more_when_its_interval_is_aborted():
    _aborted_before_its_commit_completes()._settle()


def test_a_turn_that_is_not_taken_away_is_missed():
    with LEAVES_THE_TURN(), pytest.raises(ViolationError, match="which was aborted"):
        _aborted_before_its_commit_completes()


_OF_FILES = 3  # a seed whose table is a folder of files


def _aborted_before_its_rename() -> History:
    """A commit of files stands still while its interval is aborted, and gets into the log before the roll-back."""
    history = _made_by_hand(_OF_FILES, "files")
    world = history.world
    started, committer, aborting = _abort_beside_a_commit(history, "completes", "begins to roll")
    _to_its_end(history, committer)
    assert isinstance(committer.error, IntervalError)
    assert started.instant not in world.timeline
    _to_its_end(history, aborting)
    assert aborting.outcome.state == "aborted"
    return history


def test_files_whose_commit_came_after_the_abort_are_taken_off_and_never_shown():
    _aborted_before_its_rename()._settle()


def test_files_that_are_shown_before_the_control_topic_is_read_again_are_missed():
    with SHOWS_AT_ONCE(), pytest.raises(ViolationError, match="which was aborted"):
        _aborted_before_its_rename()


def test_files_whose_late_commit_stays_in_the_log_are_missed():
    with LEAVES_IN_THE_LOG(), pytest.raises(AssertionError):
        _aborted_before_its_rename()


@pytest.fixture
def in_memory():
    """The product's own table of a topic, without what it asks of files and of the machine's clock."""
    with in_its_world(World(0)):
        yield


_OF_A_TOPIC = 136  # a seed whose table is a topic


def _aborted_before_its_transaction_ends() -> tuple[History, Process]:
    """A commit stands still with all records sent while its interval is aborted, and goes on before the roll-back."""
    history = _made_by_hand(_OF_A_TOPIC, "kafka")
    world = history.world
    _, committer, aborting = _abort_beside_a_commit(history, "commits the Kafka", "sends ABORT")
    world.resume(aborting)
    _to_its_end(history, committer)
    _to_its_end(history, aborting)
    assert any(isinstance(m, AbortCommit) for m in world.topics[history.pipeline.control_topic])
    return history, committer


def test_who_sends_to_a_topic_is_refused_once_its_interval_is_aborted(in_memory):
    history, committer = _aborted_before_its_transaction_ends()
    assert isinstance(committer.error, IntervalError | RetryableError)
    history._settle()


def test_a_turn_that_is_only_looked_at_is_missed(in_memory):
    with LOOKS_AT_THE_TURN(), pytest.raises(ViolationError, match="which was aborted"):
        _aborted_before_its_transaction_ends()


def test_an_attempt_at_a_missing_range_that_opened_files_when_no_one_looked_any_more():
    """After END-COMMIT, which names where files are open, and before Hudi's commit clears the markers."""
    error, story = play(1044127, tell=True)
    assert error is None
    assert any("lists folders" in line for line in story), "nothing was looked for, so this history shows nothing"


def test_so_did_an_attempt_at_a_window_that_was_aborted_and_that_nobody_asks_for_again(history):
    """Between ABORT-COMMIT and the end of the roll-back, in a table partition of which nothing else tells."""
    world = history.world
    world.spread, key = 50, 47
    world.send([key])
    number = key % history.partitions
    end = world.logs[number].end
    run = Run("orders", "window", Request(kind="range", offsets={TOPIC: {number: (end - 1, end)}}))
    world.clock += timedelta(seconds=500)
    started = history._alone(lambda p: history.coordinator(p).start(run), "start")
    zombie = world.spawn("write", history._work_of(started, 0, is_broken=False), faults=False)
    _up_to(history, zombie, f"opens p{key}")
    aborting = world.spawn("abort", lambda p: history.coordinator(p).abort(run), faults=False)
    _up_to(history, aborting, "deletes the files")
    _up_to(history, zombie, f"closes p{key}")
    while aborting.state == "ready":
        world.resume(aborting)
    assert not world.markers.get(started.instant)
    while zombie.state == "ready":
        world.resume(zombie)
    assert [file.partition for file in world.files.values() if file.instant == started.instant] == [f"p{key}"]
    world.delete_before(number, end)
    history._settle()
    assert not [path for path, file in world.files.items() if file.instant == started.instant]


def test_a_service_that_was_superseded_does_not_begin_the_plan_of_the_next(history):
    """Whoever begins a plan deletes what an attempt before wrote: here that of a service which has the table."""
    world = history.world
    for _ in range(3):
        world.produce(12, 6)
        world.clock += timedelta(seconds=500)
        assert history._quiet_run().state == "committed"
    world.clock += timedelta(seconds=500)
    first, second = (
        world.spawn(f"service{n}", partial(history._serve, run=Run("services", f"run{n}")), faults=False)
        for n in range(2)
    )
    _up_to(history, first, "looks for plans")
    _up_to(history, second, "begins Hudi's")
    _to_its_end(history, first)
    assert isinstance(first.error, IntervalError)
    _to_its_end(history, second)
    assert second.outcome is State.COMMITTED
    history._settle()


_LISTS = {"hudi": 1, "files": _OF_FILES, "jdbc": _OF_A_DATABASE, "kafka": 182}
"""Seeds by their sinks; that of a topic has consumers that see at once what is decided, and never look twice."""


@pytest.mark.parametrize("sink", _LISTS)
def test_what_a_start_asks_does_not_grow_with_the_intervals_that_were_aborted(sink, in_memory):
    """While nothing commits all of them are in the part of the topic that each START reads."""
    made = History(_LISTS[sink])
    assert made.sink == sink
    made.operation, made.max_records, made.faulty, made.loss = "append", 40, False, "earliest"
    made.world.lists_leftovers, made.world.story = True, []
    made.world.produce(12, 6)
    assert made._quiet_run().state == "committed"
    asked = []
    for number in range(50):
        made.world.produce(2, 6)
        run = Run("orders", f"aborted{number}", Request())
        made.world.story.clear()
        _written(made, run)
        asked.append(len([line for line in made.world.story if "start" in line]))
        assert made._alone(lambda p, run=run: made.coordinator(p).abort(run), "abort").state == "aborted"
    assert max(asked[2:]) <= asked[1], f"calls of one START after another: {asked}"
    made._settle()
