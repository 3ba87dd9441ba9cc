"""What an interval costs where nothing has to start: one Spark application and one lean JVM carry out all of them.

    python -m bench.warm                                     # append and upsert, 1 and 4 partitions, 12 intervals each
    python -m bench.warm upsert --partitions 4 --records 1000 --intervals 30
    python -m bench.warm append --profile                    # and where Python's time goes

Of each step: processor seconds of Python and of the JVMs, and calls that Python makes of them; of WRITE also Spark's
jobs and tasks. The medians of all intervals but the first ones, in which the JVMs still compile.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import io
import json
import os
import pstats
import statistics
import tempfile
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.java_gateway import GatewayClient
from pyspark import SparkConf
from pyspark.sql import SparkSession

from bench.broker import embedded_broker
from bench.records import DDL, record
from sluice.coordinator import Coordinator, Outcome, Run
from sluice.jvm.gateway import lean_jvm
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.settings import driver_address, spark_conf
from sluice.participant.launch.submit import driver_environment
from sluice.participant.participant import Assignment
from sluice.participant.spark_job import participant
from sluice.pipeline import load_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluice.jvm.gateway import HudiJvm

SEED = 7
WARM_UP = 4
KINDS: dict[str, dict[str, Any]] = {
    "append": {"partition_fields": "exchange"},
    "upsert": {
        "partition_fields": "exchange",
        "operation": "upsert",
        "record_key": "id",
        "ordering_field": "ts",
        "key_placement": "trusted",
    },
}


@dataclass
class Counter:
    """Calls of a JVM, by any Python thread of this process."""

    calls: int = 0

    def __post_init__(self) -> None:
        plain = GatewayClient.send_command

        def counted(client: Any, *arguments: Any, **more: Any) -> Any:
            self.calls += 1
            return plain(client, *arguments, **more)

        GatewayClient.send_command = counted


@dataclass
class Step:
    """What one step cost in each interval."""

    python: list[float] = field(default_factory=list)
    java: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    jobs: list[tuple[int, int]] = field(default_factory=list)

    def line(self) -> str:
        def middle(values: list[Any]) -> Any:
            return statistics.median(values[WARM_UP:] or values)

        text = f"python {middle(self.python):.3f} s, JVM {middle(self.java):.3f} s, together "
        text += f"{middle([a + b for a, b in zip(self.python, self.java, strict=True)]):.3f} s, "
        text += f"wall {middle(self.wall):.2f} s, {middle(self.calls):.0f} calls"
        if self.jobs:
            text += (
                f", {middle([j for j, _ in self.jobs]):.0f} Spark jobs of {middle([t for _, t in self.jobs]):.0f} tasks"
            )
        return text


class Machine:
    """The two JVMs in which all intervals run, and a broker."""

    def __init__(self, stack: ExitStack, work: Path, master: str, conf: dict[str, str]) -> None:
        self.work = work
        self.counter = Counter()
        self.settings = KafkaSettings(
            "kafka_default", {"bootstrap.servers": stack.enter_context(embedded_broker(work))}
        )
        os.environ.update(driver_environment(self.settings, self.settings, master) | driver_address(master))
        self.jvm = stack.enter_context(lean_jvm())
        settings = {"spark.driver.memory": "1g", **spark_conf(master, conf)}
        self.spark = (
            SparkSession.builder.master(master)
            .config(conf=SparkConf(False).setAll(list(settings.items())))
            .getOrCreate()
        )
        stack.callback(self.spark.stop)
        SparkSession.stop = lambda spark: spark.catalog.clearCache()  # type: ignore[method-assign]
        pid = int(self.spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        self._java = [psutil.Process(pid), psutil.Process(self.jvm.pid)]

    @contextmanager
    def same_jvm(self) -> Iterator[HudiJvm]:
        yield self.jvm

    def java_seconds(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._java)

    def started(self) -> tuple[int, int]:
        """How many jobs and tasks Spark has started."""
        context = self.spark._jsc.sc()
        return int(context.dagScheduler().numTotalJobs()), int(context.taskScheduler().nextTaskId())

    @contextmanager
    def measured(self, step: Step, profile: cProfile.Profile | None, *, jobs: bool = False) -> Iterator[None]:
        jobs_before = self.started() if jobs else (0, 0)
        java, calls = self.java_seconds(), self.counter.calls
        wall, python = time.perf_counter(), time.process_time()
        if profile is not None:
            profile.enable()
        yield
        if profile is not None:
            profile.disable()
        step.python.append(time.process_time() - python)
        step.wall.append(time.perf_counter() - wall)
        step.calls.append(self.counter.calls - calls)
        step.java.append(self.java_seconds() - java)
        if jobs:
            after = self.started()
            step.jobs.append((after[0] - jobs_before[0], after[1] - jobs_before[1]))


def measure(
    machine: Machine, kind: str, partitions: int, records: int, intervals: int, more: dict[str, Any], profile: bool
) -> dict[str, Step]:
    """So many intervals of a new table, each with so many records."""
    name = f"warm-{uuid.uuid4().hex[:8]}"
    described: dict[str, Any] = {
        "name": name,
        "source": {"kafka": {"topics": name}},
        "sink": {"hudi": {"path": str(machine.work / name), "schema": DDL, **KINDS[kind]}},
        "control": {"topic": f"control-{name}"},
        **more,
    }
    file = machine.work / f"{name}.yaml"
    file.write_text(yaml.safe_dump(described))
    pipeline = load_pipeline(file)
    admin = AdminClient(machine.settings.client())
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    producer = Producer(machine.settings.client(queue_buffering_max_messages=max(100_000, records)))
    coordinator = Coordinator(pipeline, machine.settings, jvm=machine.same_jvm)
    steps = {step: Step() for step in ("START", "WRITE", "COMMIT")}
    profiler = cProfile.Profile() if profile else None
    for interval in range(intervals):
        for number in range(records):
            producer.produce(name, record(SEED, number, interval), str(number), number % partitions)
        if producer.flush(30):
            raise RuntimeError("the broker did not take the records")
        with machine.measured(steps["START"], None):
            started = coordinator.start(Run("warm", f"run-{interval}"))
        if isinstance(started, Outcome):
            raise TypeError(started.summary)
        with machine.measured(steps["WRITE"], profiler if interval >= WARM_UP else None, jobs=True):
            for number in range(len(started.ranges)):
                at = Assignment(
                    pipeline.sink.hudi.path, pipeline.control_topic, started.control_offset, number, started.digest
                )
                participant(at, machine.settings, machine.settings).run()
        with machine.measured(steps["COMMIT"], None):
            outcome = coordinator.commit(started.control_offset)
        if outcome.records != records:
            raise RuntimeError(f"{outcome.records} of {records} records were committed")
    if profiler is not None:
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).sort_stats("cumulative").print_stats(r"sluice|pyspark", 60)
        print(text.getvalue())
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--intervals", type=int, default=16)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", type=json.loads, default={}, help="Spark settings, as JSON")
    parser.add_argument("--more", type=json.loads, default={}, help="further keys of the pipeline file, as JSON")
    parser.add_argument("--profile", action="store_true", help="Python's own profile of WRITE")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-warm-")))
        machine = Machine(stack, work, arguments.master, arguments.conf)
        for kind in arguments.kinds:
            for partitions in arguments.partitions:
                with contextlib.redirect_stdout(io.StringIO()) if not arguments.profile else contextlib.nullcontext():
                    steps = measure(
                        machine, kind, partitions, arguments.records, arguments.intervals, arguments.more,
                        arguments.profile,
                    )  # fmt: skip
                for name, step in steps.items():
                    print(f"{kind}, {partitions} partitions, {name}: {step.line()}", flush=True)


if __name__ == "__main__":
    main()
