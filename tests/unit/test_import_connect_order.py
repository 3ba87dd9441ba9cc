"""Transforms mean what they mean in their order and direction: ValueToKey takes the key of then, headers reach a topic.

In Connect a JDBC sink takes a column that key and value both have from the key.
"""

from __future__ import annotations

import pytest

from sluice.connect import ConnectorConfig, ImportOptions, imported

from .connectors_of_connect import AVRO, FOLDER, JSON, KAFKAS, SMT, TABLE, one, said, transformed, verdicts
from .test_import_connect_jdbc_source import SOURCE

KEYED = {"pk.mode": "record_key", "pk.fields": "email", "insert.mode": "upsert"}
TO_KEY = {"type": f"{SMT}.ValueToKey", "fields": "email"}
MASKED = {"type": f"{SMT}.MaskField$Value", "fields": "email,name", "replacement": "***"}
PLAIN_SOURCE = {
    **{key: value for key, value in SOURCE.items() if not key.startswith("transforms")},
    "table.whitelist": "public.orders",
}


@pytest.mark.parametrize(
    ("after", "steps"),
    [
        (MASKED, [{"mask": {"columns": ["name"], "with": "text", "text": "***"}}]),
        ({"type": f"{SMT}.ReplaceField$Value", "exclude": "email,b"}, [{"drop": ["b"]}]),
        ({"type": f"{SMT}.ReplaceField$Value", "include": "a"}, [{"select": ["`email`", "`a`"]}]),
        (
            {"type": f"{SMT}.ReplaceField$Value", "renames": "email:mail,a:b"},
            [{"set": {"mail": "`email`"}}, {"rename": {"a": "b"}}],
        ),
        ({"type": f"{SMT}.Cast$Value", "spec": "email:string,a:int8"}, [{"cast": {"a": "TINYINT"}}]),
        ({"type": f"{SMT}.Cast$Value", "spec": "email:string"}, None),
        ({"type": f"{SMT}.InsertField$Value", "static.field": "email", "static.value": "x"}, None),
        ({"type": f"{SMT}.TimestampConverter$Value", "field": "email", "target.type": "Timestamp"}, None),
    ],
)
def test_a_column_of_the_key_is_what_it_was_where_the_key_was_taken(after, steps):
    made = transformed({"k": TO_KEY, "m": after}, **KEYED)
    assert made.pipeline is not None, made.refused
    assert made.pipeline["sink"]["jdbc"]["pk_fields"] == ["email"]
    assert made.pipeline.get("transforms") == steps


def test_a_field_that_is_changed_before_the_key_is_taken_is_changed_in_it():
    made = transformed({"m": MASKED, "k": TO_KEY}, **KEYED)
    assert made.pipeline is not None
    assert made.pipeline["transforms"] == [{"mask": {"columns": ["email", "name"], "with": "text", "text": "***"}}]


@pytest.mark.parametrize(
    "after",
    [
        MASKED,
        {"type": f"{SMT}.ReplaceField$Value", "exclude": "email"},
        {"type": f"{SMT}.ReplaceField$Value", "include": "a"},
        {"type": f"{SMT}.ReplaceField$Value", "renames": "email:mail"},
        {"type": f"{SMT}.Cast$Value", "spec": "email:string"},
        {"type": f"{SMT}.ExtractField$Value", "field": "a"},
    ],
)
def test_a_topics_key_that_the_row_no_longer_has_is_refused(after):
    made = transformed({"k": TO_KEY, "m": after}, PLAIN_SOURCE)
    assert made.pipeline is None
    assert "The record's key has email as it is before m changes it" in made.refused
    assert set(verdicts(made).values()) == {"not honoured"}


def test_a_sources_records_have_the_time_at_which_they_are_sent():
    made = one(PLAIN_SOURCE)
    assert made.pipeline is not None
    assert made.pipeline["sink"]["kafka"]["timestamp"] == "wallclock"


