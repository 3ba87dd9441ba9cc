"""A DAG run from its trigger to green: by separate Spark jobs, and by a worker that is up. Airflow is included.

    python -m bench.dag_run                            # 1,000 records, five runs of each
    python -m bench.dag_run --runs 1                   # does it work at all?

One Airflow with SQLite and LocalExecutor, as `make up` starts it, and one pipeline of either kind in turn. Processor
time is that of all of Airflow's processes, of the steps, their JVMs and Spark jobs, and of the worker, from the trigger
until the run is green; what all of them take in as long a time in which nothing is to be done is beside it. At the
end a fresh Spark session reads all tables. Exit code 1: a run failed, or rows differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import statistics
import sys
import time
from collections import defaultdict
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from bench import records
from bench.checks import check
from bench.home import PROJECT
from bench.measure import machine_busy_seconds
from bench.report import markdown_table, only_warnings, shown_spread
from bench.sluice_side import pipeline_file
from bench.trees import Cost
from bench.worker_side import CLAIM_WITHIN, COLD, KEPT, Ground, Table, WorkerOptions, ground, workers
from sluice.jvm.kept import MINUTES
from sluice.local.airflow import AirflowEnvironment, LocalAirflow
from sluice.local.airflow_api import AirflowApi
from sluice.local.home import SluiceHome
from sluice.local.process import free_port
from sluice.pipeline.load import FOLDERS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUP = "dagrun"
KINDS = {"own": "a separate Spark job", "worker": "a worker that is up"}
STEPS = {COLD: "each step its own JVM", KEPT: "the steps' JVM kept"}
IDLE = 20.0  # seconds over which Airflow is watched while nothing is to be done
POLL = 0.1
GIVE_UP = 300.0


class FailedRunError(RuntimeError):
    """A DAG run that did not become green."""


@dataclass
class Side:
    """One way to run a pipeline, and what its runs cost. `tasks`: when each began and ended, in s after the trigger."""

    name: str
    table: Table
    costs: list[Cost] = field(default_factory=list)
    tasks: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))


class Database:
    """Airflow's own, read without asking Airflow, whose answers cost it processor time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def state(self, run_id: str) -> str:
        return str(self._rows("SELECT state FROM dag_run WHERE run_id = ?", run_id)[0][0])

    def tasks(self, run_id: str) -> list[tuple[str, float, float]]:
        """Each task that has run: its name, and when it began and ended, in seconds of the epoch."""
        found = self._rows("SELECT task_id, start_date, end_date FROM task_instance WHERE run_id = ?", run_id)
        return [(task, _seconds(start), _seconds(end)) for task, start, end in found if start and end]

    def _rows(self, sql: str, run_id: str) -> list[tuple[str, ...]]:
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(sql, (run_id,)).fetchall()


def _seconds(text: str) -> float:
    """The database's times are UTC, and don't say so."""
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@contextmanager
def airflow(there: Ground, minutes: str, folders: list[Path]) -> Iterator[LocalAirflow]:
    """An Airflow that has the pipelines in these folders, until the block is left."""
    base = there.work / f"airflow-{minutes}"
    dags = base / "dags"
    (dags / "pipelines").mkdir(parents=True)
    shutil.copy(PROJECT / "dags" / "sluice_pipelines.py", dags)
    environment = AirflowEnvironment(
        SluiceHome.from_env(),
        there.bootstrap,
        folder=base / "home",
        dags_folder=dags,
        plugins_folder=PROJECT / "plugins",
        paused=False,
        port=free_port(),
        extra={FOLDERS_VARIABLE: os.pathsep.join(map(str, folders)), MINUTES: minutes},
    )
    running = LocalAirflow(environment)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def measure(there: Ground, api: AirflowApi, database: Database, side: Side, *, counts: bool) -> None:
    """One run until it is green; what it cost is kept if it counts."""
    os.sync()
    # Not by `Meter.measured`, which waits for orphans to end: Airflow's own processes look like some, and stay.
    busy, cpu, triggered = machine_busy_seconds(), there.meter.seconds(), time.time()
    run_id = api.trigger(side.name, {})
    while (state := database.state(run_id)) not in ("success", "failed"):
        if time.time() - triggered > GIVE_UP:
            raise FailedRunError(f"{side.name}: still {state} after {GIVE_UP:.0f} s")
        time.sleep(POLL)
    spent = there.meter.seconds() - cpu
    cost = Cost(time.time() - triggered, spent, machine_busy_seconds() - busy - spent)
    if state == "failed":
        raise FailedRunError(f"{side.name}: the run {run_id} failed")
    if counts:
        side.costs.append(cost)
        for task, start, end in database.tasks(run_id):
            side.tasks[task].append((start - triggered, end - triggered))


