"""`sluice infer` proposes a schema from a sample, says what doesn't agree, and changes nothing unless it is told to."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner

from sluice.cli import app
from sluice.pipeline import load_pipeline

from .harness import kafka_settings

RECORDS = [
    {
        "id": 1,
        "name": "Ann",
        "price": 3,
        "tags": ["a"],
        "at": "2026-01-01T00:00:00Z",
        "select": 0,
        "place": {"x": 1},
    },
    {"id": 2, "name": 7, "price": 2.5, "big": 12345678901234567890, "place": {"x": 2.5, "y z": None}},
    {"id": None, "name": "Cy", "price": 4, "tags": [], "later": True, "place": None},
]


@pytest.fixture
def run(bootstrap, monkeypatch):
    for name, value in kafka_settings(bootstrap).to_environment("source").items():
        monkeypatch.setenv(name, value)

    def invoke(*arguments: str):
        return CliRunner().invoke(app, ["infer", *arguments], catch_exceptions=False)

    return invoke


def test_a_sample_of_json(make_flow, run):
    flow = make_flow(2, sink__hudi={"path": "/lake/t", "operation": "upsert", "record_key": "id"})
    for number, record in enumerate(RECORDS):
        flow.produce_raw(json.dumps(record).encode(), partition=number % 2)
    flow.produce_raw(b"not JSON")
    flow.produce_raw(None)
    text = "# ours\n" + flow.file.read_text()
    flow.file.write_text(text)
    found = run(str(flow.file), "--json")
    data = json.loads(found.stdout)
    assert flow.file.read_text() == text
    columns = {c["column"]: c for c in data["columns"]}
    assert {name: c["type"] for name, c in columns.items()} == {
        "id": "BIGINT", "name": "STRING", "price": "DOUBLE", "tags": "ARRAY<STRING>", "at": "STRING",
        "select": "BIGINT", "place": "STRUCT<x: DOUBLE, y z: STRING>", "big": "DECIMAL(20,0)", "later": "BOOLEAN",
    }  # fmt: skip
    assert (columns["id"]["in_records"], columns["id"]["nulls"], columns["later"]["in_records"]) == (3, 1, 1)
    assert "name is STRING at" in columns["name"]["is"] or "name is BIGINT at" in columns["name"]["is"]
    assert f"{flow.topic}[1]@0" in columns["name"]["is"]
    assert '"Ann"' in columns["name"]["examples"]
    assert (data["sampled"], data["key"], len(data["unreadable"])) == (5, "sink.hudi.schema", 2)

    written = run(str(flow.file), "--write")
    assert "sink:\n  hudi:\n    schema:" in written.stdout
    assert flow.file.read_text().startswith("# ours\n")
    pipeline = load_pipeline(flow.file)
    assert pipeline.sink.hudi.schema_ == data["ddl"]

    flow.file.write_text(
        before := flow.file.read_text().replace("name STRING", "name DATE").replace("id BIGINT", "id INT")
    )
    again = CliRunner().invoke(app, ["infer", str(flow.file), "--write"])
    assert "price" not in str(again.exception)
    assert again.exception is None
    flow.file.write_text(before := before.replace("price DOUBLE", "price BIGINT"))
    again = CliRunner().invoke(app, ["infer", str(flow.file), "--write"])
    assert "price: BIGINT in the file, DOUBLE in the sample" in str(again.exception)
    assert flow.file.read_text() == before


def test_records_that_are_shaped_have_a_schema_of_their_own(make_flow, run):
    flow = make_flow(1, transforms=[{"drop": "secret"}], sink__hudi={"path": "/lake/t", "schema": "id BIGINT"})
    flow.produce_raw(b'{"id": 1, "secret": "x"}')
    run(str(flow.file), "--write")
    assert load_pipeline(flow.file).source.kafka.value.schema_ == "id BIGINT,secret STRING"
    flow.produce_raw(b'{"id": 2, "secret": "x", "more": 1.5}')
    found = json.loads(run(str(flow.file), "--json", "--records", "1").stdout)
    assert (found["sampled"], found["ddl"]) == (1, "id BIGINT,secret STRING,more DOUBLE")
    assert [c["is"] for c in found["columns"]] == ["in the file", "in the file", "new"]


def test_a_sample_of_csv(make_flow, run):
    value = {"converter": "csv", "options": {"sep": ";"}}
    flow = make_flow(1, source__kafka__value=value, sink__hudi={"path": "/lake/t"})
    flow.produce_raw(b"1;2.5;x;")
    flow.produce_raw(b"a;2;y;")
    found = json.loads(run(str(flow.file), "--json").stdout)
    assert found["ddl"] == "c1 STRING,c2 DOUBLE,c3 STRING,c4 STRING"


def test_nothing_to_infer(make_flow):
    flow = make_flow(1, source__kafka__value={"converter": "string", "as": "v"})
    result = CliRunner().invoke(app, ["infer", str(flow.file)])
    assert result.exit_code != 0
    assert "for json and csv" in str(result.exception)
    assert yaml.safe_load(flow.file.read_text())["name"] == flow.topic
