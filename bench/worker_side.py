"""Sluice with workers, in the one place where that is written down: workers, pipelines, and an interval's steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
from confluent_kafka.admin import AdminClient

from bench import records
from bench.broker import embedded_broker
from bench.participants import Job
from bench.sluice_side import pipeline_file
from bench.trees import Meter
from sluice.control.presence import members
from sluice.control.topic import ControlTopic
from sluice.control.waiting import wait_for_workers
from sluice.errors import RetryableError
from sluice.jvm.kept import MINUTES, end_kept
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import driver_environment
from sluice.pipeline import load_pipeline
from sluice.protocol.claims import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from bench.records import Expected

COLD, KEPT = "0", "5"  # minutes for which a step's JVM is kept
UP_WITHIN = 120.0
CLAIM_WITHIN = "10 minutes"  # a range is to be written by a worker, however busy the machine


def kafka(bootstrap: str) -> KafkaSettings:
    return KafkaSettings("kafka_default", {"bootstrap.servers": bootstrap})


class NotByWorkersError(RuntimeError):
    """An interval that workers have not written."""


class Interval(NamedTuple):
    """Seconds of an interval's steps, and its START-COMMIT's offset."""

    start: float
    write: float
    commit: float
    control_offset: int


@dataclass(frozen=True)
class Table:
    """A pipeline whose ranges a group of workers writes."""

    file: Path
    place: Path
    bootstrap: str

    @classmethod
    def made(cls, job: Job, group: str, **write: object) -> Table:
        """Write its file, with a separate table in the job's place."""
        job.home.mkdir(parents=True)
        more = {"workers": group, "claim_within": CLAIM_WITHIN, **write}
        file = pipeline_file(job, f"{job.home.parent.name}-{job.home.name}", **more)
        return cls(file, job.table, job.bootstrap)

    def interval(self, meter: Meter, run_id: str, minutes: str, log: Path) -> Interval:
        """One interval: START and COMMIT as separate commands; between them workers write.

        What waits for them is this process, as Airflow's triggerer does; its time isn't counted.
        """
        began = time.monotonic()
        started = json.loads(self._step(meter, minutes, log, "start", "--run-id", run_id))
        if "control_offset" not in started:
            raise NotByWorkersError(str(started))
        offset, opened = started["control_offset"], time.monotonic()
        self.await_workers(offset, started["ranges"])
        written = time.monotonic()
        self._step(meter, minutes, log, "commit", "--control-offset", str(offset))
        return Interval(opened - began, written - opened, time.monotonic() - written, offset)

    def await_workers(self, control_offset: int, ranges: int) -> None:
        """Wait until workers have written all ranges; raises NotByWorkersError if they won't."""
        pipeline = load_pipeline(self.file)
        control = ControlTopic(kafka(self.bootstrap), pipeline.control_topic)
        within, group = pipeline.write.claim_within.total_seconds(), pipeline.write.workers or ""
        found = wait_for_workers(control, pipeline.table_id, control_offset, range(ranges), group, within)
        if left := {number: verdict.value for number, verdict in found.items() if verdict is not Verdict.WRITTEN}:
            raise NotByWorkersError(f"what became of ranges: {left}")

    def writers(self, control_offset: int) -> dict[int, str]:
        """Which worker claimed each range last."""
        pipeline = load_pipeline(self.file)
        log = ControlTopic(kafka(self.bootstrap), pipeline.control_topic).table_log(pipeline.table_id, control_offset)
        transaction = log.at(control_offset)
        return {} if transaction is None else {n: claim.worker for n, (_, claim) in transaction.claims.items()}

    def _step(self, meter: Meter, minutes: str, log: Path, name: str, *arguments: str) -> str:
        settings = kafka(self.bootstrap)
        # With an address that needs no name service, and the same for all steps: only then do they find the same JVM.
        environment = {**driver_environment(settings, settings, "local[1]"), MINUTES: minutes}
        command = [sys.executable, "-m", "sluice.cli", "interval", name, str(self.file), *arguments]
        return meter.run(command, environment, log)


