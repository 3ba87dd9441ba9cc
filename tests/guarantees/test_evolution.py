"""A table's columns follow the records: added, widened and reordered ones by themselves; others stop, and say why."""

from __future__ import annotations

import json
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyarrow.dataset import dataset
from pyarrow.parquet import read_schema

from sluice.errors import ActionRequiredError
from sluice.records.comments import comments_of, comments_of_avro

from .harness import Drivers, Flow
from .harness.files import FileFlow
from .harness.readers import rust_rows

OLD = (
    "id BIGINT, i INT, f FLOAT, d DECIMAL(10,2), n INT, e SMALLINT, t TINYINT, s STRUCT<a: INT, b: STRING>, "
    "l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>, needed STRING NOT NULL, p STRING"
)
NEW = (
    "id BIGINT, between STRING, s STRUCT<b: STRING, c: STRING, a: INT>, i BIGINT, f DOUBLE, d DECIMAL(14,4), n DOUBLE, "
    "e DECIMAL(12,2), t BIGINT, l ARRAY<STRUCT<y: STRING, x: INT>>, m MAP<STRING, STRUCT<x: INT, y: STRING>>, "
    "needed STRING, p STRING, last STRING"
)
OF_OLD = {
    "i": 7,
    "f": 1.5,
    "d": 1.25,
    "n": 8,
    "e": 9,
    "t": 5,
    "s": {"a": 1, "b": "b"},
    "l": [{"x": 1}],
    "m": {"k": {"x": 1}},
}
OF_NEW = {
    "i": 2**40, "f": 0.1, "d": 1.2345, "n": 0.1, "e": 123456.25, "t": 2**50, "s": {"a": 2, "b": "b", "c": "c"},
    "l": [{"x": 2, "y": "y"}], "m": {"k": {"x": 2, "y": "y"}}, "between": "b", "last": "l",
}  # fmt: skip
OLD_ROW = {
    "i": 7, "f": 1.5, "d": Decimal("1.25"), "n": 8.0, "e": Decimal(9), "t": 5, "s": {"a": 1, "b": "b", "c": None},
    "l": [{"x": 1, "y": None}], "m": {"k": {"x": 1, "y": None}}, "between": None, "last": None, "needed": "n",
}  # fmt: skip
NEW_ROW = {**OF_NEW, "d": Decimal("1.2345"), "e": Decimal("123456.25"), "needed": None}


def send(flow: Flow, number: int, fields: dict[str, Any], p: str = "p0") -> None:
    needed = {} if "last" in fields else {"needed": "n"}
    flow.produce_raw(json.dumps({"id": number, "p": p, **needed, **fields}).encode(), key=str(number).encode())


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """hudi-rs has a map as a list of pairs."""
    m = row["m"]
    return {**row, "m": dict(m) if isinstance(m, list) else m}


def check(flow: Flow, expected: dict[int, dict[str, Any]], *, rust: bool = True) -> None:
    readers = {"metadata": flow.all_columns(metadata=True), "listing": flow.all_columns(metadata=False)}
    if rust:
        readers["hudi-rs"] = rust_rows(flow.path)
    for name, rows in readers.items():
        found = {row["id"]: {k: v for k, v in plain(row).items() if k not in ("id", "p")} for row in rows}
        assert found == expected, name
        assert len(rows) == len(expected), name


@pytest.mark.thorough
def test_an_append_table_follows(make_flow):
    flow = make_flow(1, sink__hudi__schema=OLD, table_services={"clustering": {"after_commits": 1}})
    send(flow, 1, OF_OLD)
    send(flow, 2, OF_OLD, "p1")
    first = flow.interval()
    flow.set(sink__hudi__schema=NEW)
    send(flow, 3, OF_NEW)
    flow.interval()
    expected = {1: OLD_ROW, 2: OLD_ROW, 3: NEW_ROW}
    check(flow, expected)
    flow.interval(kind="replay", instant=first.instant)
    check(flow, expected)
    send(flow, 4, OF_NEW)
    flow.interval()
    flow.serve("clustering")
    check(flow, {**expected, 4: NEW_ROW})


