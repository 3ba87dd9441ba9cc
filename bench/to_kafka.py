"""What does it cost to bring a database's table into a topic, beside Spark's own reader and writer?

    python -m bench.to_kafka                               # 2,000,000 rows of PostgreSQL's, three runs
    python -m bench.to_kafka --splits 2                    # Sluice reads by two queries at the same time
    python -m bench.to_kafka --rows 20000 --runs 1         # does it work at all?

Whole processes from cold start to records that can be read, which take turns. `sluice` is one interval's START, write
and COMMIT: JSON with keys, positions in the same transaction, whole or not at all; `warm` is the same, written by a
worker that was up, and whose processor time counts. `plain` is `spark.read.jdbc`, `to_json` and Spark's Kafka writer
with its defaults, by one connection. After each run a consumer of committed records counts them and their keys; a run
whose keys aren't the table's is void. Exit code 1: some run was void.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.servers import LOOPBACK, PostgreSql, missing, postgresql_programs

from bench.broker import embedded_broker
from bench.jdbc_source import load
from bench.participants import PEERS, environment, spark_submit
from bench.report import markdown_table, shown_spread
from bench.trees import Meter
from bench.worker_side import COLD, Table, WorkerOptions, workers
from sluice.connectors.connections import ConnectionSettings, to_environment
from sluice.coordinator import Started
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import submit_command
from sluice.pipeline import load_pipeline

PARTITIONS = 4
MASTER, MEMORY = "local[2]", "2g"
_NO_DIGIT = re.compile(rb"\D")
WARM = "warm"
_IDLE = 30.0  # seconds without a record, after which a topic's partition must have ended


@dataclass
class Side:
    """The valid runs of one participant."""

    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    steps: list[tuple[float, ...]] = field(default_factory=list)


class Place:
    """A broker, a table of so many rows, and a folder."""

    def __init__(self, bootstrap: str, server: PostgreSql, folder: Path, rows: int, splits: int) -> None:
        self.bootstrap, self.server, self.folder, self.rows, self.splits = bootstrap, server, folder, rows, splits
        self.url = f"jdbc:postgresql://{LOOPBACK}:{server.port}/postgres?user=airflow&password={server.password}"

    def topic(self) -> str:
        name = f"rows-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        return name

    def plain(self, topic: str) -> list[list[str]]:
        arguments = ["--bootstrap", self.bootstrap, "--topic", topic, "--url", self.url]
        script = PEERS / "jdbc_to_kafka.py"
        return [spark_submit(script, *arguments, master=MASTER, driver_memory=MEMORY, hudi=False)]

    def pipeline(self, topic: str, **write: Any) -> Path:
        """The file of a pipeline from the table into a topic."""
        file = self.folder / f"{topic}.yaml"
        timed = {"mode": "timestamp", "timestamp_column": "changed", "max_records": 10 * self.rows}
        if self.splits > 1:
            timed["splits"] = self.splits
        kafka = {"connection": "bench", "topic": topic, "key_fields": "id", "staging": str(self.folder / "staging")}
        file.write_text(
            yaml.safe_dump(
                {
                    "name": topic,
                    "source": {"jdbc": {"connection": "warehouse", "tables": "public.events", **timed}},
                    "sink": {"kafka": kafka},
                    "write": {"ranges": 1, "driver_memory": MEMORY, **write},
                    "control": {"connection": "bench", "topic": f"control-{topic}"},
                }
            )
        )
        return file

    def sluice(self, topic: str) -> list[list[str]]:
        file = self.pipeline(topic)
        step = [sys.executable, "-m", "sluice.cli", "interval"]
        write = submit_command(load_pipeline(file), Started("", 0, ()), 0, MASTER)
        return [[*step, "start", str(file)], write, [*step, "commit", str(file), "--control-offset", "0"]]

    def environment(self) -> dict[str, str]:
        """By which processes find the broker and the database."""
        settings = KafkaSettings("bench", {"bootstrap.servers": self.bootstrap})
        where: dict[str, Any] = {"host": LOOPBACK, "port": self.server.port, "schema": "postgres"}
        known = [
            ConnectionSettings("warehouse", "postgres", **where, login="airflow", password=self.server.password),
            ConnectionSettings("bench", "kafka", extra={"bootstrap.servers": self.bootstrap}),
        ]
        found: Mapping[str, str] = {**settings.to_environment("source"), **to_environment(known)}
        return dict(found)

    def is_whole(self, topic: str) -> bool:
        """Whether each row is there once."""
        seen, count = bytearray(self.rows + 1), 0
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": topic,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        consumer.subscribe([topic])
        ended: set[int] = set()
        try:
            while len(ended) < PARTITIONS:
                found = consumer.consume(10_000, _IDLE)
                if not found:
                    return False
                for record in found:
                    error = record.error()
                    if error is None:
                        seen[int(_NO_DIGIT.sub(b"", record.key() or b"0"))] = 1
                        count += 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(int(record.partition() or 0))
        finally:
            consumer.close()
        return count == self.rows and sum(seen[1:]) == self.rows


def _run(place: Place, meter: Meter, name: str, side: Side, warm: Table | None, run: int) -> bool:
    """One run, by a worker that is up where it is of such a table; whether it counts."""
    topic = place.topic() if warm is None else warm.file.stem
    log = place.folder / f"{name}-{topic}.log"
    with meter.measured() as cost:
        if warm is not None:
            steps: list[float] = list(warm.interval(meter, f"run-{run}", COLD, log)[:3])
        else:
            commands = place.sluice(topic) if name == "sluice" else place.plain(topic)
            steps = [_seconds(meter, command, log) for command in commands]
    if not place.is_whole(topic):
        print(f"{name}: VOID, the topic hasn't each row once", flush=True)
        return False
    told = " + ".join(f"{one:.1f}" for one in steps)
    words = f"{name}: {cost.wall:.1f} s ({told}), {cost.cpu:.1f} CPU s (others: {cost.others_cpu:.1f})"
    print(words, file=sys.stderr, flush=True)
    if run >= 0:
        side.walls.append(cost.wall)
        side.cpus.append(cost.cpu)
        side.steps.append(tuple(steps))
    return True


def _seconds(meter: Meter, command: list[str], log: Path) -> float:
    """Run a command; returns what it took."""
    began = time.monotonic()
    meter.run(command, environment(), log)
    return time.monotonic() - began


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--splits", type=int, default=1, help="queries by which Sluice reads at the same time")
    arguments = parser.parse_args()
    lacks, programs = missing(), postgresql_programs()
    if lacks is not None or programs is None:
        raise SystemExit(str(lacks))
    server, good = PostgreSql(programs), True
    sides = {name: Side() for name in ("sluice", WARM, "plain")}
    with tempfile.TemporaryDirectory(prefix="sl") as folder:
        try:
            server.start()
            load(server, arguments.rows)
            server.run("ALTER TABLE events ADD PRIMARY KEY (id)")
            with embedded_broker(Path(folder)) as bootstrap:
                place = Place(bootstrap, server, Path(folder), arguments.rows, arguments.splits)
                good = _compared(place, arguments.runs, sides)
        finally:
            server.stop()
    rows = [
        [name, *map(shown_spread, (s.walls, s.cpus)), _steps(s.steps), str(len(s.walls))] for name, s in sides.items()
    ]
    print(markdown_table(("who", "wall s", "CPU s", "steps' s", "valid runs"), rows))
    plain = sides["plain"]
    for name in ("sluice", WARM):
        if (ours := sides[name]).walls and plain.walls:
            wall, cpu = (
                statistics.median(a) / statistics.median(b)
                for a, b in ((ours.walls, plain.walls), (ours.cpus, plain.cpus))
            )
            print(f"\n{arguments.rows:,} rows, {name} ÷ plain: {wall:.2f} wall, {cpu:.2f} CPU")
    return 0 if good else 1


def _compared(place: Place, runs: int, sides: Mapping[str, Side]) -> bool:
    """Let the sides take turns, after a run of the worker by which it gets warm; whether all runs count."""
    os.environ.update(place.environment())  # of all processes, the worker's too
    meter, good = Meter(), True
    write = {"workers": "bench", "claim_within": "10 minutes"}
    tables = []
    for _ in range(runs + 1):
        topic = place.topic()
        tables.append(Table(place.pipeline(topic, **write), place.folder / topic, place.bootstrap))
    with workers(tables, WorkerOptions("bench", 1, MEMORY, MASTER), 1, place.folder):
        good = _run(place, meter, WARM, sides[WARM], tables[-1], -1)
        for number in range(runs):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                table = tables[number] if name == WARM else None
                good = _run(place, meter, name, sides[name], table, number) and good
    return good


def _steps(found: list[tuple[float, ...]]) -> str:
    return " + ".join(f"{statistics.median(each):.1f}" for each in zip(*found, strict=True))


if __name__ == "__main__":
    sys.exit(main())
