"""A process dies inside Hudi's roll-back, between taking the instant off the timeline and completing the roll-back.

Nothing names the instant any more, so nothing would come back to it; but a roll-back that stands open stops the
metadata table's compaction for ever, and with it the archiving of the table's own timeline.
"""

from __future__ import annotations

import os
import signal

import pytest

from ..thorough import also
from .harness import Flow, Run, finish, wait_for

SMALL = {"keep_commits": 1, "keep_timeline": 2, "metadata_after_delta_commits": 1}
# Hudi waits for so many milliseconds between reading the clock and making the file that completes an instant.
SLOW = {"hoodie.time.generator.max_expected_clock_skew_ms": "1500"}


def _killed_inside_its_rollback(flow: Flow) -> Run:
    flow.set(sink__hudi__options=SLOW)
    flow.produce(20)
    run = flow.run()
    timeline = flow.path / ".hoodie" / "timeline"
    instant = flow.start(run).instant
    aborting = flow.spawn("abort", "--dag-id", run.dag_id, "--run-id", run.run_id)
    wait_for(lambda: not list(timeline.glob(f"{instant}*")), "the instant to leave the timeline", pause=0.001)
    os.killpg(aborting.pid, signal.SIGKILL)
    assert finish(aborting).killed
    flow.set(sink__hudi__options={})
    assert not list(timeline.glob("*_*.rollback")), "the roll-back was completed, so this test shows nothing"
    assert len(flow.jvm.pending(str(flow.path))) == 1
    return run


@pytest.mark.parametrize("then", ["start", *also("abort")])  # a service ends what was left as START does
def test_a_rollback_that_was_left_is_finished(make_flow, then):
    flow = make_flow(table_services=SMALL)
    flow.produce(20)
    flow.interval()
    run = _killed_inside_its_rollback(flow)
    if then == "abort":
        flow.abort(run)
    else:
        flow.interval()
    assert flow.jvm.pending(str(flow.path)) == []
    if then != "start":
        return
    flow.check()
    for service in ("metadata_compaction", "archiving"):
        flow.produce(20)
        flow.interval()
        flow.serve(service)
    assert list((flow.path / ".hoodie" / "metadata" / ".hoodie" / "timeline").glob("*_*.commit")), "not compacted"
    assert len(flow.commits()) < 4, "not archived"
    flow.check()
