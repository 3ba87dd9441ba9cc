"""The schemas of keys and values: derived from the columns, and registered before an interval begins."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm
from sluice.records.structs import Type
from sluice.registry.client import Kind, Registry
from sluice.registry.config import Registries
from sluice.sinks.kafka.options import REGISTERED, Encoder
from sluice.sinks.kafka.schemas import connect_schema, json_schema

_KINDS: dict[str, Kind] = {"avro": "AVRO", "json_schema": "JSON"}


def pinned_schema(
    part: str,
    encoder: Encoder,
    struct: Type,
    *,
    place: str,
    name: str,
    targets: Sequence[str],
    jvm: HudiJvm,
    registries: Registries,
    write: bool,
) -> dict[str, Any]:
    """What START-COMMIT says of a schema: `id` and `text`; nothing where the encoder has none.

    Args:
        part: `key` or `value`.
        encoder: how it is written.
        struct: the columns.
        place: of the section, for errors.
        name: the pipeline's.
        targets: the topics that are written to.
        jvm: where Spark's conversion of types is.
        registries: where a registry is, by its connection's id.
        write: whether a schema may be registered; else one that isn't there has the id 0.

    Raises:
        ActionRequiredError: the columns have a type that the encoder doesn't write, or the registry refuses the schema.
        RetryableError: the registry doesn't answer.
    """
    full = encoder.record_name or f"sluice.{_identifier(name)}{'_key' if part == 'key' else ''}"
    try:
        if encoder.encoder == "json_with_schema":
            connect_schema(struct)
        if encoder.encoder not in REGISTERED:
            return {}
        text = _avro(jvm, struct, full) if encoder.encoder == "avro" else json_schema(struct, full)
    except ValueError as error:
        raise ActionRequiredError(
            f"{place}: {error}.",
            next_step="choose another encoder, or change the column in `transforms`.",
        ) from error
    kind = _KINDS[encoder.encoder]
    subjects = _subjects(part, encoder, full, targets)
    with Registry(registries(encoder.registry)) as registry:
        found = [
            registry.written_as(subject, kind, text, register=encoder.auto_register and write) for subject in subjects
        ]
    if not encoder.auto_register:
        texts = {one.text for one in found if one is not None}
        if None in found or len(texts) != 1:
            raise ActionRequiredError(
                "The registry has no schema under the sink's subject, or several topics have different ones.",
                next_step=f"register it, or let Sluice do it: {place}.auto_register true.",
                subjects=", ".join(subjects),
            )
        text = texts.pop()
        if encoder.encoder == "avro":
            _require_writable(jvm, struct, text, place)
    ids = {one.id for one in found if one is not None}
    if len(ids) > 1:
        raise ActionRequiredError(
            "The registry has the same schema under several ids, and a record has one.",
            next_step=f"name one {place}.subject for all topics.",
            subjects=", ".join(subjects),
        )
    return {"id": ids.pop() if ids else 0, "text": text}


def _subjects(part: str, encoder: Encoder, full: str, targets: Sequence[str]) -> list[str]:
    if encoder.subject is not None:
        return [encoder.subject]
    if encoder.subject_name_strategy == "record":
        return [full]
    if encoder.subject_name_strategy == "topic_record":
        return [f"{topic}-{full}" for topic in targets]
    return [f"{topic}-{part}" for topic in targets]


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{made}" if made[0].isdigit() else made


def _avro(jvm: HudiJvm, struct: Type, full: str) -> str:
    namespace, _, name = full.rpartition(".")
    kind = jvm.jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(struct))
    try:
        made = jvm.jvm.org.apache.spark.sql.avro.SchemaConverters.toAvroType(kind, False, name, namespace)
    except Py4JJavaError as error:
        raise ValueError(f"Avro has no such columns ({_reason(error)})") from error
    return str(made.toString())


def _require_writable(jvm: HudiJvm, struct: Type, text: str, place: str) -> None:
    """Check that rows can be written by a schema that somebody else has registered."""
    try:
        kind = jvm.jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(struct))
        schema = jvm.jvm.org.apache.avro.Schema.Parser().parse(text)
        jvm.jvm.org.apache.spark.sql.avro.AvroSerializer(kind, schema, False)
    except Py4JJavaError as error:
        raise ActionRequiredError(
            f"The columns can't be written by the schema that the registry has ({_reason(error)}).",
            next_step=f"make columns of the schema's names and types in `transforms`, or say "
            f"{place}.auto_register true.",
        ) from error


def _reason(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage()).strip().splitlines()[0][:300]
