"""Do many small pipelines fit on one worker? 300 of them, 1,000 records each, every five minutes.

    python -m bench.fleet                              # two periods; the first one makes the tables
    python -m bench.fleet --spread                     # due one after the other, and not all at once
    python -m bench.fleet --pipelines 10 --minutes 1   # does it work at all?

Airflow is simulated: one process that stays carries out START and COMMIT of all pipelines, in one lean JVM and some
threads, as a control plane that is warm would; it waits for the ranges as the triggerer does. Airflow's own processes
come besides. The worker is `sluice worker` in its processes. A period holds if all pipelines are committed before the
next one begins. At the end a fresh Spark session reads all tables. Exit code 1: a period did not hold, or rows differ.
"""

from __future__ import annotations

import argparse
import os
import queue
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import psutil

from bench import records
from bench.checks import check
from bench.measure import machine_busy_seconds
from bench.report import NONE, markdown_table, only_warnings
from bench.trees import family, resident_mib, seconds_of
from bench.width import NARROW_LOGS
from bench.worker_side import Ground, Table, Worker, WorkerOptions, ground, kafka, workers
from sluice.control.waiters import Awaited, Waiters
from sluice.coordinator import Coordinator, Outcome, Run
from sluice.errors import SluiceError
from sluice.jvm.gateway import lean_jvm
from sluice.pipeline import load_pipeline
from sluice.protocol.claims import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sluice.jvm.gateway import HudiJvm

GROUP = "fleet"
SPREAD = 0.8  # of the period, over which pipelines are due with --spread
GIVE_UP = 3  # periods after which an interval isn't waited for any more


@dataclass(frozen=True)
class Shape:
    """How large the fleet is, and what it has to do."""

    pipelines: int
    records: int
    partitions: int
    period: float
    spread: bool
    lanes: int

    def due(self, number: int) -> float:
        """Seconds after the period's begin."""
        return SPREAD * self.period * number / self.pipelines if self.spread else 0.0


class Reading(NamedTuple):
    """What was seen at one time."""

    seconds: float
    committed: int
    jvm_mib: float
    python_mib: float


@dataclass
class Period:
    """What one period came to. `committed`: seconds after each was due; CPU in seconds."""

    committed: dict[int, float] = field(default_factory=dict)
    last: float = 0.0
    failed: dict[int, str] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    worker_cpu: float = 0.0
    control_cpu: float = 0.0
    others_cpu: float = 0.0

    def holds(self, shape: Shape) -> bool:
        return len(self.committed) == shape.pipelines and self.last <= shape.period


