"""`sluice import-connect`: its options. The rest is imported when it runs: every step imports this module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_connect(
    files: Annotated[list[Path], typer.Argument(help="Configurations: .properties, or JSON as the REST API has it.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder for the pipeline files. Default: standard output.")
    ] = None,
    worker: Annotated[Path | None, typer.Option(help="The worker's .properties: converters, brokers.")] = None,
    offsets: Annotated[
        bool,
        typer.Option(
            "--offsets", help="Begin at the connector's position: its consumer group's, or its stored offsets."
        ),
    ] = False,
    path: Annotated[str, typer.Option(help="Sinks of files, and Iceberg's: the folder below which they write.")] = "",
    connection: Annotated[str, typer.Option(help="Id of the Airflow connection to the cluster.")] = "kafka_default",
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Make pipeline files of Kafka Connect's configurations; says of each key what becomes of it.

    Exit status: 0 where all is honoured or has no meaning here, 2 where a file was made and something differs, 1
    where nothing could be made of a connector.
    """
    from sluice.cli.connect_import import read, run
    from sluice.connect import ImportOptions, properties_of

    given = ImportOptions(properties_of(read(worker), str(worker)) if worker else {}, path, connection)
    raise typer.Exit(run(files, given, out, offsets=offsets, json=json))
