"""Schemas of a row's columns, in the schema languages of the encoders. Pure.

Types are Spark's, in its JSON format:
https://github.com/apache/spark/blob/v3.5.7/sql/api/src/main/scala/org/apache/spark/sql/types
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_CONNECT: Final = {
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "binary": "bytes",
}
_LOGICAL: Final = {
    "date": ("int32", "org.apache.kafka.connect.data.Date"),
    "timestamp": ("int64", "org.apache.kafka.connect.data.Timestamp"),
    "timestamp_ntz": ("int64", "org.apache.kafka.connect.data.Timestamp"),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_JSON: Final = {
    "byte": "integer",
    "short": "integer",
    "integer": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "boolean": "boolean",
    "string": "string",
    "binary": "string",
    "date": "string",
    "timestamp": "string",
    "timestamp_ntz": "string",
}


def connect_schema(kind: Any, *, optional: bool = False, name: str = "") -> dict[str, Any]:
    """A type's schema in the format of Connect's JSON converter, with its order of keys.

    Args:
        kind: the type.
        optional: whether there may be a null.
        name: the schema's name; empty for none.

    Raises:
        ValueError: Connect has no such type.
    """
    more: dict[str, Any] = {"optional": optional, **({"name": name} if name else {})}
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            fields = [{**connect_schema(f["type"], optional=f["nullable"]), "field": f["name"]} for f in kind["fields"]]
            return {"type": "struct", "fields": fields, **more}
        if kind["type"] == "array":
            items = connect_schema(kind["elementType"], optional=kind["containsNull"])
            return {"type": "array", "items": items, **more}
        if kind["type"] == "map" and kind["keyType"] == "string":
            values = connect_schema(kind["valueType"], optional=kind["valueContainsNull"])
            return {"type": "map", "keys": connect_schema("string"), "values": values, **more}
        raise ValueError(f"Connect's JSON has no {kind['type']} of these types")
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        parameters = {"scale": decimal[2], "connect.decimal.precision": decimal[1]}
        name = "org.apache.kafka.connect.data.Decimal"
        return {"type": "bytes", **more, "name": name, "version": 1, "parameters": parameters}
    if kind in _LOGICAL:
        base, name = _LOGICAL[kind]
        return {"type": base, **more, "name": name, "version": 1}
    if kind not in _CONNECT:
        raise ValueError(f"Connect's JSON has no {kind}")
    return {"type": _CONNECT[kind], **more}


def json_schema(kind: Any, title: str, *, closed: bool = True) -> str:
    """A JSON Schema of a struct, which validates the output of `to_json`.

    Args:
        kind: the struct.
        title: the schema's title.
        closed: whether objects allow no other properties. A registry then accepts an added property as compatible,
            since no earlier record can have had it with another type.

    Raises:
        ValueError: JSON Schema has no counterpart of a type.
    """
    made = {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **_json_type(kind, closed=closed)}
    return json.dumps(made, separators=(",", ":"))


def _json_type(kind: Any, *, closed: bool, nullable: bool = False) -> dict[str, Any]:
    made = _json_shape(kind, closed=closed)
    return {"oneOf": [{"type": "null"}, made]} if nullable else made


def _json_shape(kind: Any, *, closed: bool) -> dict[str, Any]:
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            fields = {f["name"]: _json_type(f["type"], closed=closed, nullable=f["nullable"]) for f in kind["fields"]}
            required = [f["name"] for f in kind["fields"] if not f["nullable"]]
            more: dict[str, Any] = {"required": required} if required else {}
            more |= {"additionalProperties": False} if closed else {}
            return {"type": "object", "properties": fields, **more}
        if kind["type"] == "array":
            return {
                "type": "array",
                "items": _json_type(kind["elementType"], closed=closed, nullable=kind["containsNull"]),
            }
        if kind["type"] == "map":
            inner = _json_type(kind["valueType"], closed=closed, nullable=kind["valueContainsNull"])
            return {"type": "object", "additionalProperties": inner}
    if isinstance(kind, str) and _DECIMAL.fullmatch(kind):
        return {"type": "number", "connect.type": "decimal"}
    if kind not in _JSON:
        raise ValueError(f"a JSON Schema has no {kind}")
    formats = {"date": {"format": "date"}, "timestamp": {"format": "date-time"}}
    return {"type": _JSON[kind], **formats.get(kind, {})}
