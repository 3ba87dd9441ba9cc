"""`sluice worker`: a Spark application that stays, and writes ranges for pipelines that name its group."""

from __future__ import annotations

import os
import uuid
from datetime import timedelta
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Annotated

import typer

from sluice.cli.places import connections, settings
from sluice.pipeline.model import Pipeline
from sluice.private import VARIABLE as PRIVATE
from sluice.sections import parse_duration

if TYPE_CHECKING:
    from sluice.kafka.config import KafkaSettings


def worker(
    files: Annotated[list[Path], typer.Argument(help="Pipeline files or folders; other groups' are left alone.")],
    group: Annotated[str, typer.Option(help="The group that pipelines name in `write.workers`.")] = "default",
    slots: Annotated[int, typer.Option(min=1, help="How many ranges it writes at once.")] = 2,
    memory: Annotated[str, typer.Option(help="Memory of its Spark driver.")] = "2g",
    lease: Annotated[float, typer.Option(min=6, help="Seconds after which others take over what it claimed.")] = 30,
    longest_stay: Annotated[str, typer.Option(help="When it ends, for another to begin afresh.")] = "12 hours",
    master: Annotated[str, typer.Option(help="Spark's master; by default that of the pipelines' connection.")] = "",
    name: Annotated[str, typer.Option(help="What its name begins with; by default its machine's.")] = "",
    trust_control_topic: Annotated[
        bool, typer.Option("--trust-control-topic", help="Take unsigned plans: only Sluice may write to the topic.")
    ] = False,
    connection: Annotated[
        list[str] | None, typer.Option(help="A further Kafka connection, besides the ones in the pipeline files.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Answer /health, /ready and /metrics on this port.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on for that.")] = "127.0.0.1",
) -> None:
    """Write ranges for pipelines, as a Spark application that stays; it ends well on SIGTERM.

    Start it by systemd, as a Deployment, or let Airflow keep some (docs/workers.md).
    """
    from sluice.participant.launch.worker import WorkerOptions, worker_command, worker_environment
    from sluice.pipeline.workers import pipelines_of

    pipelines = pipelines_of(files, group)
    stay = parse_duration(longest_stay)
    if not isinstance(stay, timedelta):
        raise typer.BadParameter(f"{longest_stay!r} is no duration such as `12 hours`", param_hint="--longest-stay")
    options = WorkerOptions(group, slots, memory, timedelta(seconds=lease), stay, trust_control_topic, port, host)
    found = _kafka_connections(pipelines, connection or [])
    own = f"{name or gethostname()}-{uuid.uuid4().hex[:8]}"  # unique to this process: it distinguishes claims
    environment = worker_environment(options, master or _master(pipelines[0]), pipelines[0].write.conf, found)
    command = worker_command(options, own, [file.resolve() for file in files])
    os.execve(command[0], command, environment)


def _master(pipeline: Pipeline) -> str:
    if os.environ.get("SLUICE_KAFKA_SOURCE"):
        return "local[*]"
    from sluice.airflow.connections import spark_master

    return spark_master(pipeline.write.connection)


def _kafka_connections(pipelines: tuple[Pipeline, ...], further: list[str]) -> list[KafkaSettings]:
    """All Kafka connections of the pipelines; source's and sink's own go into the environment, each once."""
    if os.environ.get("SLUICE_KAFKA_SOURCE"):
        return []
    from sluice.airflow.connections import mapped_kafka_connections, private_settings_of, source_connections
    from sluice.connectors.connections import VARIABLE, to_environment

    if PRIVATE not in os.environ:
        os.environ.update(private_settings_of(*pipelines).to_environment())
    if VARIABLE not in os.environ:
        ids = dict.fromkeys(one for pipeline in pipelines for one in pipeline.own_connections)
        os.environ.update(to_environment(source_connections(ids)))
    found = {s.name: s for pipeline in pipelines for s in settings(pipeline)}
    found |= {one: connections(pipelines[0])(one) for one in (*further, *mapped_kafka_connections(pipelines))}
    return list(found.values())