class ControlPlane:
    """Carries out the steps of all pipelines, in some threads; COMMIT before START, so that what is open ends."""

    def __init__(self, tables: Sequence[Table], jvm: HudiJvm, lanes: int) -> None:
        self.settings = kafka(tables[0].bootstrap)
        self._pipelines = [load_pipeline(table.file) for table in tables]
        self._jvm = jvm
        self._waiters = Waiters(self.settings)
        self._tasks: queue.PriorityQueue[tuple[int, int, Callable[[], None]]] = queue.PriorityQueue()
        self._number = 0
        self._lock = threading.Lock()
        self._java = psutil.Process(jvm.pid)
        for _ in range(lanes):
            threading.Thread(target=self._lane, daemon=True).start()

    def seconds(self) -> float:
        """Processor seconds of this process and its JVM so far."""
        return time.process_time() + sum(self._java.cpu_times()[:2])

    def begin(self, number: int, run_id: str, done: Callable[[str | None], None]) -> None:
        """Begin an interval of a pipeline; `done` is called at its end, with the error if it failed."""
        self._put(1, lambda: self._start(number, run_id, done), done)

    def _put(self, priority: int, task: Callable[[], None], done: Callable[[str | None], None]) -> None:
        def guarded() -> None:
            try:
                task()
            except Exception as error:
                done(repr(error))

        with self._lock:
            self._number += 1
            self._tasks.put((priority, self._number, guarded))

    def _lane(self) -> None:
        while True:
            self._tasks.get()[2]()

    def _coordinator(self, number: int) -> Coordinator:
        """One for a single step, as Airflow has a process: no process can have more than a thousand Kafka clients."""

        @contextmanager
        def same() -> Iterator[HudiJvm]:
            yield self._jvm

        return Coordinator(self._pipelines[number], self.settings, jvm=same)

    def _start(self, number: int, run_id: str, done: Callable[[str | None], None]) -> None:
        started = self._coordinator(number).start(Run(GROUP, run_id))
        if isinstance(started, Outcome):
            done(started.summary)
            return
        pipeline = self._pipelines[number]
        within = pipeline.write.claim_within.total_seconds()
        waiting, offset = ExitStack(), started.control_offset
        at = Awaited(pipeline.table_id, pipeline.control_topic, offset, 0, GROUP, within)

        def told(what: Verdict | SluiceError) -> None:
            self._put(0, lambda: self._commit(number, offset, what, waiting, done), done)

        waiting.enter_context(self._waiters.waiting(at, told))

    def _commit(
        self,
        number: int,
        offset: int,
        what: Verdict | SluiceError,
        waiting: ExitStack,
        done: Callable[[str | None], None],
    ) -> None:
        waiting.close()
        if what is not Verdict.WRITTEN:
            done(str(what))
            return
        self._coordinator(number).commit(offset)
        done(None)


def period(on: Ground, shape: Shape, number: int, control: ControlPlane, worker: Worker, every: float) -> Period:
    """One period, until all pipelines have committed, and not before it is over; failures are printed as they come."""
    found, lock, began = Period(), threading.Lock(), time.monotonic()
    cpu, control_cpu, busy = seconds_of(worker.tree), control.seconds(), machine_busy_seconds()

    def done_of(pipeline: int) -> Callable[[str | None], None]:
        def done(problem: str | None) -> None:
            after = time.monotonic() - began
            with lock:
                if problem is not None:
                    found.failed[pipeline] = problem
                    on.say(f"pipeline {pipeline} failed after {after:.0f} s: {problem}")
                    return
                found.committed[pipeline] = after - shape.due(pipeline)
                found.last = max(found.last, after)

        return done

    begun, read = 0, 0.0
    while True:
        now = time.monotonic() - began
        while begun < shape.pipelines and shape.due(begun) <= now:
            control.begin(begun, f"period-{number}", done_of(begun))
            begun += 1
        if now >= read:
            worker.require()
            read += every
            python, *below = family(worker.tree)
            found.readings.append(Reading(now, len(found.committed), resident_mib(below), resident_mib([python])))
        ended = len(found.committed) + len(found.failed) == shape.pipelines
        if (ended and now >= shape.period) or now > GIVE_UP * shape.period:
            break
        time.sleep(0.2)
    found.worker_cpu, found.control_cpu = seconds_of(worker.tree) - cpu, control.seconds() - control_cpu
    found.others_cpu = max(0.0, machine_busy_seconds() - busy - found.worker_cpu - found.control_cpu)
    return found


def produce(on: Ground, shape: Shape, number: int) -> None:
    window = records.Window(number * shape.records, (number + 1) * shape.records)
    with ThreadPoolExecutor(4) as pool:
        for one in [
            pool.submit(records.produce, on.bootstrap, topic_of(i), on.seed, window, shape.partitions)
            for i in range(shape.pipelines)
        ]:
            one.result()


def topic_of(number: int) -> str:
    return f"fleet-{number:04}"


