"""Connect's JDBC source as a pipeline file for each table."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from sluice.cli import app
from sluice.cli.connect_import import as_data
from sluice.connect import ConnectorConfig, ImportOptions, checked, imported

from .connectors_of_connect import JSON, KAFKAS, one, verdicts

SOURCE = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "connection.url": "jdbc:postgresql://db/shop",
    "connection.user": "reader",
    "connection.password": "s3cr3t",
    "mode": "timestamp+incrementing",
    "timestamp.column.name": "changed_at",
    "incrementing.column.name": "id",
    "table.whitelist": "public.orders,public.customers",
    "topic.prefix": "shop-",
    "poll.interval.ms": "120000",
    "timestamp.delay.interval.ms": "5000",
    "topic.creation.default.partitions": "3",
    "topic.creation.default.replication.factor": "1",
    "transforms": "key,id",
    "transforms.key.type": f"{KAFKAS}.transforms.ValueToKey",
    "transforms.key.fields": "id",
    "transforms.id.type": f"{KAFKAS}.transforms.ExtractField$Key",
    "transforms.id.field": "id",
    **JSON,
    "key.converter": f"{KAFKAS}.json.JsonConverter",
    "key.converter.schemas.enable": "false",
}


def test_a_jdbc_source_is_a_pipeline_for_each_table():
    found = [
        checked(made) for made in imported(ConnectorConfig("shop", SOURCE), ImportOptions({}, "hdfs://nn/staging"))
    ]
    assert [made.name for made in found] == ["shop.public.orders", "shop.public.customers"]
    assert [made.refused for made in found] == ["", ""]
    pipeline = found[0].pipeline
    assert pipeline is not None
    assert pipeline["source"]["jdbc"] == {
        "connection": "shop",
        "tables": "public.orders",
        "mode": "timestamp+incrementing",
        "timestamp_column": "changed_at",
        "timestamp_delay": "5 seconds",
    }
    sink = pipeline["sink"]["kafka"]
    assert (sink["key"], verdicts(found[0])["key.converter"]) == ({"encoder": "string"}, "differs")
    assert (sink["topic"], sink["staging"], sink["key_fields"]) == (
        "shop-orders",
        "hdfs://nn/staging/shop.public.orders",
        ["id"],
    )
    assert sink["topic_settings"] == {"create": True, "partitions": 3, "replication_factor": 1}
    assert pipeline["schedule"] == "2 minutes"
    assert set(verdicts(found[0])) == set(SOURCE)
    assert "s3cr3t" not in json.dumps(as_data(found[0], None)) + repr(found[0])


@pytest.mark.parametrize(
    ("settings", "encoder", "verdict"),
    [
        ({"schemas.enable": "false"}, {"encoder": "json_without_schema"}, "honoured"),
        ({"schemas.enable": "false", "decimal.format": "BASE64"}, {"encoder": "json_without_schema"}, "honoured"),
        (
            {"schemas.enable": "false", "decimal.format": "numeric"},
            {"encoder": "json_without_schema", "decimal_format": "numeric"},
            "honoured",
        ),
        ({}, {"encoder": "json_with_schema", "record_name": "orders"}, "differs"),
    ],
)
def test_json_of_a_source_is_written_as_its_converter_s_settings_say(settings, encoder, verdict):
    rest = {key: value for key, value in SOURCE.items() if not key.startswith("value.")}
    own = {f"value.converter.{key}": value for key, value in settings.items()}
    made = one({**rest, "table.whitelist": "public.orders", "value.converter": f"{KAFKAS}.json.JsonConverter", **own})
    assert made.pipeline is not None
    assert made.pipeline["sink"]["kafka"]["value"] == encoder
    assert verdicts(made)["value.converter"] == verdict
    assert {verdicts(made)[f"value.converter.{key}"] for key in settings} <= {"honoured"}


@pytest.mark.parametrize(
    ("key", "value", "verdict"),
    [
        ("use.latest.version", "true", "not honoured"),
        ("use.latest.version", "false", "harmless"),
        ("normalize.schemas", "true", "not honoured"),
        ("connect.meta.data", "true", "not honoured"),
        ("schemas.cache.config", "50", "harmless"),
    ],
)
def test_a_converter_s_settings_of_a_source_are_those_of_writing(key, value, verdict):
    own = {"value.converter": "io.confluent.connect.avro.AvroConverter",
           "value.converter.schema.registry.url": "http://registry:8081", f"value.converter.{key}": value}  # fmt: skip
    made = one({**SOURCE, "table.whitelist": "public.orders", **own})
    found = next(one for one in made.findings if one.key == f"value.converter.{key}")
    assert found.verdict == verdict
    assert "a sink reads" not in found.what


def test_a_jdbc_source_may_write_protobuf():
    own = {"value.converter": "io.confluent.connect.protobuf.ProtobufConverter",
           "value.converter.schema.registry.url": "http://registry:8081"}  # fmt: skip
    made = one({**SOURCE, "table.whitelist": "public.orders", **own})
    assert made.refused == ""
    assert made.pipeline is not None
    value = made.pipeline["sink"]["kafka"]["value"]
    assert (value["encoder"], bool(value["registry"])) == ("protobuf", True)


def test_offsets_of_a_jdbc_source_need_the_topic_that_has_them(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": "shop", "config": {**SOURCE, "table.whitelist": "public.orders"}}))
    done = CliRunner().invoke(app, ["import-connect", str(file), "--offsets"])
    assert "The topic with the offsets of shop isn't named" in str(done.exception)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"table.whitelist": "", "table.include.list": "public.*"}, "Each table has its own topic"),
        ({"mode": ""}, "how new rows are found"),
        ({"timestamp.column.name": ""}, "names no column of times"),
        ({"connection.url": "jdbc:oracle:thin:@db"}, "oracle isn't known"),
        ({"value.converter": f"{KAFKAS}.storage.StringConverter"}, "Nothing here writes values"),
    ],
)
def test_a_jdbc_source_of_which_nothing_is_made_says_why(more, says):
    made = one({**SOURCE, "table.whitelist": "public.orders", **more})
    assert says in made.refused
    assert set(verdicts(made)) == {*SOURCE, *more}


@pytest.mark.parametrize(
    ("more", "source"),
    [
        ({"mode": "incrementing"}, {"mode": "incrementing", "incrementing_column": "id"}),
        ({"mode": "bulk"}, {"mode": "bulk"}),
        (
            {"query": "SELECT * FROM orders", "topic.prefix": "orders"},
            {"query": "SELECT * FROM orders", "query_name": "orders", "consistency": "delay"},
        ),
    ],
)
def test_modes_of_a_jdbc_source(more, source):
    made = one({**SOURCE, "table.whitelist": "public.orders", **more})
    assert made.refused == ""
    assert made.pipeline is not None
    assert source.items() <= made.pipeline["source"]["jdbc"].items()
    if "query" in more:
        assert made.pipeline["sink"]["kafka"]["topic"] == "orders"


@pytest.mark.parametrize(
    "step",
    [
        {"type": f"{KAFKAS}.transforms.InsertField$Value", "static.field": "site", "static.value": "x"},
        {"type": f"{KAFKAS}.transforms.InsertHeader", "header": "origin", "value.literal": "shop"},
        {"type": f"{KAFKAS}.transforms.TimestampConverter$Value", "field": "at", "target.type": "unix"},
    ],
)
def test_columns_that_a_transform_makes_are_left_to_write(step):
    """Without `schema` the records have the table's columns alone, of its types."""
    config = {**SOURCE, "table.whitelist": "public.orders", "transforms": "t"}
    config |= {f"transforms.t.{name}": value for name, value in step.items()}
    made = one(config, path="hdfs://nn/staging")
    assert made.refused == ""
    assert made.missing == (("sink", "kafka", "schema"),)
    assert any(words.startswith("write sink.kafka.schema") for words in made.steps)


def test_without_a_folder_the_staging_path_is_left_to_write():
    """No default: what any account could make first is no place for a table's rows."""
    (made,) = (checked(one) for one in imported(ConnectorConfig("shop", {**SOURCE, "table.whitelist": "public.orders"}),
                                                ImportOptions({}, "")))  # fmt: skip
    assert made.refused == ""
    assert ("sink", "kafka", "staging") in made.missing
    assert "staging" not in made.pipeline["sink"]["kafka"]
    assert any("--path" in step for step in made.steps)
