"""Two DAG runs of one table at once, a scheduled one and a backfill: never do both commit from the same offsets."""

from __future__ import annotations

import json

import pytest

from sluice.coordinator import Started
from sluice.errors import IntervalError, RetryableError

from ..thorough import also
from .harness import Flow, Pause, finish, wait_for

GONE = "can't be committed any more: it is (superseded|aborted)"


def _refused(flow: Flow, started) -> None:
    with pytest.raises(IntervalError, match=GONE) as caught:
        flow.commit(started)
    assert caught.value.where["instant"] == started.instant


def test_the_later_start_wins_and_the_earlier_commit_fails_before_it(make_flow):
    flow = make_flow()
    flow.produce(40)
    earlier = flow.start()
    flow.write_all(earlier)
    later = flow.start()
    _refused(flow, earlier)
    flow.write_all(later)
    flow.commit(later)
    flow.check()
    assert len(flow.commits()) == 1
    assert flow.data_files(earlier.instant) == []


@pytest.mark.thorough
def test_the_later_start_wins_and_the_earlier_commit_fails_after_it(make_flow):
    flow = make_flow()
    flow.produce(40)
    first_run = flow.run()
    earlier = flow.start(first_run)
    later = flow.start()
    refused = flow.write(earlier)
    assert refused.wait() == 1
    assert "not open any more" in refused.text()
    flow.write_all(later)
    flow.commit(later)
    flow.check()
    _refused(flow, earlier)
    assert flow.abort(first_run).state == "nothing"
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == []


def test_a_start_waits_for_a_commit_that_is_decided(make_flow):
    flow = make_flow(control__commit_timeout="1 hour")
    flow.produce(40)
    started = flow.start()
    flow.write_all(started)
    pause, committing = flow.frozen_commit(started, "coordinator.before_hudi_commit")
    flow.produce(20)
    with pytest.raises(RetryableError, match="committing this table just now"):
        flow.start()
    pause.release()
    done = finish(committing)
    assert done.status == 0, done.err
    flow.interval()
    flow.check()


def _start_unless_busy(flow: Flow):
    try:
        return flow.start()
    except RetryableError:
        return None


def test_a_commit_that_was_finished_by_another_is_not_made_twice(make_flow):
    flow = make_flow(control__commit_timeout="4 seconds")
    flow.produce(40)
    started = flow.start()
    flow.write_all(started)
    pause, committing = flow.frozen_commit(started, "coordinator.before_hudi_commit")
    flow.produce(20)
    next_one = wait_for(lambda: _start_unless_busy(flow), "the lease to run out", pause=0.5)
    flow.write_all(next_one)
    flow.commit(next_one)
    pause.release()
    late = finish(committing)
    flow.check()
    assert len(flow.commits()) == 2
    assert late.status == 1
    assert "Another process is committing" in late.err
    assert flow.commit(started).state == "committed"
    flow.check()


@pytest.mark.parametrize("point", ["after_start_commit", *also("before_start_commit", "before_open_instant")])
def test_two_starts_at_the_same_moment(make_flow, point):
    """Both have read the same offsets when both are let go on."""
    flow = make_flow()
    flow.produce(40)
    pauses = [Pause(f"coordinator.{point}", flow.folder) for _ in range(2)]
    starting = [flow.spawn("start", "--run-id", f"r{i}", failpoint=p.failpoint) for i, p in enumerate(pauses)]
    for pause, process in zip(pauses, starting, strict=True):
        pause.wait(process)
    for pause in pauses:
        pause.release()
    steps = [finish(process) for process in starting]
    opened = [step.started() for step in steps if step.status == 0]
    if not opened:  # both were setting up the new table's metadata: each says so, and is retried
        assert all("Next step: the step is retried" in step.err for step in steps), [step.err for step in steps]
        opened = [flow.start()]
    for started in opened:
        flow.write(started).wait()
    committed = 0
    for started in opened:
        try:
            flow.commit(started)
            committed += 1
        except IntervalError:
            pass
    assert committed == 1
    flow.check()
    assert len(flow.commits()) == 1
    flow.produce(10)
    flow.interval()
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == []


@pytest.mark.thorough
def test_a_start_that_is_overtaken_before_its_instant_is_open_leaves_nothing_behind(make_flow):
    flow = make_flow()
    flow.produce(40)
    pause = Pause("coordinator.before_open_instant", flow.folder)
    slow = flow.spawn("start", "--run-id", "slow", failpoint=pause.failpoint)
    pause.wait(slow)
    flow.interval()
    pause.release()
    step = finish(slow)
    assert step.status == 0, step.err
    assert json.loads(step.out)["state"] == "empty"  # it planned again, from the other's offsets
    assert flow.jvm.pending(str(flow.path)) == []
    flow.check()


def test_a_start_that_slept_over_the_table_s_creation_leaves_its_settings_alone(make_flow):
    """Hudi notes the parts of the metadata table in them: written anew, they would be forgotten."""
    flow = make_flow()
    flow.produce(40)
    pause = Pause("sink.before_create_table", flow.folder)
    slow = flow.spawn("start", "--run-id", "slow", failpoint=pause.failpoint)
    pause.wait(slow)
    flow.interval()
    settings = flow.path / ".hoodie" / "hoodie.properties"
    before = settings.read_text()
    assert "hoodie.table.metadata.partitions=" in before
    pause.release()
    step = finish(slow)
    assert step.status == 0, step.err
    assert settings.read_text() == before
    flow.produce(20)
    flow.interval()
    flow.check()


def test_a_start_that_died_over_the_table_s_creation_is_cleared_up_after(make_flow):
    flow = make_flow()
    flow.produce(40)
    settings = flow.path / ".hoodie" / "hoodie.properties"
    settings.parent.mkdir(parents=True)
    settings.touch()
    flow.interval()
    flow.check()


@pytest.mark.parametrize("rounds", also(1, 3))
def test_many_runs_in_parallel(make_flow, rounds):
    """Each does all of an interval's coordinator steps with no regard for the others; rows are exactly once."""
    flow = make_flow()
    committed = 0
    for _ in range(rounds):
        flow.produce(30)
        starting = [flow.spawn("start", "--run-id", f"run-{committed}-{i}") for i in range(3)]
        steps = [finish(process) for process in starting]
        opened = [s.started() for s in steps if s.status == 0 and '"control_offset"' in s.out]
        jobs = [flow.write(s) for s in opened if isinstance(s, Started)]
        for job in jobs:
            job.wait()
        committing = [flow.spawn("commit", "--control-offset", str(s.control_offset)) for s in opened]
        done = sum(finish(process).status == 0 for process in committing)
        assert done <= 1
        if done == 0:
            # The last to start may have met another that rolled the same interval back: Airflow would try it again.
            assert any("the step is retried" in step.err for step in steps)
            flow.interval()
        committed += 1
        flow.check()
    assert len(flow.commits()) == committed
