"""`sluice interval`: the steps of one interval by hand, without Airflow."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from sluice.cli.places import PipelineFile, connections, coordinator, settings
from sluice.errors import SluiceError
from sluice.protocol.request import Request

app = typer.Typer(help="Run the steps of one interval by hand, without Airflow.", no_args_is_help=True)
RunId = Annotated[str, typer.Option(help="What the messages call this run.")]
Master = Annotated[str, typer.Option(help="Spark's master.")]
BY_HAND = "by-hand"


@app.command()
def start(file: PipelineFile, run_id: RunId = BY_HAND) -> None:
    """Plan an interval and send START-COMMIT; prints the transaction as JSON."""
    from sluice.coordinator import Outcome, Run

    started = coordinator(file).start(Run("sluice", run_id))
    if isinstance(started, Outcome):
        typer.echo(json.dumps(asdict(started)))
    else:
        typer.echo(
            json.dumps(
                {
                    "instant": started.instant,
                    "control_offset": started.control_offset,
                    "ranges": len(started.ranges),
                    "digest": started.digest,
                }
            )
        )


@app.command()
def commit(file: PipelineFile, control_offset: Annotated[int, typer.Option(help="Where START-COMMIT stands.")]) -> None:
    """Commit an interval whose ranges are written."""
    typer.echo(json.dumps(asdict(coordinator(file).commit(control_offset))))


@app.command()
def abort(
    file: PipelineFile,
    run_id: RunId = BY_HAND,
    dag_id: Annotated[str, typer.Option(help="The DAG of the run; `sluice` for those by hand.")] = "sluice",
) -> None:
    """End what a run left open."""
    from sluice.coordinator import Run

    typer.echo(json.dumps(asdict(coordinator(file).abort(Run(dag_id, run_id)))))


@app.command()
def run(file: PipelineFile, master: Master = "local[*]", run_id: RunId = "") -> None:
    """Run one whole interval: start, one Spark job for each range, commit; abort if one fails."""
    typer.echo(run_interval(file, Request(), master, run_id))


def run_interval(file: Path, request: Request, master: str, run_id: str = "") -> str:
    """Run a whole interval in this process and its Spark jobs, and say in a sentence what came of it.

    Raises:
        SluiceError: a step failed; what it left open was aborted.
    """
    from sluice.coordinator import Outcome, Run
    from sluice.launch.submit import driver_environment, submit_command

    here = coordinator(file)
    pipeline = here.pipeline
    this = Run("sluice", run_id or f"{BY_HAND}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}", request)
    started = here.start(this)
    if isinstance(started, Outcome):
        return started.summary
    commands = [submit_command(pipeline, started, n, master) for n in range(len(started.ranges))]
    clusters = [connections(pipeline)(connection) for connection in started.connections]
    environment = driver_environment(*settings(pipeline), master, clusters)
    jobs = [subprocess.Popen(command, env=environment) for command in commands]
    try:
        exit_codes = [job.wait() for job in jobs]
        if any(exit_codes):
            raise SluiceError("A write job failed.", next_step="read its log above.", instant=started.instant)
        return here.commit(started.control_offset, started.instant, started.digest).summary
    except SluiceError:
        typer.echo(here.abort(this).summary)
        raise
