"""Derives the schemas of keys and values from the columns, and registers them before an interval begins."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm
from sluice.records.avro_defaults import with_defaults
from sluice.records.structs import Type
from sluice.schemas.registry.client import Kind, Reference, Registry
from sluice.schemas.registry.config import Registries
from sluice.schemas.registry.proto_files import ProtobufSchemaError, registered_files
from sluice.schemas.registry.proto_writing import proto_text, written_message
from sluice.sinks.kafka.options import CONNECTS, REGISTERED, Encoder
from sluice.sinks.kafka.schemas import connect_schema, json_schema

_KINDS: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}


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
    """A schema for START-COMMIT: `id` and `text`, and for Protobuf also `message` and `indexes`.

    For Connect's JSON it is the schema's `name`, and how decimals are written; for a user's encoder its `options`.
    Empty for the other encoders.

    Args:
        part: `key` or `value`.
        encoder: the part's encoder.
        struct: the columns.
        place: the section's place in the pipeline file, for errors.
        name: the pipeline's table name.
        targets: the topics to write to.
        jvm: a JVM with Spark's conversion of types.
        registries: returns a schema registry, given its connection's id.
        write: whether a schema may be registered; if not, a missing schema has the id 0.

    Raises:
        ActionRequiredError: the encoder can't write a column's type, or the registry refuses the schema.
        RetryableError: the registry doesn't answer.
    """
    full = encoder.record_name or f"sluice.{_identifier(name)}{'_key' if part == 'key' else ''}"
    try:
        if encoder.encoder in CONNECTS:
            connect_schema(struct)
            return {"name": encoder.record_name or "", "decimals": encoder.decimal_format}
        if encoder.encoder not in REGISTERED:
            return {"options": dict(encoder.options)} if encoder.options else {}
        text = _TEXTS[encoder.encoder](jvm, struct, full)
    except ValueError as error:
        raise ActionRequiredError(
            f"{place}: {error}.",
            next_step="choose another encoder, or change the column in `transforms`.",
        ) from error
    kind = _KINDS[encoder.encoder]
    subjects = _subjects(part, encoder, full, targets)
    with Registry(registries(encoder.registry)) as registry:
        if encoder.auto_register:
            text = _as_before(jvm, registry, subjects, kind, text, struct, full, place)
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
    pinned = {"id": ids.pop() if ids else 0, "text": text}
    if encoder.encoder == "protobuf":
        references = next((one.references for one in found if one is not None), ())
        message = encoder.record_name if not encoder.auto_register else full
        pinned |= _message(text, references, message, struct, place)
    return pinned


def _as_before(
    jvm: HudiJvm,
    registry: Registry,
    subjects: Sequence[str],
    kind: Kind,
    text: str,
    struct: Type,
    full: str,
    place: str,
) -> str:
    """The schema as the successor of the subject's last one.

    Protobuf fields keep their numbers. If an earlier release registered a schema for the same columns, that schema is
    kept: Avro without defaults, or a JSON Schema that allows additional properties.
    """
    last = next(filter(None, (registry.written_as(one, kind, "", register=False) for one in subjects)), None)
    if last is None or last.text.strip() == text.strip():
        return text
    if kind == "PROTOBUF":
        with _usable(place):
            return proto_text(struct, full, _files(last.text, last.references))
    before = json.loads(last.text)
    if kind == "AVRO":
        return last.text if before == json.loads(_spark_avro(jvm, struct, full)) else text
    is_open = isinstance(before, dict) and "additionalProperties" not in before
    return json_schema(struct, full, closed=False) if is_open else text


def _message(
    text: str, references: Sequence[Reference], message: str | None, struct: Type, place: str
) -> dict[str, Any]:
    """A Protobuf schema in the form that Spark needs, instead of its text."""
    with _usable(place):
        made = written_message(_files(text, references), message, struct)
    return {"text": b64encode(made.descriptors).decode(), "message": made.name, "indexes": made.indexes}


def _files(text: str, references: Sequence[Reference]) -> list[Any]:
    return registered_files(text, [(one.name, one.text) for one in references])


@contextmanager
def _usable(place: str) -> Iterator[None]:
    try:
        yield
    except ProtobufSchemaError as error:
        raise ActionRequiredError(
            f"The columns can't be written by the Protobuf schema: {error}.",
            next_step=f"make columns of the schema's names and types in `transforms`, or correct {place}.record_name "
            "or its subject.",
        ) from error


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
    """An Avro schema with null as the default of nullable columns, so that a later schema can read older records."""
    return json.dumps(with_defaults(json.loads(_spark_avro(jvm, struct, full))), separators=(",", ":"))


def _spark_avro(jvm: HudiJvm, struct: Type, full: str) -> str:
    namespace, _, name = full.rpartition(".")
    kind = jvm.jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(struct))
    try:
        made = jvm.jvm.org.apache.spark.sql.avro.SchemaConverters.toAvroType(kind, False, name, namespace)
    except Py4JJavaError as error:
        raise ValueError(f"Avro has no such columns ({_reason(error)})") from error
    return str(made.toString())


def _require_writable(jvm: HudiJvm, struct: Type, text: str, place: str) -> None:
    """Check that rows can be written with a schema that another program registered."""
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


_TEXTS: Final[Mapping[str, Callable[[HudiJvm, Type, str], str]]] = {
    "avro": _avro,
    "protobuf": lambda _, struct, full: proto_text(struct, full),
    "json_schema": lambda _, struct, full: json_schema(struct, full),
}


def _reason(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage()).strip().splitlines()[0][:300]
