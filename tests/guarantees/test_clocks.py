"""Clocks of machines that differ cost a wait that is told, never a row.

Hudi files what a commit wrote under the time of its completion, by the clock of whoever completed it. Steps whose JVM
has another clock (libfaketime) are machines whose clocks differ.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from sluice.errors import RetryableError

from .harness import Flow, finish

COMPACTED = {"metadata_after_delta_commits": 1}
WAITING = "waiting for this machine's clock to pass the table's last instant"


def _metadata_compacted(flow: Flow, clock: str) -> None:
    step = finish(flow.spawn_service("metadata_compaction", clock=clock))
    assert step.status == 0, step.err
    timeline = flow.path / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    assert list(timeline.glob("*_*.commit")), "the metadata table was not compacted, so this test shows nothing"


def _interval_of(flow: Flow, clock: str) -> None:
    """An interval whose coordinator runs on a machine with that clock."""
    started = flow.step("start", "--run-id", clock, clock=clock).started()
    flow.write_all(started)
    committed = flow.step("commit", "--control-offset", str(started.control_offset), clock=clock)
    assert committed.status == 0, committed.err


def test_nothing_is_committed_behind_a_clock_that_was_far_ahead(make_flow):
    flow = make_flow(table_services=COMPACTED)
    flow.produce(20)
    flow.interval()
    _metadata_compacted(flow, "+1h")
    flow.produce(20)
    with suppress(RetryableError):
        flow.interval()
    flow.check(complete=False)  # what is not seen must not be committed
    with pytest.raises(RetryableError, match="clock is behind the table's last instant") as caught:
        flow.start()
    assert {"behind", "last_instant", "machine", "longest_wait"} <= set(caught.value.where)
    _interval_of(flow, "+61m")
    flow.check()


@pytest.mark.thorough
def test_a_small_difference_is_waited_out(make_flow):
    flow = make_flow(table_services=COMPACTED)
    flow.produce(20)
    flow.interval()
    _metadata_compacted(flow, "+25s")
    flow.produce(20)
    with capture_logs() as logs:
        flow.interval()
    assert [line["event"] for line in logs].count(WAITING) == 1
    flow.check()


def test_a_commit_on_a_slow_clock_waits_for_its_own_instant(make_flow):
    """START on a machine that is ahead: the commit, on another one, is not completed before it was begun."""
    flow = make_flow()
    flow.produce(20)
    started = flow.step("start", "--run-id", "ahead", clock="+15s").started()
    flow.write_all(started)
    flow.commit(started)
    flow.check()
    (completed,) = (flow.path / ".hoodie" / "timeline").glob(f"{started.instant}_*.commit")
    assert completed.stem.partition("_")[2] > started.instant
