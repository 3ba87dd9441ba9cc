"""An interval that nothing disturbs, run by the product's own commands as processes of their own."""

from __future__ import annotations

from sluice.coordinator import Outcome
from sluice.protocol.messages import AckCommit, EndCommit, StartCommit, WriteStatus

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id", "sink__hudi__ordering_field": None}


def test_append_by_the_commands_of_the_product(make_flow):
    flow = make_flow(write__ranges=1)
    flow.produce(300)
    step = flow.step("start", "--run-id", "first")
    started = step.started()
    flow.write_alone(started).succeed()
    committed = flow.step("commit", "--control-offset", str(started.control_offset))
    assert committed.status == 0, committed.err
    flow.check()
    assert flow.rows_by_rust() == flow.expected()
    assert flow.jvm.pending(str(flow.path)) == []
    assert [type(m) for m in flow.messages()] == [StartCommit, WriteStatus, EndCommit, AckCommit]


def test_upsert_keeps_the_last_version_of_each_key(make_flow):
    flow = make_flow(write__ranges=2, **UPSERT)
    flow.produce(200)
    flow.interval()
    flow.check()
    flow.produce(0, ids=range(0, 200, 3), values="b")
    flow.produce(50)
    flow.interval()
    flow.check()


def test_an_empty_window_opens_nothing(make_flow):
    flow = make_flow()
    flow.produce(20)
    flow.interval()
    commits, messages = flow.commits(), flow.messages()
    outcome = flow.coordinator().start(flow.run())
    assert isinstance(outcome, Outcome)
    assert outcome.state == "empty"
    assert flow.messages() == messages
    assert flow.commits() == commits
    flow.check()