def test_an_upsert_table_follows(make_flow):
    upsert = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
    services = {"compaction": {"after_delta_commits": 1}}
    flow = make_flow(1, sink__hudi__schema=OLD, table_services=services, **upsert)
    for number in (1, 2):
        send(flow, number, OF_OLD)
    send(flow, 10, OF_OLD, "p1")
    first = flow.interval()
    flow.serve("compaction")
    flow.set(sink__hudi__schema=NEW)
    send(flow, 2, OF_NEW)
    send(flow, 3, OF_NEW)
    flow.interval()
    expected = {1: OLD_ROW, 2: NEW_ROW, 3: NEW_ROW, 10: OLD_ROW}
    check(flow, expected, rust=False)
    flow.serve("compaction")
    check(flow, expected)
    send(flow, 1, OF_NEW)
    flow.interval()
    flow.interval(kind="replay", instant=first.instant)
    expected[1] = NEW_ROW
    check(flow, expected, rust=False)


DEEP = "id BIGINT, i INT, s STRUCT<a: INT>, l ARRAY<STRUCT<x: FLOAT>>, m MAP<STRING, ARRAY<DECIMAL(8,2)>>"
REFUSED = {
    "text where a number was": ("i INT", "i STRING", "i: INT in the table, STRING in the pipeline"),
    "a number that a double can't hold": ("id BIGINT", "id DOUBLE", "id: BIGINT in the table, DOUBLE"),
    "another kind": ("i INT", "i ARRAY<INT>", "i: INT in the table, ARRAY<INT>"),
    "wider in a struct": ("a: INT", "a: BIGINT", "s.a: INT in the table, BIGINT in the pipeline (inside of a column"),
    "wider in an array": ("x: FLOAT", "x: DOUBLE", "l[].x: FLOAT in the table, DOUBLE in the pipeline (inside"),
    "wider in a map": ("(8,2)", "(12,2)", "m{}[]: DECIMAL(8,2) in the table, DECIMAL(12,2) in the pipeline (inside"),
}


def test_a_change_that_readers_could_not_follow_stops_at_start(make_flow):
    flow = make_flow(1, sink__hudi__schema=DEEP, sink__hudi__partition_fields=None)
    flow.produce_raw(b'{"id": 1, "i": 1, "s": {"a": 1}}')
    flow.interval()
    flow.produce_raw(b'{"id": 2, "i": 2, "s": {"a": 2}}')
    for name, (before, now, reason) in REFUSED.items():
        flow.set(sink__hudi__schema=DEEP.replace(before, now))
        with pytest.raises(ActionRequiredError) as caught:
            flow.start(flow.run())
        assert reason in str(caught.value), name
    flow.set(sink__hudi__schema=DEEP.replace(" INT", " SMALLINT"))  # narrower: the table keeps its types
    flow.interval()
    assert sorted((r["id"], r["i"], r["s"]["a"]) for r in flow.all_columns()) == [(1, 1, 1), (2, 2, 2)]


FEW = (
    "id BIGINT, s STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<x: FLOAT>>, m MAP<STRING, STRUCT<x: INT>>, "
    "n ARRAY<INT>, d STRUCT<e: STRUCT<f: INT>>"
)
MORE = (
    "id BIGINT, s STRUCT<c: STRING, a: BIGINT, b: STRING>, l ARRAY<STRUCT<x: DOUBLE, y: STRING>>, "
    "m MAP<STRING, STRUCT<y: STRING, x: BIGINT>>, n ARRAY<BIGINT>, d STRUCT<e: STRUCT<f: DOUBLE, g: STRUCT<h: INT>>>"
)
ONE = {"id": 1, "s": {"a": 1, "b": "b"}, "l": [{"x": 1.5}], "m": {"k": {"x": 1}}, "n": [1], "d": {"e": {"f": 1}}}
TWO = {
    "id": 2, "s": {"a": 2**40, "b": "b", "c": "c"}, "l": [{"x": 0.1, "y": "y"}], "m": {"k": {"x": 2**40, "y": "y"}},
    "n": [2**40], "d": {"e": {"f": 0.1, "g": {"h": 3}}},
}  # fmt: skip
ONE_NOW = {
    "id": 1, "s": {"a": 1, "b": "b", "c": None}, "l": [{"x": 1.5, "y": None}], "m": {"k": {"x": 1, "y": None}},
    "n": [1], "d": {"e": {"f": 1, "g": None}},
}  # fmt: skip


