"""The JVM that steps keep for each other: who finds it, who doesn't, and what becomes of it when its step dies.

A step that dies inside Hudi's commit takes the JVM with it, though that isn't its child.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError

from sluice.coordinator import Run
from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.jvm.kept import MINUTES, WAITING, end_kept, kept_jvm

from ..thorough import also
from .harness import finish, once_the_lease_is_free, wait_for
from .test_frozen_committer import SLOW, TAKEN_OFF, _await_the_window, completions


@pytest.fixture
def run_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """JVMs are kept, in a folder of this test's own; when it ends there are none."""
    with tempfile.TemporaryDirectory(prefix="sl") as folder:  # a socket's path is short
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv(MINUTES, "1")
        yield Path(folder)
        end_kept()
        wait_for(lambda: not _keepers(folder), "the keepers to end")


def _keepers(folder: Path | str) -> list[psutil.Process]:
    """The keepers that were started with this folder in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "keeper.py" in " ".join(process.cmdline()) and process.environ().get("XDG_RUNTIME_DIR") == str(folder):
                found.append(process)
    return found


def _waiting(folder: Path) -> list[Path]:
    return list(folder.rglob("*.jvm"))


def _pid(**more: str) -> int:
    with kept_jvm(more) as jvm:
        return jvm.pid


def test_the_next_one_of_the_same_settings_finds_it_and_no_other_does(run_folder, monkeypatch):
    first = _pid()
    other_process = subprocess.run(
        [sys.executable, "-c", "from sluice.jvm.kept import kept_jvm\nwith kept_jvm() as jvm: print(jvm.pid)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(other_process.stdout) == first
    assert all(path.stat().st_mode & 0o077 == 0 for path in _waiting(run_folder)[0].parents[:2])
    assert _waiting(run_folder)[0].stat().st_mode & 0o077 == 0
    other_key = _pid(**{"fs.s3a.access.key": "another"})
    assert other_key != first
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv(WAITING, "1")  # two wait already
    third = _pid()
    assert third not in (first, other_key)
    assert not psutil.pid_exists(third), "more wait than may"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert _pid() == first


def test_it_belongs_to_one_at_a_time_and_is_killed_after_an_error(run_folder):
    with kept_jvm() as one, kept_jvm() as two:
        assert one.pid != two.pid
        pids = {one.pid, two.pid}
        left = one.jvm.java.util.ArrayList()
    assert len(_waiting(run_folder)) == 2
    with kept_jvm() as one, kept_jvm() as two:
        assert {one.pid, two.pid} == pids
        assert left._target_id not in _names(one) + _names(two), "what an owner before had is still there"
    broken = kept_jvm()
    pid = broken.__enter__().pid
    assert broken.__exit__(ValueError, ValueError(), None) is not True
    assert not psutil.pid_exists(pid)
    assert len(_waiting(run_folder)) == 1


def _names(jvm: HudiJvm) -> list[str]:
    server = JavaObject("GATEWAY_SERVER", jvm.jvm._gateway_client)
    return [str(name) for name in server.getGateway().getBindings().keySet()]


@pytest.mark.parametrize("whom", ["java", *also("keeper")])
def test_a_frozen_one_is_left_after_a_moment(run_folder, whom):
    first = _pid()
    (keeper,) = _keepers(run_folder)
    frozen = keeper if whom == "keeper" else psutil.Process(first)
    frozen.suspend()
    began = time.monotonic()
    try:
        second = _pid()
        assert second != first
        assert time.monotonic() - began < 30
    finally:
        with suppress(psutil.NoSuchProcess):
            frozen.resume()
    wait_for(lambda: not psutil.pid_exists(first), "the frozen JVM's end")
    assert _pid() == second


@pytest.mark.parametrize("whom", ["keeper", *also("java")])
def test_a_killed_one_is_found_to_be_gone(run_folder, whom):
    first = _pid()
    (keeper,) = _keepers(run_folder)
    psutil.Process(keeper.pid if whom == "keeper" else first).kill()
    wait_for(lambda: not psutil.pid_exists(first), "its end")
    assert _pid() != first
    wait_for(lambda: len(_waiting(run_folder)) == 1, "what it has left to be removed")


def test_it_ends_by_itself_when_nobody_comes(run_folder, monkeypatch):
    monkeypatch.setenv(MINUTES, "0.02")
    first = _pid()
    wait_for(lambda: not psutil.pid_exists(first), "its end")
    wait_for(lambda: not _keepers(run_folder), "its keeper's end")
    assert _waiting(run_folder) == []


def test_many_that_begin_at_once_get_one_each(run_folder):
    script = (
        "import sys\nfrom sluice.jvm.kept import kept_jvm\n"
        "with kept_jvm() as jvm:\n    print(jvm.pid, flush=True)\n    sys.stdin.read()\n"
    )
    many = [
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    pids = {int(one.stdout.readline()) for one in many if one.stdout}
    assert len(pids) == 3
    for one in many:
        one.communicate("", timeout=60)
    assert len(_waiting(run_folder)) == 2, "two wait, as many as may"


def test_a_fork_of_its_owner_does_not_keep_it_alive(run_folder):
    reading, writing = os.pipe()
    owner = multiprocessing.get_context("fork").Process(target=_die_with_a_fork_left, args=(writing,))
    owner.start()
    java, fork = (int(n) for n in os.read(reading, 100).split())
    try:
        assert psutil.pid_exists(java)
        assert owner.pid is not None
        os.kill(owner.pid, signal.SIGKILL)
        owner.join()
        wait_for(lambda: not psutil.pid_exists(java), "the JVM's end", timeout=20)
        assert psutil.pid_exists(fork)
    finally:
        os.kill(fork, signal.SIGKILL)


def _die_with_a_fork_left(writing: int) -> None:
    context = kept_jvm()
    jvm = context.__enter__()
    fork = os.fork()
    if fork == 0:
        signal.pause()
    os.write(writing, f"{jvm.pid} {fork}".encode())
    signal.pause()


def test_a_step_that_is_killed_inside_hudis_commit_takes_the_jvm_with_it(make_flow, run_folder):
    """The table's own commit is never completed by the JVM that was left, and the next one takes the lease at once."""
    flow = make_flow()
    flow.produce(20)
    flow.interval()
    flow.set(sink__hudi__options=SLOW)  # Hudi waits for seconds between finding the instant pending and completing it
    flow.produce(20)
    first = flow.step("start", "--run-id", "run-1").started()
    flow.write_all(first)
    (kept_one,) = _keepers(run_folder)
    committing = flow.spawn("commit", "--control-offset", str(first.control_offset))
    _await_the_window(flow, first.instant)
    (java,) = kept_one.children()
    assert _waiting(run_folder) == [], "it doesn't use the JVM that START has left, so this test shows nothing"
    os.kill(committing.pid, signal.SIGKILL)  # Python alone: the JVM is in a session of its own
    assert finish(committing).killed
    java.wait(20)
    assert completions(flow, first.instant) == []
    time.sleep(3)  # as long as Hudi waits there: nothing to wait for shows, since nothing is to happen
    assert completions(flow, first.instant) == []
    again = flow.step("commit", "--control-offset", str(first.control_offset))  # at once: its holder is gone
    assert again.status == 0, again.err
    flow.set(sink__hudi__options={})
    flow.check()
    assert len(completions(flow, first.instant)) == 1
    flow.produce(20)
    flow.interval()
    flow.check()


