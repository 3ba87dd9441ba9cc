"""A process that holds a lease is taken for gone only where it is gone for certain."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sluice.process import identity, is_gone

_NAME_YOURSELF = "import os; from sluice.process import identity; print(identity(os.getpid()), flush=True); input()"
_IS_GONE = "import sys; from sluice.process import is_gone; print(is_gone(sys.argv[1], wait=0.05))"
_SELECT_KNOWS = 1024  # descriptors that select() can wait for
_FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


@contextmanager
def _asleep() -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def _in_a_new_namespace(*command: str) -> list[str]:
    """A process that is 1 in a PID namespace of its own, as a container's first one is."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    works = shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True).returncode == 0
    if not works:
        pytest.skip("no right to make a PID namespace here")
    return [*unshare, *command]


def test_a_process_is_gone_once_it_has_ended():
    with _asleep() as child:
        holder = identity(child.pid)
        assert not is_gone(holder, wait=0.05)
        child.kill()
        assert is_gone(holder), "it has ended; that nobody has asked for its status changes nothing"
        child.wait()
        assert is_gone(holder)


def test_a_process_with_many_open_files_can_still_tell():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * _SELECT_KNOWS:
        pytest.skip("no right to open that many files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * _SELECT_KNOWS), hard))
    with ExitStack() as opened, _asleep() as child:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while opened.enter_context(Path(os.devnull).open()).fileno() < _SELECT_KNOWS:
            pass
        holder = identity(child.pid)
        assert not is_gone(holder, wait=0.05)
        child.kill()
        assert is_gone(holder)


@pytest.mark.parametrize(
    ("part", "other", "gone"),
    [
        (0, "another-machine", False),
        (2, "4b557042-0000-0000-0000-8fcc1adcc2f8", False),  # the same machine before it was started again, or a twin
        (3, "4026531836-4026531834", False),
        (4, "1", True),  # the number was given to another process
        (2, "", False),
        (3, "", False),
        (4, "", False),
    ],
)
def test_what_is_not_known_for_certain_is_not_gone(part, other, gone):
    parts = identity(os.getpid()).split("/")
    if (part, other) == (3, parts[3]):
        other = "1-1"
    parts[part] = other
    assert is_gone("/".join(parts), wait=0.05) is gone


@pytest.mark.parametrize("holder", ["", f"{os.uname().nodename}/999999999/1.00", f"{os.uname().nodename}/1/1.00"])
def test_what_an_earlier_release_has_written_is_never_gone(holder):
    assert not is_gone(holder, wait=0.05)


def test_a_live_process_of_another_pid_namespace_is_not_gone():
    """Containers of one host name, as pods on the host's network are, count their processes for themselves."""
    command = _in_a_new_namespace(sys.executable, "-c", _NAME_YOURSELF)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdin is not None
            assert holder.stdout is not None
            name = holder.stdout.readline().strip()
            assert name.split("/")[1] == "1", name
            assert not is_gone(name, wait=0.05), "process 1 of this namespace began at another time"
            asked = subprocess.run(
                _in_a_new_namespace(sys.executable, "-c", _IS_GONE, name), capture_output=True, text=True, check=True
            )
            assert asked.stdout.strip() == "False"
        finally:
            holder.stdin.close()
            holder.wait(10)


@pytest.mark.skipif(_FAKETIME is None, reason="libfaketime is not installed")
@pytest.mark.parametrize("clock", ["+300s", "-2d"])
def test_the_clock_changes_nothing(clock):
    with _asleep() as child:
        environment = {**os.environ, "LD_PRELOAD": str(_FAKETIME), "FAKETIME": clock}
        command = [sys.executable, "-c", _IS_GONE, identity(child.pid)]
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert asked.stdout.strip() == "False"
