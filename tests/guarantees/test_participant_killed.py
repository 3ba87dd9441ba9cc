"""A participant that is killed at any point, and retried or not, changes nothing that a reader sees."""

from __future__ import annotations

from collections import Counter

import pytest

from sluice.protocol.messages import AbortCommit, WriteStatus

from ..thorough import also
from .harness import Flow, Job, Pause, wait_for

POINTS = ["before_write", "during_write", "after_write", "after_write_status"]


def _killed(flow: Flow, started, point: str) -> Job:
    """A write job that SIGKILL has ended at the point: driver, JVM and all."""
    if point == "during_write":
        job = flow.write(started)
        wait_for(lambda: flow.markers(started.instant), "the first file to be opened", pause=0.001)
    else:
        pause = Pause(f"participant.{point}", flow.folder)
        job = flow.write(started, failpoint=pause.failpoint)
        pause.wait(job)
    job.kill()
    assert job.wait() is None
    reported = [m for m in flow.messages() if isinstance(m, WriteStatus) and m.transaction == started.instant]
    assert len(reported) == (1 if point == "after_write_status" else 0)
    if point == "before_write":
        assert flow.data_files(started.instant) == []
    else:
        assert flow.markers(started.instant)
    return job


@pytest.mark.parametrize("point", [POINTS[1], *also(POINTS[0], *POINTS[2:])])
def test_killed_and_retried_then_killed_and_aborted(make_flow, point):
    flow = make_flow()
    # Many table partitions make a write long enough to be killed in its middle.
    many = 20 if point == "during_write" else 3
    flow.produce(120, table_partitions=many)
    started = flow.start()
    _killed(flow, started, point)
    assert flow.rows(metadata=True) == flow.rows(metadata=False) == Counter()
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()

    flow.produce(120, table_partitions=many)
    run = flow.run()
    started = flow.start(run)
    _killed(flow, started, point)
    flow.check(complete=False)
    assert flow.abort(run).state == "aborted"
    flow.check(complete=False)
    assert flow.data_files(started.instant) == []
    assert flow.jvm.pending(str(flow.path)) == []
    assert isinstance(flow.messages()[-1], AbortCommit)
    flow.interval()
    flow.check()


def test_killed_without_retry_or_abort_leaves_it_to_the_next_start(make_flow):
    flow = make_flow(sink__hudi__operation="upsert", sink__hudi__record_key="id")
    flow.produce(60)
    flow.interval()
    flow.produce(0, ids=range(30), values="b")
    dead = flow.start()
    _killed(flow, dead, "after_write")
    flow.check(complete=False)
    flow.interval()
    flow.check()
    assert flow.data_files(dead.instant) == []
    assert flow.markers(dead.instant) == []
