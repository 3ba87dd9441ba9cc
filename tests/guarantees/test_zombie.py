"""A participant that goes on after its interval has ended changes nothing that a reader sees.

A reader by the metadata table sees each row once at once; one that lists files, once the next START has swept.
"""

from __future__ import annotations

import signal

import pytest

from sluice.protocol.messages import WriteStatus

from ..thorough import also
from .harness import Flow, wait_for

ENDS = ["aborted", "superseded", "committed"]
UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}


def _end(flow: Flow, end: str, run, started) -> None:
    """End the zombie's interval while it is paused."""
    if end == "aborted":
        assert flow.abort(run).state == "aborted"
    elif end == "superseded":
        flow.interval()
    else:
        flow.write(started).succeed()
        flow.commit(started)


def _strays(flow: Flow, instant: str) -> set[str]:
    """Files of the instant that no commit has registered."""
    registered = set(flow.jvm.files(str(flow.path), metadata=True))
    return {str(f) for f in flow.data_files(instant)} - registered


def _statuses(flow: Flow, instant: str) -> int:
    return sum(isinstance(m, WriteStatus) and m.transaction == instant and m.error is None for m in flow.messages())


@pytest.mark.parametrize("end", also(*ENDS))
def test_a_zombie_that_cannot_hear_writes_its_files_to_the_end(make_flow, end):
    flow = make_flow()
    flow.produce(60)
    flow.interval()
    flow.produce(60)
    run = flow.run()
    started = flow.start(run)
    zombie = flow.zombie(started)
    _end(flow, end, run, started)
    zombie.write()

    assert _strays(flow, started.instant), "the zombie wrote nothing, so this test shows nothing"
    flow.check(listing=end != "committed", complete=False)
    if end == "committed":
        assert flow.rows(metadata=False) != flow.expected(), "a stray of a committed instant is what listing shows"
    zombie.hear()
    assert "not open any more" in zombie.job.text()
    assert _statuses(flow, started.instant) == (1 if end == "committed" else 0)

    flow.produce(20)
    flow.interval()
    assert _strays(flow, started.instant) == set()
    assert flow.markers(started.instant) == []
    flow.check()


def _hit_in_the_middle(flow, number: signal.Signals):
    """A write job that gets a signal once it has opened its first file, with its run."""
    flow.produce(120, table_partitions=20)
    run = flow.run()
    started = flow.start(run)
    zombie = flow.write(started)
    wait_for(lambda: flow.markers(started.instant), "the first file to be opened", pause=0.001)
    zombie.signal(number)
    return run, started, zombie


def test_a_file_that_is_made_after_its_marker_was_rolled_back(make_flow):
    """A process may stand still between a file's marker and the file itself; nobody sees that from outside."""
    flow = make_flow()
    run, started, _ = _hit_in_the_middle(flow, signal.SIGKILL)
    opened_in = flow.markers(started.instant)[0].parent.name
    flow.abort(run)
    stray = flow.path / opened_in / f"f0cbb5fd-b7e1-4ac4-bcc5-419bfb9a6e84-2_0-0-0_{started.instant}.parquet"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"begun")
    flow.interval()
    flow.check()
    assert not stray.exists()


@pytest.mark.parametrize("end", [ENDS[-1], *also(*ENDS[:-1])])
def test_a_zombie_stopped_in_the_middle_of_its_write(make_flow, end):
    """Stopped by SIGSTOP with files half written, as a machine's long pause would, and continued when all is over."""
    flow = make_flow()
    run, started, zombie = _hit_in_the_middle(flow, signal.SIGSTOP)
    assert _statuses(flow, started.instant) == 0
    _end(flow, end, run, started)
    zombie.signal(signal.SIGCONT)
    assert zombie.wait() == 1
    assert _statuses(flow, started.instant) == (1 if end == "committed" else 0)
    if end != "aborted":
        flow.check(listing=False)
    flow.produce(20)
    flow.interval()
    flow.check()
    assert _strays(flow, started.instant) == set()


@pytest.mark.parametrize("end", ["aborted", *also("superseded")])
def test_a_zombie_of_the_interval_before_the_first_commit(make_flow, end):
    """Its file is older than the timeline: Hudi takes such a file for one whose commit has been archived."""
    flow = make_flow()
    flow.produce(60)
    run = flow.run()
    started = flow.start(run)
    zombie = flow.zombie(started)
    _end(flow, end, run, started)
    flow.produce(20)
    flow.interval()
    zombie.write()
    assert _strays(flow, started.instant), "the zombie wrote nothing, so this test shows nothing"
    flow.check(listing=False)
    zombie.hear()
    flow.produce(20)
    flow.interval()
    flow.check()


def test_a_zombie_of_an_upsert(make_flow):
    flow = make_flow(**UPSERT)
    flow.produce(60)
    flow.interval()
    flow.produce(0, ids=range(0, 60, 2), values="b")
    started = flow.start()
    zombie = flow.zombie(started)
    _end(flow, "committed", None, started)
    before = set(flow.data_files(started.instant))
    zombie.write()
    assert set(flow.data_files(started.instant)) - before, "the zombie wrote nothing, so this test shows nothing"
    zombie.hear()
    flow.check(listing=False)
    # Newer versions in between, and a reader that lists files must not get the zombie's older ones back.
    flow.produce(0, ids=range(0, 60, 3), values="c")
    flow.interval()
    assert set(flow.data_files(started.instant)) <= before
    flow.check()


@pytest.mark.thorough
def test_a_zombie_that_sleeps_over_two_intervals(make_flow):
    flow = make_flow()
    flow.produce(40)
    started = flow.start()
    zombie = flow.zombie(started)
    _end(flow, "committed", None, started)
    for _ in range(2):
        flow.produce(20)
        flow.interval()
    zombie.write()
    assert _strays(flow, started.instant), "the zombie wrote nothing, so this test shows nothing"
    zombie.hear()
    flow.check(listing=False)
    flow.produce(20)
    flow.interval()
    flow.check()
