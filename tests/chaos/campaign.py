"""DAG runs as Airflow would have them, one after the other and two at once, while everything around them breaks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from sluice.coordinator import Outcome, Run, Started
from sluice.errors import SluiceError
from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome

from ..cluster.servers import PostgreSql, missing, postgresql_programs
from ..guarantees.harness import Drivers, Flow, Job, SharedJvm, finish, once_the_lease_is_free
from ..guarantees.harness.files import FileFlow
from .databases import MODES, JdbcPipeline, JdbcSourcePipeline
from .faults import Sleepers, SmallDisk, Trouble, suffer
from .pipelines import (
    COMMON,
    DATABASE,
    KINDS,
    WEST,
    FilesPipeline,
    KafkaPipeline,
    Pipeline,
    StreamsPipeline,
    ViolationError,
    WorkersPipeline,
)

TRIES = 3  # of a task, as Airflow's retries
STEP, WRITE = 4.0, 3.0  # about how many seconds a step takes, and a range's write
_QUIET = {"metadata.max.idle.interval.ms": "0"}  # by default a record twice a second says that nothing has happened


class _Step:
    """A step of a coordinator in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def wait(self, seconds: float | None = None) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def result(self) -> tuple[str, str]:
        """What it said, once it has ended.

        Raises:
            ViolationError: a stack trace, where an error of ours has to be.
        """
        done = finish(self._process)
        if "Traceback" in done.err:
            raise ViolationError(f"a step ended with a stack trace: {done.err[-2000:]}")
        return done.out, done.err