def tables(there: Ground, minutes: str, count: int) -> dict[str, Side]:
    """A pipeline of each kind, each with its topic and table."""
    made = {}
    for kind in KINDS:
        name = f"{kind}-{minutes}"
        job = there.job(name, "interval", count)
        job.home.mkdir(parents=True)
        more = {"workers": GROUP, "claim_within": CLAIM_WITHIN} if kind == "worker" else {}
        records.create_topic(there.bootstrap, name, 2)
        made[kind] = Side(name, Table(pipeline_file(job, name, **more), job.table, there.bootstrap))
    return made


def compare(there: Ground, minutes: str, count: int, runs: int, warm_up: int) -> tuple[dict[str, Side], float]:
    """Runs of each kind in turn; also the processor seconds a second of Airflow and worker that have nothing to do."""
    sides = tables(there, minutes, count)
    folders = [side.table.file.parent for side in sides.values()]
    options = WorkerOptions(GROUP)
    with (
        workers([sides["worker"].table], options, 1, there.work),
        airflow(there, minutes, folders) as running,
    ):
        api, database = AirflowApi(running.environment), Database(running.environment.airflow_home / "airflow.db")
        for side in sides.values():
            api.await_dag(side.name)
        for number in range(warm_up + runs):
            for side in sides.values():
                there.say(f"{STEPS[minutes]}, {side.name}: run {number + 1} of {warm_up + runs}")
                window = records.Window(number * count, (number + 1) * count)
                records.produce(there.bootstrap, side.name, there.seed, window, 2)
                measure(there, api, database, side, counts=number >= warm_up)
        idle = there.meter.seconds()
        time.sleep(IDLE)
        idle = (there.meter.seconds() - idle) / IDLE
    return sides, idle


def _line(kind: str, minutes: str, side: Side, own: Side, idle: float) -> tuple[str, ...]:
    ratios = [f"{_middle(side, what) / _middle(own, what):.2f}" for what in ("wall", "cpu")]
    tasks = (
        f"{name} {statistics.median(b for b, _ in times):.1f} to {statistics.median(e for _, e in times):.1f}"
        for name, times in sorted(side.tasks.items(), key=lambda one: one[1][0])
    )
    return (
        f"{KINDS[kind]}, {STEPS[minutes]}",
        shown_spread([c.wall for c in side.costs]),
        shown_spread([c.cpu for c in side.costs]),
        *ratios,
        f"{idle * _middle(side, 'wall'):.1f}",
        f"{_middle(side, 'others_cpu'):.1f}",
        ", ".join(tasks),
    )


def _middle(side: Side, what: str) -> float:
    return float(statistics.median(getattr(cost, what) for cost in side.costs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=2)
    given = parser.parse_args()
    only_warnings()
    lines, good = [], True
    with ground() as there:
        found = {m: compare(there, m, given.records, given.runs, given.warm_up) for m in STEPS}
        first = found[COLD][0]["own"]
        for minutes, (sides, idle) in found.items():
            lines += [_line(kind, minutes, side, first, idle) for kind, side in sides.items()]
        wanted = records.expected(there.seed, records.Window(0, given.records * (given.runs + given.warm_up)))
        places = [str(side.table.place) for sides, _ in found.values() for side in sides.values()]
        for place, (problem, _) in zip(places, check([(p, wanted) for p in places], "hudi", there.work), strict=True):
            if problem is not None:
                good = False
                there.say(f"VOID {place}: {problem}")
    columns = ("an interval is written by", "wall s", "CPU s", "÷ first, wall", "÷ first, CPU")
    more = ("CPU s of as long idle", "others' CPU s", "tasks, begin to end in s after the trigger")
    print(markdown_table((*columns, *more), lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
