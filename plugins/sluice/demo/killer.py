"""Kills a write job of each pipeline while it writes, as an out-of-memory killer or a lost machine would."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

from sluice.local.errors import LocalRuntimeError

_LOOK = 0.3  # seconds between two looks
_AFTER = (1.5, 5.0)  # seconds that a job has lived: a JVM that reads and writes takes longer


class Killer:
    """Kills the first write job of each pipeline that it sees, some seconds after it began; the rest may live.

    Args:
        pipelines: their names.
        tell: takes a line about each kill.
    """

    def __init__(self, pipelines: Sequence[str], tell: Callable[[str], None]) -> None:
        self._due = {name: random.uniform(*_AFTER) for name in pipelines}
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)
        self._killed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """See whether anything was killed at all.

        Raises:
            LocalRuntimeError: nothing was, so that nothing is shown.
        """
        if self._killed == 0:
            raise LocalRuntimeError("No write job was found to be killed.", next_step="run the demo again.")

    def _run(self) -> None:
        while self._due and not self._over.wait(_LOOK):
            for process in psutil.process_iter():
                with suppress(psutil.Error):
                    self._look_at(process)

    def _look_at(self, process: psutil.Process) -> None:
        if not process.name().startswith("java"):
            return
        line = process.cmdline()
        for name in [n for n in self._due if any(part.startswith(f"sluice-{n}-") for part in line)]:
            lived = time.time() - process.create_time()
            if lived < self._due[name]:
                return
            process.kill()
            del self._due[name]
            self._killed += 1
            self._tell(
                f"[red]Killed[/]   the write job of {name}, {lived:.1f} s after it began; Airflow tries it again"
            )
