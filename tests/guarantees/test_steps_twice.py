"""Every step may run twice."""

from __future__ import annotations

from sluice.protocol.messages import AckCommit


def test_commit_and_abort_after_the_commit_change_nothing(make_flow):
    flow = make_flow()
    flow.produce(30)
    run = flow.run()
    started = flow.start(run)
    flow.write_all(started)
    first = flow.commit(started)
    messages, commits = flow.messages(), flow.commits()
    assert flow.commit(started) == first
    assert flow.abort(run).state == "nothing"
    assert (flow.messages(), flow.commits()) == (messages, commits)
    flow.produce(30)
    flow.interval()
    assert flow.commit(started) == first
    assert flow.abort(run).state == "nothing"
    flow.check()
    assert sum(isinstance(m, AckCommit) for m in flow.messages()) == 2


def test_a_start_that_runs_twice_supersedes_its_own_first(make_flow):
    flow = make_flow()
    flow.produce(30)
    run = flow.run()
    flow.start(run)
    started = flow.start(run)
    flow.write_all(started)
    flow.commit(started)
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == []


def test_an_abort_that_runs_twice(make_flow):
    flow = make_flow()
    flow.produce(30)
    run = flow.run()
    flow.start(run)
    assert flow.abort(run).state == "aborted"
    assert flow.abort(run).state == "nothing"
    flow.interval()
    flow.check()


def test_an_abort_after_hudis_commit_acknowledges_it(make_flow):
    flow = make_flow()
    flow.produce(30)
    run = flow.run()
    started = flow.start(run)
    flow.write_all(started)
    step = flow.step(
        "commit", "--control-offset", str(started.control_offset), failpoint="coordinator.after_hudi_commit=kill"
    )
    assert step.killed, step.err
    assert flow.abort(run).state == "committed"
    flow.check()
