"""Protobuf schemas of a row's columns, and descriptors by which Spark writes them.

Types without a Protobuf scalar are the messages that Connect's converter has for them: google.type.Date,
google.protobuf.Timestamp and confluent.type.Decimal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sluice.schemas.registry.proto_files import ProtobufSchemaError, descriptor_pb2
from sluice.schemas.registry.protobuf import messages_of

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_DATE, _TIMESTAMP, _DECIMAL_MESSAGE = "google.type.Date", "google.protobuf.Timestamp", "confluent.type.Decimal"
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCALARS: Final = {
    "uint32": "uint32",  # no type of Spark's; a decimal's precision is one
    "byte": "int32",
    "short": "int32",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "bool",
    "string": "string",
    "binary": "bytes",
}
_PACKAGE: Final = "sluice"
_MESSAGES: Final = {"date": _DATE, "timestamp": _TIMESTAMP, "decimal": _DECIMAL_MESSAGE}
_KEYS: Final = ("byte", "short", "integer", "long", "boolean", "string")
"""Types of a map's keys."""
_IMPORTS: Final = {
    _DATE: ("google/type/date.proto",),
    _TIMESTAMP: ("google/protobuf/timestamp.proto",),
    _DECIMAL_MESSAGE: ("confluent/meta.proto", "confluent/type/decimal.proto"),
}
# Types of another author's schema that hold the same values; unsigned numbers don't.
_SAME: Final = {
    "uint32": ("UINT32",),
    "int32": ("INT32", "SINT32", "SFIXED32"),
    "int64": ("INT64", "SINT64", "SFIXED64"),
    "float": ("FLOAT",),
    "double": ("DOUBLE",),
    "bool": ("BOOL",),
    "string": ("STRING",),
    "bytes": ("BYTES",),
}
_RESERVED: Final = range(19000, 20000)
"""Numbers that Protobuf keeps for itself."""


@dataclass(frozen=True)
class WrittenMessage:
    """A message type by which rows are written.

    Attributes:
        name: its name in the descriptors, for Spark.
        indexes: its indexes in its file, as in Confluent's wire format.
        descriptors: a serialized FileDescriptorSet of one file that contains all its dependencies. Spark recognizes
            Timestamp and Duration by their names, and truncates microseconds; here they are messages of another name
            with the same bytes.
    """

    name: str
    indexes: tuple[int, ...]
    descriptors: bytes


# The schema of columns


def proto_text(struct: Any, full: str, before: Sequence[FileDescriptorProto] = ()) -> str:
    """A .proto file with one message of a struct's columns.

    Args:
        struct: the columns, as Spark's JSON has them.
        full: the message's full name.
        before: the files of the subject's last schema. A column keeps the number that it has there, a new one takes the
            next, and those of columns that are gone stay reserved: else a reader of old records would take one for
            another.

    Raises:
        ValueError: Protobuf has no such column.
    """
    package, _, name = full.rpartition(".")
    known = {found: message for file in before for _, found, message in messages_of(file)}
    made = _Text(known)
    lines = made.message(name, full, struct, "")
    imports = [f'import "{file}";' for file in sorted(made.imports)]
    head = ['syntax = "proto3";', *([f"package {package};"] if package else []), *imports]
    return "\n".join([*head, "", *lines, ""])


