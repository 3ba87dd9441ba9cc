"""What does it cost to bring a database's table into a topic, beside Spark's own reader and writer?

    python -m bench.to_kafka                               # 2,000,000 rows of PostgreSQL's, three runs
    python -m bench.to_kafka --rows 20000 --runs 1         # does it work at all?

Whole processes from cold start to records that can be read, which take turns. `sluice` is one interval's START, write
and COMMIT: JSON with keys, positions in the same transaction, whole or not at all. `plain` is `spark.read.jdbc`,
`to_json` and Spark's Kafka writer with its defaults. Both read by one connection. After each run a consumer of
committed records counts them and their keys; a run whose keys aren't the table's is void. Exit code 1: some run was
void.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
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
from bench.trees import CommandError, Meter
from sluice.connectors.connections import ConnectionSettings, to_environment
from sluice.coordinator import Started
from sluice.kafka.config import KafkaSettings
from sluice.launch.submit import submit_command
from sluice.pipeline import load_pipeline

PARTITIONS = 4
MASTER, MEMORY = "local[2]", "2g"
_NO_DIGIT = re.compile(rb"\D")
_IDLE = 30.0  # seconds without a record, after which a topic's partition must have ended


@dataclass
class Side:
    """The valid runs of one participant."""

    walls: list[float]
    cpus: list[float]


class Place:
    """A broker, a table of so many rows, and a folder."""

    def __init__(self, bootstrap: str, server: PostgreSql, folder: Path, rows: int) -> None:
        self.bootstrap, self.server, self.folder, self.rows = bootstrap, server, folder, rows
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

    def sluice(self, topic: str) -> list[list[str]]:
        file = self.folder / f"{topic}.yaml"
        timed = {"mode": "timestamp", "timestamp_column": "changed", "max_records": 10 * self.rows}
        kafka = {"connection": "bench", "topic": topic, "key_fields": "id", "staging": str(self.folder / "staging")}
        file.write_text(
            yaml.safe_dump(
                {
                    "name": topic,
                    "source": {"jdbc": {"connection": "warehouse", "tables": "public.events", **timed}},
                    "sink": {"kafka": kafka},
                    "write": {"ranges": 1, "driver_memory": MEMORY},
                    "control": {"connection": "bench", "topic": f"control-{topic}"},
                }
            )
        )
        given = self._environment()
        step = ["env", *given, sys.executable, "-m", "sluice.cli", "interval"]
        write = submit_command(load_pipeline(file), Started("", 0, ()), 0, MASTER)
        return [
            [*step, "start", str(file)], ["env", *given, *write], [*step, "commit", str(file), "--control-offset", "0"]
        ]  # fmt: skip

    def _environment(self) -> list[str]:
        settings = KafkaSettings("bench", {"bootstrap.servers": self.bootstrap})
        where: dict[str, Any] = {"host": LOOPBACK, "port": self.server.port, "schema": "postgres"}
        known = [
            ConnectionSettings("warehouse", "postgres", **where, login="airflow", password=self.server.password),
            ConnectionSettings("bench", "kafka", extra={"bootstrap.servers": self.bootstrap}),
        ]
        found: Mapping[str, str] = {**settings.to_environment("source"), **to_environment(known)}
        return [f"{name}={value}" for name, value in found.items()]

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


def _run(place: Place, meter: Meter, name: str, side: Side) -> bool:
    topic = place.topic()
    commands = place.sluice(topic) if name == "sluice" else place.plain(topic)
    log = place.folder / f"{name}-{topic}.log"
    with meter.measured() as cost, log.open("wb") as out:
        for command in commands:
            done = subprocess.run(
                command, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
            )
            if done.returncode:
                raise CommandError(log.read_text(errors="replace")[-2000:])
    if not place.is_whole(topic):
        print(f"{name}: VOID, the topic hasn't each row once", flush=True)
        return False
    side.walls.append(cost.wall)
    side.cpus.append(cost.cpu)
    print(
        f"{name}: {cost.wall:.1f} s, {cost.cpu:.1f} CPU s (others: {cost.others_cpu:.1f})", file=sys.stderr, flush=True
    )
    return True


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    lacks, programs = missing(), postgresql_programs()
    if lacks is not None or programs is None:
        raise SystemExit(str(lacks))
    server, good = PostgreSql(programs), True
    sides = {name: Side([], []) for name in ("sluice", "plain")}
    with tempfile.TemporaryDirectory(prefix="bench-to-kafka-") as folder:
        try:
            server.start()
            load(server, arguments.rows)
            server.run("ALTER TABLE events ADD PRIMARY KEY (id)")
            with embedded_broker(Path(folder)) as bootstrap:
                place, meter = Place(bootstrap, server, Path(folder), arguments.rows), Meter()
                for number in range(arguments.runs):
                    for name in list(sides)[:: 1 if number % 2 else -1]:
                        good = _run(place, meter, name, sides[name]) and good
        finally:
            server.stop()
    ours, plain = sides["sluice"], sides["plain"]
    rows = [[name, shown_spread(s.walls), shown_spread(s.cpus), str(len(s.walls))] for name, s in sides.items()]
    print(markdown_table(("who", "wall s", "CPU s", "valid runs"), rows))
    if ours.walls and plain.walls:
        wall, cpu = (
            statistics.median(a) / statistics.median(b) for a, b in ((ours.walls, plain.walls), (ours.cpus, plain.cpus))
        )
        print(f"\n{arguments.rows:,} rows, sluice ÷ plain: {wall:.2f} wall, {cpu:.2f} CPU")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
