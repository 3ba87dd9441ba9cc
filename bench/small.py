"""What START, a write without Spark, and COMMIT of a small interval cost: waits and work, warm and as processes.

    python -m bench.small                              # ten rounds of each
    python -m bench.small --waits                      # and which calls of Kafka's clients took how long

In one process, with one JVM that is up and clients that were used before, it shows what is waited for on an interval's
path. As processes of the command line, cold and with a JVM that another step has left, it shows what a kept JVM spares.
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
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker import embedded_broker
from bench.flat import TinyParticipant
from bench.trees import Meter
from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.jvm.gateway import lean_jvm
from sluice.jvm.kept import MINUTES, end_kept
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import driver_environment
from sluice.participant.participant import Assignment, Participant
from sluice.pipeline import load_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sluice.jvm.gateway import HudiJvm
    from sluice.pipeline import Pipeline
    from sluice.protocol.messages import StartCommit

WARM_UP = 3
LONG = 0.03  # seconds: a call that waits for less isn't shown
Costs = dict[str, list[tuple[float, float]]]


class TinyJob:
    """A participant's job that writes its files with pyarrow."""

    def __init__(self, tiny: TinyParticipant) -> None:
        self._tiny = tiny

    @contextmanager
    def running(self, _start: StartCommit) -> Iterator[TinyJob]:
        yield self

    def write(self, start: StartCommit, number: int, _attempt: str, check: Callable[[], None]) -> dict[str, Any]:
        status = self._tiny._status(start, number, start.ranges[number])
        check()
        same = ("records_read", "records_written", "partitions", "stats")
        return {name: getattr(status, name) for name in same}

    def cancel(self) -> None:
        raise RuntimeError("no other process ends a transaction of the benchmark")

    def classified(self, error: Exception, *_: Any) -> Any:
        raise error


