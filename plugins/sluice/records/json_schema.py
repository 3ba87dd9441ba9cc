"""JSON Schema as a type of Spark. Pure.

What decides a type: `type`, `properties`, `items`, `additionalProperties`, `format`, `$ref`, `allOf`, null in `oneOf`
and `anyOf`, and what Kafka Connect's converter adds (`connect.type`, `connect.index`, and the logical types' names in
`title`). A field's `description` is its comment. What only narrows values down (`required`, `pattern`, `minimum`,
`enum`, ...) is not checked: the producer's serializer has done that, and a column that is NOT NULL is checked by the
table. A schema without a single type (`oneOf` of several, `{}`, an object without properties) becomes a STRING that
holds the JSON unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sluice.records.comments import Comments, Path, comments_of, described, one_line
from sluice.untrusted import json_of

SparkType = str | dict[str, Any]
"""A type as Spark's `StructType.json()` has it."""

_CONNECT: Final = "org.apache.kafka.connect.data."
_INTEGERS: Final = {"int8": "byte", "int16": "short", "int32": "integer", "int64": "long"}
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}
_LARGEST_DECIMAL: Final = 38
_MOST_TYPES: Final = 20_000
"""References may make a type of any number of fields of a short text."""
_DEEPEST: Final = 60


class JsonSchemaError(ValueError):
    """A schema without a type; the message says where and why."""


@dataclass(frozen=True)
class JsonType:
    """A value's parsed type and its logical type: they differ where Connect writes a logical type as a number or text.

    Attributes:
        parsed: the type that Spark's JSON parser is given.
        logical: the column's type, of the same shape.
    """

    parsed: SparkType
    logical: SparkType

    @classmethod
    def plain(cls, kind: SparkType) -> JsonType:
        """A type whose parsed and logical types are equal."""
        return cls(kind, kind)


_RAW: Final = JsonType.plain("string")
_INTEGER: Final = re.compile(r"-?[0-9]{1,9}")
_NUMBER: Final = JsonType.plain("double")


def json_type(text: str, references: Mapping[str, str] | None = None) -> JsonType:
    """The type of the values that a JSON Schema describes.

    Args:
        text: the schema.
        references: the schemas that it refers to, by the name in `$ref`.

    Raises:
        JsonSchemaError: it is no JSON Schema, or has no type: a reference leads nowhere or to itself, or it has more
            fields than any table.
    """
    documents = {key: _parse(value) for key, value in (references or {}).items()}
    document = _parse(text)
    return _Reader(documents).read(document, _Place(document, "", ()))


def _parse(text: str) -> Any:
    try:
        found = json_of(text)
    except ValueError as error:
        raise JsonSchemaError(f"the schema is not JSON: {error}") from None
    if not isinstance(found, dict | bool):
        raise JsonSchemaError("a JSON Schema is an object, or true or false")
    return found


@dataclass(frozen=True)
class _Place:
    """A schema's location: its document, its path in words, and the references that led there."""

    document: Any
    path: str
    followed: tuple[tuple[int, str], ...]
    depth: int = 0

    @property
    def words(self) -> str:
        return self.path[:200] or "(the whole)"

    def at(self, name: str) -> _Place:
        return replace(self, path=f"{self.path}.{name}" if self.path else name, depth=self.depth + 1)


