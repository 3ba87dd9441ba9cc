"""`sluice interval`: the steps of one interval by hand, without Airflow."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel

from sluice.cli.output import say
from sluice.cli.places import PipelineFile, connections, coordinator, settings
from sluice.errors import SluiceError
from sluice.pipeline.model import Pipeline
from sluice.protocol.request import Request

if TYPE_CHECKING:
    from sluice.coordinator import Outcome, Started

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
        _print(started)
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
def commit(file: PipelineFile, control_offset: Annotated[int, typer.Option(help="START-COMMIT's offset.")]) -> None:
    """Commit an interval whose ranges are written."""
    _print(coordinator(file).commit(control_offset))


@app.command()
def abort(
    file: PipelineFile,
    run_id: RunId = BY_HAND,
    dag_id: Annotated[str, typer.Option(help="The DAG of the run; `sluice` for those by hand.")] = "sluice",
) -> None:
    """End what a run left open."""
    from sluice.coordinator import Run

    _print(coordinator(file).abort(Run(dag_id, run_id)))


def _print(outcome: Outcome) -> None:
    """Print an outcome as JSON, with the figures of its clusters."""
    typer.echo(json.dumps(asdict(outcome), default=_plain))


def _plain(value: datetime | BaseModel) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value.model_dump(mode="json")


@app.command()
def run(file: PipelineFile, master: Master = "local[*]", run_id: RunId = "") -> None:
    """Run one whole interval: start, one Spark job for each range, commit; abort if one fails."""
    say(run_interval(file, Request(), master, run_id))


def run_interval(file: Path, request: Request, master: str, run_id: str = "") -> str:
    """Run a whole interval in this process and its Spark jobs, and say in a sentence what came of it.

    Raises:
        SluiceError: a step failed; its open transaction was aborted.
    """
    from sluice.coordinator import Outcome, Run
    from sluice.participant.launch.submit import driver_environment, submit_command

    here = coordinator(file)
    pipeline = here.pipeline
    this = Run("sluice", run_id or f"{BY_HAND}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}", request)
    started = here.start(this)
    if isinstance(started, Outcome):
        return started.summary
    try:
        left = _left_by_workers(pipeline, started)
    except SluiceError:
        say(here.abort(this).summary)
        raise
    commands = [submit_command(pipeline, started, n, master) for n in left]
    clusters = [connections(pipeline)(connection) for connection in started.connections]
    environment = driver_environment(*settings(pipeline), master, clusters)
    jobs = [subprocess.Popen(command, env=environment) for command in commands]
    try:
        exit_codes = [job.wait() for job in jobs]
        if any(exit_codes):
            raise SluiceError("A write job failed.", next_step="read its log above.", instant=started.instant)
        return here.commit(started.control_offset, started.instant, started.digest).summary
    except SluiceError:
        say(here.abort(this).summary)
        raise


def _left_by_workers(pipeline: Pipeline, started: Started) -> list[int]:
    """The ranges that need a separate Spark job: all, where no workers write for the pipeline.

    Raises:
        SluiceError: a worker has failed to write one, or the interval is over.
    """
    ranges = list(range(len(started.ranges)))
    group = pipeline.write.workers
    if group is None or not ranges:
        return ranges
    from sluice.control.topic import ControlTopic
    from sluice.control.waiting import wait_for_workers
    from sluice.protocol.claims import Verdict

    control = ControlTopic(settings(pipeline)[1], started.control_topic or pipeline.control_topic)
    within = pipeline.write.claim_within.total_seconds()
    found = wait_for_workers(control, pipeline.table_id, started.control_offset, ranges, group, within)
    if any(verdict in (Verdict.FAILED, Verdict.ENDED) for verdict in found.values()):
        raise SluiceError(
            "A range was not written.",
            next_step="the worker's log says why, and so does `sluice transactions`.",
            table=pipeline.table_id,
            instant=started.instant,
        )
    return [number for number, verdict in found.items() if verdict is Verdict.SUBMIT]
