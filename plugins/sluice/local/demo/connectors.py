"""`make demo-connectors`: files into a database, that into a topic, and that into Hudi, Parquet, Avro and the database.

An application writes files all the time, and jobs are killed. It continues from an earlier demo's state: tables, topic
and files all grow.
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

from sluice import runtime
from sluice.kafka.config import KafkaSettings
from sluice.local.airflow import LocalAirflow
from sluice.local.airflow_api import AirflowApi, DagRun
from sluice.local.credentials import ADMIN
from sluice.local.demo.databases import CONNECTION, Database, PostgreSql, Sqlite
from sluice.local.demo.fingerprint import Columns, Fingerprint, columns_of, fingerprint
from sluice.local.demo.flights import Stream, flights
from sluice.local.demo.killer import Killer
from sluice.local.demo.stage import Stage, main
from sluice.local.demo.tables import append_table, avro_files, parquet_files
from sluice.local.demo.topics import ensure_topic, records
from sluice.local.demo.writer import Writer, lines
from sluice.local.errors import LocalRuntimeError
from sluice.pipeline import load_pipeline

TOPIC = "departures"
_ROWS = 60_000
_SECONDS = 45.0  # in which nine tenths of them come
_PATIENCE = 400.0  # seconds for the DAG runs of one interval each
_DDL = """\
year INT, month INT, day INT, dep_time INT, dep_delay DOUBLE, carrier STRING, flight INT, tailnum STRING,
      origin STRING, dest STRING, distance DOUBLE, time_hour STRING"""
_PIPELINE = """\
# Made by `make demo-connectors`, which kills its write jobs: it names no workers, so that each range has one.
name: {name}
description: Departures from New York, in {what}.
source:
  {source}
sink:
  {sink}
