"""A table's version changes in a transaction: its rows and offsets stay, and an interrupted change is completed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sluice.connectors.sink import VersionChangingError
from sluice.coordinator import Started
from sluice.coordinator.services import Services
from sluice.errors import ActionRequiredError, IntervalError, PipelineFileError
from sluice.protocol.messages import AbortCommit, AckCommit, EndCommit, StartCommit

from ..readers.bundles import bundle, read
from ..thorough import also
from .harness import Flow, Pause, finish, once_the_lease_is_free
from .harness.processes import kafka_settings

UPSERT = {
    "sink__hudi__operation": "upsert",
    "sink__hudi__record_key": "id",
    "table_services": {"compaction": {"after_delta_commits": 2}, "keep_commits": 1, "keep_timeline": 2},
}
ORDERED = {
    **UPSERT,
    "sink__hudi__ordering_field": "w",
    "sink__hudi__schema": "id BIGINT, v STRING, p STRING, w INT",
}
APPEND = {"table_services": {"keep_commits": 1, "keep_timeline": 2, "metadata_after_delta_commits": 1}}
CHANGES = [
    *((UPSERT, 8, 9), (UPSERT, 9, 8), (ORDERED, 8, 9), (ORDERED, 9, 8)),
    *((APPEND, 6, 8), (APPEND, 6, 9), (APPEND, 8, 6), (APPEND, 8, 9), (APPEND, 9, 6), (APPEND, 9, 8)),
]
SHORT = {"control__commit_timeout": "3 seconds", "control__clock_wait": "1 second"}
_OLDEST_READER = {6: "0.15.0", 8: "1.0.2", 9: "1.1.1"}


def loaded(make_flow, settings: dict[str, Any], version: int, intervals: int = 4) -> Flow:
    """A table with some intervals, part of whose timeline is archived from the third on."""
    flow = make_flow(**settings, sink__hudi__table_version=version)
    for value in "abcd"[:intervals]:
        send(flow, value, range(20))
        flow.interval()
        for service in ("cleaning", "metadata_compaction", "archiving"):
            flow.serve(service)
    return flow


def send(flow: Flow, value: str, ids: range | None = None) -> None:
    """Records, of which a letter later in the alphabet is the newer one."""
    fields = {"w": ord(value)} if flow.pipeline.sink.options.ordering_field else {}
    flow.produce(20, ids=ids, values=value, fields=fields)


def short(make_flow, version: int, **settings: Any) -> Flow:
    """A table with one interval."""
    flow = make_flow(sink__hudi__table_version=version, **settings)
    flow.produce(20)
    flow.interval()
    return flow


def version_of(flow: Flow) -> int:
    lines = (flow.path / ".hoodie" / "hoodie.properties").read_text().splitlines()
    return int(next(line.partition("=")[2] for line in lines if line.startswith("hoodie.table.version=")))


def goes_on(flow: Flow, first: str = "e", second: str = "f", last: str = "g") -> None:
    for value in (first, second):
        send(flow, value, range(10, 30))
        flow.interval()
    for service in ("cleaning", "metadata_compaction", "archiving"):
        flow.serve(service)
    send(flow, last)
    flow.interval()
    flow.check()


def changes_of(flow: Flow) -> list[StartCommit]:
    return [m for m in flow.messages() if isinstance(m, StartCommit) and m.service == "table_version"]


@pytest.mark.thorough
@pytest.mark.parametrize(("settings", "old", "new"), CHANGES)
def test_rows_and_offsets_stay_and_intervals_follow(make_flow, settings, old, new):
    flow = loaded(make_flow, settings, old)
    offsets = flow.offsets()
    flow.set(sink__hudi__table_version=new)
    with pytest.raises(
        ActionRequiredError, match=r"isn't the pipeline's `table_version`.*sluice service table_version"
    ):
        flow.start()
    flow.serve("table_version")
    assert version_of(flow) == new
    assert flow.offsets() == offsets
    flow.check()
    flow.serve("table_version")  # and again, which changes nothing
    goes_on(flow)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "old", "new"),
    [*((APPEND, 9, 6), (APPEND, 9, 8), (APPEND, 6, 9)), (UPSERT, 9, 8), (ORDERED, 9, 8)],
)
def test_the_oldest_reader_of_the_new_version_reads_all_rows(make_flow, home, settings, old, new):
    flow = loaded(make_flow, settings, old)
    flow.set(sink__hudi__table_version=new)
    flow.serve("table_version")
    _is_read_by(bundle(home, _OLDEST_READER[new]), flow)
    send(flow, "e", range(10, 30))
    flow.interval()
    _is_read_by(bundle(home, _OLDEST_READER[new]), flow)


def _is_read_by(jar: Path, flow: Flow) -> None:
    (seen,) = read(jar, [flow.path], "id,v").values()
    assert not isinstance(seen, str), seen
    assert Counter(tuple(row) for row in seen) == flow.expected()


POINTS = [
    "service.after_start_commit", "service.after_end_commit", "table_version.after_begin", "table_version.before_8",
    "table_version.before_end", "service.before_ack_commit",
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "old", "new", "point", "intervals"),
    [
        (APPEND, 9, 6, "table_version.before_end", 1),
        *also(*((APPEND, old, new, point, 4) for old, new in ((9, 6), (6, 9)) for point in POINTS)),
        *also((UPSERT, 8, 9, "table_version.before_end", 4), (UPSERT, 9, 8, "table_version.before_end", 4)),
    ],
)
def test_a_change_that_was_killed_is_completed_by_the_next_run_by_hand(make_flow, settings, old, new, point, intervals):
    flow = loaded(make_flow, settings, old, intervals)
    flow.set(sink__hudi__table_version=new)
    step = finish(flow.spawn_service("table_version", failpoint=f"{point}=kill"))
    assert step.killed, step.err
    if point.startswith("table_version"):
        _is_refused_meanwhile(flow, old, new)
    _is_completed(flow, new)


@pytest.mark.thorough
@pytest.mark.parametrize("after", [0.1, 0.3, 0.6, 1.0, 1.5, 2.0], ids="{} s".format)
@pytest.mark.parametrize(("old", "new"), [(6, 9), (9, 6)])
def test_a_change_that_was_killed_anywhere_within_hudi_is_completed(make_flow, old, new, after):
    flow = loaded(make_flow, APPEND, old)
    flow.set(sink__hudi__table_version=new)
    step = _in_hudi(flow)
    with suppress(subprocess.TimeoutExpired):
        step.wait(after)
    with suppress(ProcessLookupError):  # it may have ended
        os.killpg(step.pid, signal.SIGKILL)
    finish(step)
    _is_completed(flow, new)


@pytest.mark.thorough
def test_one_that_is_killed_again_while_it_is_completed_is_completed_by_the_third(make_flow):
    flow = loaded(make_flow, APPEND, 9)
    flow.set(sink__hudi__table_version=6)
    for point in ("table_version.before_end", "table_version.without_metadata_table", "table_version.before_end"):
        step = finish(flow.spawn_service("table_version", failpoint=f"{point}=kill"))
        assert step.killed, step.err
    _is_completed(flow, 6)


def _in_hudi(flow: Flow) -> subprocess.Popen[str]:
    """A change that is just beginning with Hudi's part of it."""
    pause = Pause("table_version.after_begin", flow.folder)
    step = flow.spawn_service("table_version", failpoint=pause.failpoint)
    pause.wait(step)
    pause.release()
    return step


