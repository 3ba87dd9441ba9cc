"""Does an interval cost the same after hundreds of others? START and COMMIT of Sluice at interval 20 and at 300.

    python -m bench.flat                               # 300 intervals of an append table, table services on
    python -m bench.flat --services-every 0            # the same without them
    python -m bench.flat --many                        # 1,000 intervals, whose measured processes find a kept JVM
    python -m bench.flat --intervals 60 --at 10 60     # does it work at all?

The intervals are real but for the Spark job: `TinyParticipant` writes one small Parquet file for each Kafka partition
and table partition with PyArrow, and reports it as a participant does. All intervals run in one long-lived JVM; around
the measured ones, START and COMMIT also run as the processes that Airflow's tasks are, and the median counts.
At the end a fresh Spark session reads the table; if rows are missing or there twice, the figures are void.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker import embedded_broker
from bench.checks import check
from bench.records import Expected
from bench.report import NONE, markdown_table, only_warnings
from bench.trees import Meter
from sluice.control.topic import ControlTopic
from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.coordinator.services import Services
from sluice.jvm.gateway import lean_jvm
from sluice.jvm.kept import MINUTES, end_kept
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import driver_environment
from sluice.pipeline import Pipeline, load_pipeline
from sluice.protocol.messages import PartitionResult, PlannedRange, StartCommit, WriteStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluice.jvm.gateway import HudiJvm

KAFKA_PARTITIONS = 2
TABLE_PARTITIONS = ("p0", "p1")
RECORDS = 10  # of one interval and Kafka partition
MANY, MANY_AT = 1000, [20, 100, 300, 600, 990]
LEAN_SERVICES = ("cleaning", "metadata_compaction", "archiving")
_META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path")


class TinyParticipant:
    """Writes the ranges of one interval as a Spark job would, without Spark."""

    def __init__(self, pipeline: Pipeline, settings: KafkaSettings) -> None:
        self._table = Path(pipeline.sink.hudi.path.removeprefix("file://"))
        self._control = ControlTopic(settings, pipeline.control_topic)

    def write(self, started: Started) -> None:
        table_log = self._control.table_log(f"file://{self._table}", started.control_offset)
        start = table_log.transactions[started.instant].start
        for number, ranges in enumerate(start.ranges):
            self._control.send(self._status(start, number, ranges))

    def _status(self, start: StartCommit, number: int, ranges: tuple[PlannedRange, ...]) -> WriteStatus:
        stats: list[dict[str, Any]] = []
        results = []
        for r in ranges:
            written = [self._file(start.transaction, r, partition) for partition in TABLE_PARTITIONS]
            stats += written
            results.append(
                PartitionResult(
                    **r.topic_partition._asdict(),
                    start=r.start,
                    next_offset=r.end,
                    records_read=r.end - r.start,
                    gaps=0,
                    bytes_read=100 * (r.end - r.start),
                    file_groups=tuple(stat["fileId"] for stat in written),
                )
            )
        total = sum(r.records_read for r in results)
        envelope = start.model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id"})
        return WriteStatus(
            **envelope,
            sender=f"participant {number}",
            time=datetime.now(UTC),
            range=number,
            attempt=str(uuid.uuid4()),
            records_read=total,
            records_written=total,
            partitions=tuple(results),
            stats=tuple(stats),
        )

    def _file(self, instant: str, r: PlannedRange, partition: str) -> dict[str, Any]:
        ids = [i for i in range(r.start, r.end) if TABLE_PARTITIONS[i % len(TABLE_PARTITIONS)] == partition]
        file_id = f"{uuid.uuid4()}-0"
        name = f"{file_id}_{r.partition}-0-0_{instant}.parquet"
        folder = self._table / partition
        folder.mkdir(parents=True, exist_ok=True)
        mark = folder / ".hoodie_partition_metadata"
        if not mark.exists():
            mark.write_text(f"#partition metadata\ncommitTime={instant}\npartitionDepth=1\n")
        keys = [f"{r.partition}-{i}" for i in ids]
        columns = {
            **dict.fromkeys(_META, [instant] * len(ids)),
            "_hoodie_record_key": keys,
            "_hoodie_partition_path": [partition] * len(ids),
            "_hoodie_file_name": [name] * len(ids),
            "id": keys,
            "v": [f"v{i}" for i in ids],
            "p": [partition] * len(ids),
        }
        pq.write_table(pa.table(columns), folder / name)
        marker = self._table / ".hoodie" / ".temp" / instant / partition / f"{name}.marker.CREATE"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        size = (folder / name).stat().st_size
        return {
            "fileId": file_id, "path": f"{partition}/{name}", "partitionPath": partition, "prevCommit": "null",
            "numWrites": len(ids), "numInserts": len(ids), "numDeletes": 0, "numUpdateWrites": 0,
            "totalWriteErrors": 0, "totalWriteBytes": size, "fileSizeInBytes": size,
        }  # fmt: skip


@dataclass
class Sample:
    """What one measured interval took, in seconds, and the files that lay about then.

    `cpu` and `process_cpu`: processor seconds of START and COMMIT together, of Python and JVM.
    """

    interval: int
    start: list[float] = field(default_factory=list)
    commit: list[float] = field(default_factory=list)
    start_process: list[float] = field(default_factory=list)
    commit_process: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    process_cpu: list[float] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)

    @property
    def phases(self) -> float:
        return statistics.median(self.start) + statistics.median(self.commit)

    @property
    def processes(self) -> float | None:
        if not self.start_process:
            return None
        return statistics.median(self.start_process) + statistics.median(self.commit_process)


class Table:
    """One pipeline, its topic, and the intervals that it has run."""

    def __init__(
        self, folder: Path, bootstrap: str, jvm: HudiJvm, services: dict[str, Any] | None, minutes: str = "0"
    ) -> None:
        self._minutes = minutes  # for which a process leaves its JVM to the next one
        self._java = psutil.Process(jvm.pid)
        self.settings = KafkaSettings("kafka_default", {"bootstrap.servers": bootstrap})
        self.topic = f"flat-{uuid.uuid4().hex[:8]}"
        self.file = folder / f"{self.topic}.yaml"
        self.path = folder / self.topic
        described: dict[str, Any] = {
            "name": self.topic,
            "source": {"kafka": {"topics": self.topic}},
            "sink": {
                "hudi": {"path": str(self.path), "schema": "id STRING, v STRING, p STRING", "partition_fields": "p"}
            },
            "control": {"topic": f"control-{self.topic}"},
        }
        if services is not None:
            described["table_services"] = services
        self.file.write_text(yaml.safe_dump(described))
        self.pipeline = load_pipeline(self.file)
        admin = AdminClient(self.settings.client())
        admin.create_topics([NewTopic(self.topic, KAFKA_PARTITIONS, 1)])[self.topic].result(30)
        self._producer = Producer(self.settings.client())

        @contextmanager
        def same_jvm() -> Iterator[HudiJvm]:
            yield jvm

        self.coordinator = Coordinator(self.pipeline, self.settings, jvm=same_jvm)
        self.services = Services(self.pipeline, self.settings, jvm=same_jvm)
        self._participant = TinyParticipant(self.pipeline, self.settings)
        self._runs = 0
        self._runs_with_records = 0

    @property
    def expected(self) -> Expected:
        """What the table has to hold."""
        return Expected(self._runs_with_records * RECORDS * KAFKA_PARTITIONS, 0)

    def produce(self) -> None:
        for i in range(RECORDS * KAFKA_PARTITIONS):
            self._producer.produce(self.topic, b"{}", partition=i % KAFKA_PARTITIONS)
        if self._producer.flush(30):
            raise RuntimeError("the broker did not take the records")
        self._runs_with_records += 1

    def interval(self, sample: Sample | None = None) -> None:
        """One interval in the long-lived JVM."""
        self.produce()
        self._runs += 1
        begun, cpu = time.perf_counter(), self._cpu()
        started = self.coordinator.start(Run("flat", f"run-{self._runs}"))
        took, used = time.perf_counter() - begun, self._cpu() - cpu
        if isinstance(started, Outcome):
            raise TypeError(started.summary)
        self._participant.write(started)
        begun, cpu = time.perf_counter(), self._cpu()
        self.coordinator.commit(started.control_offset)
        if sample is not None:
            sample.start.append(took)
            sample.commit.append(time.perf_counter() - begun)
            sample.cpu.append(used + self._cpu() - cpu)

    def _cpu(self) -> float:
        return time.process_time() + sum(self._java.cpu_times()[:2])

    def interval_of_processes(self, meter: Meter, sample: Sample) -> None:
        """One interval whose START and COMMIT are processes, as Airflow's tasks are."""
        self.produce()
        self._runs += 1
        with meter.measured() as start:
            out = self._step("start", "--run-id", f"run-{self._runs}")
        found = json.loads(out)
        self._participant.write(Started(found["instant"], found["control_offset"], (), digest=found["digest"]))
        with meter.measured() as commit:
            self._step("commit", "--control-offset", str(found["control_offset"]))
        sample.start_process.append(start.wall)
        sample.commit_process.append(commit.wall)
        sample.process_cpu.append(start.cpu + commit.cpu)

    def _step(self, name: str, *arguments: str) -> str:
        command = [sys.executable, "-m", "sluice.cli", "interval", name, str(self.file), *arguments]
        done = subprocess.run(
            command,
            env={**driver_environment(self.settings, self.settings, "local"), MINUTES: self._minutes},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-4000:])
        return done.stdout

    def serve(self) -> None:
        for service in LEAN_SERVICES:
            self._runs += 1
            self.services.run(Run("flat.table_services", f"run-{self._runs}"), service)

    def files(self) -> dict[str, int]:
        """How many files there are: of the timeline, the archive, the metadata table, and the data."""
        hoodie = self.path / ".hoodie"
        metadata = hoodie / "metadata"
        places = {
            "timeline": hoodie / "timeline",
            "archived": hoodie / "timeline" / "history",
            "metadata_timeline": metadata / ".hoodie" / "timeline",
            "metadata_archived": metadata / ".hoodie" / "timeline" / "history",
        }
        counts = {
            name: sum(not f.name.endswith(".crc") for f in folder.iterdir() if f.is_file()) if folder.is_dir() else 0
            for name, folder in places.items()
        }
        inside = [f for f in metadata.rglob("*") if f.is_file() and f.suffix != ".crc"]
        counts["metadata_data"] = sum(".hoodie" not in f.relative_to(metadata).parts for f in inside)
        counts["data"] = len(list(self.path.glob("p*/*.parquet")))
        return counts


