"""`make demo-connectors`: one topic into a Hudi table, Parquet and Avro files and a database, while jobs are killed.

It goes on from what an earlier demo left: topic, table, files and the database's table all grow.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from sluice.demo.airflow_api import AirflowApi, DagRun
from sluice.demo.databases import CONNECTION, Database, PostgreSql, Sqlite
from sluice.demo.fingerprint import Columns, Fingerprint, columns_of, fingerprint
from sluice.demo.flights import Stream, flights
from sluice.demo.killer import Killer
from sluice.demo.replay import Replay
from sluice.demo.stage import Stage, main
from sluice.demo.tables import append_table, avro_files, parquet_files
from sluice.demo.topics import ensure_topic, records
from sluice.kafka.config import KafkaSettings
from sluice.local.airflow import LocalAirflow
from sluice.local.credentials import ADMIN
from sluice.local.errors import LocalRuntimeError
from sluice.pipeline import load_pipeline

TOPIC = "departures"
_RECORDS = 60_000
_SECONDS = 45.0  # in which nine tenths of them come
_PATIENCE = 400.0  # seconds for the DAG runs of one interval each
_DDL = """\
year INT, month INT, day INT, dep_time INT, dep_delay DOUBLE, carrier STRING, flight INT, tailnum STRING,
      origin STRING, dest STRING, distance DOUBLE, time_hour STRING"""
_PIPELINE = """\
# Made by `make demo-connectors`.
name: {name}
description: Departures from New York, in {what}.
source: {{kafka: {{topics: {topic}}}}}
sink:
  {sink}
    schema: >-
      {ddl}
