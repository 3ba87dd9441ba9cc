"""Where a table's first interval begins, and that its position stands from then on."""

from __future__ import annotations

import pytest

from sluice.coordinator import Outcome

from ..thorough import also


@pytest.mark.parametrize("before", [30, *also(0)])
def test_latest_with_nothing_to_read_records_its_position(make_flow, before):
    """Also for an empty topic: what comes after the first interval must not be passed over by the second."""
    flow = make_flow(source__kafka__starting_offsets="latest")
    flow.produce(before)
    started = flow.start()
    assert started.ranges == ()
    flow.commit(started)
    assert flow.offsets() == flow.log_ends()
    flow.sent = []
    flow.produce(20)
    assert flow.interval().records == 20
    flow.check()


def test_given_offsets(make_flow):
    flow = make_flow()
    flow.set(source__kafka__starting_offsets={flow.topic: {0: 4, 1: 999}})
    flow.produce(20)
    started = flow.start()
    assert {r.partition: (r.start, r.end) for r in started.ranges[0]} == {0: (4, 10)}  # 999: bounded by the log's end
    flow.write_all(started)
    flow.commit(started)
    flow.sent = [s for s in flow.sent if s.partition == 0 and s.offset >= 4]
    flow.check()
    flow.produce(10)
    flow.interval()
    flow.check()


def test_an_empty_topic_from_earliest_opens_nothing(make_flow):
    flow = make_flow()
    outcome = flow.coordinator().start(flow.run())
    assert isinstance(outcome, Outcome)
    assert outcome.state == "empty"
    flow.produce(10)
    flow.interval()
    flow.check()


def test_limits_leave_the_rest_for_the_next_interval(make_flow):
    flow = make_flow(source__kafka__max_records=15)
    flow.produce(40, partitions=(0, 0, 0, 1))
    for _ in range(3):
        flow.interval()
        flow.check(complete=False)
    flow.check()
    assert len(flow.commits()) == 3


def test_a_topic_that_is_made_while_a_run_waits_for_another_is_read(make_flow):
    """The run takes the bounds and the time of completeness of when its turn has come."""
    flow = make_flow()
    flow.set(source__kafka__topics=None, source__kafka__topics_pattern=f"{flow.topic}(-new)?")
    flow.produce(10)
    flow.interval()
    flow.produce(10)
    holder = flow.run()
    flow.start(holder)
    first, new = flow.topic, f"{flow.topic}-new"

    def is_running(_dag_id: str, _run_id: str) -> bool:
        flow.topic = new
        flow.create_topic(1)
        flow.produce(4, partitions=[0])
        flow.topic = first
        flow.abort(holder)
        return True

    started = flow.coordinator(is_running).start(flow.run())
    assert {r.topic for ranges in started.ranges for r in ranges} == {first, new}


def test_a_topic_that_a_pattern_finds_later_is_read_from_its_start(make_flow):
    """What was written to it before it was found must not be passed over."""
    flow = make_flow(source__kafka__starting_offsets="latest")
    flow.set(source__kafka__topics=None, source__kafka__topics_pattern=f"{flow.topic}(-new)?")
    flow.produce(10)
    flow.commit(flow.start())
    first, flow.topic = flow.topic, f"{flow.topic}-new"
    flow.create_topic(1)
    flow.produce(4, partitions=[0])
    started = flow.start()
    flow.write_all(started)
    flow.commit(started)
    found = flow.checkpoint().clusters["kafka_default"].topics
    assert found[flow.topic].partitions == {0: 4}
    assert found[first].partitions == {0: 5, 1: 5}
    assert sum(flow.rows(metadata=True).values()) == 4
