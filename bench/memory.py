"""How much memory does an interval take? The peak of every process, for more and more records.

    python -m bench.memory upsert --records 20000000             # all in one interval, at default settings
    python -m bench.memory append --records 50000000             # a backlog, in as many intervals as it takes
    python -m bench.memory dead-letters --records 1000000        # bad records only, to a dead-letter topic
    python -m bench.memory upsert --records 1000000 4000000      # does it grow?
    python -m bench.memory jdbc --records 2000000 8000000        # into PostgreSQL, every record a row
    python -m bench.memory jdbc-upsert --records 2000000 8000000 # the last version of a key

What runs is what the DAG's tasks run: `start`, a Spark job for each range, `commit`. A thread looks at all their
processes every twentieth of a second and keeps the most that each has had in memory (`VmHWM` of Linux, which is itself
a peak). The intervals' own audit says that all records that were read are written; the tables are compared with the
produced records.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.broker import embedded_broker
from bench.database import TABLE, BenchDatabase, database
from bench.records import DDL, create_topic, end_offsets, record
from sluice.connectors.connections import ConnectionSettings, to_environment
from sluice.coordinator import Started
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import driver_environment, submit_command
from sluice.pipeline import load_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 7
KINDS = ("upsert", "append", "dead-letters", "jdbc", "jdbc-upsert")
LOOK_SECONDS = 0.05
BROKEN = b'{"id": "not a number", "note": "' + b"x" * 160 + b'"}'


class Peaks:
    """The most memory that each kind of process below this one has had, in MiB, while the block runs."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.mib: dict[str, int] = {}

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        own = psutil.Process()
        while not self._stop.wait(LOOK_SECONDS):
            for process in own.children(recursive=True):
                with suppress(psutil.Error, OSError, ValueError, StopIteration):
                    name = kind_of(process.cmdline(), self._step)  # each time: a script may become something else
                    if name:
                        self.mib[name] = max(self.mib.get(name, 0), peak_mib(process.pid))


def peak_mib(pid: int) -> int:
    """The most that a process has had in memory so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) // 1024


def kind_of(command: list[str], step: str) -> str:
    """What a process is to be called; nothing for one that isn't reported."""
    java = bool(command) and Path(command[0]).name == "java"
    words = " ".join(command)
    known = (
        (f"{step}: JVM", java and ("deploy.SparkSubmit" in words or "py4j.GatewayServer" in words)),
        (f"{step}: Python worker", "pyspark.daemon" in words),
        (f"{step}: Python", not java and words != "" and Path(command[0]).name.startswith("python")),
    )
    return next((name for name, is_it in known if is_it), "")


@dataclass
class Interval:
    """One interval: what it read, how long its steps took in seconds, and the peaks of its processes in MiB."""

    records: int
    seconds: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """What is loaded, and where it runs."""

    kind: str
    records: int
    bootstrap: str
    topic: str
    work: Path
    master: str = "local[2]"
    more: dict[str, Any] = field(default_factory=dict)
    database: str = ""

    @property
    def has_keys(self) -> bool:
        """Whether records have keys, each a different one."""
        return self.kind.endswith("upsert")

    def environment(self, settings: KafkaSettings) -> dict[str, str]:
        """What the processes know of broker and database."""
        found = driver_environment(settings, settings, "local")
        if self.database:
            warehouse = ConnectionSettings("bench", "jdbc", host=self.database)
            found |= to_environment([warehouse])
        return found

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.topic}-dead"

    def pipeline_file(self) -> Path:
        """Defaults throughout, but for `max_records` where all records are to be one interval."""
        kafka: dict[str, Any] = {"topics": self.topic}
        if self.kind != "append":
            kafka["max_records"] = self.records
        hudi: dict[str, Any] = {"path": str(self.work / "table"), "schema": DDL, "partition_fields": "exchange"}
        jdbc: dict[str, Any] = {"connection": "bench", "table": TABLE, "auto_create": True, "schema": DDL}
        if self.kind == "upsert":
            hudi |= {"operation": "upsert", "record_key": "id", "ordering_field": "ts"}
        described: dict[str, Any] = {
            "name": f"memory-{self.kind}",
            "source": {"kafka": kafka},
            "sink": {"jdbc": jdbc} if self.kind.startswith("jdbc") else {"hudi": hudi},
            "control": {"topic": f"control-{uuid.uuid4()}"},
            **self.more,
        }
        if self.kind == "jdbc-upsert":
            jdbc |= {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", "ordering_field": "ts"}
        if self.kind == "dead-letters":
            hudi["record_key"] = "id"
            described["errors"] = {"tolerance": "all", "dead_letter_topic": self.dead_letter_topic}
        file = self.work / "pipeline.yaml"
        file.write_text(yaml.safe_dump(described))
        return file


def run(case: Case, most: int | None, say: Any = print) -> list[Interval]:
    """Load the topic in as many intervals as it takes, or at most so many."""
    file = case.pipeline_file()
    pipeline = load_pipeline(file)
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": case.bootstrap})
    environment = case.environment(settings)
    step = [sys.executable, "-m", "sluice.cli", "interval"]
    intervals: list[Interval] = []
    with (case.work / "log").open("ab") as log:

        def carry_out(name: str, interval: Interval, command: list[str]) -> str:
            begun = time.perf_counter()
            with Peaks(name) as peaks:
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log, check=False)
            interval.seconds[name] = round(time.perf_counter() - begun, 1)
            for process, mib in peaks.mib.items():
                interval.peaks[process] = max(interval.peaks.get(process, 0), mib)
            if done.returncode:
                raise RuntimeError(f"{name} ended with {done.returncode}; see {case.work / 'log'}. {interval}")
            return done.stdout.decode()

        while most is None or len(intervals) < most:
            interval = Interval(0)
            started = json.loads(
                carry_out("start", interval, [*step, "start", str(file), "--run-id", f"{len(intervals)}"])
            )
            if "control_offset" not in started:
                break
            offset = int(started["control_offset"])
            for number in range(started["ranges"]):
                known = Started(started["instant"], offset, ())
                carry_out("write", interval, submit_command(pipeline, known, number, case.master))
            answer = carry_out("commit", interval, [*step, "commit", str(file), "--control-offset", str(offset)])
            interval.outcome = json.loads(answer)
            dead = case.kind == "dead-letters"
            interval.records = letters(case) if dead else int(interval.outcome["records"])
            intervals.append(interval)
            say(f"interval {len(intervals)}: {interval.records:,} records, {interval.seconds}, peaks {interval.peaks}")
    return intervals


