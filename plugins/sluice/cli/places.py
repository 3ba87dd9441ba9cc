"""Where the commands find the pipeline's clusters: the environment, else Airflow's connections."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sluice.connectors.connections import VARIABLE as CONNECTIONS
from sluice.connectors.connections import to_environment
from sluice.errors import ActionRequiredError
from sluice.pipeline import Pipeline, load_pipeline
from sluice.private import VARIABLE as PRIVATE

if TYPE_CHECKING:
    from sluice.coordinator import Coordinator  # at run time it is imported late: it pulls in Kafka and Py4J
    from sluice.kafka.config import Connections, KafkaSettings
    from sluice.schemas.registry.config import RegistrySettings

PipelineFile = Annotated[Path, typer.Argument(help="A pipeline file.")]


def settings(pipeline: Pipeline) -> tuple[KafkaSettings, KafkaSettings]:
    """The clusters of the records and of the control topic.

    SLUICE_KAFKA_SOURCE and SLUICE_KAFKA_CONTROL win, as in a Spark driver; SLUICE_SPARK_PRIVATE and
    SLUICE_SOURCE_CONNECTIONS go with them. Without them the pipeline's Airflow connections are taken, from
    AIRFLOW_CONN_* variables, a secrets backend, or Airflow's database; source's and sink's own go into the
    environment.

    Raises:
        ActionRequiredError: there are none, or they are wrong.
    """
    from sluice.kafka.config import KafkaSettings

    if os.environ.get("SLUICE_KAFKA_SOURCE"):
        return KafkaSettings.from_environment("source"), KafkaSettings.from_environment("control")
    from sluice.airflow.connections import private_settings_of, source_and_control, source_connections

    if CONNECTIONS not in os.environ:
        os.environ.update(to_environment(source_connections(pipeline.own_connections)))
    if PRIVATE not in os.environ:
        os.environ.update(private_settings_of(pipeline).to_environment())
    return source_and_control(pipeline)


def connections(pipeline: Pipeline) -> Connections:
    """The Kafka connections of streams' clusters by their ids: from the same place as `settings`."""
    from sluice.kafka.config import KafkaSettings, connections_of_environment

    if os.environ.get("SLUICE_KAFKA_SOURCE"):
        return connections_of_environment(KafkaSettings.from_environment("source"))
    from sluice.airflow.connections import streams_connection

    return partial(streams_connection, pipeline)


def require_kafka(pipeline: Pipeline) -> None:
    """Check that the records are in a Kafka cluster, for a command that can't do with another source.

    Raises:
        ActionRequiredError: they aren't.
    """
    if not pipeline.source.capabilities.holds_control_log:
        raise ActionRequiredError(
            f"This command looks into topics of Kafka, and {pipeline.source.place} is no Kafka cluster.",
            next_step="look at its records by other means; nothing was sent or changed.",
        )


def registry(connection: str) -> RegistrySettings:
    """The schema registry: SLUICE_SCHEMA_REGISTRY wins; without it the Airflow connection is taken.

    Raises:
        ActionRequiredError: there is none, or it is wrong.
    """
    from sluice.schemas.registry.config import RegistrySettings

    found = RegistrySettings.from_environment(connection)
    if found is not None:
        return found
    from sluice.airflow.connections import registry_settings

    return registry_settings(connection)


def coordinator(file: Path) -> Coordinator:
    """The coordinator of a pipeline file.

    Raises:
        SluiceError: the file or the connections are wrong.
    """
    from sluice.coordinator import Coordinator

    pipeline = load_pipeline(file)
    return Coordinator(pipeline, *settings(pipeline), registries=registry, connections=connections(pipeline))
