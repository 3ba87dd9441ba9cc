"""What a coordinator works with: a source, a sink and a control log, each behind its interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sluice.connectors.log import ControlLog
from sluice.connectors.registry import load
from sluice.connectors.sink import MakesSink, Sink
from sluice.connectors.source import MakesSource, Source, UsesJvm
from sluice.control.topic import ControlTopic
from sluice.coordinator.machine import THIS_MACHINE, Machine
from sluice.jvm.gateway import Jvm
from sluice.jvm.kept import kept_jvm
from sluice.kafka.config import Connections, KafkaSettings, connections_of_environment
from sluice.pipeline.model import Pipeline
from sluice.private import hadoop_settings
from sluice.protocol.mapping import ClusterAddress
from sluice.schemas.registry.config import Registries, registry_of_environment


@dataclass(frozen=True)
class Parts:
    """The parts of one pipeline.

    Attributes:
        source: the cluster that is read.
        control: a control log, by its topic.
        sink: where rows go.
        kafka: the source's connection, for dead letters.
        cluster: a cluster of streams, by its name and address.
        kafka_of: the settings of such a cluster's clients.
        machine: that of this process.
    """

    source: Source
    control: Callable[[str], ControlLog]
    sink: Sink[Any]
    kafka: KafkaSettings
    cluster: Callable[[str, ClusterAddress], Source]
    kafka_of: Callable[[str, ClusterAddress], KafkaSettings]
    machine: Machine = THIS_MACHINE


def parts_of(
    pipeline: Pipeline,
    source: KafkaSettings,
    control: KafkaSettings | None = None,
    jvm: Jvm | None = None,
    registries: Registries = registry_of_environment,
    connections: Connections | None = None,
) -> Parts:
    """The parts that a pipeline file names.

    Args:
        pipeline: what to load, and how.
        source: the cluster that is read.
        control: the cluster that holds the control topic; the source's by default.
        jvm: where Hudi and Hadoop's clients run; a lean JVM for each step by default.
        registries: where a schema registry is, by its connection's id.
        connections: the settings of a Kafka connection by its id, for clusters of streams; by default the source's
            own, and those of the environment.
    """
    source_of: MakesSource = load(pipeline.source.options.connector)
    settings_of = connections or connections_of_environment(source)

    def kafka_of(name: str, address: ClusterAddress) -> KafkaSettings:
        return settings_of(address.connection).at(name, address.bootstrap_servers)

    def cluster(name: str, address: ClusterAddress) -> Source:
        settings = kafka_of(name, address)
        settings.require_for_spark(pipeline.write.conf)
        return source_of(pipeline.source.options, settings)

    read = source_of(pipeline.source.options, source)
    if isinstance(read, UsesJvm):
        read.use_jvm(jvm or partial(kept_jvm, hadoop_settings(pipeline.write.conf)))
    return Parts(
        read,
        lambda topic: ControlTopic(control or source, topic),
        sink_of(pipeline, jvm, registries),
        source,
        cluster,
        kafka_of,
    )


def sink_of(pipeline: Pipeline, jvm: Jvm | None = None, registries: Registries = registry_of_environment) -> Sink[Any]:
    """The sink that a pipeline file names."""
    made_by: MakesSink = load(pipeline.sink.options.connector)
    return made_by(pipeline, jvm, registries)