class _Text:
    """Writes messages; `imports` are the files that they need."""

    def __init__(self, before: Mapping[str, DescriptorProto]) -> None:
        self._before = before
        self.imports: set[str] = set()

    def message(self, name: str, full: str, struct: Any, indent: str) -> list[str]:
        before = self._before.get(full)
        numbers, gone, gone_names = _numbers(before, [f["name"] for f in struct["fields"]])
        inner = f"{indent}  "
        taken = {f["name"] for f in struct["fields"]}
        nested: list[str] = []
        fields: list[str] = []
        for field in struct["fields"]:
            label, kind, options = self._field(field, full, taken, nested, inner)
            fields.append(f"{inner}{label}{kind} {field['name']} = {numbers[field['name']]}{options};")
        reserved = [f"{inner}reserved {', '.join(map(str, gone))};"] if gone else []
        quoted = ", ".join(f'"{one}"' for one in gone_names)
        reserved += [f"{inner}reserved {quoted};"] if gone_names else []
        return [f"{indent}message {name} {{", *nested, *reserved, *fields, f"{indent}}}"]

    def _field(
        self, field: Mapping[str, Any], full: str, taken: set[str], nested: list[str], indent: str
    ) -> tuple[str, str, str]:
        name, kind = field["name"], field["type"]
        if not _NAME.fullmatch(name):
            raise ValueError(f"Protobuf has no field of the name {name!r}")
        if isinstance(kind, Mapping) and kind["type"] == "array":
            element = kind["elementType"]
            if _is_many(element):
                raise ValueError(f"{name}: Protobuf has no array of {element['type']}s")
            return "repeated ", *self._one(name, element, full, taken, nested, indent)
        if isinstance(kind, Mapping) and kind["type"] == "map":
            if kind["keyType"] not in _KEYS:
                raise ValueError(f"{name}: Protobuf has no map with keys of type {_words(kind['keyType'])}")
            if _is_many(kind["valueType"]):
                raise ValueError(f"{name}: Protobuf has no map of {kind['valueType']['type']}s")
            value, options = self._one(name, kind["valueType"], full, taken, nested, indent)
            return "", f"map<{_SCALARS[kind['keyType']]}, {value}>", options
        value, options = self._one(name, kind, full, taken, nested, indent)
        has_presence = isinstance(kind, Mapping) or kind not in _SCALARS  # a message
        return "optional " if field["nullable"] and not has_presence else "", value, options

    def _one(self, name: str, kind: Any, full: str, taken: set[str], nested: list[str], indent: str) -> tuple[str, str]:
        """The type of one value, and the field's options."""
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            own = f"{name}_type"
            while own in taken:
                own += "_"
            taken.add(own)
            nested += self.message(own, f"{full}.{own}", kind, indent)
            return own, ""
        if kind in _SCALARS:
            return _SCALARS[kind], ""
        decimal = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
        message = _MESSAGES.get("decimal" if decimal else kind)
        if message is None:
            raise ValueError(f"{name}: Protobuf has no {_words(kind)}")
        self.imports.update(_IMPORTS[message])
        if decimal is None:
            return message, ""
        pairs = (("precision", decimal[1]), ("scale", decimal[2]))
        params = ", ".join(f'{{ key: "{key}", value: "{value}" }}' for key, value in pairs)
        return message, f" [(confluent.field_meta) = {{ params: [{params}] }}]"


def _is_many(kind: Any) -> bool:
    return isinstance(kind, Mapping) and kind["type"] in ("array", "map")


def _words(kind: Any) -> str:
    return str(kind["type"] if isinstance(kind, Mapping) else kind)


def _numbers(before: DescriptorProto | None, names: Sequence[str]) -> tuple[dict[str, int], list[int], list[str]]:
    """The fields' numbers, and the numbers and names that stay reserved."""
    old = {} if before is None else {field.name: field.number for field in before.field}
    reserved = [] if before is None else [n for one in before.reserved_range for n in range(one.start, one.end)]
    gone_names = [] if before is None else [name for name in before.reserved_name if name not in names]
    following = _free(max([0, *old.values(), *reserved]) + 1)
    numbers = {name: old[name] if name in old else next(following) for name in names}
    dropped = [name for name in old if name not in numbers]
    return numbers, sorted({*reserved, *(old[name] for name in dropped)}), sorted({*gone_names, *dropped})


def _free(number: int) -> Iterator[int]:
    while True:
        if number not in _RESERVED:
            yield number
        number += 1


# Descriptors for Spark


def written_message(files: Sequence[FileDescriptorProto], message: str | None, struct: Any) -> WrittenMessage:
    """A message type of the last file, by its full name or the first one, made ready to write a struct's columns.

    Raises:
        ProtobufSchemaError: there is no such message, or the columns can't be written by it.
    """
    inside = {full: indexes for indexes, full, _ in messages_of(files[-1])}
    if not inside:
        raise ProtobufSchemaError("the file has no message")
    name = message or next(iter(inside))
    if name not in inside:
        raise ProtobufSchemaError(f"the schema has no message {name}; there are {', '.join(inside)}")
    if any(file.syntax == "editions" for file in files):
        raise ProtobufSchemaError("Protobuf editions are not understood by Spark's encoder; proto2 and proto3 are")
    everything = {f".{full}": found for file in files for _, full, found in messages_of(file)}
    made = _Alone(everything).copy("Written", f".{name}", struct, "", "")
    pb = descriptor_pb2()
    # proto2 in any case: null fields are omitted and zeros are written, which readers of either syntax decode alike.
    file = pb.FileDescriptorProto(name="sluice/written.proto", package=_PACKAGE, syntax="proto2", message_type=[made])
    whole = pb.FileDescriptorSet(file=[file]).SerializeToString(deterministic=True)
    return WrittenMessage(f"{_PACKAGE}.Written", inside[name], whole)


