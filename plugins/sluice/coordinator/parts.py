"""What a coordinator works with: a source, a sink and a control log, each behind its interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sluice.connectors.log import ControlLog
from sluice.connectors.sink import Sink
from sluice.connectors.source import Source
from sluice.control.topic import ControlTopic
from sluice.coordinator.machine import THIS_MACHINE, Machine
from sluice.kafka.config import KafkaSettings
from sluice.pipeline.model import Pipeline
from sluice.registry.config import Registries, registry_of_environment
from sluice.sinks.hudi.sink import HudiSink, Jvm
from sluice.sources.kafka.cluster import KafkaCluster


@dataclass(frozen=True)
class Parts:
    """The parts of one pipeline.

    Attributes:
        source: the cluster that is read.
        control: a control log, by its topic.
        sink: where rows go.
        kafka: the source's connection, for dead letters.
        machine: that of this process.
    """

    source: Source
    control: Callable[[str], ControlLog]
    sink: Sink[Any]
    kafka: KafkaSettings
    machine: Machine = THIS_MACHINE


def parts_of(
    pipeline: Pipeline,
    source: KafkaSettings,
    control: KafkaSettings | None = None,
    jvm: Jvm | None = None,
    registries: Registries = registry_of_environment,
) -> Parts:
    """The parts that a pipeline file names.

    Args:
        pipeline: what to load, and how.
        source: the cluster that is read.
        control: the cluster that holds the control topic; the source's by default.
        jvm: where Hudi runs; a lean JVM for each step by default.
        registries: where a schema registry is, by its connection's id.
    """
    return Parts(
        KafkaCluster(source, isolation_level=pipeline.source.kafka.isolation_level),
        lambda topic: ControlTopic(control or source, topic),
        HudiSink(pipeline, jvm, registries),
        source,
    )
