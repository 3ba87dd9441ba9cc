"""Kafka, Airflow and Spark on this machine: what `make install`, `make up` and `make down` of a checkout run."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sluice import runtime
from sluice.jvm.kept import end_kept
from sluice.kafka.config import KafkaSettings
from sluice.local.airflow import LocalAirflow
from sluice.local.airflow_api import AirflowApi
from sluice.local.broker import LocalBroker
from sluice.local.credentials import ADMIN
from sluice.local.errors import told_in_short
from sluice.local.home import SluiceHome
from sluice.local.jars import checksums as current_checksums
from sluice.local.jars import ensure_jars, jars_ready
from sluice.local.postgresql import LocalPostgreSql
from sluice.local.workers import GROUP, start_workers, workers_there
from sluice.pipeline.workers import dag_of_workers

_BROKER_PORT = 9092

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
_console = Console(highlight=False)


@app.command()
def jars() -> None:
    """Fetch the jars of Spark, Hudi and Kafka, and prepare Java. The second time there is nothing to do."""
    home = SluiceHome.from_env()
    fetched = 0

    with _console.status("Resolving the jars from Maven Central") as status:

        def show(line: str) -> None:
            nonlocal fetched
            if "[SUCCESSFUL ]" in line:
                fetched += 1
                status.update(f"Fetching the jars: {fetched} so far")

        changed = ensure_jars(home, show)
    _console.print(f"The jars are in {home.jars}." if changed else "The jars are there already.")


@app.command()
def checksums() -> None:
    """Print the checksums of what ivy.xml resolves to now, for jars.sha256: after a change of ivy.xml, on purpose."""
    typer.echo(current_checksums(SluiceHome.from_env()), nl=False)


@app.command()
def archives() -> None:
    """Make the class-data-sharing archives that halve the start-up of both JVMs, by running one real interval."""
    from sluice.local.archive import archives_in_words

    with _console.status("Running one interval to archive the classes that it loads (a minute or two)"):
        how = archives_in_words(SluiceHome.from_env())
    _console.print(f"The class archives are {how}", markup=False)


@app.command()
def install() -> None:
    """Fetch the jars and make the class archives, as `up` and the demos do by themselves."""
    jars()
    archives()


@app.command()
def up(
    port: Annotated[int | None, typer.Option(help="Port of Airflow's pages; 8080 where it is free.")] = None,
) -> None:
    """Start the broker, Airflow and a worker, and print where to log in. Harmless when they run already."""
    home = SluiceHome.from_env().create()
    jars()
    with home.locked("runtime"):
        broker = LocalBroker(home, port=_BROKER_PORT)
        with _console.status("Starting the Kafka broker"):
            broker.start()
        _console.print(f"Kafka    {broker.bootstrap}")
        airflow = LocalAirflow.of_home(home, broker.bootstrap, port)
        with _console.status("Starting Airflow: the first time it takes about a minute"):
            airflow.start()
    environment = airflow.environment
    _console.print(f"Airflow  {environment.url}")
    # Shown, because a user who may run this may also read the file; not written to any log.
    _console.print(f"Log in   {ADMIN} / {environment.credentials().password}")
    with _console.status("Waiting for Airflow to read the DAG of the worker"):
        if start_workers(AirflowApi(environment)):
            _console.print(f"Worker   kept by the DAG {dag_of_workers(GROUP)}; the first is there in half a minute")


@app.command()
def down() -> None:
    """Stop Airflow and the broker, and everything they started. The data stays."""
    home = SluiceHome.from_env().create()
    with home.locked("runtime"):
        with _console.status("Stopping Airflow"):
            LocalAirflow.of_home(home, "").stop()
        with _console.status("Stopping the Kafka broker"):
            LocalBroker(home).stop()
        with _console.status("Stopping the demo's database, if it runs"):
            LocalPostgreSql.of_home(home).stop()
        end_kept()
    _console.print("All is stopped.")


@app.command()
def clean() -> None:
    """Stop everything, and delete what was made by running it, tables and topics included; jars stay."""
    home = SluiceHome.from_env().create()
    down()
    for made in (home.airflow, home.broker, home.root / "demo", home.lake, home.logs):
        shutil.rmtree(made, ignore_errors=True)


@app.command()
def status() -> None:
    """Show the running parts and their health. Ends with 1 unless all of them run."""
    home = SluiceHome.from_env().create()
    broker = LocalBroker(home)
    airflow = LocalAirflow.of_home(home, "")
    health = airflow.health() if airflow.running else {}
    table = Table("Part", "State")
    table.add_row("jars", "ready" if jars_ready(home) else f"missing: run `{runtime.command('install')}`")
    table.add_row("broker", f"running at {broker.bootstrap}" if broker.running else "stopped")
    table.add_row("airflow", f"running at {airflow.environment.url}" if airflow.running else "stopped")
    for part, state in health.items():
        table.add_row(f"  {part}", state)
    table.add_row("workers", _workers(broker, airflow))
    _console.print(table)
    if not (broker.running and airflow.running):
        raise typer.Exit(1)


def _workers(broker: LocalBroker, airflow: LocalAirflow) -> str:
    """The present workers; without any, each range is written by a separate Spark job, which is no fault."""
    if not broker.running:
        return "none"
    settings = KafkaSettings("kafka_default", {**airflow.environment.kafka, "bootstrap.servers": broker.bootstrap})
    return ", ".join(workers_there(settings)) or "none"


def main() -> None:
    """Run the command line; an expected failure is a message, not a stack trace."""
    with told_in_short():
        app()


if __name__ == "__main__":
    main()