control: {{connection: kafka_default}}
write: {{ranges: 1}}
retries: 3
retry_delay: 5 seconds
"""
_KAFKA = f"kafka: {{topics: {TOPIC}}}"
_SCHEMA = f"""
    schema: >-
      {_DDL}"""
_TOPIC_SINK = f"""kafka:
    connection: kafka_default
    topic: {TOPIC}
    staging: ${{SLUICE_LAKE:-file:///tmp/sluice-lake}}/departures_staging
    key_fields: id"""
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
        what: its destination, in words.
        sink: its file's section `sink`.
        source: its file's section `source`.
    """

    name: str
    what: str
    sink: str
    source: str = _KAFKA

    def write(self, folder: Path) -> None:
        file = folder / f"{self.name}.yaml"
        text = _PIPELINE.format(name=self.name, what=self.what, source=self.source, sink=self.sink)
        if not file.exists() or file.read_text() != text:  # Airflow needn't read it anew
            file.write_text(text)


def loader(database: Database, folder: Path) -> _Target:
    """From the application's files into the database's table."""
    source = f"files:\n    path: {folder}\n    log: departures_files\n    min_age: 0 seconds  # a file appears whole"
    sink = f"jdbc:\n    connection: {CONNECTION}\n    table: {database.source}"
    return _Target("departures_log", f"the table {database.source}", sink + _SCHEMA, source)


def feeder(database: Database) -> _Target:
    """From the database's table into the topic."""
    source = f"jdbc:\n    connection: {CONNECTION}\n    tables: {database.source}\n    mode: incrementing"
    return _Target("departures_topic", f"the topic {TOPIC}", _TOPIC_SINK, source)


def targets(database: Database) -> list[_Target]:
    """From the topic into Hudi, Parquet, Avro, and the database."""
    table = f"jdbc:\n    connection: {CONNECTION}\n    table: {database.table}\n    auto_create: true"
    return [
        _Target("departures_hudi", "a Hudi table", _HUDI + _SCHEMA),
        _Target("departures_parquet", "Parquet files, laid out as Kafka Connect does", _PARQUET + _SCHEMA),
        _Target("departures_avro", "Avro files, a folder for each interval", _AVRO + _SCHEMA),
        _Target(f"departures_{database.name}", f"a table of {database.title}", table + _SCHEMA),
    ]


class _Demo:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._out: Console = stage.out
        self._home = stage.home
        os.environ.setdefault("SLUICE_LAKE", str(stage.home.lake))  # where Airflow's tasks have it, too
        self._folder = stage.home.root / "demo" / "pipelines"
        self._arrivals = stage.home.lake / "departures_arrivals"

    def run(self) -> bool:
        """Run the demo, and return whether the topic and everything loaded from it hold the same."""
        began = time.monotonic()
        self._stage.heading("1. Java, jars and class archives")
        self._stage.install()
        self._stage.heading("2. Kafka, Airflow and a database")
        airflow = self._stage.start()
        database = self._database()
        api = AirflowApi(airflow.environment)
        api.set_connection(CONNECTION, database.connection())
        settings = KafkaSettings("kafka_default", airflow.environment.kafka)
        writer = self._writer(settings, database)
        wanted = targets(database)
        steps = [[loader(database, self._arrivals)], [feeder(database)], wanted]
        every = [target for step in steps for target in step]
        for target in every:
            target.write(self._folder)
        with self._out.status("Waiting for Airflow to read the pipelines"):
            for target in every:
                api.await_dag(target.name)
                api.unpause(target.name)
        self._out.print(f"Airflow  {airflow.environment.url}, with the DAGs {', '.join(t.name for t in every)}")

        self._stage.heading("3. One interval of each, while files arrive and write jobs are killed")
        writer.start()
        with Killer([t.name for t in every], lambda line: self._out.print(line)) as killer:
            for step in steps:
                self._intervals(api, step)
        killer.check()
        writer.write_rest()
        with self._out.status("Writing the rest"):
            writer.join()
        writer.check()
        self._out.print(f"All {writer.written:,} rows are in files of {self._arrivals}.")

        self._stage.heading("4. The next interval of each")
        for step in steps:
            self._intervals(api, step)

        self._stage.heading("5. Is every row in each of them, once?")
        same = self._compare(settings, database, wanted)
        self._finish(airflow, database, every, same, time.monotonic() - began)
        return same

    def _writer(self, settings: KafkaSettings, database: Database) -> Writer:
        """What writes the files, with their folder, the table of the database and the topic made."""
        new = {
            f"the folder {self._arrivals}": not self._arrivals.exists(),
            f"the table {database.source} of {database.title}": database.make_source(columns_of(_DDL)),
            f"the topic {TOPIC}": ensure_topic(settings, TOPIC),
        }
        self._arrivals.mkdir(parents=True, exist_ok=True)
        if len(set(new.values())) > 1:
            raise LocalRuntimeError(
                f"Of an earlier demo only a part is left: {', '.join(what for what, made in new.items() if not made)}.",
                next_step=f"run `{runtime.command('clean')}`, which removes what demos have "
                "left, and then the demo again.",
            )
        there = "made" if all(new.values()) else "there already; what they hold stays, and grows"
        self._out.print(f"Made for {', '.join(new)}: {there}")
        return Writer(self._arrivals, Stream(TOPIC, _ROWS, flights(TOPIC).slice), _SECONDS)

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
                    next_step="read their tasks' logs in Airflow, which keeps running.",
                ) from None
        failed = [run for run in ended.values() if run.state != "success"]
        if failed:
            raise LocalRuntimeError(
                f"{len(failed)} of the runs failed.",
                next_step="read their notes above, and their tasks' logs in Airflow, which keeps running.",
            )

    def _compare(self, settings: KafkaSettings, database: Database, wanted: list[_Target]) -> bool:
        columns = columns_of(_DDL)
        with self._out.status("Reading the files"):
            written = fingerprint(lines(self._arrivals), columns)
        with self._out.status(f"Reading the table {database.source}"):
            inserted = fingerprint(database.rows(database.source, columns), columns)
        with self._out.status("Reading the topic"):
            sent = fingerprint(records(settings, TOPIC), columns)
        table = Table("What", "Read by", "Holds", "Verdict")
        table.add_row("the application's files", "json", str(written), "")
        everywhere = [(f"the table {database.source}", database.reader, inserted)]
        everywhere += [(f"the topic {TOPIC}", "confluent-kafka", sent)]
        everywhere += [(target.what, *self._found(target, database, columns)) for target in wanted]
        for what, reader, found in everywhere:
            verdict = "[bold green]identical[/]" if found == written else "[bold red]DIFFERENT[/]"
            table.add_row(what, reader, str(found), verdict)
        self._out.print(table)
        return all(found == written for *_, found in everywhere)

    def _found(self, target: _Target, database: Database, columns: Columns) -> tuple[str, Fingerprint]:
        path = load_pipeline(self._folder / f"{target.name}.yaml").table_id
        with self._out.status(f"Reading {target.what}"):
            if target.name == "departures_hudi":
                return "hudi-rs", append_table(path, columns)
            if target.name == "departures_parquet":
                return "pyarrow", fingerprint(parquet_files(path, columns), columns)
            if target.name == "departures_avro":
                return "fastavro", fingerprint(avro_files(path), columns)
            return database.reader, fingerprint(database.rows(database.table, columns), columns)

    def _finish(
        self, airflow: LocalAirflow, database: Database, wanted: list[_Target], same: bool, seconds: float
    ) -> None:
        url = airflow.environment.url
        verdict = (
            "[bold green]EXACTLY ONCE[/]: tables, topic and files hold what was written, row for row."
            if same
            else "[bold red]NOT THE SAME[/]: one of them differs from the written rows; see above. Please report this."
        )
        password = airflow.environment.credentials().password
        pipelines = "\n".join(f"  {self._folder / t.name}.yaml" for t in wanted)
        self._out.print()
        self._out.print(
            Panel(
                f"{verdict}  ({seconds / 60:.1f} minutes)\n\n"
                f"Airflow keeps running: {url}\n"
                # Shown, because a user who may run this may also read the file; not written to any log.
                f"Log in as [bold]{ADMIN}[/] with [bold]{password}[/]\n\n"
                f"Look at the page Sluice:\n  {url}/plugin/sluice\n"
                f"at the files in\n  {self._home.lake}\n"
                f"and at the database:\n  {database.how_to_look}\n"
                f"The pipelines:\n{pipelines}\n\n"
                f"[bold]{runtime.command('demo-connectors')}[/] continues from here. "
                f"[bold]{runtime.command('down')}[/] stops all; the data stays.",
                border_style="green" if same else "red",
            )
        )


def play() -> None:
    """Run it; the process ends with 1 unless both ends hold the same."""
    main(lambda stage: _Demo(stage).run(), "demo-connectors")


if __name__ == "__main__":
    play()
