from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from sluice.local.process import Daemon


@pytest.fixture
def daemon(tmp_path):
    running = Daemon("daemon", tmp_path, tmp_path / "daemon.log")
    yield running
    running.kill()


def _started(folder: Path) -> int:
    return json.loads((folder / "daemon.pid").read_text())["pid"]


def _written_pid(path: Path) -> int:
    os.close(os.open(path, os.O_RDONLY))  # a FIFO: opens once the script has opened it for writing
    return int(path.with_suffix(".pid").read_text())


# Each starts a grandchild that escapes in its own way, and says so through the FIFO.
ESCAPES = {
    "the tree, as an orphan in the group without the mark": "env -i sleep 600 & echo $! > child.pid",
    "the group, into a session of its own": "setsid sh -c 'echo $$ > child.pid; exec sleep 600' & wait_child",
}


@pytest.mark.parametrize("how", ESCAPES)
@pytest.mark.parametrize("leader_dies", [True, False])
def test_what_it_started_goes_with_it(daemon, tmp_path, how, leader_dies):
    os.mkfifo(tmp_path / "child")
    wait_child = "wait_child() { until [ -s child.pid ]; do sleep 0.01; done; };"
    then = "exit 0" if leader_dies else "exec sleep 600"
    script = f"{wait_child} {ESCAPES[how]}; : > child; {then}"
    daemon.start(["sh", "-c", script], os.environ, tmp_path)
    child = psutil.Process(_written_pid(tmp_path / "child"))

    daemon.stop(grace=5)

    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not daemon.running()


def test_who_ignores_the_signal_is_killed(daemon, tmp_path):
    os.mkfifo(tmp_path / "child")
    script = "trap '' TERM; echo $$ > child.pid; : > child; while :; do sleep 600; done"
    daemon.start(["sh", "-c", script], os.environ, tmp_path)
    leader = _written_pid(tmp_path / "child")
    daemon.stop(grace=0.2)
    assert not psutil.pid_exists(leader)


def test_the_log_of_the_start_before_is_kept(daemon, tmp_path):
    for word in ("first", "second"):
        daemon.start(["sh", "-c", f"echo {word}"], os.environ, tmp_path)
        os.waitid(os.P_PID, _started(tmp_path), os.WEXITED | os.WNOWAIT)
        daemon.stop()
    assert daemon.log_tail() == "second"
    assert (tmp_path / "daemon.previous.log").read_text() == "first\n"
