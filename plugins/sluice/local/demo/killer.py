"""Kills write jobs or a worker while they write, as an out-of-memory killer or a lost machine would."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

from sluice.local.demo.intervals import Interval
from sluice.local.errors import LocalRuntimeError
from sluice.participant.launch.worker import WORKER_APPLICATION

_LOOK = 0.3  # seconds between two looks
_AFTER_CLAIM = (0.5, 2.5)  # seconds for which a worker has held a range: it reads and writes for longer
_AFTER = (1.5, 5.0)  # seconds that a job has lived: a JVM that reads and writes takes longer


class Killer:
    """Kills the first write job of each pipeline that it sees, some seconds after it began; the rest may live.

    Args:
        pipelines: their names.
        tell: called with a line about each kill.
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


class WorkerKiller:
    """Kills a worker once, with its JVM, while it writes a claimed range.

    Args:
        tell: called with a line about it.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._after = random.uniform(*_AFTER_CLAIM)
        self._seen: dict[tuple[str, int], float] = {}
        self._all: set[tuple[str, int]] = set()
        self._claimed: set[tuple[str, int]] = set()
        self._killed: str | None = None

    def look_at(self, pipeline: str, intervals: Sequence[Interval]) -> None:
        """Kill the worker if it holds a range of these intervals for long enough.

        Args:
            pipeline: their pipeline.
            intervals: the intervals as now recorded in the control topic.
        """
        for interval in intervals:
            found = interval.transaction
            self._all.update((found.id, number) for number in range(len(found.start.ranges)))
            for number, (_, claim) in found.claims.items():
                range_ = (found.id, number)
                self._claimed.add(range_)
                unwritten = found.is_open and found.status_of(number) is None
                if self._killed is None and unwritten and not claim.released:
                    now = time.monotonic()
                    if now - self._seen.setdefault(range_, now) >= self._after and kill_worker(claim.worker):
                        self._killed = claim.worker
                        self._tell(
                            f"[red]Killed[/]   the worker {claim.worker} while it wrote range {number} of {pipeline}. "
                            f"Its claim lasts for {claim.lease:g} s more at most; Airflow starts another worker"
                        )

    def sum_up(self) -> None:
        """Print how many ranges workers have claimed."""
        if not self._claimed:
            self._tell("No worker has claimed anything: each range had a separate Spark job.")
            return
        meanwhile = "; one worker was killed meanwhile" if self._killed else ""
        self._tell(f"Workers took {len(self._claimed)} of {len(self._all)} ranges{meanwhile}. Others have Spark jobs.")


def kill_worker(name: str) -> bool:
    """Kill a worker of this machine and its child processes (SIGKILL); returns whether it was found."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = process.cmdline()
            if "--name" in line and name in line and str(WORKER_APPLICATION) in line:
                for one in (process, *process.children(recursive=True)):
                    one.kill()
                return True
    return False
