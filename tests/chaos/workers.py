"""Workers that stay, which somebody keeps going, and which are killed and frozen as everything else is."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from threading import Event, Thread

from sluice.coordinator import Started
from sluice.errors import SluiceError
from sluice.protocol.claims import Verdict

from ..guarantees.harness import Flow
from ..guarantees.harness.workers import LEASE, WorkerProcess, waited

GROUP = "chaos"
_MOST = 2
_FATES = {"none": 40, "killed": 25, "frozen for a while": 10, "frozen for long": 25}
_SOON = 10.0  # seconds within which a worker meets its fate


class Keeper:
    """Keeps two workers going for a pipeline, and lets one of them suffer in each round.

    Args:
        flow: the pipeline.
        tell: takes a line of the story.
    """

    def __init__(self, flow: Flow, tell: Callable[[str], None]) -> None:
        self._flow = flow
        self._tell = tell
        self._workers: list[WorkerProcess] = []
        self._came = 0
        self._over = Event()
        self._thread: Thread | None = None

    def keep(self) -> None:
        """Begin a new worker for each one that has ended."""
        for worker in [w for w in self._workers if w.wait(0) is not None]:
            self._tell(f"worker {worker.name} has ended with {worker.wait()}")
            self._workers.remove(worker)
        while len(self._workers) < _MOST:
            self._came += 1
            worker = WorkerProcess(f"w{self._came}", GROUP, self._flow, "--trust-control-topic")
            self._workers.append(worker)
            self._tell(f"worker {worker.name} begins")

    def suffer(self, rng: random.Random) -> None:
        """Let something happen to one of them, at some moment soon."""
        self._over.clear()
        fate = rng.choices(list(_FATES), list(_FATES.values()))[0]
        worker, after = rng.choice(self._workers), rng.uniform(0, _SOON)
        lasts = rng.uniform(0.2, 2) if fate == "frozen for a while" else rng.uniform(LEASE, 3 * LEASE)
        self._thread = Thread(target=self._happens, args=(fate, worker, after, lasts), daemon=True)
        self._thread.start()

    def _happens(self, fate: str, worker: WorkerProcess, after: float, lasts: float) -> None:
        if fate == "none" or self._over.wait(after):
            return
        self._tell(f"worker {worker.name} is {fate}")
        if fate == "killed":
            worker.signal(signal.SIGKILL)
            return
        worker.signal(signal.SIGSTOP)
        Event().wait(lasts)  # time passes: nothing else is waited for
        self._tell(f"worker {worker.name} wakes up")
        worker.signal(signal.SIGCONT)

    def calm(self) -> None:
        """Nothing more happens to them in this round."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def end(self) -> None:
        """Let all end, with what they are writing."""
        self.calm()
        for worker in self._workers:
            status = worker.end()
            self._tell(f"worker {worker.name} ends with {status}")
        self._workers.clear()

    def kill(self) -> None:
        """End all of them for good."""
        self._over.set()
        for worker in self._workers:
            worker.signal(signal.SIGKILL)

    def is_written(self, started: Started, number: int) -> bool | None:
        """Whether a worker writes the range; None where its task has to submit a job of its own."""
        try:
            verdict = waited(self._flow, started, number)[number]
        except SluiceError as error:  # of a broker that is gone: its process would meet the same
            self._tell(f"{self._flow.topic} write {number} can't be waited for: {error.what}")
            return None
        self._tell(f"{self._flow.topic} write {number}: {verdict.value}")
        return None if verdict is Verdict.SUBMIT else verdict is Verdict.WRITTEN
