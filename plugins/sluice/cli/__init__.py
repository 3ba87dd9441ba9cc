"""The `sluice` command: the same as the page and the DAGs, for a terminal and for programs (`--json`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.console import Console

from sluice.cli import control, import_connect, infer, inspect, interval, quarantine, services, streams
from sluice.cli.shaping import TransformCheck
from sluice.cli.worker import worker
from sluice.errors import SluiceError
from sluice.pipeline import Pipeline, load_pipelines

app = typer.Typer(
    help="Exactly-once ingestion from Kafka into Hudi tables, files and databases.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(interval.app, name="interval")
app.add_typer(control.app, name="control")
app.add_typer(quarantine.app, name="quarantine")
for _command in (
    inspect.plan,
    inspect.offsets,
    streams.streams,
    inspect.transactions,
    inspect.verify,
    inspect.replay,
    infer.infer,
    import_connect.import_connect,
    services.service,
    services.sync,
    worker,
):
    app.command()(_command)
_err = Console(stderr=True, soft_wrap=True, highlight=False)


@app.callback()
def _log_to_stderr() -> None:
    """Keep standard output for what a command prints: the log goes beside it."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


@app.command()
def validate(files: Annotated[list[Path], typer.Argument(help="Pipeline files.")]) -> None:
    """Check pipeline files; says file, line, key and remedy of each mistake."""
    failed = False
    with TransformCheck() as transforms:
        for file in files:
            try:
                pipelines = load_pipelines(file)
                transforms.check(pipelines)
            except SluiceError as error:
                failed = True
                _err.print(str(error) if "file" in error.where else f"{file}: {error}", markup=False, style="red")
            else:
                for pipeline in pipelines:
                    operation = "upsert" if pipeline.sink.capabilities.upsert else "append"
                    typer.echo(
                        f"{file}: ok: {pipeline.source.options.topics_in_words} -> {operation} {pipeline.table_id}"
                    )
    raise typer.Exit(1 if failed else 0)


@app.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors."""
    typer.echo(json.dumps(Pipeline.model_json_schema(by_alias=True), indent=2))


def main() -> None:
    """Run the command; our own errors are one message, not a stack trace."""
    try:
        app()
    except SluiceError as error:
        _err.print(str(error), markup=False, style="red")
        sys.exit(1)
