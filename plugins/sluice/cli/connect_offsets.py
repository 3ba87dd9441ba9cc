"""The position of a Connect connector, as the starting offsets of the pipeline that replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from sluice.cli.places import connections, settings
from sluice.connect import Finding, Imported
from sluice.connect.source_offsets import Found, position_in, starting, stored
from sluice.errors import ActionRequiredError
from sluice.pipeline import Pipeline, load_pipeline
from sluice.pipeline.routes import overlay

_WORKERS, _OWN = "offset.storage.topic", "offsets.storage.topic"


def of_group(made: Imported) -> Imported:
    """The pipeline of a sink, starting at the position of the connector's consumer group.

    Raises:
        ActionRequiredError: the group has members still, or has committed nothing.
        RetryableError: the cluster doesn't answer.
    """
    from sluice.kafka.group_offsets import group_offsets

    pipeline = _pipeline(made)
    source = pipeline.source.options
    found = group_offsets(settings(pipeline)[0], made.group, source.topics, source.topics_pattern)
    starting = {topic: dict(of) for topic, of in found.offsets.items()}
    kafka = {"source": {"kafka": {"starting_offsets": starting}}}
    steps = [step for step in made.steps if "--offsets" not in step]
    steps.append(f"the group {made.group} must not move any more: what it commits from now on would be loaded twice")
    steps += [
        f"{topic}: the group has no commit of partition {', '.join(map(str, partitions))}, which begins at its earliest"
        " offset"
        for topic, partitions in found.without.items()
    ]
    reset = "consumer.override.auto.offset.reset"
    findings = tuple(
        (
            replace(one, verdict="harmless", what="--offsets wrote the group's position")
            if one.key == reset and one.verdict == "honoured"
            else one
        )
        for one in made.findings
    )
    where = ", ".join(f"{topic}[{p}]@{offset}" for topic, of in starting.items() for p, offset in of.items())
    findings += (Finding(f"offsets of {made.group}", "honoured", f"starting_offsets: {where}", of="default"),)
    return replace(made, pipeline=overlay(made.pipeline, kafka), steps=tuple(steps), findings=findings)


def _pipeline(made: Imported) -> Pipeline:
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{made.name}.yaml"
        file.write_text(yaml.safe_dump(made.with_stand_ins()))
        return load_pipeline(file)


def of_source(made: Imported, worker: Mapping[str, str]) -> Imported:
    """The pipeline of a source, starting at its position in Connect's topic of offsets.

    Args:
        made: the pipeline.
        worker: keys and values of the worker's file, which name the topic if the connector doesn't.

    Raises:
        ActionRequiredError: no topic is named, or it doesn't exist; it has no offsets of the connector, or none that
            can be read.
        RetryableError: the cluster doesn't answer.
    """
    pipeline = _pipeline(made)
    section = pipeline.source.options
    name, topic = made.connector.name, section.topics[0]
    found, where = _stored(pipeline, made, worker)
    at = position_in(found, None if made.connector.config.get("query", "").strip() else topic)
    mode = str((made.pipeline or {})["source"]["jdbc"]["mode"])
    number = made.connector.config.get("incrementing.column.name", "").strip()
    grain = 1_000_000 if any(one.type == "sqlite" for one in made.connections) else 1
    begins = {} if at is None else starting(mode, topic, number, at, grain)
    steps = [step for step in made.steps if not step.startswith("set its last position")]
    steps.append(f"{name} must not run any more: what it reads from now on would be sent twice")
    if begins:
        said = ", ".join(f"{key}: {value}" for key, value in begins.items())
    elif mode == "bulk":
        said = "mode bulk reads everything each time"
    else:
        said = f"nothing is known of {topic}, which is read from its beginning"
        steps.append(f"{where} has no position of {topic} in mode {mode}: look whether it is right that all is read")
    findings = tuple(
        replace(one, verdict="harmless", what="--offsets wrote the connector's position", next_step="")
        if one.key == "timestamp.initial" and begins
        else one
        for one in made.findings
    )
    findings += (Finding(f"offsets of {name}", "honoured", said, of="default"),)
    data = overlay(made.pipeline or {}, {"source": {"jdbc": begins}}) if begins else made.pipeline
    return replace(made, pipeline=data, steps=tuple(steps), findings=findings)


def _stored(pipeline: Pipeline, made: Imported, worker: Mapping[str, str]) -> tuple[Found, str]:
    """A connector's offsets, and the topics that have them: its own counts before the worker's, as in Connect."""
    from sluice.kafka.transactional import read_whole

    own, workers = made.connector.config.get(_OWN, "").strip(), worker.get(_WORKERS, "").strip()
    topics = [topic for topic in dict.fromkeys((workers, own)) if topic]
    if not topics:
        raise ActionRequiredError(
            f"The topic with the offsets of {made.connector.name} isn't named.",
            next_step=f"give the worker's file by --worker; it names the topic in {_WORKERS}. A standalone worker has "
            "a file instead: ask it, GET /connectors/NAME/offsets, and write starting_offsets (docs/coming-from.md).",
        )
    cluster = connections(pipeline)(pipeline.kafka_connection)
    found: Found = {}
    for topic in topics:
        found = stored(made.connector.name, ((r.key(), r.value()) for r in read_whole(cluster, topic)), found)
    where = ", ".join(topics)
    if not found:
        raise ActionRequiredError(
            f"The topic has no offsets of {made.connector.name}.",
            next_step="check the connector's name, the topic and the cluster, or import it without --offsets.",
            topic=where,
            connection=cluster.name,
        )
    return found, where
