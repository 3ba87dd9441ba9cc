"""A background process that can be found again, and that ends with everything it started."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

# Inherited by every descendant: a Spark JVM that outlived Airflow is still found by it.
_MARKER = "SLUICE_STARTED_BY"


# Below the ports that Linux (from 32,768) and macOS (from 49,152) hand out for outgoing connections: between the
# moment a port is chosen here and the moment a JVM binds it, any connection of the machine could get it otherwise.
_PORTS = range(20_000, 32_768)
# Shuffled, so that processes that ask at the same moment get others; in turn, so that none is given twice here.
_candidates = itertools.cycle(random.sample(_PORTS, len(_PORTS)))


def free_port(preferred: int | None = None) -> int:
    """A free TCP port of the loopback interface: the preferred one where possible.

    It isn't reserved until its server binds it.

    Raises:
        OSError: None of a thousand ports is free.
    """
    candidates = itertools.islice(_candidates, 1_000)
    for candidate in candidates if preferred is None else itertools.chain([preferred], candidates):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", candidate))
            return candidate
    raise OSError("no free TCP port on 127.0.0.1")


class Daemon:
    """One process in a separate session, with a pid file and a log.

    Args:
        name: Name of the pid file.
        folder: Where the pid file is kept.
        log: Receives standard output and error. The log of the start before is kept beside it.
    """

    def __init__(self, name: str, folder: Path, log: Path) -> None:
        self.name = name
        self.log = log
        self._pid_file = folder / f"{name}.pid"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, **account: Any) -> None:
        """Start the command in `folder`, and remember it. An earlier process must have been stopped.

        Args:
            command: the program and its arguments.
            environment: all of its variables.
            folder: where it works.
            account: `user`, `group` and `extra_groups` as of `subprocess.Popen`; this process's by default.
        """
        self._pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".previous.log"))
        with self.log.open("wb") as output:
            self._child = subprocess.Popen(
                command,
                env={**environment, _MARKER: str(self._pid_file)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A Ctrl-C in the terminal is for the waiting command, not for the daemon.
                start_new_session=True,
                **account,
            )
        started = psutil.Process(self._child.pid).create_time()
        self._pid_file.write_text(json.dumps({"pid": self._child.pid, "started": started}))

    def running(self) -> bool:
        """Whether the process itself is alive; its orphans don't count."""
        return self._leader() is not None

    def stop(self, grace: float = 30.0) -> None:
        """Ask everything it started to end (SIGTERM), wait, and kill the rest after `grace` seconds."""
        members = self._members()
        _signal(members, signal.SIGTERM)
        psutil.wait_procs(members, timeout=grace)
        self.kill()

    def kill(self) -> None:
        """End it and everything it started at once (SIGKILL), and wait until they are gone."""
        # Again and again: a process may start one more between being listed and being killed.
        while members := self._members():
            _signal(members, signal.SIGKILL)
            psutil.wait_procs(members, timeout=5)
        if self._child is not None:
            self._child.wait()
            self._child = None
        self._pid_file.unlink(missing_ok=True)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the log, without Java's stack frames: the causes between them say more."""
        if not self.log.exists():
            return ""
        everything = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in everything if not line.startswith("\t")][-lines:])

    def _recorded(self) -> tuple[int, float] | None:
        try:
            record = json.loads(self._pid_file.read_text())
            return int(record["pid"]), float(record["started"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _leader(self) -> psutil.Process | None:
        if self._child is not None:
            self._child.poll()  # reaps it, so that a dead child isn't taken for a living one
        recorded = self._recorded()
        if recorded is None:
            return None
        pid, started = recorded
        try:
            process = psutil.Process(pid)
            # After a reboot the number may be another's. The boot clock may be adjusted by a second or two.
            same = abs(process.create_time() - started) < 5
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def _members(self) -> list[psutil.Process]:
        """The leader, its process group, its descendants, and every process with its mark.

        None of these is enough: tasks of Airflow leave the group, orphans leave the tree, and a process that sets its
        title overwrites the environment that others can read.
        """
        leader = self._leader()
        found: set[psutil.Process] = set()
        if leader is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                found = {leader, *leader.children(recursive=True)}
        group = self._group(leader)
        found.update(p for p in psutil.process_iter() if self._is_ours(p, group))
        return [p for p in found if p.pid != os.getpid() and _alive(p)]

    def _group(self, leader: psutil.Process | None) -> int | None:
        """The process group, which outlives its leader: the kernel doesn't reuse its number meanwhile."""
        if leader is not None:
            return int(leader.pid)
        pid, started = self._recorded() or (0, 0.0)
        orphaned = pid > 0 and started > psutil.boot_time() and not psutil.pid_exists(pid)
        return pid if orphaned else None

    def _is_ours(self, process: psutil.Process, group: int | None) -> bool:
        try:
            in_group = group is not None and os.getpgid(process.pid) == group
            return in_group or bool(process.environ().get(_MARKER) == str(self._pid_file))
        except (psutil.Error, OSError):
            return False


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
