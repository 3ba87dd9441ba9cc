"""What happens to processes, to the broker and to the disk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Protocol

FATES = {"none": 62, "killed": 16, "frozen for a while": 10, "frozen for long": 12}
"""How a task of a DAG run fares, and how often out of a hundred. Who is frozen for long is taken for dead."""


class Task(Protocol):
    """A process group at work."""

    def signal(self, number: signal.Signals) -> None:
        """Send its processes a signal; raises ProcessLookupError where they have ended."""
        ...

    def wait(self, seconds: float | None = None) -> int | None:
        """Exit status; negative where it was killed, None where it still runs after so many seconds."""
        ...


class Sleepers:
    """Processes that were stopped and taken for dead, and may be woken up at any time."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._tasks: list[tuple[str, Task]] = []
        self._awake: list[tuple[str, Task]] = []
        self._lock = Lock()

    def add(self, name: str, task: Task) -> None:
        with self._lock:
            self._tasks.append((name, task))

    def wake(self, share: float, rng: random.Random) -> None:
        """Wake up some of them; they go on beside whoever has taken their place."""
        with self._lock:
            awake = [one for one in self._tasks if rng.random() < share]
            self._tasks = [one for one in self._tasks if one not in awake]
        for name, task in awake:
            self._tell(f"{name} wakes up")
            with suppress(ProcessLookupError):
                task.signal(signal.SIGCONT)
        self._awake += awake

    def end(self, rng: random.Random) -> list[Task]:
        """Wake up all of them, wait until the last one has ended, and return them."""
        self.wake(1.0, rng)
        for name, task in self._awake:
            status = task.wait()
            self._tell(f"{name}, which had been asleep, ends with {status}")
        ended, self._awake = [task for _, task in self._awake], []
        return ended

    def kill(self) -> None:
        """End them for good."""
        for _, task in [*self._tasks, *self._awake]:
            with suppress(ProcessLookupError):
                task.signal(signal.SIGKILL)


def suffer(name: str, task: Task, lasts: float, rng: random.Random, sleepers: Sleepers, tell: Any) -> int | None:
    """Let a task meet its fate at some moment of its life.

    Args:
        name: what the story calls it.
        task: the task, which has just begun.
        lasts: about how many seconds it takes if nothing happens.
        rng: draws the fate.
        sleepers: where it goes if it is frozen for long.
        tell: takes a line of the story.

    Returns:
        Its exit status, None where it is asleep, and so taken for dead.
    """
    fate = rng.choices(list(FATES), list(FATES.values()))[0]
    if fate == "none":
        return task.wait()
    status = task.wait(rng.uniform(0, lasts))
    if status is not None:  # it was quicker
        return status
    tell(f"{name} is {fate}")
    with suppress(ProcessLookupError):
        task.signal(signal.SIGKILL if fate == "killed" else signal.SIGSTOP)
    if fate == "frozen for long":
        status = task.wait(0.5)
        if status is None:
            sleepers.add(name, task)
            return None
        with suppress(ProcessLookupError):  # a driver had just answered: whoever takes it next would wait for ever
            task.signal(signal.SIGCONT)
        return status
    if fate == "frozen for a while":
        Event().wait(rng.uniform(0.2, 6))  # time passes: nothing else is waited for
        with suppress(ProcessLookupError):
            task.signal(signal.SIGCONT)
    return task.wait()


class Trouble:
    """Something breaks at some moment while the block lasts, and is mended after some seconds, or at the block's end.

    Args:
        break_: breaks it.
        mend: mends it.
        soon: within how many seconds it breaks.
        long: for how many seconds at most.
        rng: draws both.
    """

    def __init__(
        self, break_: Callable[[], Any], mend: Callable[[], Any], soon: float, long: float, rng: random.Random
    ) -> None:
        self._break, self._mend = break_, mend
        self._after, self._for = rng.uniform(0, soon), rng.uniform(0, long)
        self._over = Event()
        self._thread = Thread(target=self._happen, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _happen(self) -> None:
        if self._over.wait(self._after):
            return
        self._break()
        self._over.wait(self._for)
        self._mend()


class SmallDisk:
    """A file system of its own that can be filled to its last byte; needs root, as mounting does."""

    def __init__(self, folder: Path, megabytes: int = 4096) -> None:
        self.folder = folder
        self.mounted = False
        self._megabytes = megabytes
        self._ballast = folder / "ballast"

    def mount(self) -> bool:
        """Make it; whether it can be filled, and isn't just a folder."""
        self.folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.folder)]
        self.mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
        return self.mounted

    def fill(self) -> None:
        """Leave no room."""
        free = os.statvfs(self.folder)
        with self._ballast.open("wb") as file, suppress(OSError):  # no room is what is wanted
            os.posix_fallocate(file.fileno(), 0, max(1, (free.f_bavail - 4) * free.f_bsize))

    def clear(self) -> None:
        """There is room again."""
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take it away with all that it holds."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