class _Alone:
    """Copies of messages with the fields that columns have, each inside of the one that holds it."""

    def __init__(self, everything: Mapping[str, DescriptorProto]) -> None:
        self._everything = everything
        self._pb = descriptor_pb2()

    def copy(self, name: str, full: str, struct: Any, outer: str, path: str) -> Any:
        original = self._everything[full]
        fields = {field.name: field for field in original.field}
        made = self._pb.DescriptorProto(name=name)
        for column in struct["fields"]:
            where = f"{path}{column['name']}"
            field = fields.get(column["name"])
            if field is None:
                raise ProtobufSchemaError(f"the message {full[1:]} has no field for the column {where}")
            self._field(made, field, column["type"], f"{outer}.{name}", where)
        columns = {column["name"]: column["nullable"] for column in struct["fields"]}
        for field in original.field:
            if field.label == field.LABEL_REQUIRED and columns.get(field.name, True):
                raise ProtobufSchemaError(f"the field {path}{field.name} is required, and no column is NOT NULL for it")
        return made

    def _field(self, made: Any, field: FieldDescriptorProto, kind: Any, outer: str, where: str) -> None:
        inner = self._everything.get(field.type_name)
        is_map = inner is not None and inner.options.map_entry
        many = kind["type"] if _is_many(kind) else ""
        repeated = field.label == field.LABEL_REPEATED
        if (many == "map") != is_map or (many == "array") != (repeated and not is_map):
            raise self._unfit(field, kind, where)
        own = made.field.add(name=field.name, number=field.number, label=field.label, type=field.type)
        if many == "map":
            assert inner is not None
            pair = struct_of([("key", kind["keyType"]), ("value", kind["valueType"])])
            entry = self.copy(inner.name, field.type_name, pair, outer, f"{where}.")
            entry.options.map_entry = True
            made.nested_type.append(entry)
            own.type_name = f".{_PACKAGE}{outer}.{inner.name}"
            return
        one = kind["elementType"] if many else kind
        struct = _as_struct(one)
        if struct is None:
            if field.Type.Name(field.type).removeprefix("TYPE_") not in _SAME.get(_SCALARS.get(one, ""), ()):
                raise self._unfit(field, kind, where)
            if repeated and field.type not in (field.TYPE_STRING, field.TYPE_BYTES):
                own.options.packed = True
            return
        wanted = _message_of(one)
        if inner is None or (wanted is not None and field.type_name != f".{wanted}"):
            raise self._unfit(field, kind, where)
        name = f"M{field.number}"
        made.nested_type.append(self.copy(name, field.type_name, struct, outer, f"{where}."))
        own.type_name = f".{_PACKAGE}{outer}.{name}"

    @staticmethod
    def _unfit(field: FieldDescriptorProto, kind: Any, where: str) -> ProtobufSchemaError:
        has = field.type_name[1:] or field.Type.Name(field.type).removeprefix("TYPE_").lower()
        label = "repeated " if field.label == field.LABEL_REPEATED else ""
        return ProtobufSchemaError(f"the column {where} is {_words(kind)}, and the schema's field {label}{has}")


def _message_of(kind: Any) -> str | None:
    """The message for a type without a Protobuf scalar; None for structs and scalars."""
    return _MESSAGES.get("decimal" if _DECIMAL.fullmatch(kind) else kind) if isinstance(kind, str) else None


def _as_struct(kind: Any) -> Any | None:
    """The columns of a message; None for a scalar."""
    if isinstance(kind, Mapping):
        return kind
    return _PARTS.get(_message_of(kind) or "")


def struct_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A struct of names and types."""
    return {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": False} for name, kind in pairs]}


_PARTS: Final = {
    _DATE: struct_of([("year", "integer"), ("month", "integer"), ("day", "integer")]),
    _TIMESTAMP: struct_of([("seconds", "long"), ("nanos", "integer")]),
    _DECIMAL_MESSAGE: struct_of([("value", "binary"), ("precision", "uint32"), ("scale", "integer")]),
}