@dataclass(frozen=True)
class WorkerOptions:
    """How workers are started."""

    group: str
    slots: int = 2
    memory: str = "2g"
    master: str = "local[2]"


class Worker:
    """`sluice worker`, in a separate process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.tree = psutil.Process(process.pid)
        self._log = log

    def is_up(self, options: WorkerOptions, bootstrap: str) -> bool:
        """Whether its group has it."""
        self.require()
        settings = kafka(bootstrap)
        try:
            there = members(AdminClient(settings.client()), settings, options.group)
            return any(member.worker.startswith(f"{self.name}-") for member in there)
        except RetryableError:
            return False

    def require(self) -> None:
        """Raise RuntimeError if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the worker has ended; its log ends:\n{self._log.read_text(errors='replace')[-1500:]}")

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # it leads a separate session, with its JVM
            self.process.wait()


@contextmanager
def workers(tables: Collection[Table], options: WorkerOptions, number: int, work: Path) -> Iterator[list[Worker]]:
    """So many workers for these tables, which are up; they end on leaving."""
    bootstrap = next(iter(tables)).bootstrap
    settings = kafka(bootstrap)
    environment = driver_environment(settings, settings, options.master)
    files = [str(table.file) for table in tables]
    begun: list[Worker] = []
    try:
        for i in range(number):
            name, log = f"{options.group}-{i}", work / f"worker-{options.group}-{i}.log"
            command = [sys.executable, "-m", "sluice.cli", "worker", *files, "--group", options.group, "--name", name]
            command += ["--slots", str(options.slots), "--memory", options.memory, "--master", options.master]
            with log.open("wb") as out:
                process = subprocess.Popen(
                    [*command, "--trust-control-topic"], env=environment, stdin=subprocess.DEVNULL, stdout=out,
                    stderr=out, start_new_session=True,
                )  # fmt: skip
            begun.append(Worker(name, process, log))
        deadline = time.monotonic() + UP_WITHIN + len(files)
        while not all(worker.is_up(options, bootstrap) for worker in begun):
            if time.monotonic() > deadline:
                raise RuntimeError("the workers did not come up")
            time.sleep(0.5)
        yield begun
    finally:
        for worker in begun:
            worker.end()


@dataclass(frozen=True)
class Ground:
    """What scenarios with workers need: a broker, a place, and who counts what processes use."""

    bootstrap: str
    work: Path
    meter: Meter
    seed: int
    say: Callable[[str], None]

    def topic(self, name: str, number_of_records: int, partitions: int = records.PARTITIONS) -> Expected:
        """A topic with so many records; returns what a table of them must hold."""
        window = records.Window(0, number_of_records)
        records.create_topic(self.bootstrap, name, partitions)
        records.produce(self.bootstrap, name, self.seed, window, partitions)
        return records.expected(self.seed, window)

    def job(self, topic: str, name: str, number_of_records: int = 0, master: str = "local[2]") -> Job:
        """An append to a new table."""
        home = self.work / topic / name
        return Job("append", "bulk_insert", self.bootstrap, topic, home, "pipeline", number_of_records, master=master)

    def log(self, name: str) -> Path:
        return self.work / f"{name}.log"


@contextmanager
def ground(seed: int = 7, more: Mapping[str, str] | None = None) -> Iterator[Ground]:
    """A new broker, with further properties, in a folder that is removed on leaving."""
    # Short names: sockets of the JVMs that are kept lie below, and a socket's path is short.
    with tempfile.TemporaryDirectory(prefix="sl") as scratch, embedded_broker(Path(scratch), more) as bootstrap:
        os.environ["XDG_RUNTIME_DIR"] = scratch
        try:
            yield Ground(bootstrap, Path(scratch), Meter(), seed, lambda line: print(line, file=sys.stderr, flush=True))
        finally:
            end_kept()
