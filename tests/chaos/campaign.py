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
from ..guarantees.harness.databases import CONNECTION, PostgresDatabase
from ..guarantees.harness.files import FileFlow
from ..guarantees.harness.streams import Streams
from ..guarantees.test_deletes import TOMBSTONES, deleted, written
from .faults import Sleepers, SmallDisk, Trouble, suffer
from .workers import GROUP, Keeper

COMMON: dict[str, Any] = {"control__commit_timeout": "5 seconds", "write__ranges": 2}
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"},
    "changes": TOMBSTONES,
}
TRIES = 3  # of a task, as Airflow's retries
STEP, WRITE = 4.0, 3.0  # about how many seconds a step takes, and a range's write
DURABLE = {"enable.idempotence": True, "delivery.timeout.ms": 60_000}
TOPIC = "orders"  # of both clusters
_EAST, _WEST = ({"topics": TOPIC, "connection": name} for name in ("east", "west"))
_BOTH = {"east": _EAST, "west": _WEST}
_MAPPINGS = {
    "on both clusters": _BOTH,
    "on east alone": {"east": _EAST},
    "on west alone": {"west": _WEST},
    "on both, under other names": {"far": _WEST, "near": _EAST},
    "on both, with each other's names": {"east": _WEST, "west": _EAST},
}
_QUIET = {"metadata.max.idle.interval.ms": "0"}  # by default a record twice a second says that nothing has happened


class ViolationError(AssertionError):
    """The table isn't what its topic says."""


