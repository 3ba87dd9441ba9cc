"""The schemas with which records were written, as far as they are known when an interval is planned."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm
from sluice.jvm.schema import struct_of_ddl
from sluice.records.comments import undescribed
from sluice.records.json_schema import JsonSchemaError, json_type
from sluice.records.plan import WriterSchema
from sluice.records.settings import ONE_VALUE, Converter
from sluice.records.structs import same, same_but_for_case
from sluice.schemas.registry.avro import AvroSchemaError, avro_type
from sluice.schemas.registry.config import RegistrySettings
from sluice.schemas.registry.proto_files import ProtobufSchemaError, files_of_descriptors, registered_files
from sluice.schemas.registry.protobuf import ProtobufMessage, read_message
from sluice.untrusted import json_of

if TYPE_CHECKING:
    from sluice.schemas.registry.client import Registered

_KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}
_UNREADABLE = (AvroSchemaError, JsonSchemaError, ProtobufSchemaError)


def writer_schemas(
    jvm: HudiJvm,
    converter: Converter,
    key: str,
    subjects: Sequence[str],
    known: Sequence[WriterSchema],
    registry: RegistrySettings | None,
) -> tuple[WriterSchema, ...]:
    """The schemas of a key's or value's converter, newest first; none where the table's columns are the fields.

    Args:
        jvm: the coordinator's JVM.
        converter: the converter of the pipeline file.
        key: its key in the file, for errors: `source.….value`.
        subjects: the registry's subjects, one for each topic.
        known: the registry's schemas pinned by the table's last START, which aren't fetched again.
        registry: the registry's settings, where the converter names one.

    Raises:
        ActionRequiredError: a schema can't be read, or the registry knows no such subject.
        RetryableError: the registry doesn't answer.
    """
    if registry is not None:
        found = _registered(jvm, converter, key, subjects, known, registry)
    elif converter.schema_ is not None:
        found = (WriterSchema(struct=struct_of_ddl(jvm, converter.schema_, f"{key}.schema")),)
    elif converter.schema_file is not None:
        found = (_of_file(jvm, converter, key, converter.schema_file),)
    elif converter.converter in ONE_VALUE:
        found = (WriterSchema(struct=ONE_VALUE[converter.converter]),)
    else:
        return ()
    for schema in found:
        alike = same_but_for_case(schema.struct)
        if alike is not None:
            raise ActionRequiredError(
                f"Two fields of a record differ in case only, and a table has one column for both: {alike}.",
                next_step="rename one of them in the producer's schema.",
                schema=f"{key}, {f'id {schema.id}' if schema.id is not None else 'given'}",
            )
    return found


def _registered(
    jvm: HudiJvm,
    converter: Converter,
    key: str,
    subjects: Sequence[str],
    known: Sequence[WriterSchema],
    settings: RegistrySettings,
) -> tuple[WriterSchema, ...]:
    # Most pipelines have none, and importing it takes a fifth of a second.
    from sluice.schemas.registry.client import KnownVersion, Registry

    by_id = {schema.id: schema for schema in known if schema.id is not None}
    versions = {place: schema for schema in by_id.values() for place in schema.versions}
    with Registry(settings) as registry:
        new = registry.new_versions(
            subjects, {place: KnownVersion(s.id, s.digest) for place, s in versions.items() if s.id}
        )
    for found in new:
        place = (found.subject, found.version)
        before = by_id.get(found.id)
        if before is None:
            by_id[found.id] = _read(jvm, converter, key, found)
            continue
        if before.digest != found.digest:
            _require_same(before, _read(jvm, converter, key, found), found, settings)
        versions_of = tuple(dict.fromkeys((*before.versions, place)))
        by_id[found.id] = before.model_copy(update={"versions": versions_of, "digest": found.digest})
    return tuple(sorted(by_id.values(), key=lambda schema: schema.id or 0, reverse=True))


def _require_same(before: WriterSchema, now: WriterSchema, found: Registered, settings: RegistrySettings) -> None:
    """Check that an id still means the same schema: records of the topic carry only the id.

    Raises:
        ActionRequiredError: it names another schema now.
    """
    alike = all(getattr(before, name) == getattr(now, name) for name in ("parsed", "message", "indexes"))
    # An earlier release pinned types without comments.
    if alike and undescribed(before.struct) == undescribed(now.struct) and _parsed(before.text) == _parsed(now.text):
        return
    raise ActionRequiredError(
        "The schema registry has another schema under an id that it gave before: it was set up anew, or is another.",
        next_step="bring the earlier schemas back under their ids; or, if no record that is still to be read was "
        "written by them, name the registry by a connection of another id, and all schemas are read anew. Nothing was "
        "read.",
        id=found.id,
        subject=found.subject,
        version=found.version,
        connection=settings.name,
        registry=settings.url,
    )


def _parsed(text: str) -> Any:
    """A text's canonical content, independent of blanks and key order, which a registry's next release may change."""
    try:
        return json_of(text)
    except ValueError:  # Protobuf's descriptors
        return text


def _read(jvm: HudiJvm, converter: Converter, key: str, found: Registered) -> WriterSchema:
    where = {"subject": found.subject, "version": found.version, "id": found.id}
    if found.kind != _KINDS[converter.converter]:
        raise ActionRequiredError(
            f"The schema registry has a schema of another kind under this subject: {found.kind}.",
            next_step=f"correct {key}.converter, or {key}.subject.",
            **where,
        )
    try:
        parts = _PARTS_OF[converter.converter](jvm, converter, found)
    except _UNREADABLE as error:
        raise ActionRequiredError(
            "A schema of the registry can't be used.",
            next_step=f"register one that can, or choose another converter in {key}.",
            **where,
            reason=str(error),
        ) from None
    return WriterSchema(id=found.id, versions=((found.subject, found.version),), digest=found.digest, **parts)


def _avro(jvm: HudiJvm, converter: Converter, found: Registered) -> dict[str, Any]:  # noqa: ARG001
    text, struct = avro_type(jvm.jvm, found.text, [reference.text for reference in found.references])
    return {"text": text, "struct": struct}


def _json(jvm: HudiJvm, converter: Converter, found: Registered) -> dict[str, Any]:  # noqa: ARG001
    kind = json_type(found.text, {reference.name: reference.text for reference in found.references})
    parsed = None if same(kind.parsed, kind.logical) else kind.parsed
    return {"text": found.text, "struct": kind.logical, "parsed": parsed}


def _protobuf(jvm: HudiJvm, converter: Converter, found: Registered) -> dict[str, Any]:  # noqa: ARG001
    files = registered_files(found.text, [(reference.name, reference.text) for reference in found.references])
    return _of_message(read_message(files, converter.message))


_PARTS_OF: Mapping[str, Callable[[HudiJvm, Converter, Registered], dict[str, Any]]] = {
    "avro": _avro,
    "json_schema": _json,
    "protobuf": _protobuf,
}


def _of_message(message: ProtobufMessage) -> dict[str, Any]:
    return {
        "text": b64encode(message.descriptors).decode(),
        "struct": message.logical,
        "parsed": None if same(message.parsed, message.logical) else message.parsed,
        "message": message.name,
        "indexes": message.indexes,
    }


def _of_file(jvm: HudiJvm, converter: Converter, key: str, file: Path) -> WriterSchema:
    try:
        if converter.converter == "protobuf":
            files = files_of_descriptors(file.read_bytes(), converter.message)
            return WriterSchema(**_of_message(read_message(files, converter.message)))
        if converter.converter == "json_schema":
            kind = json_type(file.read_text())
            parsed = None if same(kind.parsed, kind.logical) else kind.parsed
            return WriterSchema(text=file.read_text(), struct=kind.logical, parsed=parsed)
        text, struct = avro_type(jvm.jvm, file.read_text())
        return WriterSchema(text=text if converter.converter == "avro" else "", struct=struct)
    except (OSError, UnicodeError) as error:
        reason: object = error.strerror if isinstance(error, OSError) else "it is not text"
    except _UNREADABLE as error:
        reason = error
    raise ActionRequiredError(
        "The schema file can't be used.", next_step=f"correct {key}.schema_file.", file=file, reason=reason
    )
