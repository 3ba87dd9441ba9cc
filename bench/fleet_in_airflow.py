"""How many small pipelines does one Airflow hold? A real one: nothing of it is simulated.

    python -m bench.fleet_in_airflow                                # 100 pipelines, 1,000 records each, every 5 minutes
    python -m bench.fleet_in_airflow --pipelines 300 --periods 12   # for an hour
    python -m bench.fleet_in_airflow --pipelines 5 --minutes 1      # does it work at all?

One Airflow as `make up` starts it (LocalExecutor, SQLite), one worker, one broker, all on this machine. All pipelines
are due at the same time. A period holds if each of its runs is green before the next one is due. Processor seconds are
those of each kind of process in all periods, and memory that of long-lived processes, at each period's end. At the
end a fresh Spark session reads all tables. Exit code 1: a period did not hold, or rows differ.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import psutil
import yaml

from bench import records
from bench.checks import check
from bench.dag_run import airflow
from bench.fleet import GROUP, Shape, produce, topic_of
from bench.report import NONE, markdown_table, only_warnings
from bench.trees import resident_mib
from bench.width import NARROW_LOGS
from bench.worker_side import KEPT, Ground, Table, WorkerOptions, ground, workers

if TYPE_CHECKING:
    from pathlib import Path

    from sluice.local.airflow import LocalAirflow

KINDS = {
    "LocalExecutor": "tasks",
    "api_server": "API server",
    "api-server": "API server",
    "dag-processor": "DAG processor",
    "scheduler": "scheduler",
    "triggerer": "triggerer",
}
PATIENCE = 2  # further periods, in which the last runs may end


class DagRun(NamedTuple):
    """A run: when it was due and when it ended, in seconds of the epoch, and its state."""

    dag: str
    due: float
    ended: float | None
    state: str


def dag_runs(database: Path) -> list[DagRun]:
    """All runs, read without asking Airflow."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as read:
        rows = read.execute("SELECT dag_id, run_after, end_date, state FROM dag_run").fetchall()
    return [DagRun(dag, _seconds(due), _seconds(end) if end else None, state) for dag, due, end, state in rows]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def kind_of(process: psutil.Process) -> str:
    """A process's kind, by its command line; tasks and files are what Airflow's processes fork, and count as theirs."""
    line = " ".join(process.cmdline())
    if process.name() == "java":
        return "broker" if "kafka.Kafka" in line else "JVMs of worker and steps"
    if "sluice.cli worker" in line:
        return "worker's Python"
    return next((KINDS[name] for name in KINDS if name in line), "others")


def used(own: psutil.Process) -> tuple[Counter[str], dict[str, float]]:
    """Processor seconds and resident MiB of each kind of process below this one so far."""
    seconds, memory = Counter[str](), defaultdict[str, float](float)
    for process in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            kind, times = kind_of(process), process.cpu_times()
            seconds[kind] += times.user + times.system + times.children_user + times.children_system
            memory[kind] += resident_mib([process])
    return seconds, memory


def run(on: Ground, shape: Shape, periods: int, options: WorkerOptions) -> bool:
    """All periods, printed as Markdown; whether all held, and all rows are there."""
    on.say(f"{shape.pipelines} topics and pipelines")
    tables = []
    for number in range(shape.pipelines):
        records.create_topic(on.bootstrap, topic_of(number), shape.partitions)
        table = Table.made(on.job(topic_of(number), "table"), GROUP)
        described = yaml.safe_load(table.file.read_text()) | {"schedule": f"{shape.period / 60:g} minutes"}
        table.file.write_text(yaml.safe_dump(described))
        tables.append(table)
    produce(on, shape, 0)
    own = psutil.Process()
    with (
        workers(tables, options, 1, on.work),
        airflow(on, KEPT, sorted({table.file.parent for table in tables})) as running,
    ):
        database = running.environment.airflow_home / "airflow.db"
        first = _first_due(database, shape)
        lines, before, produced = [], used(own)[0], 1
        for number in range(1, periods + 1):
            _wait(on, running, first + number * shape.period - shape.period / 2)
            if number < periods:
                produce(on, shape, produced)
                produced += 1
            _wait(on, running, first + number * shape.period)
            now, memory = used(own)
            lines.append(_line(number, now - before, memory, shape))
            before = now
        for _ in range(PATIENCE * 10):
            runs = dag_runs(database)
            if all(one.ended for one in runs if one.due < first + periods * shape.period):
                break
            time.sleep(shape.period / 10)
    wanted = records.expected(on.seed, records.Window(0, produced * shape.records))
    on.say("reading all tables")
    problems = [one.problem for one in check([(str(table.place), wanted) for table in tables], "hudi", on.work)]
    for table, wrong in zip(tables, problems, strict=True):
        if wrong is not None:
            on.say(f"VOID {table.place.parent.parent.name}: {wrong}")
    return _tell(shape, runs, first, periods, lines, sum(problem is not None for problem in problems))


