"""What processes that stay use meanwhile, where `measure.py` has to wait for the last of them to end.

A `Meter` makes this process the sub-reaper, as `measure.py` does, so that the JVM that a command leaves behind comes to
be its child: while it lives, and also when it has ended, the kernel says what it used.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from bench.measure import POLL_SECONDS, become_subreaper, machine_busy_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

DRAIN_SECONDS = 20.0
_MIB = 1 << 20


@dataclass
class Cost:
    """Seconds of a block: on the clock, of processors, and of what the rest of the machine used of them."""

    wall: float = 0.0
    cpu: float = 0.0
    others_cpu: float = 0.0


class CommandError(RuntimeError):
    """A command ended with an error."""


class Meter:
    """Processor time of all that descends from this process, but for what did when it was made: the broker."""

    def __init__(self) -> None:
        become_subreaper()
        self._own = psutil.Process()
        self._left_out = {child.pid for child in self._own.children()}

    def seconds(self) -> float:
        """So far: of living processes, of orphans that have ended, and of all that a process has waited for."""
        times = os.times()
        living = sum(seconds_of(child) for child in self._children())
        return living + times.children_user + times.children_system

    @contextmanager
    def measured(self) -> Iterator[Cost]:
        """The cost of a block, which is known when that has been left."""
        cost, busy, cpu, began = Cost(), machine_busy_seconds(), self.seconds(), time.monotonic()
        yield cost
        cost.wall = time.monotonic() - began
        self.drain()
        cost.cpu = self.seconds() - cpu
        cost.others_cpu = max(0.0, machine_busy_seconds() - busy - cost.cpu)

    def run(self, command: list[str], environment: Mapping[str, str], log: Path, timeout: float = 1800.0) -> str:
        """Run a command, and return what it said; raises CommandError if it failed."""
        with log.open("ab") as errors:
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                timeout=timeout, check=False,
            )  # fmt: skip
        if done.returncode:
            raise CommandError(f"{log.name} ends:\n{log.read_text(errors='replace')[-1500:]}")
        return done.stdout

    def drain(self) -> None:
        """Wait until orphans have ended: what a command leaves behind is its own cost."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline and any(self._is_ending(child) for child in self._children()):
            time.sleep(POLL_SECONDS)

    def _children(self) -> list[psutil.Process]:
        return [child for child in self._own.children() if child.pid not in self._left_out]

    def _is_ending(self, process: psutil.Process) -> bool:
        """Whether it is an orphan: it leads no session, as all do that stay, the keeper of a step's JVM among them."""
        try:
            return process.status() != psutil.STATUS_ZOMBIE and os.getsid(process.pid) != process.pid
        except (psutil.Error, ProcessLookupError):
            return False


def seconds_of(process: psutil.Process) -> float:
    """Processor seconds of a process and its descendants so far, those included that were waited for."""
    total = 0.0
    for one in family(process):
        with suppress(psutil.Error):
            total += sum(one.cpu_times()[:4])  # its own, and those of the children that it has waited for
    return total


def resident_mib(processes: Iterable[psutil.Process]) -> float:
    """Their resident memory, together."""
    total = 0
    for one in processes:
        with suppress(psutil.Error):
            total += one.memory_info().rss
    return total / _MIB


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants; none if it is gone."""
    with suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []
