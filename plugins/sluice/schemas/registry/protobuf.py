"""Protobuf schemas as descriptor sets, made ready for Spark's decoder, and their structs.

Spark's decoder loses what a descriptor can be made to keep, without touching a byte of the records:

- a field without presence (proto3's plain scalars) is null where the record leaves it out, though that means its
  zero: each is given that zero as its default value;
- an unsigned 32-bit number turns negative: `uint32` is declared `int64`, which has the same bytes;
- a Duration becomes an interval, which no table holds: it is declared as a message of the same fields;
- a record that can't be read is a row of nulls, like an empty one: a repeated field that no record has is added, which
  is empty in every record that could be read, and null in the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sluice.schemas.registry.proto_files import ProtobufSchemaError, descriptor_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

MARKER: Final = "_sluice_read"
"""The field that is present, and empty, in each readable record."""

_LARGEST_NUMBER: Final = 2**29 - 1
_MOST_FIELDS: Final = 20_000
"""Messages that hold each other may make a struct of any number of fields of a short schema."""
_DEEPEST: Final = 60
_RESERVED: Final = range(19000, 20000)
_DURATION: Final = ".google.protobuf.Duration"
_TIMESTAMP: Final = ".google.protobuf.Timestamp"
_OWN_PACKAGE, _OWN_FILE, _SPAN_FILE = "sluice", "sluice/messages.proto", "sluice/span.proto"
_SPAN: Final = ".sluice.Span"  # not Duration: Spark knows those by their name
# Names of FieldDescriptorProto.Type -> what Spark parses it as, and what it is where that is something else.
_SCALARS: Final = {
    "DOUBLE": ("double", None),
    "FLOAT": ("float", None),
    "INT64": ("long", None),
    "UINT64": ("long", "decimal(20,0)"),
    "INT32": ("integer", None),
    "FIXED64": ("long", "decimal(20,0)"),
    "FIXED32": ("integer", "long"),
    "BOOL": ("boolean", None),
    "STRING": ("string", None),
    "BYTES": ("binary", None),
    "UINT32": ("long", None),
    "ENUM": ("string", None),
    "SFIXED32": ("integer", None),
    "SFIXED64": ("long", None),
    "SINT32": ("integer", None),
    "SINT64": ("long", None),
}


@dataclass(frozen=True)
class ProtobufMessage:
    """One message type, ready to be decoded.

    Attributes:
        name: its full name.
        indexes: its indexes in its file, as they follow the schema's id in the Confluent wire format.
        descriptors: a serialized FileDescriptorSet with its dependencies, prepared for Spark.
        parsed: the struct that Spark's decoder makes of it, as `StructType.json()` has it, without the marker.
        logical: the struct of its values, of the same shape: unsigned numbers are larger types.
    """

    name: str
    indexes: tuple[int, ...]
    descriptors: bytes
    parsed: dict[str, Any]
    logical: dict[str, Any]


def read_message(proto_files: Sequence[FileDescriptorProto], message: str | None) -> ProtobufMessage:
    """A message type of the last file, by its full name; the file's first one where none is named.

    Raises:
        ProtobufSchemaError: there is no such message, its type can't be a struct, or it has more fields than any
            table.
    """
    try:
        return _read_message(proto_files, message)
    except UnicodeDecodeError as error:  # the runtime decodes a name when it is asked for, and not before
        raise ProtobufSchemaError(f"a name in the schema is not UTF-8: {error}") from None


def _read_message(proto_files: Sequence[FileDescriptorProto], message: str | None) -> ProtobufMessage:
    pb = descriptor_pb2()
    prepared = []
    for file in proto_files:
        copy = pb.FileDescriptorProto()
        copy.CopyFrom(file)
        prepared.append(copy)
    root = prepared[-1]
    if any(file.syntax == "editions" for file in prepared):
        raise ProtobufSchemaError("Protobuf editions are not understood by Spark's decoder; proto2 and proto3 are")
    inside = {full: (indexes, found) for indexes, full, found in messages_of(root)}
    if not inside:
        raise ProtobufSchemaError("the file has no message")
    name = message or next(iter(inside))
    if name not in inside:
        raise ProtobufSchemaError(f"the schema has no message {name}; there are {', '.join(inside)}")
    indexes, target = inside[name]
    types = _Types({f".{full}": found for file in prepared for _, full, found in messages_of(file)})
    parsed, logical = types.struct(target, (f".{name}",))
    _make_ready(prepared)
    own = _own_file(root.syntax, [file.name for file in prepared])
    for full, reached in ((f".{name}", target), *types.reached.items()):
        own.message_type.append(_standing_alone(full[1:], reached))
    _mark(own.message_type[0])
    descriptors = pb.FileDescriptorSet(file=[_span_file(), *prepared, own]).SerializeToString(deterministic=True)
    return ProtobufMessage(name, indexes, descriptors, parsed, logical)


def top_level_name(message: str) -> str:
    """A message's name in the prepared descriptors: Spark finds only top-level messages."""
    return f"{_OWN_PACKAGE}.{message.replace('.', '_')}"


def _standing_alone(name: str, message: DescriptorProto) -> DescriptorProto:
    """A copy of a message that may be nested; what it holds itself stays where it was declared."""
    copy = descriptor_pb2().DescriptorProto()
    copy.CopyFrom(message)
    copy.name = top_level_name(name).rpartition(".")[2]
    for declared in ("nested_type", "enum_type", "extension", "extension_range", "reserved_range", "reserved_name"):
        copy.ClearField(declared)
    return copy


def message_prefixes(indexes: Sequence[int]) -> list[bytes]:
    """The bytes by which a record says that it is this message: after the schema's id, before the message itself.

    They are the number of indexes and the indexes as zigzag varints; a file's first message may be one zero byte.
    https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
    """
    whole = b"".join(_varint(2 * number) for number in (len(indexes), *indexes))
    return [b"\x00", whole] if list(indexes) == [0] else [whole]


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def messages_of(file: FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str, DescriptorProto]]:
    """A file's messages with their indexes and full names, each before its nested messages."""
    prefix = f"{file.package}." if file.package else ""

    def walk(
        messages: Any, path: tuple[int, ...], outer: str
    ) -> Iterator[tuple[tuple[int, ...], str, DescriptorProto]]:
        for i, message in enumerate(messages):
            yield (*path, i), f"{outer}{message.name}", message
        for i, message in enumerate(messages):
            yield from walk(message.nested_type, (*path, i), f"{outer}{message.name}.")

    yield from walk(file.message_type, (), prefix)


class _Types:
    """Spark's types of messages, by the messages' full names with a dot before them; `reached` are those looked at."""

    def __init__(self, everything: Mapping[str, DescriptorProto]) -> None:
        self._everything = everything
        self.reached: dict[str, DescriptorProto] = {}
        self._fields = 0

    def struct(self, message: DescriptorProto, path: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
        parsed: list[Any] = []
        logical: list[Any] = []
        self._fields += len(message.field)
        if self._fields > _MOST_FIELDS:
            raise ProtobufSchemaError(f"the message has more than {_MOST_FIELDS} fields, with those of messages in it")
        if len(path) > _DEEPEST:
            raise ProtobufSchemaError(f"its messages are nested more than {_DEEPEST} deep, at {path[-1][1:]}")
        for field in message.field:
            types = self._field(field, path)
            if types is None:
                continue  # a message without fields: Spark leaves it out, as a column can't hold it
            for into, kind in zip((parsed, logical), types, strict=True):
                into.append({"name": field.name, "type": kind, "nullable": True, "metadata": {}})
        return {"type": "struct", "fields": parsed}, {"type": "struct", "fields": logical}

    def _field(self, field: FieldDescriptorProto, path: tuple[str, ...]) -> tuple[Any, Any] | None:
        kind = field.Type.Name(field.type).removeprefix("TYPE_")
        if kind not in ("MESSAGE", "GROUP"):
            parsed, logical = _SCALARS[kind]
            types: tuple[Any, Any] = (parsed, logical or parsed)
        elif field.type_name == _TIMESTAMP:
            types = ("timestamp", "timestamp")
        else:
            inner = self._everything.get(field.type_name)
            if inner is None:
                raise ProtobufSchemaError(
                    f"the field {field.name} is of {field.type_name or 'no'} type, which isn't there"
                )
            types = self._message(field, inner, path)
            if inner.options.map_entry:
                return _map(types)
            if not types[0]["fields"]:
                return None
        if field.label == field.LABEL_REPEATED:
            first, second = ({"type": "array", "elementType": t, "containsNull": True} for t in types)
            return first, second
        return types

    def _message(
        self, field: FieldDescriptorProto, inner: DescriptorProto, path: tuple[str, ...]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if field.type_name in path:
            name = field.type_name[1:]
            raise ProtobufSchemaError(
                f"the message {name} holds itself ({field.name}); a column can't hold such a type"
            )
        if not inner.options.map_entry:
            self.reached.setdefault(field.type_name, inner)
        return self.struct(inner, (*path, field.type_name))


def _map(entry: tuple[dict[str, Any], dict[str, Any]]) -> tuple[Any, Any] | None:
    pairs = [{f["name"]: f["type"] for f in kind["fields"]} for kind in entry]
    if any(not {"key", "value"} <= pair.keys() for pair in pairs):
        return None
    first, second = (
        {"type": "map", "keyType": pair["key"], "valueType": pair["value"], "valueContainsNull": True} for pair in pairs
    )
    return first, second


def _make_ready(proto_files: Sequence[FileDescriptorProto]) -> None:
    enums = {f".{name}": first for file in proto_files for name, first in _first_values(file)}
    for file in proto_files:
        durations = False
        for _, _, message in messages_of(file):
            for field in message.field:
                if file.syntax == "proto3" and _has_no_presence(field):
                    field.default_value = _zero(field, enums)
                if field.type == field.TYPE_UINT32:
                    field.type = field.TYPE_INT64
                if field.type_name == _DURATION:
                    field.type_name = _SPAN
                    durations = True
        if durations:
            file.dependency.append(_SPAN_FILE)


def _has_no_presence(field: FieldDescriptorProto) -> bool:
    message = field.type in (field.TYPE_MESSAGE, field.TYPE_GROUP)
    return not (message or field.label == field.LABEL_REPEATED or field.HasField("oneof_index"))


def _zero(field: FieldDescriptorProto, enums: Mapping[str, str]) -> str:
    if field.type == field.TYPE_ENUM:
        if field.type_name not in enums:
            raise ProtobufSchemaError(f"the field {field.name} is of an enumeration that isn't there, or has no value")
        return enums[field.type_name]
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        return ""
    return "false" if field.type == field.TYPE_BOOL else "0"


def _first_values(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    prefix = f"{file.package}." if file.package else ""
    for enum in file.enum_type:
        yield from ((f"{prefix}{enum.name}", value.name) for value in enum.value[:1])
    for _, name, message in messages_of(file):
        for enum in message.enum_type:
            yield from ((f"{name}.{enum.name}", value.name) for value in enum.value[:1])


def _mark(message: DescriptorProto) -> None:
    taken = {field.number for field in message.field}
    number = next(n for n in range(_LARGEST_NUMBER, 0, -1) if n not in taken and n not in _RESERVED)
    pb = descriptor_pb2().FieldDescriptorProto
    message.field.add(name=MARKER, number=number, label=pb.LABEL_REPEATED, type=pb.TYPE_BOOL)


def _span_file() -> FileDescriptorProto:
    pb = descriptor_pb2()
    file = pb.FileDescriptorProto(name=_SPAN_FILE, package=_OWN_PACKAGE, syntax="proto2")
    message = file.message_type.add(name="Span")
    optional = pb.FieldDescriptorProto.LABEL_OPTIONAL
    message.field.add(name="seconds", number=1, label=optional, type=pb.FieldDescriptorProto.TYPE_INT64)
    message.field.add(name="nanos", number=2, label=optional, type=pb.FieldDescriptorProto.TYPE_INT32)
    for field in message.field:
        field.default_value = "0"
    return file


def _own_file(syntax: str, imports: Sequence[str]) -> FileDescriptorProto:
    """A file for copies of the message and all its dependencies, each at the top level."""
    pb = descriptor_pb2()
    file = pb.FileDescriptorProto(name=_OWN_FILE, package=_OWN_PACKAGE, syntax=syntax)
    file.dependency.extend([_SPAN_FILE, *imports])
    return file