def _is_refused_meanwhile(flow: Flow, *versions: int) -> None:
    """Nothing else opens the table meanwhile, whatever version the pipeline's file names by now."""
    wanted = flow.pipeline.sink.options.table_version
    for version in versions:
        flow.set(sink__hudi__table_version=version)
        with pytest.raises(VersionChangingError, match=r"version is being changed .*run it again"):
            flow.start()
        with pytest.raises(VersionChangingError, match="run it again"):
            flow.serve("cleaning")
    flow.set(sink__hudi__table_version=wanted)


def _is_completed(flow: Flow, new: int) -> None:
    """By a run that takes each other one for running, as a command does, and yet doesn't wait for a dead one."""
    offsets = sum(flow.log_ends().values())
    began = time.monotonic()
    flow.serve("table_version")
    assert time.monotonic() - began < 120, "it has waited for table_services.wait"
    assert version_of(flow) == new
    assert sum(flow.offsets().values()) == offsets
    flow.check()
    goes_on(flow)


def test_a_second_run_and_an_interval_wait_for_the_change_that_is_under_way(make_flow):
    flow = short(make_flow, 8)
    flow.produce(20)
    flow.set(sink__hudi__table_version=9)
    pause = Pause("table_version.after_begin", flow.folder)
    first = flow.spawn_service("table_version", failpoint=pause.failpoint)
    pause.wait(first)
    started: list[Started] = []
    coordinator, run = flow.coordinator(lambda _dag_id, _run_id: True), flow.run()
    interval = Thread(target=lambda: started.append(coordinator.start(run)), daemon=True)
    interval.start()
    second = flow.spawn_service("table_version")
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(8)
    assert (len(changes_of(flow)), started) == (1, [])
    pause.release()
    step = finish(first)
    assert step.status == 0, step.err
    interval.join(120)
    assert started, "the interval still waits"
    flow.write_all(started[0])
    flow.commit(started[0])
    step = finish(second)  # it has come before the interval, or has waited for that, too
    assert (step.status, "The table has version 9." in step.out) == (0, True), step.err
    assert version_of(flow) == 9
    flow.check()