class Interval:
    """One pipeline, whose intervals are small."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.settings = KafkaSettings("kafka_default", {"bootstrap.servers": bootstrap})
        self.name = f"small-{uuid.uuid4().hex[:8]}"
        hudi = {"path": str(folder / self.name), "schema": "id STRING, v STRING, p STRING", "partition_fields": "p"}
        self.file = folder / f"{self.name}.yaml"
        control = {"topic": f"control-{self.name}"}
        source = {"kafka": {"topics": self.name}}
        self.file.write_text(
            yaml.safe_dump({"name": self.name, "source": source, "sink": {"hudi": hudi}, "control": control})
        )
        self.pipeline: Pipeline = load_pipeline(self.file)
        admin = AdminClient(self.settings.client())
        admin.create_topics([NewTopic(self.name, 2, 1)])[self.name].result(30)
        self._producer = Producer(self.settings.client())

    def produce(self, records: int = 1_000) -> None:
        for number in range(records):
            self._producer.produce(self.name, b"{}", partition=number % 2)
        if self._producer.flush(30):
            raise RuntimeError("the broker did not take the records")

    def write(self, started: Started) -> None:
        """The participant as a write job runs it, but for Spark."""
        # A new one, as a separate job would have it: what is shared in a process is the product's to share.
        job = TinyJob(TinyParticipant(self.pipeline, self.settings))
        for number in range(len(started.ranges)):
            at = Assignment(
                self.pipeline.table_id, self.pipeline.control_topic, started.control_offset, number, started.digest
            )
            Participant(at, self._control(), job).run()

    def _control(self) -> Any:
        from sluice.control.topic import ControlTopic

        return ControlTopic(self.settings, self.pipeline.control_topic)


def in_one_process(interval: Interval, jvm: HudiJvm, rounds: int, spans: Spans | None) -> Costs:
    """Wall and processor seconds (this process's and the JVM's) of each step; parts are made anew for each."""

    @contextmanager
    def same() -> Iterator[HudiJvm]:
        yield jvm

    java, costs = psutil.Process(jvm.pid), defaultdict[str, list[tuple[float, float]]](list)

    @contextmanager
    def measured(step: str) -> Iterator[None]:
        if spans is not None:
            spans.step = step
        wall, cpu = time.perf_counter(), time.process_time() + sum(java.cpu_times()[:2])
        yield
        after = time.process_time() + sum(java.cpu_times()[:2])
        costs[step].append((time.perf_counter() - wall, after - cpu))
        if spans is not None:
            spans.step = ""

    for number in range(rounds + WARM_UP):
        if spans is not None:
            spans.on = number >= WARM_UP
        interval.produce()
        with measured("START"):
            started = Coordinator(interval.pipeline, interval.settings, jvm=same).start(Run("small", f"run-{number}"))
        if isinstance(started, Outcome):
            raise TypeError(started.summary)
        with measured("WRITE"):
            interval.write(started)
        with measured("COMMIT"):
            Coordinator(interval.pipeline, interval.settings, jvm=same).commit(started.control_offset)
    return {step: found[WARM_UP:] for step, found in costs.items()}


def as_processes(interval: Interval, meter: Meter, rounds: int, minutes: str) -> Costs:
    """Wall and processor seconds of `sluice interval start` and `commit`, and of the JVM that each used."""
    own = driver_environment(interval.settings, interval.settings, "local[1]")
    environment = {**own, MINUTES: minutes, "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]}
    costs = defaultdict[str, list[tuple[float, float]]](list)

    def step(*arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "sluice.cli", "interval", arguments[0], str(interval.file), *arguments[1:]]
        with meter.measured() as cost:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        costs[arguments[0].upper()].append((cost.wall, cost.cpu))
        if done.returncode:
            raise RuntimeError(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout or "{}") if arguments[0] == "start" else {}
        return found

    for number in range(rounds + 1):
        interval.produce()
        found = step("start", "--run-id", f"process-{minutes}-{number}")
        offset, ranges = found["control_offset"], found["ranges"]
        interval.write(Started(found["instant"], offset, ((),) * ranges, digest=found["digest"]))
        step("commit", "--control-offset", str(offset))
    return {name: found[1:] for name, found in costs.items()}


class Spans:
    """How long calls of Kafka's clients take, from outside: where a step waits."""

    def __init__(self) -> None:
        self.on, self.step = False, ""
        self.found: dict[tuple[str, str], list[float]] = defaultdict(list)

    def profile(self, rounds: int) -> str:
        lines = []
        for (step, what), seconds in sorted(self.found.items(), key=lambda item: -sum(item[1])):
            if max(seconds) >= LONG:
                each, middle, longest = len(seconds) / rounds, statistics.median(seconds), max(seconds)
                took = f"{middle * 1000:.1f} ms each, at most {longest * 1000:.1f}"
                lines.append(f"  {step:6} {what}: {each:.1f} a round, {took}")
        return "\n".join(lines)

    def watch(self) -> None:
        """Time each call of C that Python's profiler tells of."""
        begun: list[tuple[Any, float]] = []

        def profiled(_frame: Any, event: str, argument: Any) -> None:
            if not (self.on and self.step):
                return
            if event == "c_call":
                begun.append((argument, time.perf_counter()))
            elif event in ("c_return", "c_exception") and begun and begun[-1][0] == argument:
                _, at = begun.pop()
                name = getattr(argument, "__qualname__", repr(argument))
                took = time.perf_counter() - at
                if took > 0.005:
                    stack, frame = [], _frame
                    while frame is not None and len(stack) < 6:
                        if "sluice" in frame.f_code.co_filename or "kafka" in frame.f_code.co_filename:
                            stack.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
                        frame = frame.f_back
                    self.found[self.step, f"{name} < {' < '.join(stack[:3])}"].append(took)

        sys.setprofile(profiled)


def _line(name: str, costs: Costs) -> str:
    parts = []
    for step, found in costs.items():
        wall, cpu = (statistics.median(values) for values in zip(*found, strict=True))
        longest = max(value for value, _ in found)
        parts.append(f"{step} {wall:.3f} s, at most {longest:.3f} (cpu {cpu:.3f})")
    return f"{name}: {', '.join(parts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--waits", action="store_true", help="which calls take long; the figures are worse for it")
    parser.add_argument("--only", choices=["warm", "processes"])
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sl") as scratch,
        embedded_broker(Path(scratch)) as bootstrap,
    ):
        os.environ["XDG_RUNTIME_DIR"] = scratch
        if arguments.only != "processes":
            spans = Spans() if arguments.waits else None
            with lean_jvm() as jvm:
                interval = Interval(Path(scratch), bootstrap)
                if spans is not None:
                    spans.watch()
                print(_line("in one process, JVM up", in_one_process(interval, jvm, arguments.rounds, spans)))
                if spans is not None:
                    sys.setprofile(None)
                    print(spans.profile(arguments.rounds))
        if arguments.only != "warm":
            meter = Meter()
            for name, minutes in (("processes, cold", "0"), ("processes, JVM kept", "2")):
                found = as_processes(Interval(Path(scratch), bootstrap), meter, arguments.rounds, minutes)
                print(_line(name, found), flush=True)
            end_kept()


if __name__ == "__main__":
    main()
