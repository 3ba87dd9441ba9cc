"""JSON Schemas, an old and a new one, and numbers as Connect writes them."""

from __future__ import annotations

from base64 import b64encode

JSON_OLD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Wild",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "select": {"type": ["string", "null"]},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
        "small": {"type": "integer", "connect.type": "int16"},
        "born": {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"},
        "seen": {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp", "connect.type": "int64"},
        "cost": {
            "type": "string",
            "title": "org.apache.kafka.connect.data.Decimal",
            "connect.type": "bytes",
            "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
        },
        "place": {"$ref": "#/definitions/place"},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": {},
    },
    "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
JSON_NEW = {
    **JSON_OLD,
    "properties": {
        "places": {"type": "array", "items": {"$ref": "#/definitions/place"}},
        **{name: kind for name, kind in JSON_OLD["properties"].items() if name != "price"},  # type: ignore[attr-defined]
        "small": {"type": "integer"},
    },
    "definitions": {
        "place": {"type": "object", "properties": {"zip": {"type": "string"}, "city": {"type": "string"}}},
    },
}


def unscaled(number: int) -> str:
    """A decimal's unscaled value as Connect writes it."""
    return b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()