def letters(case: Case) -> int:
    """How many records a consumer gets from the dead-letter topic."""
    settings = {"bootstrap.servers": case.bootstrap, "group.id": "bench", "enable.partition.eof": True}
    consumer = Consumer(settings)  # librdkafka reads what is committed by default
    consumer.assign([TopicPartition(case.dead_letter_topic, 0, 0)])
    found = 0
    try:
        while True:
            for message in consumer.consume(10_000, 60):
                if message.error() is not None:
                    return found
                found += 1
    finally:
        consumer.close()


def produce(case: Case) -> None:
    """Fill the topic up to the case's number of records; a topic that is full already stays as it is."""
    admin = AdminClient({"bootstrap.servers": case.bootstrap})
    if case.topic not in admin.list_topics(timeout=30).topics:
        create_topic(case.bootstrap, case.topic)
    there = sum(end_offsets(case.bootstrap, case.topic).values())
    producer = Producer(
        {
            "bootstrap.servers": case.bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
        }
    )
    few = [record(SEED, number) for number in range(1000)]  # made once; an append doesn't mind
    for number in range(there, case.records):
        value, key = (record(SEED, number), str(number)) if case.has_keys else (few[number % 1000], None)
        while True:
            try:
                producer.produce(case.topic, BROKEN if case.kind == "dead-letters" else value, key)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("the broker did not take the records")
    grown = sum(end_offsets(case.bootstrap, case.topic).values())
    if grown != case.records:
        raise RuntimeError(f"{case.topic} has {grown:,} records, wanted are {case.records:,}")


@contextmanager
def broker(bootstrap: str | None, scratch: Path) -> Iterator[str]:
    """The broker that is named, or a new one."""
    if bootstrap is not None:
        yield bootstrap
        return
    with embedded_broker(scratch) as address:
        yield address


@contextmanager
def warehouse(kind: str) -> Iterator[BenchDatabase | None]:
    """The database that records go to, where they go to one."""
    if not kind.startswith("jdbc"):
        yield None
        return
    with database() as server:
        yield server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--records", type=int, nargs="+", required=True, help="more than one: one case after the other")
    parser.add_argument("--intervals", type=int, help="stop after so many, though the backlog isn't loaded")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--bootstrap", help="a broker that runs already; topics that are full there are used again")
    parser.add_argument("--out", type=Path, help="a file for the figures, as JSON")
    parser.add_argument("--more", type=json.loads, default={}, help="further keys of the pipeline file, as JSON")
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="sluice-memory-") as folder,
        broker(arguments.bootstrap, Path(folder)) as bootstrap,
        warehouse(arguments.kind) as server,
    ):
        for records in arguments.records:
            work = Path(folder) / f"{records}"
            work.mkdir()
            topic = f"memory-{arguments.kind}-{records}"
            where = server.url if server is not None else ""
            case = Case(arguments.kind, records, bootstrap, topic, work, arguments.master, arguments.more, where)
            if server is not None:
                server.clear()
            produce(case)
            print(f"{topic}: {records:,} records are there", flush=True)
            intervals = run(case, arguments.intervals, lambda line: print(line, flush=True))
            loaded = sum(i.records for i in intervals)
            if arguments.intervals is None and loaded != records:
                raise SystemExit(f"{loaded:,} of {records:,} records were loaded")
            found[str(records)] = [asdict(i) for i in intervals]
            shutil.rmtree(work)
            if arguments.out:
                arguments.out.write_text(json.dumps(found, indent=2))
    for records, listed in found.items():
        peaks: dict[str, int] = {}
        for one in listed:
            for process, mib in one["peaks"].items():
                peaks[process] = max(peaks.get(process, 0), mib)
        print(f"{int(records):,} records in {len(listed)} intervals, peaks in MiB: {peaks}")


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
