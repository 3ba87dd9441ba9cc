"""Ranges that did not report: abort by default; `on_missing_range: commit` commits the others, exactly once."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import pytest

from sluice.errors import IntervalError
from sluice.protocol.messages import EndCommit

from .harness import Pause

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def test_by_default_nothing_is_committed(make_flow):
    flow = make_flow(write__ranges=2)
    flow.produce(40)
    run = flow.run()
    started = flow.start(run)
    flow.write(started, 0).succeed()
    with pytest.raises(IntervalError, match="did not report") as caught:
        flow.commit(started)
    assert caught.value.where["missing"] == [str(r) for r in started.ranges[1]]
    flow.abort(run)
    assert flow.commits() == []
    flow.interval()
    flow.check()


def test_the_others_are_committed_and_the_missing_one_comes_with_the_next(make_flow):
    flow = make_flow(write__ranges=2, on_missing_range="commit")
    flow.produce(40)
    flow.interval()
    flow.produce(40)
    started = flow.start()
    late = Pause("participant.before_write", flow.folder)
    slow = flow.write(started, 1, late.failpoint)
    late.wait(slow)
    flow.write(started, 0).succeed()
    assert flow.commit(started).records == 20
    assert [m.missing for m in flow.messages() if isinstance(m, EndCommit)][-1] == (1,)
    flow.check(complete=False)
    missing = started.ranges[1][0]
    assert flow.offsets()[missing.partition] == missing.start
    late.release()
    assert slow.wait() == 1
    flow.check(listing=False, complete=False)
    flow.interval()
    flow.check()


@pytest.mark.thorough
def test_what_a_late_attempt_at_the_missing_range_left_where_nobody_else_has_written_is_swept_up(make_flow):
    """It opened its files after END-COMMIT, which names where files are open, and before the commit cleared markers."""
    flow = make_flow(write__ranges=2, on_missing_range="commit")
    flow.produce(40)  # even ids go to Kafka partition 0, and to the table's p0
    started = flow.start()
    missing = next(n for n, planned in enumerate(started.ranges) if planned[0].partition == 1)
    zombie = flow.zombie(started, missing)
    flow.write(started, 1 - missing).succeed()
    assert flow.commit(started).records == 20
    assert [m.table_partitions for m in flow.messages() if isinstance(m, EndCommit)] == [("p0",)]
    zombie.write()
    assert {file.parent.name for file in flow.data_files(started.instant)} == {"p0", "p1"}
    shutil.rmtree(flow.path / ".hoodie" / ".temp" / started.instant)  # as Hudi's commit does where it was slower
    zombie.hear()

    flow.interval()
    assert {file.parent.name for file in flow.data_files(started.instant)} == {"p0"}
    flow.check()


def test_what_no_later_run_would_read_is_never_left_out(make_flow):
    """A replay that lost a range would take rows off the table, and nobody reads a window's missing offsets again."""
    flow = make_flow(write__ranges=2, on_missing_range="commit")
    flow.produce(20)
    instant = str(flow.interval().instant)
    flow.produce(20)
    asked = [
        {"kind": "replay", "instant": instant},
        {"kind": "range", "offsets": {flow.topic: {0: (12, 14), 1: (12, 14)}}},
        {"kind": "backfill", "from_time": LONG_AGO},
    ]
    for request in asked:
        run = flow.run(**request)
        started = flow.start(run)
        flow.write(started, 0).succeed()
        with pytest.raises(IntervalError, match="did not report"):
            flow.commit(started)
        flow.abort(run)
        flow.check(complete=False)
    flow.interval()
    flow.check()


@pytest.mark.thorough
def test_no_range_at_all_is_not_committed_as_nothing(make_flow):
    flow = make_flow(write__ranges=2, on_missing_range="commit")
    flow.produce(10)
    with pytest.raises(IntervalError, match="did not report"):
        flow.commit(flow.start())
    assert flow.commits() == []