def test_headers_of_a_source_reach_the_topic():
    made = transformed(
        {
            "h": {"type": f"{SMT}.InsertHeader", "header": "origin", "value.literal": "shop eu"},
            "f": {"type": f"{SMT}.HeaderFrom$Value", "fields": "a,b", "headers": "x,y", "operation": "move"},
        },
        PLAIN_SOURCE,
    )
    assert made.pipeline is not None, made.refused
    headers = made.pipeline["sink"]["kafka"]["headers"]
    assert headers == {"origin": "connect_header_0_origin", "x": "connect_header_1_x", "y": "connect_header_2_y"}
    assert made.pipeline["transforms"] == [
        {"set": {"connect_header_0_origin": "'shop eu'"}},
        {"set": {"connect_header_1_x": "`a`"}},
        {"set": {"connect_header_2_y": "`b`"}},
        {"drop": ["a", "b"]},
    ]
    assert said(made, "transforms.h.header").verdict == "honoured"
    assert said(made, "transforms.f.fields").verdict == "differs"


@pytest.mark.parametrize("literal", ["1.50", "true", "[1]", '"x"', "2020-01-01", ""])
def test_a_header_whose_type_connect_guesses_is_not_honoured(literal):
    made = transformed({"h": {"type": f"{SMT}.InsertHeader", "header": "v", "value.literal": literal}}, PLAIN_SOURCE)
    assert made.pipeline is not None
    assert "headers" not in made.pipeline["sink"]["kafka"]
    assert said(made, "transforms.h.header").verdict == "not honoured"


def test_a_header_of_another_converter_is_not_honoured():
    made = transformed(
        {"h": {"type": f"{SMT}.InsertHeader", "header": "v", "value.literal": "x"}},
        {**PLAIN_SOURCE, "header.converter": f"{KAFKAS}.json.JsonConverter"},
    )
    assert said(made, "transforms.h.header").verdict == "not honoured"


def test_a_schemas_name_is_the_records_where_a_registry_has_it():
    steps = {"s": {"type": f"{SMT}.SetSchemaMetadata$Value", "schema.name": "com.example.Order", "schema.version": "2"}}
    avro = transformed(steps, {**PLAIN_SOURCE, **AVRO, "value.converter.schemas.enable": ""})
    assert avro.pipeline is not None, avro.refused
    assert avro.pipeline["sink"]["kafka"]["value"]["record_name"] == "com.example.Order"
    assert said(avro, "transforms.s.schema.name").verdict == "honoured"
    assert said(avro, "transforms.s.schema.version").verdict == "not honoured"
    assert said(transformed(steps, PLAIN_SOURCE), "transforms.s.schema.name").verdict == "harmless"
    whole = transformed(steps, {**PLAIN_SOURCE, "value.converter.schemas.enable": "true"})
    assert said(whole, "transforms.s.schema.name").verdict == "honoured"
    assert whole.pipeline is not None
    assert whole.pipeline["sink"]["kafka"]["value"]["record_name"] == "com.example.Order"
    named = {"s": {**steps["s"], "schema.name": "com.example.an-order"}}
    whole = transformed(named, {**PLAIN_SOURCE, "value.converter.schemas.enable": "true"})
    assert said(whole, "transforms.s.schema.name").verdict == "not honoured"


def test_avro_into_a_topic_is_said_to_differ():
    made = one({**PLAIN_SOURCE, **AVRO, "value.converter.schemas.enable": ""})
    assert said(made, "value.converter").verdict == "differs"
    assert "timestamp-millis" in said(made, "value.converter").what


def test_a_sources_topic_is_a_field_and_is_renamed():
    made = transformed(
        {
            "r": {"type": f"{SMT}.RegexRouter", "regex": "shop-(.*)", "replacement": "eu.$1"},
            "i": {"type": f"{SMT}.InsertField$Value", "topic.field": "topic"},
        },
        PLAIN_SOURCE,
    )
    assert made.pipeline is not None, made.refused
    assert made.pipeline["sink"]["kafka"]["topic"] == "eu.orders"
    assert made.pipeline["transforms"] == [{"set": {"topic": "'eu.orders'"}}]
    assert "columns" not in made.pipeline["source"]["jdbc"]


