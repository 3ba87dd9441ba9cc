"""Comments on columns: from where they come, and what they are of."""

from __future__ import annotations

import json

import pytest

from sluice.records.comments import LONGEST, comments_of, comments_of_avro, described, documented, one_line, undescribed
from sluice.records.json_schema import json_type
from sluice.records.pinning import pinned_format, read_without_comments, rows_of
from sluice.records.plan import RecordPlan, WriterSchema
from sluice.records.settings import Converter
from sluice.records.structs import field, struct


def array(kind):
    return {"type": "array", "elementType": kind, "containsNull": True}


def mapped(kind):
    return {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}


def of(**comments: str):
    """Columns of type STRING with comments; a column without one has an empty text."""
    return struct(
        {**field(name, "string"), "metadata": {"comment": text} if text else {}} for name, text in comments.items()
    )


NESTED = struct([field("S", of(a="x")), field("l", array(of(A="y"))), field("m", mapped(array(of(a="z"))))])
COMMENTS = {("s", "a"): "x", ("l", "[]", "a"): "y", ("m", "{}", "[]", "a"): "z"}


def test_comments_of_a_type_are_taken_off_and_put_on_again():
    assert comments_of(NESTED) == COMMENTS
    bare = undescribed(NESTED)
    assert comments_of(bare) == {}
    assert described(bare, COMMENTS) == NESTED
    other = {**field("v", "binary"), "metadata": {"hudi_type": "VECTOR(3)", "comment": "x"}}
    assert undescribed(struct([other]))["fields"][0]["metadata"] == {"hudi_type": "VECTOR(3)"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\n\tlines", "two lines"),
        ("\ud800 and \0", "and"),
        ("a" * LONGEST, "a" * LONGEST),
        ("a" * (LONGEST + 1), "a" * (LONGEST - 1) + "…"),
        (None, ""),
        (["no", "text"], ""),
    ],
)
def test_a_comment_is_one_line(text, line):
    assert one_line(text) == line


def record(name: str, *fields: dict, **more: str) -> dict:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def test_docs_of_avro_by_the_names_that_it_uses():
    inner = record("a.b.Inner", {"name": "X", "type": "int", "doc": "x"}, {"name": "y", "type": "int"})
    schema = record(
        "Outer",
        {"name": "one", "type": ["null", inner], "doc": "one"},
        {"name": "two", "type": {"type": "map", "values": {"type": "array", "items": "a.b.Inner"}}},
        {"name": "three", "type": ["null", record("Near", {"name": "n", "type": "int", "doc": "n"}), "string"]},
        {"name": "four", "type": {"type": "array", "items": ["null", "Near"]}},
        namespace="c.d",
        doc="of no column",
    )
    found = {("one",): "one", ("one", "x"): "x", ("two", "{}", "[]", "x"): "x", ("four", "[]", "n"): "n"}
    assert comments_of_avro(schema) == found
    bare = record(
        "T",
        {"name": "S", "type": ["null", record("s", {"name": "a", "type": "int"})]},
        {"name": "l", "type": {"type": "array", "items": ["null", record("l", {"name": "A", "type": "int"})]}},
        {"name": "m", "type": {"type": "map", "values": {
            "type": "array", "items": record("m", {"name": "a", "type": "int"})}}},
    )  # fmt: skip
    assert comments_of_avro(documented(bare, COMMENTS)) == COMMENTS
    assert comments_of_avro(bare) == {}


def test_descriptions_of_json_schema():
    inner = {"type": "object", "properties": {"x": {"type": "integer", "description": "x"}}}
    schema = {
        "properties": {
            "one": {**inner, "description": "one"},
            "two": {"type": "array", "items": {"$ref": "#/$defs/i"}},
        },
        "allOf": [{"properties": {"three": {"type": "string", "description": "three"}}}],
        "$defs": {"i": inner},
    }
    found = json_type(json.dumps(schema))
    assert comments_of(found.logical) == {
        ("one",): "one", ("one", "x"): "x", ("two", "[]", "x"): "x", ("three",): "three",
    }  # fmt: skip
    assert comments_of(found.parsed) == {}


def test_the_newest_schemas_comment_is_the_tables_and_none_keeps_it():
    schemas = [
        WriterSchema(id=3, struct=of(a="new", b="", c="")),
        WriterSchema(id=2, struct=of(a="old", b="of two", c="")),
        WriterSchema(id=1, struct=struct([{**field("c", array("string")), "metadata": {"comment": "incompatible"}}])),
    ]
    table = of(c="the table's", b="earlier", a="earlier", d="of another part")
    value = pinned_format(Converter(converter="avro", registry="r"), schemas, of(c="the table's", b="earlier", a="x"))
    assert value.schemas[2].incompatible is not None
    plan = RecordPlan(value=value)
    expected = {("a",): "new", ("b",): "of two", ("c",): "the table's", ("d",): "of another part"}
    assert comments_of(rows_of(table, None, plan).columns) == expected
    assert comments_of(rows_of(table, of(a="file's", b="", c="", d=""), plan).columns) == {
        **comments_of(table), ("a",): "file's",
    }  # fmt: skip
    read = read_without_comments(plan)
    assert comments_of(read.value.struct) == {}
    assert comments_of(read.value.schemas[0].struct) == {("a",): "new"}
