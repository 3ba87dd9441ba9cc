"""What an interval costs over how many partitions have records: the same records in few partitions and in thousands.

    python -m bench.active                                      # 300,000 records in 4 and in 3,000 partitions
    python -m bench.active upsert --partitions 4 64 --records 20000
    python -m bench.active upsert files topics --partitions 3000 --records 6000
    python -m bench.active append --more '{"write": {"ranges": 24}}'    # 125 partitions for each Spark job

What runs is what the DAG's tasks run: `start`, the Spark job, `commit`, as separate processes. Topics have 200
partitions, keys are where Kafka's own partitioner puts them, and an upsert checks that. Of each number of partitions:
wall seconds and processor seconds of each step with all of its processes, and the peaks of their memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from bench.broker import embedded_broker
from bench.memory import Peaks
from bench.records import DDL, record
from bench.width import NARROW_LOGS, create_topics
from sluice.connectors.connections import VARIABLE
from sluice.coordinator import Started
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import driver_environment, submit_command
from sluice.pipeline import load_pipeline

SEED = 7
OF_A_TOPIC = 200
TARGET = "kafka_target"


@dataclass
class Sample:
    """What one number of partitions came to."""

    kind: str
    partitions: int
    records: int
    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)


def measure(work: Path, bootstrap: str, kind: str, partitions: int, records: int, more: dict[str, Any]) -> Sample:
    """The first interval of a new table."""
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": bootstrap})
    mark = uuid.uuid4().hex[:6]
    whole, rest = divmod(partitions, OF_A_TOPIC)
    topics = {f"active-{mark}-{i:02}": OF_A_TOPIC for i in range(whole)}
    if rest:
        topics[f"active-{mark}-{whole:02}"] = rest
    create_topics(settings, topics)
    _fill(settings, topics, records)
    name = f"active-{mark}"
    described: dict[str, Any] = {
        "name": name,
        "source": {"kafka": {"topics": list(topics), "max_records": records}},
        "sink": _sink(kind, work / name),
        "control": {"topic": f"control-{name}"},
        **more,
    }
    file = work / f"{name}.yaml"
    file.write_text(yaml.safe_dump(described))
    if kind == "topics":
        create_topics(settings, {f"{name}-out": OF_A_TOPIC})
        to = {"id": TARGET, "type": "kafka", "extra": {"bootstrap.servers": bootstrap}}
        os.environ[VARIABLE] = json.dumps([to])
    sample = Sample(kind, partitions, records)
    interval(sample, file, settings, work / f"{name}.log")
    return sample


def _sink(kind: str, path: Path) -> dict[str, Any]:
    if kind == "files":
        return {"files": {"path": str(path), "schema": DDL, "format": "parquet"}}
    if kind == "topics":
        staging = str(path.with_suffix(".staging"))
        return {"kafka": {"connection": TARGET, "topic": f"{path.name}-out", "schema": DDL, "staging": staging}}
    keys = {"operation": "upsert", "record_key": "id", "ordering_field": "ts"} if kind == "upsert" else {}
    return {"hudi": {"path": str(path), "schema": DDL, **keys}}


def _fill(settings: KafkaSettings, topics: dict[str, int], records: int) -> None:
    names = list(topics)
    producer = Producer(
        settings.client(partitioner="murmur2_random", linger_ms=50, queue_buffering_max_messages=500_000)
    )
    for number in range(records):
        producer.produce(names[number % len(names)], record(SEED, number), str(number))
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("the broker did not take the records")


def interval(
    sample: Sample, file: Path, settings: KafkaSettings, log: Path, connections: Sequence[KafkaSettings] = ()
) -> None:
    """One interval, by separate processes; what each step cost is added to the sample."""
    pipeline = load_pipeline(file)
    environment = driver_environment(settings, settings, "local", connections)
    step = [sys.executable, "-m", "sluice.cli", "interval"]

    def carry_out(name: str, command: list[str]) -> str:
        begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with Peaks(name) as peaks, log.open("ab") as out:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=out, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        sample.wall[name] = round(sample.wall.get(name, 0) + time.perf_counter() - begun, 1)
        sample.cpu[name] = round(sample.cpu.get(name, 0) + cpu, 1)
        for process, mib in peaks.mib.items():
            sample.peaks[process] = max(mib, sample.peaks.get(process, 0))
        if done.returncode:
            raise RuntimeError(f"{name} ended with {done.returncode}: {log.read_text()[-6000:]}")
        return done.stdout.decode()

    started = json.loads(carry_out("start", [*step, "start", str(file), "--run-id", "1"]))
    offset = int(started["control_offset"])
    for number in range(started["ranges"]):  # one after the other: their seconds are summed up
        carry_out("write", submit_command(pipeline, Started(started["instant"], offset, ()), number, "local[2]"))
    outcome = json.loads(carry_out("commit", [*step, "commit", str(file), "--control-offset", str(offset)]))
    if outcome["records"] != sample.records:
        raise RuntimeError(f"{outcome['records']:,} of {sample.records:,} records were committed")


def _line(s: Sample) -> str:
    steps = ", ".join(f"{name} {s.wall[name]} s (cpu {s.cpu[name]} s)" for name in s.wall)
    return f"{s.kind}, {s.records:,} records in {s.partitions:,} partitions: {steps}; peaks {s.peaks} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=["append", "upsert"], help="append, upsert, files, topics")
    parser.add_argument("--partitions", type=int, nargs="+", default=[4, 3_000])
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--bootstrap", help="a broker that runs already")
    parser.add_argument("--more", type=json.loads, default={}, help="further keys of the pipeline file, as JSON")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-active-")))
        bootstrap = arguments.bootstrap or stack.enter_context(embedded_broker(work, NARROW_LOGS))
        samples = []
        for kind in arguments.kinds:
            for partitions in arguments.partitions:
                samples.append(measure(work, bootstrap, kind, partitions, arguments.records, arguments.more))
                print(_line(samples[-1]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps([asdict(s) for s in samples], indent=2))


if __name__ == "__main__":
    main()