def _first_due(database: Path, shape: Shape) -> float:
    """When the first runs were due, once every pipeline has one."""
    while True:
        runs = dag_runs(database)
        if len({one.dag for one in runs}) >= shape.pipelines:
            return min(one.due for one in runs)
        time.sleep(1.0)


def _wait(on: Ground, running: LocalAirflow, until: float) -> None:
    while (left := until - time.time()) > 0:
        if not running.running:
            raise RuntimeError(f"Airflow has ended: {running.log}")
        time.sleep(min(left, 5.0))
    on.say(f"{datetime.fromtimestamp(until, UTC):%H:%M:%S}")


def _line(number: int, seconds: Counter[str], memory: dict[str, float], shape: Shape) -> tuple[str, ...]:
    kinds = sorted(memory, key=lambda kind: -seconds[kind])
    return (
        str(number),
        f"{sum(seconds.values()) / shape.pipelines:.2f}",
        ", ".join(f"{kind} {seconds[kind]:.0f}" for kind in kinds),
        ", ".join(f"{kind} {memory[kind]:.0f}" for kind in kinds),
    )


def _tell(
    shape: Shape, runs: list[DagRun], first: float, periods: int, lines: list[tuple[str, ...]], wrong: int
) -> bool:
    cores, holds, rows = os.cpu_count() or 1, not wrong, []
    for number in range(periods):
        due = [one for one in runs if number <= (one.due - first) / shape.period < number + 1]
        delays = [one.ended - one.due for one in due if one.ended is not None and one.state == "success"]
        late = sum(delay > shape.period for delay in delays)
        good = len(delays) == len(due) >= shape.pipelines and not late
        holds = holds and good
        rows.append(
            (
                f"{number + 1}{', makes the tables' if number == 0 else ''}",
                "yes" if good else "NO",
                f"{len(delays)} of {len(due)}",
                str(late),
                f"{statistics.median(delays):.0f}, {max(delays):.0f}" if delays else NONE,
            )
        )
    print(
        f"{shape.pipelines} pipelines, {shape.records:,} records each, every {shape.period:.0f} s, all due at once, "
        f"on {cores} cores.\n"
    )
    print(markdown_table(("period", "holds", "green", "late", "from due to green, s: median, greatest"), rows))
    print()
    print(markdown_table(("period", "CPU s of a run", "CPU s by process", "MiB by process"), lines))
    print(f"\n{wrong} of {shape.pipelines} tables differ from the produced records.")
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=5.0, help="of a period")
    parser.add_argument("--periods", type=int, default=2)
    parser.add_argument("--records", type=int, default=1_000, help="of each pipeline and period")
    parser.add_argument("--slots", type=int, default=2, help="of the worker")
    parser.add_argument("--memory", default="2g", help="of the worker's driver")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    shape = Shape(given.pipelines, given.records, 1, 60 * given.minutes, spread=False, lanes=0)
    only_warnings()
    with ground(given.seed, NARROW_LOGS) as on:
        good = run(on, shape, given.periods, WorkerOptions(GROUP, given.slots, given.memory))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