def run(table: Table, meter: Meter, intervals: int, at: list[int], every: int, processes: int) -> list[Sample]:
    """Run the intervals with the services after every so many, and measure around the ones that `at` names."""
    samples: list[Sample] = []
    done = 0
    while done < intervals:
        done += 1
        wanted = done in at
        sample = Sample(done)
        repeat = 5 if wanted else 1
        for _ in range(repeat):
            table.interval(sample)
        done += repeat - 1
        if wanted:
            for _ in range(processes):
                table.interval_of_processes(meter, sample)
                done += 1
            sample.files = table.files()
            samples.append(sample)
            print(_line(sample), flush=True)
        if every and done // every > (done - repeat) // every:
            table.serve()
    return samples


def _line(sample: Sample) -> str:
    whole = f"{sample.processes:6.2f} s" if sample.processes is not None else "-".rjust(8)
    return (
        f"interval {sample.interval:4d}: start+commit {sample.phases:6.3f} s "
        f"({statistics.median(sample.start):.3f}+{statistics.median(sample.commit):.3f}), as processes {whole}, "
        f"files {sample.files}"
    )


def _rows(samples: list[Sample]) -> list[tuple[str, ...]]:
    """A line for each, and the ratios of the last one to the first."""
    figures = [
        (
            s.phases,
            statistics.median(s.cpu),
            s.processes,
            statistics.median(s.process_cpu) if s.process_cpu else None,
        )
        for s in samples
    ]
    ratios = [a / b if a and b else None for a, b in zip(figures[-1], figures[0], strict=True)]
    named = [*((str(s.interval), f, ".3f") for s, f in zip(samples, figures, strict=True)), ("ratio", ratios, ".2f")]
    return [(name, *(NONE if v is None else format(v, digits) for v in values)) for name, values, digits in named]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int)
    parser.add_argument("--at", type=int, nargs="+")
    parser.add_argument("--services-every", type=int, default=20, help="intervals between services; 0: none")
    parser.add_argument("--inline", action="store_true", help="without the section table_services")
    parser.add_argument("--processes", type=int, help="measured whole processes at each point; none by default")
    parser.add_argument("--kept", action="store_true", help="processes leave their JVM to the next one")
    parser.add_argument("--many", action="store_true", help="1,000 intervals, five processes at each point, kept JVM")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    intervals = arguments.intervals or (MANY if arguments.many else 300)
    at = arguments.at or (MANY_AT if arguments.many else [20, 100, 200, 295])
    processes = arguments.processes if arguments.processes is not None else (5 if arguments.many else 0)
    only_warnings()
    # A short name: the sockets of JVMs that are kept lie below it.
    with (
        tempfile.TemporaryDirectory(prefix="sl") as scratch,
        embedded_broker(Path(scratch)) as bootstrap,
        lean_jvm() as jvm,
    ):
        os.environ["XDG_RUNTIME_DIR"] = scratch
        kept = "5" if arguments.kept or arguments.many else "0"
        table = Table(Path(scratch), bootstrap, jvm, None if arguments.inline else {}, kept)
        try:
            samples = run(table, Meter(), intervals, at, arguments.services_every, processes)
        finally:
            end_kept()
        [(problem, _)] = check([(str(table.path), table.expected)], "hudi", Path(scratch))
        columns = ("interval", "START + COMMIT, s", "CPU s", "as processes, s", "CPU s")
        print("\n" + (f"VOID: {problem}" if problem else markdown_table(columns, _rows(samples))))
        if arguments.out:
            arguments.out.write_text(json.dumps([asdict(s) for s in samples], indent=2))
    return int(problem is not None)


if __name__ == "__main__":
    sys.exit(main())