class _Reader:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        self._read = 0

    def read(self, schema: Any, place: _Place) -> JsonType:
        self._count(place)
        if not isinstance(schema, dict):
            return _RAW
        if "$ref" in schema:
            return self._follow(schema["$ref"], place)
        if "allOf" in schema:
            return self._all_of(schema, place)
        for key in ("oneOf", "anyOf"):
            if key in schema:
                return self._one_of(_list_at(schema, key, place), place)
        kinds = schema.get("type", _guess(schema, place))
        names = [k for k in (kinds if isinstance(kinds, list) else [kinds]) if k != "null"]
        if len(names) != 1:
            return _NUMBER if {str(name) for name in names} == {"integer", "number"} else _RAW
        if names[0] == "object":
            return self._object(schema, place)
        if names[0] == "array":
            items = schema.get("items", schema.get("contains"))
            element = self.read(items, place.at("[]")) if isinstance(items, dict) else _RAW
            return JsonType(*({"type": "array", "elementType": t, "containsNull": True} for t in _both(element)))
        return _scalar(str(names[0]), schema, place)

    def _count(self, place: _Place) -> None:
        self._read += 1
        if self._read > _MOST_TYPES:
            raise JsonSchemaError(f"it has more than {_MOST_TYPES} fields, references written out")
        if place.depth > _DEEPEST:
            raise JsonSchemaError(f"{place.path[:200]}: it is nested more than {_DEEPEST} deep")

    def _object(self, schema: Mapping[str, Any], place: _Place) -> JsonType:
        properties = _object_at(schema, "properties", place)
        if properties:
            ordered = sorted(properties.items(), key=lambda item: _index(item[1], place.at(item[0])))
            read = _struct({name: self.read(inner, place.at(name)) for name, inner in ordered})
            comments: dict[Path, str] = {
                (name.lower(),): one_line(inner.get("description"))
                for name, inner in ordered
                if isinstance(inner, dict)
            }
            return _commented(read, comments)
        values = schema.get("additionalProperties")
        if not isinstance(values, dict):
            return _RAW
        value = self.read(values, place.at("{}"))
        return JsonType(
            *({"type": "map", "keyType": "string", "valueType": t, "valueContainsNull": True} for t in _both(value))
        )

    def _one_of(self, branches: list[Any], place: _Place) -> JsonType:
        real = [b for b in branches if not (isinstance(b, dict) and b.get("type") == "null")]
        return self.read(real[0], place) if len(real) == 1 else _RAW

    def _all_of(self, schema: Mapping[str, Any], place: _Place) -> JsonType:
        rest = {k: v for k, v in schema.items() if k != "allOf"}
        parts = [*_list_at(schema, "allOf", place), *([rest] if "properties" in rest or "type" in rest else [])]
        found = [read for read in (self.read(part, place) for part in parts) if read != _RAW]
        if not found:
            return _RAW
        fields: dict[str, JsonType] = {}
        comments: dict[Path, str] = {}
        for read in found:
            if not (isinstance(read.logical, dict) and read.logical["type"] == "struct"):
                return found[0] if all(other == found[0] for other in found) else _RAW
            fields |= _fields(read)
            comments |= comments_of(read.logical)
        return _commented(_struct(fields), comments)

    def _follow(self, reference: Any, place: _Place) -> JsonType:
        where = place.words
        name, _, pointer = str(reference).partition("#")
        document = place.document
        if name:
            document = self._documents.get(name)
            if document is None:
                ending = [d for key, d in self._documents.items() if key.rsplit("/", 1)[-1] == name.rsplit("/", 1)[-1]]
                if len(ending) != 1:
                    raise JsonSchemaError(f"{where}: $ref {reference!r} leads to no schema that the registry has")
                document = ending[0]
        step = (id(document), pointer)
        if step in place.followed:
            raise JsonSchemaError(f"{where}: $ref {reference!r} leads to itself, and a column can't hold such a type")
        target = document
        for part in filter(None, pointer.split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or key not in target:
                raise JsonSchemaError(f"{where}: $ref {reference!r} leads nowhere")
            target = target[key]
        followed = (*place.followed, step)
        return self.read(target, replace(place, document=document, followed=followed, depth=place.depth + 1))


def _list_at(schema: Mapping[str, Any], key: str, place: _Place) -> list[Any]:
    found = schema.get(key, [])
    if not isinstance(found, list):
        raise JsonSchemaError(f"{place.words}: {key} is not a list")
    return found


def _object_at(schema: Mapping[str, Any], key: str, place: _Place) -> Mapping[str, Any]:
    found = schema.get(key, {})
    if not isinstance(found, dict):
        raise JsonSchemaError(f"{place.words}: {key} is not an object")
    return found


def _integer_at(schema: Mapping[str, Any], key: str, default: int, place: _Place) -> int:
    """A number, which Connect's converter writes as text among a schema's parameters."""
    found = schema.get(key, default)
    text = str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""
    if _INTEGER.fullmatch(text) is None:
        raise JsonSchemaError(f"{place.words}: {key} is not an integer of at most nine digits")
    return int(text)


def _guess(schema: Mapping[str, Any], place: _Place) -> list[str]:
    """The type of a schema that leaves it out, by the keywords that speak of one type only."""
    if "properties" in schema or isinstance(schema.get("additionalProperties"), dict):
        return ["object"]
    if "items" in schema:
        return ["array"]
    values = [schema["const"]] if "enum" not in schema and "const" in schema else _list_at(schema, "enum", place)
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    found = {kinds.get(type(value), "") for value in values if value is not None}
    return sorted(found)


def _scalar(kind: str, schema: Mapping[str, Any], place: _Place) -> JsonType:
    connect = schema.get("connect.type")
    logical = str(schema.get("title", "")).removeprefix(_CONNECT)
    if logical == "Decimal":
        return _decimal(kind, _object_at(schema, "connect.parameters", place), place)
    if kind == "integer":
        plain: SparkType = _INTEGERS.get(str(connect), "long")
        return JsonType(plain, {"Date": "date", "Timestamp": "timestamp"}.get(logical, plain))
    if kind == "number":
        return JsonType.plain("float" if connect == "float32" else "double")
    if kind == "string":
        return JsonType.plain("binary" if connect == "bytes" else _FORMATS.get(str(schema.get("format")), "string"))
    return JsonType.plain("boolean") if kind == "boolean" else _RAW


def _decimal(kind: str, parameters: Mapping[str, Any], place: _Place) -> JsonType:
    """Connect's Decimal: a number, or the bytes of the unscaled value in base64."""
    precision = _integer_at(parameters, "connect.decimal.precision", _LARGEST_DECIMAL, place)
    scale = _integer_at(parameters, "scale", 0, place)
    precision = min(precision, _LARGEST_DECIMAL)
    if not 0 <= scale <= precision or precision == 0:
        raise JsonSchemaError(f"{place.words}: a Decimal of precision {precision} and scale {scale} fits no column")
    wanted = f"decimal({precision},{scale})"
    return JsonType("binary" if kind == "string" else wanted, wanted)


def _index(schema: Any, place: _Place) -> int:
    return _integer_at(schema, "connect.index", 0, place) if isinstance(schema, dict) else 0


def _both(found: JsonType) -> tuple[SparkType, SparkType]:
    return found.parsed, found.logical


def _struct(fields: Mapping[str, JsonType]) -> JsonType:
    def of(types: Mapping[str, SparkType]) -> SparkType:
        return {
            "type": "struct",
            "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()],
        }

    return JsonType(of({n: f.parsed for n, f in fields.items()}), of({n: f.logical for n, f in fields.items()}))


def _commented(found: JsonType, comments: Comments) -> JsonType:
    return JsonType(found.parsed, described(found.logical, comments))


def _fields(found: JsonType) -> dict[str, JsonType]:
    parsed: Any = found.parsed
    logical: Any = found.logical
    pairs = zip(parsed["fields"], logical["fields"], strict=True)
    return {p["name"]: JsonType(p["type"], f["type"]) for p, f in pairs}