write: {{ranges: 1}}
retries: 3
retry_delay: 5 seconds
"""
_HUDI = """hudi:
    path: ${SLUICE_LAKE:-file:///tmp/sluice-lake}/departures_hudi
    partition_fields: origin"""
_PARQUET = """files:
    path: ${SLUICE_LAKE:-file:///tmp/sluice-lake}/departures_parquet
    format: parquet
    layout: connect
    partitioner: field
    partition_fields: origin"""
_AVRO = """files:
    path: ${SLUICE_LAKE:-file:///tmp/sluice-lake}/departures_avro
    codec: deflate  # snappy is the default; Python reads that only with one more package"""


@dataclass(frozen=True)
class _Target:
    """A pipeline of the demo.

    Attributes:
        name: its name.
        what: what it writes, in words.
        sink: its file's section `sink`.
    """

    name: str
    what: str
    sink: str

    def write(self, folder: Path) -> None:
        file = folder / f"{self.name}.yaml"
        text = _PIPELINE.format(name=self.name, what=self.what, topic=TOPIC, sink=self.sink, ddl=_DDL)
        if not file.exists() or file.read_text() != text:  # Airflow needn't read it anew
            file.write_text(text)


def targets(database: Database) -> list[_Target]:
    """Hudi, Parquet, Avro, and the database."""
    return [
        _Target("departures_hudi", "a Hudi table", _HUDI),
        _Target("departures_parquet", "Parquet files, laid out as Kafka Connect does", _PARQUET),
        _Target("departures_avro", "Avro files, a folder for each interval", _AVRO),
        _Target(
            f"departures_{database.name}",
            f"a table of {database.title}",
            f"jdbc:\n    connection: {CONNECTION}\n    table: {database.table}\n    auto_create: true",
        ),
    ]


class _Demo:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._out: Console = stage.out
        self._home = stage.home
        os.environ.setdefault("SLUICE_LAKE", str(stage.home.lake))  # where Airflow's tasks have it, too
        self._folder = stage.home.root / "demo" / "pipelines"

    def run(self) -> bool:
        """All of it; whether the topic and all that was loaded from it hold the same."""
        began = time.monotonic()
        self._stage.heading("1. Java, jars and class archives")
        self._stage.install()
        self._stage.heading("2. Kafka, Airflow and a database")
        airflow = self._stage.start()
        database = self._database()
        api = AirflowApi(airflow.environment)
        api.set_connection(CONNECTION, database.connection())
        wanted = targets(database)
        for target in wanted:
            target.write(self._folder)
        with self._out.status("Waiting for Airflow to read the pipelines"):
            for target in wanted:
                api.await_dag(target.name)
                api.unpause(target.name)
        self._out.print(f"Airflow  {airflow.environment.url}, with the DAGs {', '.join(t.name for t in wanted)}")

        settings = KafkaSettings("kafka_default", {"bootstrap.servers": self._stage.broker.bootstrap})
        made = ensure_topic(settings, TOPIC)
        self._out.print(f"Topic    {TOPIC}: {'made' if made else 'there already; its records stay, new ones follow'}")
        everything = flights(TOPIC)
        producer = Replay(settings, Stream(TOPIC, _RECORDS, everything.slice), _SECONDS)

        self._stage.heading("3. One interval of each, while records arrive and write jobs are killed")
        producer.start()
        with Killer([t.name for t in wanted], lambda line: self._out.print(line)) as killer:
            self._intervals(api, wanted)
        killer.check()
        producer.publish_rest()
        with self._out.status("Publishing the rest"):
            producer.join()
        producer.check()
        self._out.print(f"All {producer.acknowledged:,} records are in Kafka.")

        self._stage.heading("4. The next interval of each")
        self._intervals(api, wanted)

        self._stage.heading("5. Is every record in each of them, once?")
        same = self._compare(settings, database, wanted)
        self._finish(airflow, database, wanted, same, time.monotonic() - began)
        return same

    def _database(self) -> Database:
        """PostgreSQL where its programs are to be had, else SQLite."""
        server = PostgreSql(self._home)
        try:
            with self._out.status("Starting PostgreSQL"):
                server.start()
        except LocalRuntimeError as error:
            self._out.print(f"Database SQLite instead of PostgreSQL: {escape(error.what)}", style="yellow")
            return Sqlite(self._home.lake / "departures.sqlite")
        self._out.print(f"Database {server.title} on port {server.port}")
        return server

    def _intervals(self, api: AirflowApi, wanted: list[_Target]) -> None:
        """One DAG run of each, at the same time, to their ends."""
        runs = {t.name: api.trigger(t.name, {}) for t in wanted}
        ended: dict[str, DagRun] = {}

        def look() -> bool:
            for name, run_id in runs.items():
                run = api.run(name, run_id) if name not in ended else ended[name]
                if run.state not in ("success", "failed") or not run.note or name in ended:
                    continue
                ended[name] = run
                colour = "green" if run.state == "success" else "red"
                self._out.print(f"[{colour}]{run.state:<9}[/]{name:<22} {escape(run.note.splitlines()[0])}")
            status.update(f"Airflow runs an interval of {', '.join(n for n in runs if n not in ended)}")
            return len(ended) == len(runs)

        attempts = Retrying(
            retry=retry_if_result(lambda over: not over), wait=wait_fixed(1), stop=stop_after_delay(_PATIENCE)
        )
        with self._out.status("Airflow starts the runs") as status:
            try:
                attempts(look)
            except RetryError:
                late = ", ".join(name for name in runs if name not in ended)
                raise LocalRuntimeError(
                    f"The runs of {late} did not end within {_PATIENCE / 60:.0f} minutes.",
                    next_step="read their tasks' logs in Airflow, which goes on running.",
                ) from None
        failed = [run for run in ended.values() if run.state != "success"]
        if failed:
            raise LocalRuntimeError(
                f"{len(failed)} of the runs failed.",
                next_step="read their notes above, and their tasks' logs in Airflow, which goes on running.",
            )

    def _compare(self, settings: KafkaSettings, database: Database, wanted: list[_Target]) -> bool:
        columns = columns_of(_DDL)
        with self._out.status("Reading the topic"):
            sent = fingerprint(records(settings, TOPIC), columns)
        table = Table("What", "Read by", "Holds", "Verdict")
        table.add_row(f"the topic {TOPIC}", "confluent-kafka", str(sent), "")
        same = True
        for target in wanted:
            reader, found = self._found(target, database, columns)
            same = same and found == sent
            verdict = "[bold green]identical[/]" if found == sent else "[bold red]DIFFERENT[/]"
            table.add_row(target.what, reader, str(found), verdict)
        self._out.print(table)
        return same

    def _found(self, target: _Target, database: Database, columns: Columns) -> tuple[str, Fingerprint]:
        path = load_pipeline(self._folder / f"{target.name}.yaml").table_id
        with self._out.status(f"Reading {target.what}"):
            if target.name == "departures_hudi":
                return "hudi-rs", append_table(path, columns)
            if target.name == "departures_parquet":
                return "pyarrow", fingerprint(parquet_files(path, columns), columns)
            if target.name == "departures_avro":
                return "fastavro", fingerprint(avro_files(path), columns)
            return database.reader, fingerprint(database.rows(columns), columns)

    def _finish(
        self, airflow: LocalAirflow, database: Database, wanted: list[_Target], same: bool, seconds: float
    ) -> None:
        url = airflow.environment.url
        verdict = (
            "[bold green]EXACTLY ONCE[/]: table, files and database hold what Kafka holds, row for row."
            if same
            else "[bold red]NOT THE SAME[/]: one of them differs from the topic; see above. Please report this."
        )
        password = airflow.environment.credentials().password
        pipelines = "\n".join(f"  {self._folder / t.name}.yaml" for t in wanted)
        self._out.print()
        self._out.print(
            Panel(
                f"{verdict}  ({seconds / 60:.1f} minutes)\n\n"
                f"Airflow goes on running: {url}\n"
                # Shown, because whoever may run this may also read the file; not written to any log.
                f"Log in as [bold]{ADMIN}[/] with [bold]{password}[/]\n\n"
                f"Look at the page Sluice:\n  {url}/plugin/sluice\n"
                f"at the files in\n  {self._home.lake}\n"
                f"and at the database:\n  {database.how_to_look}\n"
                f"The pipelines:\n{pipelines}\n\n"
                "[bold]make demo-connectors[/] goes on from here. [bold]make down[/] stops all; the data stays.",
                border_style="green" if same else "red",
            )
        )


if __name__ == "__main__":
    main(lambda stage: _Demo(stage).run(), "make demo-connectors")
