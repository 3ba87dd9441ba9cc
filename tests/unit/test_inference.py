"""A schema from a sample, and how it gets into a pipeline file."""

from __future__ import annotations

import pytest
import yaml

from sluice.pipeline.edit import with_value
from sluice.records.inference import Sample, completed
from sluice.records.structs import field, in_words, struct


def of(**kinds):
    return struct(field(name, kind) for name, kind in kinds.items())


def array(kind):
    return {"type": "array", "elementType": kind, "containsNull": True}


def sample(*kinds):
    found = Sample()
    for number, kind in enumerate(kinds):
        found.add(f"t[0]@{number}", kind, dict.fromkeys((f["name"] for f in kind["fields"]), number))
    return found


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ((of(a="long"), of(a="double")), "STRUCT<a: DOUBLE>"),
        ((of(a="void"), of(a="long"), of(b="void")), "STRUCT<a: BIGINT, b: STRING>"),
        ((of(a=array("void")), of(a=array(of(x="long")))), "STRUCT<a: ARRAY<STRUCT<x: BIGINT>>>"),
        ((of(a="decimal(20,0)"), of(a="long")), "STRUCT<a: DECIMAL(20,0)>"),
        ((of(a="long"), of(a=of(x="long"))), "STRUCT<a: STRING>"),
        ((of(a=of(x="long")), of(a=of(x="string", y="boolean"))), "STRUCT<a: STRUCT<x: STRING, y: BOOLEAN>>"),
    ],
)
def test_types_of_all_records_together(kinds, words):
    assert in_words(sample(*kinds).result()) == words


def test_a_conflict_names_both_places_once():
    found = sample(of(a="string"), of(a="long"), of(a="long"), of(a="string"))
    assert found.seen["a"].conflicts == ["a is STRING at t[0]@0, and BIGINT at t[0]@1"]
    inner = sample(of(s=of(x="long")), of(s=of(x="boolean")))
    assert inner.seen["s"].conflicts == ["s.x is BIGINT at t[0]@0, and BOOLEAN at t[0]@1"]


@pytest.mark.parametrize(
    ("known", "found", "words", "conflict"),
    [
        (of(a="integer"), of(a="long", b="string"), "STRUCT<a: INT, b: STRING>", None),
        (of(a="timestamp"), of(a="string"), "STRUCT<a: TIMESTAMP>", None),
        (of(a="decimal(10,2)"), of(a="double"), "STRUCT<a: DECIMAL(10,2)>", None),
        (of(a="string"), of(a=of(x="long")), "STRUCT<a: STRING>", None),
        (of(a=of(x="short")), of(a=of(x="long", y="date")), "STRUCT<a: STRUCT<x: SMALLINT, y: DATE>>", None),
        (of(a="long"), of(a="double"), "STRUCT<a: BIGINT>", "a is BIGINT here and DOUBLE there"),
        (of(a="boolean"), of(a="long"), "STRUCT<a: BOOLEAN>", "a is BOOLEAN here and BIGINT there"),
        (of(a="long"), of(a=array("long")), "STRUCT<a: BIGINT>", "a is BIGINT here and ARRAY<BIGINT> there"),
    ],
)
def test_what_a_person_has_named_stays(known, found, words, conflict):
    columns, conflicts = completed(known, found)
    assert in_words(columns) == words
    assert [str(c) for c in conflicts] == ([conflict] if conflict else [])


FILE = """\
# ours
name: a   # the name
source:
  kafka: {topics: t}  # one
sink:
  hudi:
    path: /lake
    schema: id INT   # old
    options:
      hoodie.x: 1
"""


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("sink", "hudi", "schema"), FILE.replace("schema: id INT ", 'schema: "id `x` INT" ')),
        (("sink", "hudi", "table"), FILE.replace("    path", '    table: "id `x` INT"\n    path')),
        (
            ("source", "kafka", "value", "schema"),
            FILE.replace("{topics: t}", '{value: {schema: "id `x` INT"}, topics: t}'),
        ),
    ],
)
def test_one_key_of_a_file_is_changed_and_nothing_else(keys, expected):
    changed = with_value(FILE, keys, "id `x` INT")
    assert changed == expected
    data = yaml.safe_load(changed)
    for key in keys:
        data = data[key]
    assert data == "id `x` INT"


def test_a_block_of_text_is_replaced_as_a_whole():
    changed = with_value("a:\n  schema: >-\n    id INT,\n    v STRING\n  z: 1\n", ("a", "schema"), "id BIGINT")
    assert yaml.safe_load(changed) == {"a": {"schema": "id BIGINT", "z": 1}}


def test_a_value_is_no_section():
    with pytest.raises(ValueError, match="source is no section"):
        with_value("source: 7\n", ("source", "kafka"), "x")


def test_a_byte_order_mark_stays_before_the_file():
    assert with_value("\ufeffa: 1\nb: 2\n", ("b",), "x") == '\ufeffa: 1\nb: "x"\n'


def test_a_file_is_edited_within_the_bounds_of_a_pipeline_file():
    with pytest.raises(ValueError, match="more than 50000 values"):
        with_value("a: [" + "[]," * 60_000 + "]\n", ("b",), "x")