def newest_first(flow: FileFlow, data_format: str) -> list[Path]:
    return sorted(flow.topics.rglob(f"*.{data_format}"), reverse=True)


def parquet_rows(flow: FileFlow) -> list[dict[str, Any]]:
    newest, *_ = files = newest_first(flow, "parquet")
    found = dataset(files, schema=read_schema(newest)).to_table().to_pylist(maps_as_pydicts="strict")
    return list(found)


def avro_rows(flow: FileFlow) -> list[dict[str, Any]]:
    newest, *_ = files = newest_first(flow, "avro")
    with newest.open("rb") as file:
        columns = fastavro.reader(file).writer_schema
    rows: list[dict[str, Any]] = []
    for one in files:
        with one.open("rb") as file:
            rows += fastavro.reader(file, columns)
    return rows


def json_rows(flow: FileFlow) -> list[dict[str, Any]]:
    return [json.loads(line) for file in newest_first(flow, "json") for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("data_format", "rows", "old"),
    [("parquet", parquet_rows, ONE_NOW), ("avro", avro_rows, ONE_NOW), ("json", json_rows, ONE)],
)
def test_files_follow_inside_of_columns(tmp_path, bootstrap, shared_jvm, drivers, topic_name, data_format, rows, old):
    """Readers by the new columns find the old rows, and `sluice verify` compares both intervals."""
    flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"))
    codec = {"avro": "deflate"}.get(data_format)
    flow.set(sink__files__schema=FEW, sink__files__format=data_format, sink__files__codec=codec)
    flow.set(sink__files__schema_compatibility="backward")
    flow.create_topic(1)
    for schema, row in ((FEW, ONE), (MORE, TWO)):
        flow.set(sink__files__schema=schema)
        flow.produce_values([json.dumps(row).encode()])
        flow.interval()
    assert sorted(rows(flow), key=lambda row: row["id"]) == [old, TWO]
    done = flow.verify("--json")
    assert done.exit_code == 0, done.output
    flow.set(sink__files__schema=MORE.replace("x: DOUBLE", "x: FLOAT"))
    flow.produce_values([json.dumps(ONE).encode()])
    with pytest.raises(ActionRequiredError, match=r"new column `l\[\]\.x` is FLOAT, and in earlier files it is DOUBLE"):
        flow.start(flow.run())


# Comments

COMMENTED = (
    "id BIGINT COMMENT 'the number', s STRUCT<a: INT COMMENT 'of \\'quotes\\' and a \\\\', b: STRING>, "
    "l ARRAY<STRUCT<x: INT COMMENT 'in an array'>> COMMENT 'a list', m MAP<STRING, STRUCT<x: INT COMMENT 'in a map'>>, "
    "v STRING"
)
COMMENTS = {
    ("id",): "the number",
    ("s", "a"): "of 'quotes' and a \\",
    ("l",): "a list",
    ("l", "[]", "x"): "in an array",
    ("m", "{}", "x"): "in a map",
}
COMMENTED_ROW = {"s": {"a": 1, "b": "b"}, "l": [{"x": 1}], "m": {"k": {"x": 1}}, "v": "v"}
UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}


def send_commented(flow: Flow, number: int) -> None:
    flow.produce_values([json.dumps({"id": number, **COMMENTED_ROW}).encode()])


