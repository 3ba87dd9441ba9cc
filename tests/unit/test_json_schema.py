"""JSON Schema as Spark's types: what decides a type, what stays raw JSON, and what can't be a column."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sluice.records.json_schema import JsonSchemaError, json_type
from sluice.records.structs import in_words


def words(schema: Any, **references: Any) -> str:
    return in_words(json_type(json.dumps(schema), {k: json.dumps(v) for k, v in references.items()}).logical)


def wrapped(inner: Any, **more: Any) -> str:
    return words({"type": "object", "properties": {"f": inner}, **more}).removeprefix("STRUCT<f: ").removesuffix(">")


_BOTH = "STRUCT<a: BIGINT, b: STRING>"
_CONNECT = "org.apache.kafka.connect.data."


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": "number"}, "DOUBLE"),
        ({"type": ["number", "integer"]}, "DOUBLE"),
        ({"type": "boolean"}, "BOOLEAN"),
        ({"type": ["null", "string"]}, "STRING"),
        ({"type": "string", "format": "date-time"}, "TIMESTAMP"),
        ({"type": "string", "format": "date"}, "DATE"),
        ({"type": "string", "format": "uuid", "pattern": "^x$"}, "STRING"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "BIGINT"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "STRING"),
        ({"enum": ["a", "b", None]}, "STRING"),
        ({"const": 3}, "BIGINT"),
        ({}, "STRING"),
        (True, "STRING"),
        ({"type": "object"}, "STRING"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "MAP<STRING, DOUBLE>"),
        ({"type": "array", "items": {"type": "integer"}}, "ARRAY<BIGINT>"),
        ({"type": "array"}, "ARRAY<STRING>"),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {}}}]}, _BOTH),
        ({"type": "integer", "connect.type": "int8"}, "TINYINT"),
        ({"type": "number", "connect.type": "float32"}, "FLOAT"),
        ({"type": "string", "connect.type": "bytes"}, "BINARY"),
        ({"type": "integer", "title": f"{_CONNECT}Date", "connect.type": "int32"}, "DATE"),
        ({"type": "integer", "title": f"{_CONNECT}Timestamp", "connect.type": "int64"}, "TIMESTAMP"),
        ({"type": "integer", "title": f"{_CONNECT}Time", "connect.type": "int32"}, "INT"),
        ({"type": "number", "title": f"{_CONNECT}Decimal", "connect.parameters": {"scale": "2"}}, "decimal(38,2)"),
    ],
)  # fmt: skip
def test_a_schema_is_a_type(schema, column):
    assert wrapped(schema).lower() == column.lower()


def test_references_lead_within_the_schema_and_to_others():
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    by_id = words(
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/p~1q"}, "b": {"$ref": "place.json#/properties/city"}},
         "$defs": {"p/q": place}},
        **{"place.json": place},
    )  # fmt: skip
    assert by_id == "STRUCT<a: STRUCT<city: STRING>, b: STRING>"


def test_columns_stand_in_connects_order():
    schema = {"properties": {"b": {"type": "integer", "connect.index": 1}, "a": {"type": "string", "connect.index": 0}}}
    assert words(schema) == "STRUCT<a: STRING, b: BIGINT>"


def test_a_value_that_is_no_object():
    assert words({"type": "string"}) == "STRING"


DECIMAL = "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"properties": {"a": {"$ref": "#"}}}, "leads to itself"),
        ({"properties": {"a": {"$ref": "#/definitions/none"}}}, "a: .*leads nowhere"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "no schema that the registry has"),
        (7, "is an object, or true or false"),
        ({"properties": [{"a": {}}]}, r"\(the whole\): properties is not an object"),
        ({"properties": {"a": {"enum": None}}}, "a: enum is not a list"),
        ({"properties": {"a": {"oneOf": 1}}}, "a: oneOf is not a list"),
        ({"properties": {"a": {"allOf": 2}}}, "a: allOf is not a list"),
        ({"properties": {"a": {"connect.index": None}}}, "a: connect.index is not an integer"),
        ({"properties": {"a": {"type": "number", "title": DECIMAL, "connect.parameters": None}}}, "not an object"),
        ({"properties": {"a": {"type": "number", "title": DECIMAL, "connect.parameters": {"scale": "9" * 5000}}}},
         "a: scale is not an integer"),
        ({"properties": {"a": {"type": "number", "title": DECIMAL, "connect.parameters": {"scale": "-2"}}}},
         "precision 38 and scale -2 fits no column"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_column_says_where(schema, says):
    with pytest.raises(JsonSchemaError, match=says):
        words(schema)


def test_text_that_is_not_json():
    with pytest.raises(JsonSchemaError, match="not JSON"):
        json_type("{")