@contextmanager
def _suspended(flow: Flow, point: str, says: str = "lost its hold on the table") -> Iterator[None]:
    """A change to version 9 that is suspended at a point for as long as the block; then it fails, and says why."""
    flow.set(sink__hudi__table_version=9)
    pause = Pause(point, flow.folder)
    suspended = flow.spawn_service("table_version", failpoint=pause.failpoint)
    pause.wait(suspended)
    os.killpg(suspended.pid, signal.SIGSTOP)
    yield
    pause.release()
    os.killpg(suspended.pid, signal.SIGCONT)
    step = finish(suspended)
    assert (step.status, says in step.err) == (1, True), step.err


@pytest.mark.thorough
@pytest.mark.parametrize("point", ["table_version.after_begin", "table_version.before_9", "table_version.before_end"])
def test_one_that_stood_still_until_another_has_completed_it_changes_nothing_any_more(make_flow, point):
    flow = short(make_flow, 8, **SHORT)
    with _suspended(flow, point):
        flow.serve("table_version")
        flow.set(sink__hudi__table_version=8)
        flow.serve("table_version")  # a person may have had enough of it by then
        flow.produce(20)
        flow.interval()
    assert version_of(flow) == 8
    flow.produce(20)
    flow.interval()
    flow.check()


@pytest.mark.thorough
def test_one_that_stood_still_before_it_has_noted_the_change_takes_its_note_away(make_flow):
    flow = short(make_flow, 8, **SHORT)
    with _suspended(flow, "table_version.before_begin"):
        flow.set(sink__hudi__table_version=8)
        flow.produce(20)
        once_the_lease_is_free(flow.start)
    flow.interval()
    assert version_of(flow) == 8
    flow.check()


@pytest.mark.thorough
def test_one_that_stood_still_after_its_last_look_at_the_topic_sees_it_by_the_table(make_flow):
    flow = short(make_flow, 8, **SHORT)
    with _suspended(flow, "table_version.after_fence", "Another process has taken over the change"):
        flow.serve("table_version")
        flow.set(sink__hudi__table_version=8)
        flow.serve("table_version")
    assert version_of(flow) == 8
    flow.produce(20)
    flow.interval()
    flow.check()


@pytest.mark.thorough
@pytest.mark.parametrize("after", [0.1, 0.3, 0.6, 0.9, 1.4, 1.9], ids="{} s".format)
@pytest.mark.parametrize(("old", "new"), [(6, 9), (9, 6)])
def test_one_that_stood_still_within_hudi_loses_no_row(make_flow, old, new, after):
    """It may note the change once more: then the table is refused until a further run, which finds all done."""
    flow = loaded(make_flow, {**APPEND, **SHORT}, old)
    flow.set(sink__hudi__table_version=new)
    frozen = _in_hudi(flow)
    with suppress(subprocess.TimeoutExpired):
        frozen.wait(after)
    with suppress(ProcessLookupError):  # it may have ended
        os.killpg(frozen.pid, signal.SIGSTOP)
    flow.serve("table_version")
    goes_on(flow)
    with suppress(ProcessLookupError):
        os.killpg(frozen.pid, signal.SIGCONT)
    finish(frozen)
    flow.serve("table_version")
    assert version_of(flow) == new
    goes_on(flow, "h", "i", "j")