def found_in_table(flow: Flow, folder: Path) -> dict[tuple[str, ...], str]:
    """The comments that a new Spark session shows; one that has read the table before has the earlier ones."""
    session = Drivers(folder)
    try:
        return comments_of(json.loads(session.idle().ask("schema", str(flow.path))))
    finally:
        session.close()


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_a_tables_comments_are_the_pipelines_and_rewrite_nothing(make_flow, settings, tmp_path):
    services = {"compaction": {"after_delta_commits": 1}} if settings else {"clustering": {"after_commits": 1}}
    flow = make_flow(1, sink__hudi__schema=COMMENTED, sink__hudi__partition_fields=None, **settings)
    flow.set(table_services=services)
    send_commented(flow, 1)
    first = flow.interval()
    files = {file: file.stat().st_mtime_ns for file in flow.data_files(first.instant)}
    now = COMMENTED.replace("the number", "the new number").replace(" COMMENT 'in an array'", "")
    for number, schema in ((2, now.replace("v STRING", "v STRING COMMENT 'new'")), (3, now)):
        flow.set(sink__hudi__schema=schema)
        send_commented(flow, number)
        flow.interval()
    assert {file: file.stat().st_mtime_ns for file in flow.data_files(first.instant)} == files
    assert sorted(row["id"] for row in flow.all_columns()) == [1, 2, 3]
    expected = {**COMMENTS, ("id",): "the new number", ("v",): "new"}  # what has no text any more keeps the last one
    assert comments_of_avro(json.loads(flow.commits()[-1]["schema"])) == expected
    flow.serve("compaction" if settings else "clustering")
    assert found_in_table(flow, tmp_path / "driver") == expected
    for rows in (flow.all_columns(), rust_rows(flow.path)):
        assert sorted(row["id"] for row in rows) == [1, 2, 3]


AVSC = {
    "type": "record", "name": "Reading", "doc": "of the record itself", "fields": [
        {"name": "id", "type": "long", "doc": "the\n  number"},
        {"name": "at", "type": ["null", {"type": "record", "name": "Place", "fields": [
            {"name": "x", "type": "int", "doc": "to the east"}]}], "default": None, "doc": "d" * 300},
        {"name": "from", "type": {"type": "array", "items": "Place"}},
    ],
}  # fmt: skip
JSON_SCHEMA = {"type": "object", "properties": {
    "id": {"type": "integer", "description": "the number"},
    "at": {"type": "object", "properties": {"x": {"type": "integer", "description": "to the east"}}},
}}  # fmt: skip


def test_docs_of_the_records_schemas_are_the_tables_comments(make_flow, tmp_path):
    avro = make_flow(1, sink__hudi__schema=None, sink__hudi__partition_fields=None)
    file = tmp_path / "reading.avsc"
    file.write_text(json.dumps(AVSC))
    avro.set(source__kafka__value={"converter": "avro", "schema_file": str(file)})
    encoded = BytesIO()
    fastavro.schemaless_writer(encoded, AVSC, {"id": 1, "at": {"x": 1}, "from": [{"x": 2}]})
    avro.produce_values([encoded.getvalue()])
    avro.interval()
    assert comments_of(avro.schema()) == {
        ("id",): "the number",
        ("at",): "d" * 254 + "…",
        ("at", "x"): "to the east",
        ("from", "[]", "x"): "to the east",
    }
    assert [row["from"] for row in avro.all_columns()] == [[{"x": 2}]]
    file.write_text(json.dumps(JSON_SCHEMA))
    flow = make_flow(1, sink__hudi__schema=None, sink__hudi__partition_fields=None)
    flow.set(source__kafka__value={"converter": "json_schema", "schema_file": str(file)})
    flow.produce_values([b'{"id": 1, "at": {"x": 2}}'])
    flow.interval()
    assert comments_of(flow.schema()) == {("id",): "the number", ("at", "x"): "to the east"}


@pytest.mark.parametrize("data_format", ["avro", "parquet"])
def test_files_have_the_comments(tmp_path, bootstrap, shared_jvm, drivers, topic_name, data_format):
    """Avro's as docs; Parquet's in the footer, where Spark looks for them."""
    flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"))
    flow.set(sink__files__schema=COMMENTED, sink__files__format=data_format, sink__files__codec=None)
    flow.create_topic(1)
    for schema in (COMMENTED, COMMENTED.replace("the number", "the new number")):
        flow.set(sink__files__schema=schema, sink__files__codec="none")
        send_commented(flow, 1)
        flow.interval()
    for file, id_ in zip(newest_first(flow, data_format), ("the new number", "the number"), strict=True):
        if data_format == "avro":
            with file.open("rb") as opened:
                found = comments_of_avro(json.loads(fastavro.reader(opened).metadata["avro.schema"]))
        else:
            found = comments_of(json.loads(read_schema(file).metadata[b"org.apache.spark.sql.parquet.row.metadata"]))
        assert found == {**COMMENTS, ("id",): id_}
    done = flow.verify("--json")
    assert done.exit_code == 0, done.output
    assert [record["comments"]["id"] for record in flow.log()] == ["the number", "the new number"]