@pytest.mark.thorough
def test_a_machine_that_stands_still_inside_hudis_commit_is_fenced_as_ever(make_flow, run_folder):
    """Step, keeper and JVM are suspended together, as with their machine, and go on after the abort."""
    flow = make_flow(control__commit_timeout="5 seconds", control__clock_wait="1 second")
    flow.produce(20)
    flow.interval()
    flow.set(sink__hudi__options=SLOW)
    flow.produce(20)
    started = flow.step("start", "--run-id", "stands-still").started()
    sent = next(m for m in flow.messages() if m.transaction == started.instant)
    run = Run(sent.dag_id, sent.run_id)
    flow.write_all(started)
    (keeper,) = _keepers(run_folder)
    committing = flow.spawn("commit", "--control-offset", str(started.control_offset))
    _await_the_window(flow, started.instant)
    all_of_it = [psutil.Process(committing.pid), keeper, *keeper.children()]
    for one in all_of_it:
        one.suspend()
    flow.set(sink__hudi__options={})
    try:
        assert not completions(flow, started.instant), "it was completed too soon, so this test shows nothing"
        aborted = once_the_lease_is_free(lambda: flow.abort(run))
        assert aborted.state == "aborted"
        before = flow.offsets()
    finally:
        for one in all_of_it:
            one.resume()
    late = finish(committing)
    assert late.status == 1, late.err
    assert TAKEN_OFF in late.out + late.err, "it completed nothing, so this test shows nothing"
    assert flow.offsets() == before
    flow.interval()
    flow.check()


def test_a_kept_jvm_carries_out_interval_after_interval(make_flow, run_folder):
    flow = make_flow()
    pids = set()
    for number in range(3):
        flow.produce(20)
        started = flow.step("start", "--run-id", f"run-{number}").started()
        flow.write_all(started)
        committed = flow.step("commit", "--control-offset", str(started.control_offset))
        assert committed.status == 0, committed.err
        pids |= {child.pid for keeper in _keepers(run_folder) for child in keeper.children()}
    assert len(pids) == 1
    flow.check()


def test_an_exception_is_read_in_the_jvm_that_threw_it(spark: Any) -> None:
    """A Spark session in the same process has objects of other classes at the same ids of its JVM."""
    classes = [spark._jvm.java.lang.Class.forName("java.lang.String") for _ in range(20)]
    with lean_jvm() as lean:
        while _number(lean.jvm.java.lang.Object()) < _number(classes[0]) - 1:
            pass
        lists = lean.jvm.java.util.ArrayList()
        with pytest.raises(Py4JJavaError) as failed:
            lists.get(0)
        assert _number(classes[0]) <= _number(failed.value.java_exception) <= _number(classes[-1])
        assert failed.value.java_exception.getClass().getName() == "java.lang.IndexOutOfBoundsException"
        assert f"{lists._target_id}.get" in str(failed.value)


def _number(held: JavaObject) -> int:
    return int(held._target_id.removeprefix("o"))
