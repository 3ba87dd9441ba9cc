"""The coordinator dies at any step.

Run again it finishes; where it never runs again, the next interval's start finishes or undoes what it left.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from itertools import product

import pytest

from sluice.errors import SluiceError
from sluice.protocol.messages import AckCommit

from ..thorough import also, some_of
from .harness import Flow, finish, wait_for

THEN = ["again", "next", "abort"]
START_POINTS = ["before_start_commit", "after_start_commit", "after_open_instant"]
COMMIT_POINTS = [
    "before_end_commit",
    "before_hudi_commit",
    "after_hudi_commit",
    "before_ack_commit",
    "after_ack_commit",
]


@pytest.mark.parametrize(
    ("point", "then"),
    some_of(product(START_POINTS, THEN), [("before_start_commit", "again"), ("after_open_instant", "abort")]),
)
def test_killed_while_starting(make_flow, point, then):
    flow = make_flow()
    flow.produce(40)
    run = flow.run()
    step = flow.step("start", "--run-id", run.run_id, failpoint=f"coordinator.{point}=kill")
    assert step.killed, step.err
    if (flow.path / ".hoodie").exists():
        assert flow.rows(metadata=point == "after_open_instant") == Counter()
    if then == "abort":
        aborted = flow.step("abort", "--run-id", run.run_id)
        assert aborted.status == 0, aborted.err
        assert flow.jvm.pending(str(flow.path)) == []
    started = flow.start(run if then == "again" else None)
    flow.write_all(started)
    flow.commit(started)
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == []
    assert len(flow.commits()) == 1


def test_killed_while_the_new_tables_metadata_table_is_made(make_flow):
    flow = make_flow()
    flow.produce(40)
    starting = flow.spawn("start", "--run-id", "first")
    wait_for((flow.path / ".hoodie" / "metadata").exists, "the metadata table", pause=0.001)
    os.killpg(starting.pid, signal.SIGKILL)
    assert finish(starting).killed
    flow.interval()
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == []


def _killed_commit(flow: Flow, point: str):
    flow.produce(40)
    started = flow.start()
    flow.write_all(started)
    step = flow.step("commit", "--control-offset", str(started.control_offset), failpoint=f"coordinator.{point}=kill")
    assert step.killed, step.err
    return started


@pytest.mark.parametrize("point", [COMMIT_POINTS[2], *also(*COMMIT_POINTS[:2], *COMMIT_POINTS[3:])])
def test_killed_while_committing_and_run_again(make_flow, point):
    flow = make_flow()
    started = _killed_commit(flow, point)
    again = flow.commit(started)
    assert (again.state, again.records) == ("committed", 40)
    flow.check()
    assert len(flow.commits()) == 1
    assert sum(isinstance(m, AckCommit) for m in flow.messages()) == 1
    flow.produce(20)
    flow.interval()
    flow.check()


@pytest.mark.parametrize("point", [COMMIT_POINTS[1], *also(COMMIT_POINTS[0], *COMMIT_POINTS[2:])])
def test_killed_while_committing_and_never_run_again(make_flow, point):
    flow = make_flow()
    left = _killed_commit(flow, point)
    flow.produce(20)
    flow.interval()
    flow.check()
    # What END-COMMIT had decided was finished; what was not decided was undone and loaded again with the next.
    assert len(flow.commits()) == (1 if point == "before_end_commit" else 2)
    assert flow.jvm.pending(str(flow.path)) == []
    if point == "before_end_commit":
        with pytest.raises(SluiceError, match="can't be committed any more"):
            flow.commit(left)
    else:
        assert flow.commit(left).state == "committed"
    flow.check()


@pytest.mark.parametrize("then", ["again", *also("next", "abort")])
def test_killed_between_the_metadata_tables_commit_and_the_tables_own(make_flow, then):
    flow = make_flow()
    started = _killed_commit(flow, "before_ack_commit")
    # A kill in there leaves the table's own commit unwritten: nothing else distinguishes the two states on disk.
    completed = list((flow.path / ".hoodie" / "timeline").glob(f"{started.instant}_*.commit"))
    assert len(completed) == 1
    completed[0].unlink()
    assert flow.rows(metadata=True) == Counter()
    assert flow.rows(metadata=False) == Counter()
    if then == "again":
        assert flow.commit(started).state == "committed"
    elif then == "abort":
        step = flow.step("abort", "--run-id", "run-1")
        assert step.status == 0, step.err
    flow.produce(20)
    flow.interval()
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == []
