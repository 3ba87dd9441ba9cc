"""`sluice infer`: what columns the records of a topic would need, by a sample, for a person to approve."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.output import Column, say, show
from sluice.cli.places import PipelineFile, connections, require_kafka, settings
from sluice.connectors.registry import BUILT_IN, Kind
from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.pipeline import Pipeline, load_pipelines
from sluice.pipeline.edit import with_value
from sluice.pipeline.load import read_file, validated
from sluice.pipeline.routes import overlay
from sluice.records.inference import Sample, completed
from sluice.records.structs import Type, in_words, names

if TYPE_CHECKING:
    from sluice.jvm.gateway import HudiJvm
    from sluice.jvm.inference import Reader
    from sluice.kafka.config import KafkaSettings
    from sluice.protocol.state import PartitionBounds
    from sluice.sources.kafka.sample import Sampled

_UNKNOWN = "to_be_inferred STRING"


def infer(
    file: PipelineFile,
    records: Annotated[int, typer.Option(min=1, help="How many of the newest records to look at.")] = 1000,
    write: Annotated[bool, typer.Option("--write", help="Put the schema into the file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Look at a sample of a topic's records and propose a schema; nothing is changed without --write."""
    from sluice.jvm.gateway import lean_jvm
    from sluice.jvm.schema import struct_of_ddl

    path = Path(str(file).partition("#")[0])
    pipeline, given, key = _unfinished(path)
    sampled = _sampled(pipeline, records)
    with lean_jvm() as jvm:
        known = struct_of_ddl(jvm, given, ".".join(key)) if given else None
        sample = _looked_at(jvm, pipeline, sampled, known)
        found = sample.result()
        columns, conflicts = (found, []) if known is None else completed(known, found)
        ddl = str(jvm.jvm.org.apache.spark.sql.types.DataType.fromJson(json_text.dumps(columns)).toDDL())
    against = [f"{c.field}: {c.known} in the file, {c.new} in the sample" for c in conflicts]
    rows = [_row(sample, field, known) for field in columns["fields"]]
    data = {
        "sampled": sample.records, "unreadable": sample.unreadable, "against_the_file": against, "columns": rows,
        "key": ".".join(key), "ddl": ddl,
    }  # fmt: skip
    shown = [Column("column"), Column("type"), Column("in_records", right=True), Column("nulls", right=True)]
    show(data, "columns", [*shown, Column("is"), Column("examples")], as_json=json, caption=_in_words(data))
    if not json:
        say(f"\n{_lines(key, ddl)}")
    if write:
        if against:
            raise ActionRequiredError(
                "The sample doesn't fit the schema that the file has.",
                next_step=f"correct {'.'.join(key)} by hand; nothing was written.",
                file=path,
                changed=against,
            )
        _write(path, key, ddl)


def _unfinished(path: Path) -> tuple[Pipeline, str | None, tuple[str, ...]]:
    """A pipeline that may lack its schema, the schema if it has one, and the schema's key.

    Records with transforms or routes have their own fields; in other pipelines the fields are the table's columns.
    """
    data, _ = read_file(path)
    source, sink = _connector(data, "source"), _connector(data, "sink")
    value, table = _section(data, "source", source, "value"), _section(data, "sink", sink)
    kind = value.get("converter", "json")
    if kind not in ("json", "csv") or value.get("registry") or value.get("schema_file"):
        raise ActionRequiredError(
            f"Records that are read by the converter {kind} have a schema already, or none at all.",
            next_step="`sluice infer` is for json and csv without a registry.",
            file=path,
        )
    own = bool(data.get("transforms") or data.get("routes") or value.get("schema"))
    key = ("source", source, "value", "schema") if own else ("sink", sink, "schema")
    given = value.get("schema") if own else table.get("schema")
    stand_in: dict[str, Any] = {"source": {source: {"value": {"schema": given if own and given else _UNKNOWN}}}}
    if not table.get("schema") and not table.get("schema_file"):
        stand_in["sink"] = {sink: {"schema": _UNKNOWN}}
    routes = data.pop("routes", None)
    if routes:  # the records are the same for all tables
        data.setdefault("sink", {sink: {"path": "/unused"}})
        stand_in.setdefault("sink", {sink: {}})[sink]["path"] = "/unused"
    pipeline = validated(Pipeline, overlay(data, stand_in), path)
    return pipeline, given, key


def _connector(data: Any, kind: Kind) -> str:
    """The name of the source's or the sink's one section; the first that comes with Sluice where there is none yet."""
    return next(iter(_section(data, kind)), next(iter(BUILT_IN[kind])))