class _Step:
    """A step of a coordinator in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.group = process.pid

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
        self.group = job.group
        self._thread = Thread(target=self._run, daemon=True)
        self._status: int | None = None
        self._thread.start()

    def _run(self) -> None:
        status = self._job.wait()
        self._status = -signal.SIGKILL if status is None else status

    def wait(self, seconds: float | None = None) -> int | None:
        self._thread.join(seconds)
        return self._status


class Pipeline:
    """One pipeline, what was sent to it, and what its table has to hold."""

    def __init__(self, kind: str, flow: Flow) -> None:
        self.kind = kind
        self.flow = flow
        self._next = 0
        self._last: dict[int, str | None] = {}  # of each key, in the order in which its partition has them

    def produce(self, rng: random.Random) -> int:
        """Send some records: new ones, and, where rows have keys, later versions and deletes."""
        known = range(max(0, self._next - 200), self._next)
        new = range(self._next, self._next + rng.randint(1, 150))
        self._next = new.stop
        version = f"v{time.monotonic_ns()}-"
        if self.kind == "append":
            self.flow.produce(len(new), ids=new, **DURABLE)
            return len(new)
        ids = [*new, *rng.sample(known, min(len(known), 40))]
        if self.kind == "upsert":
            self.flow.produce(len(ids), ids=ids, values=version, **DURABLE)
            return len(ids)
        gone = set(rng.sample(ids, len(ids) // 5))
        records = [deleted(i) if i in gone else written(i, f"{version}{i}") for i in ids]
        self.flow.produce_keyed(records, partitioner="murmur2", **DURABLE)
        self._last.update({i: None if i in gone else f"{version}{i}" for i in ids})
        return len(ids)

    def disturb(self, rng: random.Random) -> str:
        """Something about the pipeline changes between two runs; what it is, empty for nothing."""
        return ""

    def settle(self) -> None:
        """What a person has to see to before the table can be compared."""

    def calm(self) -> None:
        """What has to end with a round."""

    def written_by_a_worker(self, started: Started, number: int) -> bool | None:
        """Whether a worker that stays has written a range; None where a job of its own has to."""
        return None

    def close(self) -> None:
        """End what it has started."""

    def check(self) -> int:
        """Compare the table with all that was sent; the number of its rows.

        Raises:
            ViolationError: they differ, or something is left on the timeline.
        """
        try:
            self.flow.check() if self.kind != "changes" else self._check_changes()
        except AssertionError as error:
            raise ViolationError(f"{self.kind}: {error}") from error
        pending = self.flow.jvm.pending(str(self.flow.path))
        if pending:
            raise ViolationError(f"{self.kind}: instants are pending: {pending}")
        return len({sent.id for sent in self.flow.sent}) or sum(v is not None for v in self._last.values())

    def _check_changes(self) -> None:
        expected = Counter((i, v) for i, v in self._last.items() if v is not None)
        for metadata in (True, False):
            seen = Counter(self.flow.read("id", "v", metadata=metadata))
            more, fewer = seen - expected, expected - seen
            assert seen == expected, (
                f"a reader {'by the metadata table' if metadata else 'that lists files'} sees {more.total()} rows too "
                f"many {list(more)[:5]} and misses {fewer.total()} {list(fewer)[:5]}"
            )


class FilesPipeline(Pipeline):
    """A pipeline that writes files, whose reader lists folders."""

    flow: FileFlow

    def __init__(self, flow: FileFlow) -> None:
        super().__init__("append", flow)

    def check(self) -> int:
        """See `Pipeline`."""
        try:
            self.flow.check()
        except AssertionError as error:
            raise ViolationError(f"files: {error}") from error
        if self.flow.left():
            raise ViolationError(f"files: intervals are left under way: {self.flow.left()}")
        return len(self.flow.sent)


class StreamsPipeline(Pipeline):
    """A pipeline that reads a stream of two clusters, of which one is unmapped, renamed and mapped again."""

    def __init__(self, flow: Flow, east: str, west: str) -> None:
        super().__init__("streams", flow)
        self._streams = Streams(flow, east=east, west=west)
        self._streams.create("east", TOPIC)
        self._streams.create("west", TOPIC)
        self._streams.map(**_BOTH)
        self._streams.read(source__kafka__on_unreachable="skip")

    def produce(self, rng: random.Random) -> int:
        """Send some records to both clusters, whatever is mapped."""
        counts = {broker: rng.randint(1, 80) for broker in ("east", "west")}
        for broker, count in counts.items():
            ids = range(self._next, self._next + count)
            self._next = ids.stop
            self._streams.send(broker, TOPIC, count, ids=ids, **DURABLE)
        return sum(counts.values())

    def disturb(self, rng: random.Random) -> str:
        """The metadata service says something else, or the same."""
        name, said = rng.choice(list(_MAPPINGS.items()))
        self._streams.map(**said)
        return f"the stream is {name}"

    def settle(self) -> None:
        """All is mapped again."""
        self._streams.map(**_BOTH)

    def check(self) -> int:
        """See `Pipeline`."""
        try:
            self._streams.check(("east", TOPIC), ("west", TOPIC))
        except AssertionError as error:
            raise ViolationError(f"streams: {error}") from error
        return self._streams.rows_of(("east", TOPIC), ("west", TOPIC)).total()


class JdbcPipeline(Pipeline):
    """A pipeline that loads a table of PostgreSQL, whose server dies, too: of each record a row, or of each key."""

    def __init__(self, flow: Flow, server: PostgreSql, kind: str) -> None:
        super().__init__("changes" if kind == "upsert" else "append", flow)
        database = PostgresDatabase(server)
        section = {
            "connection": CONNECTION,
            "auto_create": True,
            "schema": "id BIGINT NOT NULL, v STRING",
            "table": "t",
        }
        if kind == "upsert":
            keyed = {"pk_mode": "record_key", "pk_fields": "id", "delete_enabled": True}
            section |= {"insert_mode": "upsert", **keyed}
            flow.set(changes={"format": "tombstones"}, source__kafka__key={"converter": "json"})
        flow.set(sink={"jdbc": section})
        flow.secret_environment = database.environment()
        os.environ.update(database.environment())  # of the steps that run in this process
        self._database = database

    def check(self) -> int:
        """See `Pipeline`."""
        if self.kind == "append":
            expected = Counter((sent.id, sent.value) for sent in self.flow.sent)
        else:
            expected = Counter((i, v) for i, v in self._last.items() if v is not None)
        seen = Counter(self._database.query("SELECT id, v FROM t"))
        more, fewer = seen - expected, expected - seen
        if more or fewer:
            raise ViolationError(
                f"jdbc: {more.total()} rows too many {list(more)[:5]}, {fewer.total()} missing {list(fewer)[:5]}"
            )
        pending = self._database.query("SELECT instant FROM _sluice_instants WHERE state <> 'completed'")
        if pending or self._database.staging():
            raise ViolationError(f"jdbc: left under way: {pending}, {self._database.staging()}")
        return seen.total()


class WorkersPipeline(Pipeline):
    """A pipeline whose ranges are written by workers that stay, or by jobs of their own where none does it in time."""

    def __init__(self, flow: Flow, tell: Callable[[str], None]) -> None:
        super().__init__("append", flow)
        flow.set(write__workers=GROUP, write__claim_within="5 seconds")
        self.keeper = Keeper(flow, tell)

    def disturb(self, rng: random.Random) -> str:
        """One of its workers suffers, and those that have ended are replaced."""
        self.keeper.keep()
        self.keeper.suffer(rng)
        return ""

    def calm(self) -> None:
        """The round is over."""
        self.keeper.calm()

    def settle(self) -> None:
        """Its workers end: a range that one wrote beside a job would be swept up by the interval after that alone."""
        self.keeper.end()

    def written_by_a_worker(self, started: Started, number: int) -> bool | None:
        """See `Pipeline`."""
        return self.keeper.is_written(started, number)

    def close(self) -> None:
        """End its workers."""
        self.keeper.kill()


@dataclass
class Counts:
    """What happened in a campaign."""

    runs: int = 0
    committed: int = 0
    faults: Counter[str] = field(default_factory=Counter)


class Campaign:
    """Rounds of DAG runs on seven pipelines, with brokers, drivers, a database and a disk that break.

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
        if self._database is not None:
            self._database.start()
            kind = self.rng.choice(("insert", "upsert"))
            self.tell(f"the table of the database is loaded by {kind}")
            self._pipelines.append(JdbcPipeline(self._flow("jdbc"), self._database, kind))
        if self._only is not None:
            self._pipelines = [one for one in self._pipelines if one.flow.topic in self._only]
        return has_disk

    def _flow(self, kind: str) -> Flow:
        made = Flow(
            self._disk.folder, self._broker.bootstrap, self._jvm, self._drivers, kind, **COMMON, **KINDS.get(kind, {})
        )
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
        database = self._database if isinstance(pipeline, JdbcPipeline) else None
        self.tell(f"round {number}: {pipeline.produce(rng)} records for {pipeline.flow.topic}")
        change = pipeline.disturb(rng)
        if change:
            self.tell(change)
        with ExitStack() as trouble:
            if rng.random() < 0.12:
                trouble.enter_context(Trouble(*self._dies(self._broker, "the broker"), 8, 4, rng))
            if pipeline.kind == "streams" and rng.random() < 0.25:
                trouble.enter_context(Trouble(*self._dies(self._west, "the other cluster's broker"), 8, 10, rng))
            if database is not None and rng.random() < 0.25:
                trouble.enter_context(Trouble(*self._crashes(database), 8, 4, rng))
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