@pytest.mark.parametrize(
    "settings_",
    [
        {"type": f"{SMT}.InsertField$Value", "timestamp.field": "at"},
        {"type": f"{SMT}.InsertField$Value", "offset.field": "at"},
        {"type": f"{SMT}.TimestampRouter", "topic.format": "${topic}"},
    ],
)
def test_what_a_sources_record_does_not_have_is_not_honoured(settings_):
    made = transformed({"t": settings_}, PLAIN_SOURCE)
    assert {verdicts(made)[f"transforms.t.{name}"] for name in settings_} == {"not honoured"}


def test_a_query_by_time_may_have_nulls_and_one_by_number_is_refused():
    query = {"query": "SELECT * FROM orders;", "topic.prefix": "orders", "mode": "timestamp"}
    made = one({**PLAIN_SOURCE, **query})
    assert made.pipeline is not None, made.refused
    source = made.pipeline["source"]["jdbc"]
    assert (source["query"], source["validate_non_null"]) == ("SELECT * FROM orders", False)
    refused = one({**PLAIN_SOURCE, **query, "mode": "incrementing"})
    assert "by a growing number alone" in refused.refused
    assert said(refused, "mode").what.startswith("nothing could be made")


def test_what_the_file_would_be_refused_for_is_said_without_its_lines():
    made = one({**PLAIN_SOURCE, "db.timezone": "Mars/Olympus"})
    assert "Mars/Olympus" in made.refused
    assert ".yaml" not in made.refused
    assert set(verdicts(made).values()) == {"not honoured"}


def test_a_tables_name_is_normalized_as_aivens_sink_does():
    config = {"connector.class": "io.aiven.connect.jdbc.JdbcSinkConnector", "connection.url": "jdbc:postgresql://db/x"}
    made = one({**config, **JSON, "topics": "shop.orders-eu", "table.name.normalize": "true"})
    assert made.pipeline is not None, made.refused
    assert made.pipeline["sink"]["jdbc"]["table"] == "shop_orders_eu"
    assert said(made, "table.name.normalize").verdict == "honoured"


def test_why_debeziums_events_are_not_unwrapped_is_what_lacks():
    unwrap = {"u": {"type": "io.debezium.transforms.ExtractNewRecordState"}}
    key = {"key.converter": f"{KAFKAS}.json.JsonConverter", "pk.mode": "record_key", "pk.fields": "id"}
    assert "isn't to delete rows" in transformed(unwrap, **{**key, "insert.mode": "upsert"}).refused
    assert "only adds rows" in transformed(unwrap, **key).refused


def test_a_folder_of_topics_that_is_the_bucket_itself_has_a_name_here():
    made = one({**FOLDER, "topics.dir": "/"})
    assert made.pipeline is not None, made.refused
    assert made.pipeline["sink"]["files"]["topics_dir"] == "topics"
    assert said(made, "topics.dir").verdict == "differs"


def test_the_lakes_credentials_are_not_taken_for_harmless():
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "orders",
        "iceberg.tables": "db.orders",
        "iceberg.catalog.warehouse": "s3://lake/warehouse",
        "iceberg.catalog.s3.secret-access-key": "s3cr3t",
        **JSON,
    }
    assert said(one(config), "iceberg.catalog.s3.secret-access-key").verdict == "not honoured"


def test_a_key_that_is_a_number_has_a_converter():
    key = {"pk.mode": "record_key", "pk.fields": "id", "key.converter": f"{KAFKAS}.converters.IntegerConverter"}
    made = one({**TABLE, **key})
    assert made.pipeline is not None, made.refused
    assert made.pipeline["source"]["kafka"]["key"] == {"converter": "integer", "as": "id"}


@pytest.mark.parametrize("base", [TABLE, PLAIN_SOURCE])
def test_a_servers_callers_have_none_of_their_patterns_run(base):
    """On a text of the caller's such a pattern takes hours."""
    router = {"type": f"{SMT}.RegexRouter", "regex": "(a+)+b", "replacement": "c"}
    config = {f"transforms.r.{name}": value for name, value in router.items()}
    long = {"topics": "a" * 60 + "!"} if base is TABLE else {"topic.prefix": "a" * 60 + "!"}
    (made,) = imported(
        ConnectorConfig("p", {**base, **long, "transforms": "r", **config}), ImportOptions(runs_patterns=False)
    )
    assert said(made, "transforms.r.regex").verdict == "differs"
