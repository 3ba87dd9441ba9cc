"""The `sluice` command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
from rich.console import Console

from sluice.errors import SluiceError
from sluice.pipeline import Pipeline, load_pipeline

if TYPE_CHECKING:
    from sluice.coordinator import Coordinator  # at run time it is imported late: it pulls in Kafka and Py4J

app = typer.Typer(help="Exactly-once Kafka-to-Hudi ingestion.", no_args_is_help=True, pretty_exceptions_enable=False)
interval = typer.Typer(help="Run the steps of one interval by hand, without Airflow.", no_args_is_help=True)
app.add_typer(interval, name="interval")
_err = Console(stderr=True, soft_wrap=True, highlight=False)

PipelineFile = Annotated[Path, typer.Argument(help="A pipeline file.")]
RunId = Annotated[str, typer.Option(help="What the messages call this run.")]
_BY_HAND = "by-hand"


@app.callback()
def _log_to_stderr() -> None:
    """Keep standard output for what a command prints: the log goes beside it."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


@app.command()
def validate(files: Annotated[list[Path], typer.Argument(help="Pipeline files.")]) -> None:
    """Check pipeline files; says file, line, key and remedy of each mistake."""
    failed = False
    for file in files:
        try:
            pipeline = load_pipeline(file)
        except SluiceError as error:
            failed = True
            _err.print(str(error), markup=False, style="red")
        else:
            kafka, hudi = pipeline.source.kafka, pipeline.sink.hudi
            typer.echo(f"{file}: ok: {', '.join(kafka.topics)} -> {hudi.operation} {hudi.path}")
    raise typer.Exit(1 if failed else 0)


@app.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors."""
    typer.echo(json.dumps(Pipeline.model_json_schema(by_alias=True), indent=2))


@app.command()
def service(
    name: Annotated[str, typer.Argument(help="compaction, clustering, cleaning, metadata_compaction or archiving.")],
    file: PipelineFile,
    master: Annotated[str, typer.Option(help="Spark's master, for compaction and clustering.")] = "local[*]",
) -> None:
    """Run one table service by hand; it waits while an interval holds the table."""
    from sluice.coordinator import Run
    from sluice.coordinator.services import BY_SPARK, SERVICES, Planned, Services
    from sluice.kafka.config import KafkaSettings
    from sluice.spark.submit import driver_environment, service_command

    if name not in SERVICES:
        raise typer.BadParameter(f"there are {', '.join(SERVICES)}", param_hint="name")
    pipeline = load_pipeline(file)
    source, control = KafkaSettings.from_environment("source"), KafkaSettings.from_environment("control")
    services = Services(pipeline, source, control)
    this = Run("sluice", f"by-hand-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    if name not in BY_SPARK:
        typer.echo(services.run(this, name).summary)
        return
    planned = services.plan(this, name)
    if not isinstance(planned, Planned):
        typer.echo(planned.summary)
        return
    command = service_command(pipeline, planned.control_offset, master)
    if subprocess.run(command, env=driver_environment(source, control), check=False).returncode != 0:
        services.give_up(planned.control_offset, "its Spark job failed")
        raise SluiceError("The Spark job of the table service failed.", next_step="read its log above.", service=name)
    typer.echo(f"Done: {name} {', '.join(planned.instants)}.")


@app.command()
def sync(file: PipelineFile) -> None:
    """Tell the catalogs that the pipeline names of its table as it is now."""
    from sluice.coordinator.catalog import sync as sync_catalogs

    typer.echo(", ".join(sync_catalogs(load_pipeline(file))) or "The pipeline names no catalog.")


def _coordinator(file: Path) -> Coordinator:
    from sluice.coordinator import Coordinator
    from sluice.kafka.config import KafkaSettings

    return Coordinator(
        load_pipeline(file), KafkaSettings.from_environment("source"), KafkaSettings.from_environment("control")
    )


@interval.command()
def start(file: PipelineFile, run_id: RunId = _BY_HAND) -> None:
    """Plan an interval and send START-COMMIT; prints the transaction as JSON."""
    from sluice.coordinator import Outcome, Run

    started = _coordinator(file).start(Run("sluice", run_id))
    if isinstance(started, Outcome):
        typer.echo(json.dumps(asdict(started)))
    else:
        typer.echo(
            json.dumps(
                {"instant": started.instant, "control_offset": started.control_offset, "ranges": len(started.ranges)}
            )
        )


@interval.command()
def commit(file: PipelineFile, control_offset: Annotated[int, typer.Option(help="Where START-COMMIT stands.")]) -> None:
    """Commit an interval whose ranges are written."""
    typer.echo(json.dumps(asdict(_coordinator(file).commit(control_offset))))


@interval.command()
def abort(
    file: PipelineFile,
    run_id: RunId = _BY_HAND,
    dag_id: Annotated[str, typer.Option(help="The DAG of the run; `sluice` for those by hand.")] = "sluice",
) -> None:
    """End what a run left open."""
    from sluice.coordinator import Run

    typer.echo(json.dumps(asdict(_coordinator(file).abort(Run(dag_id, run_id)))))


@interval.command()
def run(
    file: PipelineFile,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    run_id: RunId = "",
) -> None:
    """Run one whole interval: start, one Spark job for each range, commit; abort if one fails."""
    from sluice.coordinator import Outcome, Run
    from sluice.kafka.config import KafkaSettings
    from sluice.spark.submit import driver_environment, submit_command

    coordinator = _coordinator(file)
    this = Run("sluice", run_id or f"by-hand-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    started = coordinator.start(this)
    if isinstance(started, Outcome):
        typer.echo(started.summary)
        return
    commands = [submit_command(coordinator.pipeline, started, n, master) for n in range(len(started.ranges))]
    environment = driver_environment(
        KafkaSettings.from_environment("source"), KafkaSettings.from_environment("control")
    )
    jobs = [subprocess.Popen(command, env=environment) for command in commands]
    try:
        exit_codes = [job.wait() for job in jobs]
        if any(exit_codes):
            raise SluiceError("A write job failed.", next_step="read its log above.", instant=started.instant)
        typer.echo(coordinator.commit(started.control_offset).summary)
    except SluiceError:
        typer.echo(coordinator.abort(this).summary)
        raise


def main() -> None:
    """Run the command; our own errors are one message, not a stack trace."""
    try:
        app()
    except SluiceError as error:
        _err.print(str(error), markup=False, style="red")
        sys.exit(1)


if __name__ == "__main__":
    main()
