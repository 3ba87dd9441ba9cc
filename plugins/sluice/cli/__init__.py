"""The `sluice` command: the same as the page and the DAGs, for a terminal and for programs (`--json`)."""

from __future__ import annotations

import json
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from rich.console import Console

from sluice.cli import control, import_connect, infer, inspect, interval, quarantine, services, streams
from sluice.cli.output import cell, say
from sluice.cli.shaping import TransformCheck
from sluice.cli.worker import worker
from sluice.errors import SluiceError
from sluice.pipeline import Pipeline, load_pipelines
from sluice.shown import plain

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
    inspect.doctor,
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
    """Keep standard output for a command's result: the log goes to standard error."""
    *before, renders = (one for one in structlog.get_config()["processors"] if one is not _as_plain_text)
    structlog.configure(
        processors=[*before, _as_plain_text, renders], logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )


def _as_plain_text(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape unprintable characters in log lines, as in the commands' output."""
    return {name: plain(value) if isinstance(value, str) else value for name, value in event.items()}


@app.command()
def validate(files: Annotated[list[Path], typer.Argument(help="Pipeline files.")]) -> None:
    """Check pipeline files; says file, line, key and remedy of each mistake."""
    failed = False
    with TransformCheck() as transforms:
        for file in files:
            try:
                pipelines = load_pipelines(file)
                whole = transforms.check(pipelines)
            except SluiceError as error:
                failed = True
                _err.print(cell(str(error) if "file" in error.where else f"{file}: {error}", "red"))
            else:
                for pipeline in pipelines:
                    operation = "upsert" if pipeline.sink.capabilities.upsert else "append"
                    say(f"{file}: ok: {pipeline.source.options.topics_in_words} -> {operation} {pipeline.table_id}")
                if not whole:
                    say(f"{file}: transforms not checked, since the file doesn't give a record's fields: START does it")
    raise typer.Exit(1 if failed else 0)


@app.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors."""
    typer.echo(json.dumps(Pipeline.model_json_schema(by_alias=True), indent=2))


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="Airflow's DAGs folder, or a folder in it.")]) -> None:
    """Write the modules that make DAGs of pipeline files into a DAGs folder; after an upgrade, replace them."""
    from sluice.local.home import write_dag_files

    for module in write_dag_files(folder):
        say(str(module))
    say(f"Put pipeline files into {folder / 'pipelines'}.")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def local(context: typer.Context) -> None:
    """Run Kafka, Airflow and Spark on this machine, and the demos; `sluice local --help` lists the commands."""
    from sluice.cli.local import main as run  # most commands need none of the embedded runtime

    run(context.args)


def main() -> None:
    """Run the command; Sluice's own errors print one message, not a stack trace."""
    try:
        app()
    except SluiceError as error:
        _err.print(cell(str(error), "red"))
        sys.exit(1)