@pytest.mark.thorough
def test_a_service_that_was_killed_by_hand_is_not_waited_for_by_the_next(make_flow):
    """It has said in its START-COMMIT or END-COMMIT which process it is."""
    flow = short(make_flow, 8, **APPEND)
    for point in ("service.after_start_commit", "service.after_end_commit"):
        step = finish(flow.spawn_service("cleaning", failpoint=f"{point}=kill"))
        assert step.killed, step.err
        began = time.monotonic()
        flow.serve("cleaning")
        assert time.monotonic() - began < 60
    kinds = [type(m) for m in flow.messages()][-3:]
    assert kinds == [StartCommit, EndCommit, AckCommit]
    flow.check()


def test_it_is_refused_before_anything_is_written(make_flow):
    flow = make_flow()
    with pytest.raises(ActionRequiredError, match=r"doesn't say which version.*set sink.hudi.table_version"):
        flow.serve("table_version")
    flow.set(sink__hudi__table_version=8)
    with pytest.raises(ActionRequiredError, match="There is no table yet"):
        flow.serve("table_version")
    flow.produce(20)
    flow.interval()
    flow.set(sink__hudi__table_version=9)
    _with_a_pending_instant(flow)
    _of_an_unknown_version(flow)
    flow.set(sink__hudi__operation="upsert", sink__hudi__record_key="id")
    with pytest.raises(ActionRequiredError, match="table type differs"):
        flow.serve("table_version")
    flow.set(sink__hudi__table_version=6)
    with pytest.raises(PipelineFileError, match="operation upsert needs table_version 8 or 9"):
        flow.serve("table_version")
    flow.set(sink__hudi__operation="append", sink__hudi__record_key=None, sink__hudi__table_version=9)
    assert version_of(flow) == 8
    flow.serve("table_version")
    assert version_of(flow) == 9
    flow.check()


def _with_a_pending_instant(flow: Flow) -> None:
    pending = flow.path / ".hoodie" / "timeline" / "20200101000000000.commit.requested"
    pending.touch()
    with pytest.raises(ActionRequiredError, match=r"roll them back.*Nothing was changed"):
        flow.serve("table_version")
    assert isinstance(flow.messages()[-1], AbortCommit)
    pending.unlink()


def _of_an_unknown_version(flow: Flow) -> None:
    settings = flow.path / ".hoodie" / "hoodie.properties"
    settings.with_name(f".{settings.name}.crc").unlink()
    written = settings.read_bytes()
    for version in (5, 7, 10):
        settings.write_bytes(written.replace(b"hoodie.table.version=8", f"hoodie.table.version={version}".encode()))
        with pytest.raises(ActionRequiredError, match=f"has version {version}, which isn't known here"):
            flow.serve("table_version")
        with pytest.raises(ActionRequiredError, match=f"has version {version}, which can't be written"):
            flow.start()
    settings.write_bytes(written)


@pytest.mark.thorough
def test_a_change_that_was_begun_by_another_control_topic_is_completed_by_that_one(make_flow):
    flow = short(make_flow, 8)
    flow.set(sink__hudi__table_version=9)
    assert finish(flow.spawn_service("table_version", failpoint="table_version.before_end=kill")).killed
    flow.set(control__topic=f"{flow.control_topic}-another")
    for refused in (lambda: flow.serve("table_version"), flow.start):
        with pytest.raises(ActionRequiredError, match=f"with another control topic.*back to {flow.control_topic},"):
            refused()
    flow.set(control__topic=flow.control_topic)
    flow.serve("table_version")
    flow.produce(20)
    flow.interval()
    flow.check()


@pytest.mark.thorough
def test_an_interval_that_was_open_is_superseded_and_reads_its_offsets_again(make_flow):
    flow = short(make_flow, 8)
    flow.produce(20)
    started = flow.start()
    flow.write_all(started)
    flow.set(sink__hudi__table_version=9)
    settings = kafka_settings(flow.bootstrap)
    run = Services(flow.pipeline, settings, None, flow.jvm, lambda _dag_id, _run_id: False).run
    run(flow.run(), "table_version")
    with pytest.raises(IntervalError, match="superseded"):
        flow.commit(started)
    flow.interval()
    flow.check()