def _section(data: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _sampled(pipeline: Pipeline, count: int) -> list[Sampled]:
    from sluice.sources.kafka.cluster import KafkaCluster
    from sluice.sources.kafka.sample import newest_records

    require_kafka(pipeline)
    source = pipeline.source.options
    isolation, of_streams = source.read_isolation, source.streams_settings is not None
    partitions: list[tuple[KafkaSettings, list[PartitionBounds]]] = []
    for kafka, named in _clusters(pipeline):
        cluster = KafkaCluster(kafka, isolation_level=isolation)
        topics = named or cluster.topics_like(str(source.topics_pattern))
        with_records = [b for b in cluster.state(topics, None).partitions if b.log_end > b.log_start]
        partitions.append((kafka, with_records))
    number = sum(len(here) for _, here in partitions)
    found: list[Sampled] = []
    for kafka, here in partitions:
        if here:  # as many from each partition of each cluster
            sampled = newest_records(kafka, isolation, here, -(-count * len(here) // number))
            found += [s._replace(place=f"{kafka.name}/{s.place}") for s in sampled] if of_streams else sampled
    if not found:
        raise ActionRequiredError(
            "There are no records to look at.",
            next_step="wait for the producer, and try again.",
            topics=source.topics_in_words,
        )
    return found[:count]


def _clusters(pipeline: Pipeline) -> list[tuple[KafkaSettings, tuple[str, ...]]]:
    """The clusters that are read, with their topics; none are named where a pattern does it."""
    from sluice.connectors.metadata import mapping_by, metadata_service

    source = pipeline.source.options
    streams = source.streams_settings
    if streams is None:
        return [(settings(pipeline)[0], source.topics)]
    service = metadata_service(streams.service, streams.service_options)
    mapping = mapping_by(
        service,
        streams,
        connection=pipeline.kafka_connection,
        starting=source.starting_offsets,
        table=pipeline.table_id,
    )
    of = connections(pipeline)
    return [
        (of(there.connection).at(name, there.bootstrap_servers), tuple(t for c, t in sorted(mapping.logs) if c == name))
        for name, there in sorted(mapping.clusters.items())
        if service.is_cluster_active(name)
    ]


def _looked_at(jvm: HudiJvm, pipeline: Pipeline, sampled: list[Sampled], known: Type | None) -> Sample:
    from sluice.jvm.inference import CsvReader, JsonReader, UnreadableError

    value = pipeline.source.options.value
    reader: Reader = JsonReader(jvm.jvm, value.options)
    if value.converter == "csv":
        reader = CsvReader(jvm.jvm, value.options, names(known) if known is not None else ())
    sample = Sample()
    for place, data in sampled:
        try:
            if data is None:
                raise UnreadableError("a tombstone")
            sample.add(place, *reader.read(data.decode()))
        except (UnreadableError, UnicodeDecodeError) as error:
            sample.add_unreadable(place, str(error))
    return sample


def _row(sample: Sample, field: Mapping[str, Any], known: Type | None) -> dict[str, Any]:
    seen = sample.seen.get(field["name"])
    state = "" if known is None else "in the file" if field["name"] in names(known) else "new"
    return {
        "column": field["name"],
        "type": in_words(field["type"]),
        "in_records": seen.records if seen else 0,
        "nulls": seen.nulls if seen else 0,
        "is": "; ".join(seen.conflicts) if seen and seen.conflicts else state,
        "examples": "  ".join(seen.examples) if seen else "",
    }


def _in_words(data: Mapping[str, Any]) -> str:
    said = [f"{data['sampled']} records were looked at."]
    if data["unreadable"]:
        said.append(f"{len(data['unreadable'])} can't be read, the first at {data['unreadable'][0]}.")
    if data["against_the_file"]:
        said.append(f"They don't fit the file: {'; '.join(data['against_the_file'])}.")
    return " ".join(said)


def _lines(key: tuple[str, ...], ddl: str) -> str:
    """The key as in a pipeline file."""
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(key)]
    return "\n".join(lines) + f" {json_text.dumps(ddl, ensure_ascii=False)}"


def _write(path: Path, key: tuple[str, ...], ddl: str) -> None:
    before = path.read_text()
    was_wrong = _mistake(path)
    path.write_text(with_value(before, key, ddl))
    wrong = _mistake(path)
    if wrong is not None and was_wrong is None:
        path.write_text(before)
        raise wrong
    say(f"Written to {path}.", err=True)
    if wrong is not None:  # missing keys have to be added by hand
        say(str(wrong), err=True)


def _mistake(path: Path) -> PipelineFileError | None:
    try:
        load_pipelines(path)
    except PipelineFileError as error:
        return error
    return None