class _Write:
    """A range's write job in a driver."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._thread = Thread(target=self._run, daemon=True)
        self._status: int | None = None
        self._thread.start()

    def signal(self, number: signal.Signals) -> None:
        self._job.signal(number)

    def _run(self) -> None:
        status = self._job.wait()
        self._status = -signal.SIGKILL if status is None else status

    def wait(self, seconds: float | None = None) -> int | None:
        self._thread.join(seconds)
        return self._status


@dataclass
class Counts:
    """What happened in a campaign."""

    runs: int = 0
    committed: int = 0
    faults: Counter[str] = field(default_factory=Counter)


class Campaign:
    """Rounds of DAG runs on nine pipelines, with brokers, drivers, a database and a disk that break.

    Args:
        folder: where everything is.
        seed: of what happens.
        listen: takes each line of the story.
        only: the topics of the pipelines that have rounds; all of them by default.
    """

    def __init__(
        self, folder: Path, seed: int, listen: Callable[[str], None], only: Collection[str] | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.counts = Counts()
        self._listen = listen
        self._began = time.monotonic()
        self._one = Lock()
        self._drivers = Drivers(folder / "drivers")
        self._jvm = SharedJvm()
        self._disk = SmallDisk(folder / "disk")
        home = SluiceHome.from_env()
        self._broker = LocalBroker(home, folder / "broker", settings=_QUIET)
        self._west = LocalBroker(home, folder / "west", settings=_QUIET, cluster_id="c2x1aWNlLXdlc3QtMDAwMg")
        self._sleepers = Sleepers(self.tell)
        programs = postgresql_programs() if missing() is None else None
        self._database = PostgreSql(programs) if programs is not None else None
        self._only = only
        self._runs = 0
        self._pipelines: list[Pipeline] = []

    def open(self) -> bool:
        """Start what all rounds share; whether there is a disk that can be filled."""
        has_disk = self._disk.mount()
        self._broker.start()
        self._west.start()
        self._pipelines = [Pipeline(kind, self._flow(kind)) for kind in KINDS]
        streams = StreamsPipeline(self._flow("streams"), self._broker.bootstrap, self._west.bootstrap)
        files = FileFlow(self._disk.folder, self._broker.bootstrap, self._jvm, self._drivers, "files", **COMMON)
        files.set(sink__files__layout=self.rng.choice(("interval", "connect"))).create_topic(2)
        self._pipelines += [streams, FilesPipeline(files), WorkersPipeline(self._flow("workers"), self.tell)]
        self._pipelines.append(KafkaPipeline(self._flow("kafka"), self._west.bootstrap))
        if self._database is not None:
            self._database.start()
            kind = self.rng.choice(("insert", "upsert"))
            self.tell(f"the table of the database is loaded by {kind}")
            self._pipelines.append(JdbcPipeline(self._flow("jdbc"), self._database, kind))
            mode, target = self.rng.choice(list(MODES)), self.rng.choice((None, self._west.bootstrap))
            self.tell(f"rows of a database are found by {mode}, and go to a {'topic' if target else 'Hudi table'}")
            self._pipelines.append(JdbcSourcePipeline(self._flow("jdbc_source"), self._database, mode, target))
        if self._only is not None:
            self._pipelines = [one for one in self._pipelines if one.flow.topic in self._only]
        return has_disk

    def _flow(self, kind: str) -> Flow:
        folder = self._disk.folder / kind  # of its own: staging folders are the pipelines'
        folder.mkdir()
        made = Flow(folder, self._broker.bootstrap, self._jvm, self._drivers, kind, **COMMON, **KINDS.get(kind, {}))
        made.create_topic(3 if kind == "changes" else 2)
        return made

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        for fault in (
            "killed",
            "frozen for a while",
            "frozen for long",
            "the broker dies",
            "cluster's broker dies",
            "the database dies",
            "disk is full",
            "wakes up",
        ):
            if fault in line:
                self.counts.faults[fault] += 1
        self._listen(f"{time.monotonic() - self._began:8.1f} {line}")

    def round(self, number: int) -> None:
        """Some records, one DAG run or two at once, and whatever goes wrong meanwhile."""
        rng = self.rng
        pipeline = rng.choice(self._pipelines)
        self.tell(f"round {number}: {pipeline.produce(rng)} records for {pipeline.flow.topic}")
        change = pipeline.disturb(rng)
        if change:
            self.tell(change)
        with ExitStack() as trouble:
            if rng.random() < 0.12:
                trouble.enter_context(Trouble(*self._dies(self._broker, "the broker"), 8, 4, rng))
            if WEST in pipeline.needs and rng.random() < 0.25:
                trouble.enter_context(Trouble(*self._dies(self._west, WEST), 8, 10, rng))
            if self._database is not None and DATABASE in pipeline.needs and rng.random() < 0.25:
                trouble.enter_context(Trouble(*self._crashes(self._database), 8, 4, rng))
            if self._disk.mounted and rng.random() < 0.08:
                trouble.enter_context(Trouble(self._fill_disk, self._clear_disk, 6, 5, rng))
            with ThreadPoolExecutor(2) as airflow:
                runs = [
                    airflow.submit(self._dag_run, pipeline, self._new_run(), random.Random(rng.random()))
                    for _ in range(2 if rng.random() < 0.25 else 1)
                ]
                self.counts.runs += len(runs)
                self._sleepers.wake(0.3, rng)
            for run in runs:
                run.result()
        pipeline.calm()

    def _new_run(self) -> str:
        self._runs += 1
        return f"run-{self._runs}"

    def _dies(self, broker: LocalBroker, what: str) -> tuple[Callable[[], None], Callable[[], None]]:
        """How a broker dies, and how it comes back."""

        def kill() -> None:
            self.tell(f"{what} dies")
            broker.kill()

        def start() -> None:
            broker.start()
            self.tell(f"{what} is back")

        return kill, start

    def _crashes(self, database: PostgreSql) -> tuple[Callable[[], None], Callable[[], None]]:
        """How the database's server dies, and how it comes back."""

        def crash() -> None:
            self.tell("the database dies")
            database.kill()

        def run() -> None:
            database.restart()
            self.tell("the database is back")

        return crash, run

    def _fill_disk(self) -> None:
        self.tell("the disk is full")
        self._disk.fill()

    def _clear_disk(self) -> None:
        self._disk.clear()
        self.tell("the disk has room again")

    def _dag_run(self, pipeline: Pipeline, run: str, rng: random.Random) -> None:
        flow = pipeline.flow
        found = self._step(flow, run, rng, "start", "--run-id", run)
        if found is None:
            self._maybe_abort(flow, run, rng)
            return
        if "control_offset" not in found:
            return  # there is nothing to read
        wrote = [self._write(pipeline, run, rng, found, number) for number in range(found["ranges"])]
        if all(wrote) and self._step(flow, run, rng, "commit", "--control-offset", str(found["control_offset"])):
            self.counts.committed += 1
            return
        self._maybe_abort(flow, run, rng)

    def _maybe_abort(self, flow: Flow, run: str, rng: random.Random) -> None:
        if rng.random() < 0.8:  # else Airflow has gone away, too
            self._step(flow, run, rng, "abort", "--run-id", run)

    def _step(self, flow: Flow, run: str, rng: random.Random, *arguments: str) -> dict[str, Any] | None:
        """A task that is retried; what it printed, None where it came to nothing."""
        for number in range(TRIES):
            name = f"{flow.topic} {run} {arguments[0]} {number + 1}"
            step = _Step(flow.spawn(*arguments))
            status = suffer(name, step, STEP, rng, self._sleepers, self.tell)
            if status is None or status < 0:
                continue
            out, err = step.result()
            self.tell(f"{name} ends with {status} {out.strip()[:200] or err.strip().splitlines()[-1:]}")
            if status == 0:
                printed: dict[str, Any] = json.loads(out) if out.strip().startswith("{") else {"said": out}
                return printed
        return None

    def _write(self, pipeline: Pipeline, run: str, rng: random.Random, found: dict[str, Any], number: int) -> bool:
        flow = pipeline.flow
        started = Started(found["instant"], found["control_offset"], ((),) * found["ranges"], digest=found["digest"])
        for attempt in range(TRIES):
            by_worker = pipeline.written_by_a_worker(started, number)
            if by_worker:
                return True
            if by_worker is False:
                continue
            name = f"{flow.topic} {run} write {number}, attempt {attempt + 1}"
            with self._one:  # two runs may ask for a driver at once
                job = flow.write(started, number)
            status = suffer(name, _Write(job), WRITE, rng, self._sleepers, self.tell)
            self.tell(f"{name}: {'taken for dead' if status is None else status}")
            if status == 0:
                return True
        return False

    def rest(self) -> str:
        """Wake up whoever sleeps, let runs that nothing disturbs catch up, and compare.

        Raises:
            ViolationError: a table isn't what its topic says, or doesn't get there.
        """
        for task in self._sleepers.end(self.rng):
            if isinstance(task, _Step):
                task.result()
        rows = {}
        for pipeline in self._pipelines:
            pipeline.settle()
            pipeline.produce(self.rng)  # a start that finds nothing to read sweeps up nothing, either
            self._catch_up(pipeline.flow)
            rows[pipeline.flow.topic] = pipeline.check()
        return ", ".join(f"{kind} {count:,} rows" for kind, count in rows.items())

    def _catch_up(self, flow: Flow) -> None:
        for _ in range(8):
            run = Run("undisturbed", self._new_run())
            try:
                started = once_the_lease_is_free(lambda run=run: flow.coordinator().start(run))
            except SluiceError as error:
                self.tell(f"{flow.topic} undisturbed start: {error}")
                continue
            if isinstance(started, Outcome):
                return
            flow.write_all(started)
            flow.commit(started)
        raise ViolationError(f"{flow.topic} does not catch up with its topic, though nothing disturbs it")

    def close(self, *, keep: bool) -> None:
        """End everything.

        Args:
            keep: whether the disk stays mounted, with the tables that are on it.
        """
        self._sleepers.kill()
        for pipeline in self._pipelines:
            pipeline.close()
        self._drivers.close()
        self._jvm.close()
        self._broker.kill()
        self._west.kill()
        if self._database is not None:
            self._database.stop()
        if not keep:
            self._disk.unmount()
