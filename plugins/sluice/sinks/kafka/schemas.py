"""Schemas of a row's columns, in the languages that records are written in. Pure.

Types are Spark's as JSON: https://github.com/apache/spark/blob/v3.5.7/sql/api/src/main/scala/org/apache/spark/sql/types
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


def connect_schema(kind: Any, *, optional: bool = False) -> dict[str, Any]:
    """A type as Connect's JSON converter writes its schema.

    Raises:
        ValueError: Connect has no such type.
    """
    more: dict[str, Any] = {"optional": optional}
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            fields = [{"field": f["name"], **connect_schema(f["type"], optional=f["nullable"])} for f in kind["fields"]]
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
        return {"type": "bytes", "name": name, "version": 1, "parameters": parameters, **more}
    if kind in _LOGICAL:
        base, name = _LOGICAL[kind]
        return {"type": base, "name": name, "version": 1, **more}
    if kind not in _CONNECT:
        raise ValueError(f"Connect's JSON has no {kind}")
    return {"type": _CONNECT[kind], **more}


def json_schema(kind: Any, title: str) -> str:
    """A JSON Schema of a struct, by which validators take what `to_json` writes.

    Raises:
        ValueError: there is none for a type.
    """
    made = {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **_json_type(kind)}
    return json.dumps(made, separators=(",", ":"))


def _json_type(kind: Any, *, nullable: bool = False) -> dict[str, Any]:
    made = _json_shape(kind)
    return {"oneOf": [{"type": "null"}, made]} if nullable else made


def _json_shape(kind: Any) -> dict[str, Any]:
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            fields = {f["name"]: _json_type(f["type"], nullable=f["nullable"]) for f in kind["fields"]}
            required = [f["name"] for f in kind["fields"] if not f["nullable"]]
            return {"type": "object", "properties": fields, **({"required": required} if required else {})}
        if kind["type"] == "array":
            return {"type": "array", "items": _json_type(kind["elementType"], nullable=kind["containsNull"])}
        if kind["type"] == "map":
            inner = _json_type(kind["valueType"], nullable=kind["valueContainsNull"])
            return {"type": "object", "additionalProperties": inner}
    if isinstance(kind, str) and _DECIMAL.fullmatch(kind):
        return {"type": "number", "connect.type": "decimal"}
    if kind not in _JSON:
        raise ValueError(f"a JSON Schema has no {kind}")
    more = {"date": {"format": "date"}, "timestamp": {"format": "date-time"}}.get(kind, {})
    return {"type": _JSON[kind], **more}
