"""Windows that a backfill or a person asks for: nothing is read twice, and nothing is left out unseen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from sluice.coordinator import Outcome, Started
from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import TopicPartition

from .harness import CLUSTER, DDL, wait_for

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def _soon() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def _coverage(flow, partition: int = 0):
    return flow.checkpoint().covered(TopicPartition(CLUSTER, flow.topic, partition))


def test_a_backfill_brings_what_lies_before_the_start_and_nothing_twice(make_flow):
    flow = make_flow(source__kafka__starting_offsets="latest")
    flow.produce(20)
    flow.interval()  # records only where the schedule starts
    assert flow.offsets() == {0: 10, 1: 10}
    assert flow.rows(metadata=True).total() == 0
    flow.produce(10)
    flow.interval()
    backfill = {"kind": "backfill", "from_time": LONG_AGO, "to_time": _soon()}
    assert flow.interval(**backfill).records == 20
    assert flow.offsets() == {0: 15, 1: 15}
    flow.check()
    again = flow.coordinator().start(flow.run(**backfill))
    assert isinstance(again, Outcome)
    assert again.state == "empty"
    assert "30 offsets are in the table already" in again.summary


def test_the_schedule_goes_round_what_a_backfill_has_read_before_it(make_flow):
    flow = make_flow()
    flow.produce(40)
    assert flow.interval(kind="range", offsets={flow.topic: {0: (5, 10)}}).records == 5
    assert flow.offsets() == {}  # the schedule has not begun
    flow.interval()  # up to what is there already
    assert flow.offsets() == {0: 10, 1: 20}
    flow.interval()
    flow.check()
    assert _coverage(flow) == ((0, 20),)


@pytest.mark.thorough
def test_one_run_reads_every_piece_of_a_window_that_is_missing(make_flow):
    flow = make_flow()
    flow.produce(40)
    flow.interval(kind="range", offsets={flow.topic: {0: (5, 10)}})
    whole = flow.start(flow.run(kind="range", offsets={flow.topic: {0: (0, 20), 1: (0, 99)}}))
    assert [str(r) for r in whole.ranges[0]] == [
        f"{flow.topic}[0] [0, 5)",
        f"{flow.topic}[0] [10, 20)",
        f"{flow.topic}[1] [0, 20)",
    ]
    flow.write_all(whole)
    assert flow.commit(whole).records == 35
    flow.interval_is_empty()
    flow.check(complete=False)  # the schedule has not begun, so it has no position to compare
    assert flow.covered() == flow.sent


def test_a_backfill_and_the_schedule_take_turns(make_flow):
    flow = make_flow(source__kafka__starting_offsets="latest")
    flow.produce(20)
    flow.interval()
    flow.produce(10)
    scheduled = flow.run()
    running = {scheduled.run_id}
    coordinator = flow.coordinator(lambda _dag_id, run_id: run_id in running)
    first = coordinator.start(scheduled)
    backfill = flow.run(kind="backfill", from_time=LONG_AGO, to_time=_soon())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(coordinator.start, backfill)
        flow.write_all(first)
        assert not waiting.done()
        flow.commit(first)
        second = waiting.result(60)
    assert isinstance(second, Started)
    flow.write_all(second)
    assert flow.commit(second).records == 20
    flow.check()


def test_a_run_that_has_died_is_not_waited_for(make_flow):
    flow = make_flow()
    flow.produce(20)
    dead = flow.run()
    running = {dead.run_id}
    flow.start(dead)
    coordinator = flow.coordinator(lambda _dag_id, run_id: run_id in running)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(coordinator.start, flow.run(kind="range", offsets={flow.topic: {0: (0, 5)}}))
        running.clear()
        started = waiting.result(60)
    flow.write_all(started)
    assert flow.commit(started).records == 5
    flow.interval()
    flow.check()


def test_a_dry_run_says_what_it_would_read_and_leaves_nothing(make_flow):
    flow = make_flow()
    flow.produce(20)
    outcome = flow.coordinator().start(flow.run(dry_run=True))
    assert isinstance(outcome, Outcome)
    assert outcome.state == "planned"
    assert f"{flow.topic}[0] [0, 10)" in outcome.summary
    assert not flow.path.exists()
    assert flow.control_topic not in flow.admin.list_topics(timeout=10).topics


def test_offsets_that_retention_has_removed_are_said_not_skipped(make_flow):
    flow = make_flow()
    flow.produce(20)
    flow.delete_records({0: 4})
    with pytest.raises(ActionRequiredError, match="has removed offsets of this window") as caught:
        flow.start(flow.run(kind="range", offsets={flow.topic: {0: (0, 10)}}))
    assert caught.value.where["log_start"] == 4


def test_an_upsert_without_an_order_refuses_to_read_out_of_order(make_flow):
    flow = make_flow(sink__hudi__operation="upsert", sink__hudi__record_key="id")
    flow.produce(10)
    with pytest.raises(ActionRequiredError, match="without an ordering field"):
        flow.start(flow.run(kind="range", offsets={flow.topic: {0: (0, 2)}}))


def test_an_older_version_from_a_backfill_never_wins(make_flow):
    flow = make_flow(
        sink__hudi__operation="upsert",
        sink__hudi__record_key="id",
        sink__hudi__ordering_field="n",
        sink__hudi__schema=f"{DDL}, n BIGINT",
        source__kafka__starting_offsets="latest",
    )
    flow.produce(10, values="a", fields={"n": 1})
    flow.interval()
    flow.produce(4, ids=range(4), values="b", fields={"n": 2})
    flow.produce(2, ids=range(4, 6), values="a", fields={"n": 1})  # the very same version: the table's stays
    flow.interval()
    outcome = flow.interval(kind="backfill", from_time=LONG_AGO, to_time=_soon())
    assert outcome.records == 4  # ids 6 to 9; of the others the table has a newer version, or this one
    flow.check()
    ack = next(m for m in reversed(flow.messages()) if m.type == "ACK-COMMIT")
    assert (ack.records_read, ack.records_written, ack.records_skipped) == (10, 4, 6)


@pytest.mark.thorough
def test_only_the_partition_that_is_read_out_of_its_order_keeps_newer_rows(make_flow):
    """In a tie of the ordering field the version that came last wins, where the offsets say which one did."""
    flow = make_flow(
        sink__hudi__operation="upsert",
        sink__hudi__record_key="id",
        sink__hudi__ordering_field="n",
        sink__hudi__schema=f"{DDL}, n BIGINT",
    )
    flow.produce(10, fields={"n": 1})
    flow.interval()
    flow.produce(10, ids=range(10), values="b", fields={"n": 1})
    flow.produce(5, ids=range(0, 10, 2), partitions=(0, 0), values="c", fields={"n": 2})
    flow.interval(kind="range", offsets={flow.topic: {0: (10, 15)}})
    assert flow.interval().records == 5  # all of partition 1's, which are ties; of partition 0's rows there are newer
    flow.check()


def test_the_table_is_not_read_ahead_of_a_run_that_waits(make_flow):
    """What a run plans rests on the table after the one it waited for, not on the table before it."""
    flow = make_flow()
    flow.produce(20)
    first = flow.run()
    running = {first.run_id}
    coordinator = flow.coordinator(lambda _dag_id, run_id: run_id in running)
    started = coordinator.start(first)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(coordinator.start, flow.run())
        flow.write_all(started)
        wait_for(waiting.running, "the second run to wait")
        flow.commit(started)
        outcome = waiting.result(60)
    assert isinstance(outcome, Outcome)
    assert outcome.state == "empty"
    flow.check()
