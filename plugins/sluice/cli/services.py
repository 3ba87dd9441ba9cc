"""`sluice service` and `sluice sync`: the tasks of the table services' DAG, by hand."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from typing import Annotated

import typer

from sluice.cli.interval import BY_HAND, Master
from sluice.cli.output import say
from sluice.cli.places import PipelineFile, settings
from sluice.errors import SluiceError
from sluice.pipeline import load_pipeline
from sluice.process import identity
from sluice.protocol.services import PLANNED, SERVICES

_NAMES = f"{', '.join(SERVICES[:-1])} or {SERVICES[-1]}."


def service(
    name: Annotated[str, typer.Argument(help=_NAMES)],
    file: PipelineFile,
    master: Master = "local[*]",
) -> None:
    """Run one table service by hand; it waits while an interval holds the table."""
    from sluice.coordinator import Run
    from sluice.coordinator.services import Planned, Services
    from sluice.participant.launch.submit import driver_environment, service_command

    if name not in SERVICES:
        raise typer.BadParameter(f"there are {', '.join(SERVICES)}", param_hint="name")
    pipeline = load_pipeline(file)
    source, control = settings(pipeline)
    services = Services(pipeline, source, control)
    this = Run("sluice", f"{BY_HAND}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}", process=identity(os.getpid()))
    if name not in PLANNED:
        say(services.run(this, name).summary)
        return
    planned = services.plan(this, name)
    if not isinstance(planned, Planned):
        say(planned.summary)
        return
    command = service_command(pipeline, planned.control_offset, master, planned.digest)
    if subprocess.run(command, env=driver_environment(source, control, master), check=False).returncode != 0:
        services.give_up(planned.control_offset, "its Spark job failed")
        raise SluiceError("The Spark job of the table service failed.", next_step="read its log above.", service=name)
    say(f"Done: {name} {', '.join(planned.instants)}.")


def sync(file: PipelineFile) -> None:
    """Register the table as it is now in the catalogs that the pipeline names."""
    from sluice.coordinator.catalog import sync as sync_catalogs

    say(", ".join(sync_catalogs(load_pipeline(file))) or "The pipeline names no catalog.")
