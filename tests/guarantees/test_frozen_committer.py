"""A process that stands still inside Hudi's commit for longer than its lease can't complete it unseen when it wakes up.

It is stopped for real (SIGSTOP), after Hudi has found the instant pending and before it makes the file that completes
it: no storage refuses that file any more.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sluice.coordinator import Run, Started

from ..thorough import also
from .harness import Flow, Step, finish, once_the_lease_is_free, wait_for

# Hudi waits for so many milliseconds between reading the clock and making the file that completes an instant.
WINDOW = 3000
SLOW = {"hoodie.time.generator.max_expected_clock_skew_ms": str(WINDOW)}
TAKEN_OFF = "completed after it had been aborted"
TWICE = "two processes have completed a commit"
COMPACTED = {
    "sink__hudi__operation": "upsert",
    "sink__hudi__record_key": "id",
    "table_services": {"compaction": {"after_delta_commits": 1}},
}


def completions(flow: Flow, instant: str) -> list[str]:
    return sorted(f.name for f in (flow.path / ".hoodie" / "timeline").glob(f"{instant}_*"))


def _await_the_window(flow: Flow, instant: str) -> None:
    """Hudi has found the instant pending, and has not made the file that completes it yet."""
    metadata = flow.path / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    wait_for(lambda: list(metadata.glob(f"{instant}_*")), "the metadata table's own commit", pause=0.005)
    time.sleep(WINDOW / 2000)  # nothing to wait for shows: Hudi sleeps now


@contextmanager
def _frozen(flow: Flow, run: Run, failpoint: str = "") -> Iterator[tuple[Started, subprocess.Popen[str]]]:
    """An interval whose commit stands still; it goes on when the block ends."""
    flow.set(sink__hudi__options=SLOW)
    flow.produce(20)
    started = flow.start(run)
    flow.write_all(started)
    committing = flow.spawn("commit", "--control-offset", str(started.control_offset), failpoint=failpoint)
    _await_the_window(flow, started.instant)
    os.killpg(committing.pid, signal.SIGSTOP)
    flow.set(sink__hudi__options={})  # the commit has read them from the file
    try:
        assert not completions(flow, started.instant), "it was completed too soon, so this test shows nothing"
        yield started, committing
    finally:
        os.killpg(committing.pid, signal.SIGCONT)


@pytest.fixture
def flow(make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(control__commit_timeout="5 seconds", control__clock_wait="1 second")
    flow.produce(20)
    flow.interval()
    return flow


def _goes_on(flow: Flow, zombie: Started, *, committed: bool) -> None:
    flow.check(complete=False)
    flow.produce(20)
    flow.interval()
    flow.check()
    assert len(completions(flow, zombie.instant)) == int(committed)
    assert flow.jvm.pending(str(flow.path)) == []


def _ended_late(step: Step, status: int, word: str) -> None:
    assert step.status == status, step.err
    assert word in step.out + step.err, "it completed nothing, so this test shows nothing"


def test_what_was_aborted_meanwhile_is_taken_off_by_the_late_one_itself(flow):
    run = flow.run()
    with _frozen(flow, run) as (started, committing):
        assert once_the_lease_is_free(lambda: flow.abort(run)).state == "aborted"
        before = flow.offsets()
    late = finish(committing)
    _ended_late(late, 1, TAKEN_OFF)
    assert "aborted" in late.err
    assert flow.offsets() == before
    _goes_on(flow, started, committed=False)


@pytest.mark.thorough
def test_what_was_aborted_and_completed_by_one_that_died_is_taken_off_by_the_next(flow):
    run = flow.run()
    with _frozen(flow, run, failpoint="coordinator.after_hudi_commit=kill") as (started, committing):
        once_the_lease_is_free(lambda: flow.abort(run))
        other = flow.start()  # planned before the late completion, committed after it
        flow.write_all(other)
    assert finish(committing).killed
    assert completions(flow, started.instant), "it completed nothing, so this test shows nothing"
    flow.commit(other)
    _goes_on(flow, started, committed=False)


@pytest.mark.thorough
def test_what_was_aborted_and_completed_before_later_commits_is_taken_off_by_the_next_start(flow):
    run = flow.run()
    with _frozen(flow, run, failpoint="coordinator.after_hudi_commit=kill") as (started, committing):
        once_the_lease_is_free(lambda: flow.abort(run))
        flow.interval()
    assert finish(committing).killed
    assert completions(flow, started.instant), "it completed nothing, so this test shows nothing"
    _goes_on(flow, started, committed=False)


@pytest.mark.parametrize("dies", [True, *also(False)])
def test_what_was_finished_by_another_is_completed_once(flow, dies):
    failpoint = "coordinator.after_hudi_commit=kill" if dies else ""
    with _frozen(flow, flow.run(), failpoint=failpoint) as (started, committing):
        once_the_lease_is_free(lambda: flow.commit(started))
    late = finish(committing)
    if dies:
        assert late.killed
        assert len(completions(flow, started.instant)) == 2, "it completed nothing, so this test shows nothing"
    else:
        _ended_late(late, 0, TWICE)
    _goes_on(flow, started, committed=True)


@pytest.mark.parametrize("again", also("done again", "taken back, and not done again"))
def test_a_compaction_that_another_job_has_begun_again(make_flow, again):
    """The second job deletes what the first has written; the first completes the compaction all the same."""
    flow = make_flow(control__commit_timeout="5 seconds", **COMPACTED)
    flow.produce(20)
    flow.interval()
    flow.set(sink__hudi__options=SLOW)
    planned = flow.plan("compaction")
    flow.set(sink__hudi__options={})
    (instant,) = planned.instants
    frozen = flow.carry_out(planned)
    _await_the_window(flow, instant)
    frozen.signal(signal.SIGSTOP)
    assert not completions(flow, instant), "it was completed too soon, so this test shows nothing"
    flow.produce(20)
    once_the_lease_is_free(flow.interval)  # its coordinator takes no other run for running
    begun_again = flow.plan("compaction")
    assert instant in begun_again.instants
    if again == "done again":
        flow.carry_out(begun_again).succeed()
    else:
        killed = flow.carry_out(begun_again, failpoint="service.after_work=kill")
        assert killed.wait() is None
    frozen.signal(signal.SIGCONT)
    frozen.wait()
    assert len(completions(flow, instant)) == (2 if again == "done again" else 1), "it completed nothing"
    flow.produce(20)
    flow.interval()
    assert len(completions(flow, instant)) == (1 if again == "done again" else 0)
    flow.check()
    flow.serve("compaction")
    flow.check()


@pytest.mark.thorough
def test_a_clustering_that_wakes_up_after_a_replay_has_replaced_its_files(make_flow):
    """It has rewritten rows that the replay has taken off since."""
    flow = make_flow(control__commit_timeout="5 seconds", table_services={"clustering": {"after_commits": 2}})
    flow.produce(20)
    first = str(flow.interval().instant)
    flow.produce(20)
    flow.interval()
    flow.set(sink__hudi__options=SLOW)
    planned = flow.plan("clustering")
    flow.set(sink__hudi__options={})
    (instant,) = planned.instants
    frozen = flow.carry_out(planned)
    _await_the_window(flow, instant)
    frozen.signal(signal.SIGSTOP)
    assert not completions(flow, instant), "it was completed too soon, so this test shows nothing"
    once_the_lease_is_free(lambda: flow.interval(kind="replay", instant=first, reason="it was wrong"))
    flow.check()
    frozen.signal(signal.SIGCONT)
    frozen.wait()
    flow.produce(20)
    flow.interval()
    flow.check()