def fleet(on: Ground, shape: Shape, periods: int, options: WorkerOptions, every: float) -> bool:
    """All periods, printed as Markdown; whether all held, and all rows are there."""
    on.say(f"{shape.pipelines} topics and pipelines")
    for number in range(shape.pipelines):
        records.create_topic(on.bootstrap, topic_of(number), shape.partitions)
    tables = [Table.made(on.job(topic_of(number), "table"), GROUP) for number in range(shape.pipelines)]
    found = []
    with lean_jvm() as jvm, workers(tables, options, 1, on.work) as (worker,):
        control = ControlPlane(tables, jvm, shape.lanes)
        for number in range(periods):
            produce(on, shape, number)
            on.say(f"period {number + 1} of {periods}")
            found.append(period(on, shape, number, control, worker, every))
            if not found[-1].holds(shape):
                break  # the next one would begin with what this has left
    wanted = records.expected(on.seed, records.Window(0, len(found) * shape.records))
    on.say("reading all tables")
    problems = [one.problem for one in check([(str(table.place), wanted) for table in tables], "hudi", on.work)]
    for table, wrong in zip(tables, problems, strict=True):
        if wrong is not None:
            on.say(f"VOID {table.place.parent.parent.name}: {wrong}")
    _tell(shape, found, options, sum(problem is not None for problem in problems))
    return not any(problems) and all(one.holds(shape) for one in found) and len(found) == periods


def _tell(shape: Shape, found: list[Period], options: WorkerOptions, wrong: int) -> None:
    cores = os.cpu_count() or 1
    due = f"due over {SPREAD:.0%} of the period" if shape.spread else "all due at once"
    print(
        f"{shape.pipelines} pipelines, {shape.records:,} records each in {shape.partitions} partition(s), every "
        f"{shape.period:.0f} s, {due}; one worker of {options.slots} slots and {options.memory}, "
        f"{shape.lanes} threads for START and COMMIT.\n"
    )
    columns = (
        *("period", "holds", "committed", "the last after s", "from due to committed, s: median, greatest"),
        *("worker's CPU s", "START's and COMMIT's", f"share of {cores} cores in the period", "others' CPU s"),
    )
    rows = []
    for number, one in enumerate(found, 1):
        used = one.worker_cpu + one.control_cpu
        delays = list(one.committed.values())
        rows.append(
            (
                f"{number}{', makes the tables' if number == 1 else ''}",
                "void" if wrong else ("yes" if one.holds(shape) else "NO"),
                f"{len(one.committed)} of {shape.pipelines}",
                f"{one.last:.0f}",
                f"{statistics.median(delays):.0f}, {max(delays):.0f}" if delays else NONE,
                f"{one.worker_cpu:.0f}",
                f"{one.control_cpu:.0f}",
                f"{used / (cores * shape.period):.0%}",
                f"{one.others_cpu:.0f}",
            )
        )
    print(markdown_table(columns, rows))
    print(f"\n{wrong} of {shape.pipelines} tables differ from the produced records.\n")
    print(markdown_table(("period, second", "committed", "worker's JVM, MiB", "its Python, MiB"), _readings(found)))


def _readings(found: list[Period]) -> list[tuple[str, ...]]:
    return [
        (f"{number}, {r.seconds:.0f}", str(r.committed), f"{r.jvm_mib:.0f}", f"{r.python_mib:.0f}")
        for number, one in enumerate(found, 1)
        for r in one.readings
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=5.0, help="of a period")
    parser.add_argument("--periods", type=int, default=2)
    parser.add_argument("--records", type=int, default=1_000, help="of each pipeline and period")
    parser.add_argument("--partitions", type=int, default=1, help="of each topic")
    parser.add_argument("--slots", type=int, default=4, help="of the worker")
    parser.add_argument("--memory", default="2g", help="of the worker's driver")
    parser.add_argument("--lanes", type=int, default=2, help="threads that carry out START and COMMIT")
    parser.add_argument("--spread", action="store_true", help="pipelines are due one after the other")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between looks at the worker's memory")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    shape = Shape(
        given.pipelines, given.records, given.partitions, 60 * given.minutes, given.spread, given.lanes
    )  # fmt: skip
    options = WorkerOptions(GROUP, given.slots, given.memory)
    only_warnings()
    with ground(given.seed, NARROW_LOGS) as on:
        good = fleet(on, shape, given.periods, options, given.every)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
