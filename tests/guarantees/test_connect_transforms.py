"""What `import-connect` makes of a transform does to each record what Kafka's own transform does to it.

The same records go through Kafka's classes in a JVM and through the imported steps in Spark, and are compared field by
field: values, keys, headers and topics, in both directions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import functions as F
from tests.connect.transforms import ConnectTransforms
from tests.connect.worker import ensure_connect
from tests.unit.connectors_of_connect import JSON, TABLE, one

from sluice.records.settings import Transform
from sluice.rows.transforms import Transforms

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves the socket of a result to Python's collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
SMT = "org.apache.kafka.connect.transforms"
TOPIC = "shop.orders"
COLUMNS = (
    "id BIGINT, email STRING, name STRING, amount DOUBLE, at BIGINT, ok BOOLEAN, inner STRUCT<a: BIGINT, b: STRING>"
)
RECORDS: list[dict[str, Any]] = [
    {"id": 1, "email": "a@x", "name": "Ann", "amount": 1.5, "at": 1_700_000_000_123, "ok": True,
     "inner": {"a": 1, "b": "x"}},
    {"id": 2, "email": "b@x", "name": None, "amount": -0.25, "at": 0, "ok": False, "inner": {"a": None, "b": ""}},
    {"id": 3, "email": "", "name": "it's \"q\" \\ ü", "amount": 1e9, "at": -1, "ok": None, "inner": {"a": 2, "b": "é"}},
]  # fmt: skip
SINK = {key: value for key, value in TABLE.items() if not key.startswith("value.")} | JSON | {"topics": TOPIC}
SOURCE = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "connection.url": "jdbc:postgresql://db/shop",
    "mode": "bulk",
    "table.whitelist": "public.orders",
    "topic.prefix": "shop.",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    **JSON,
}


def steps(*transforms: tuple[str, dict[str, str]]) -> dict[str, str]:
    """A connector's settings of transforms, by class and settings of each."""
    config = {"transforms": ",".join(f"t{number}" for number in range(len(transforms)))}
    for number, (name, settings) in enumerate(transforms):
        config[f"transforms.t{number}.type"] = f"{SMT}.{name}"
        config |= {f"transforms.t{number}.{key}": value for key, value in settings.items()}
    return config


VALUES = {
    "drop": [("ReplaceField$Value", {"exclude": "name,at"})],
    "select": [("ReplaceField$Value", {"include": "id,name,inner"})],
    "rename": [("ReplaceField$Value", {"renames": "id:number,name:called"})],
    "all three": [("ReplaceField$Value", {"exclude": "at", "renames": "id:number"})],
    "cast numbers": [("Cast$Value", {"spec": "id:string,ok:string,at:float64,amount:float32"})],
    "flatten": [("Flatten$Value", {"delimiter": "_"})],
    "mask a text": [("MaskField$Value", {"fields": "email,name", "replacement": "***"})],
    "static": [("InsertField$Value", {"static.field": "origin", "static.value": "it's \\ here"})],
    "static over a field": [("InsertField$Value", {"static.field": "name", "static.value": "x"})],
    "hoist": [("HoistField$Value", {"field": "row"})],
    "extract": [("ExtractField$Value", {"field": "inner"})],
    "in order": [
        ("ReplaceField$Value", {"renames": "name:called"}),
        ("InsertField$Value", {"static.field": "name", "static.value": "new"}),
        ("MaskField$Value", {"fields": "called", "replacement": "-"}),
        ("Flatten$Value", {"delimiter": "_"}),
    ],
}
KEYS = {
    "a key of the value": [("ValueToKey", {"fields": "id"})],
    "masked behind": [("ValueToKey", {"fields": "email"}),
                      ("MaskField$Value", {"fields": "email,name", "replacement": "***"})],
    "masked before": [("MaskField$Value", {"fields": "email", "replacement": "***"}),
                      ("ValueToKey", {"fields": "email"})],
    "dropped behind": [("ValueToKey", {"fields": "email"}), ("ReplaceField$Value", {"exclude": "email"})],
    "left out behind": [("ValueToKey", {"fields": "email"}), ("ReplaceField$Value", {"include": "id,ok"})],
    "renamed behind": [("ValueToKey", {"fields": "email"}), ("ReplaceField$Value", {"renames": "email:mail"})],
    "cast behind": [("ValueToKey", {"fields": "id"}), ("Cast$Value", {"spec": "id:string,ok:string"})],
    "written over behind": [("ValueToKey", {"fields": "email"}),
                            ("InsertField$Value", {"static.field": "email", "static.value": "x"})],
}  # fmt: skip
TOPICS = {
    "a key": [("ValueToKey", {"fields": "id"}), ("ReplaceField$Value", {"exclude": "at"})],
    "a header": [("InsertHeader", {"header": "origin", "value.literal": "shop eu"})],
    "fields as headers": [("HeaderFrom$Value", {"fields": "id,name", "headers": "n,called", "operation": "move"})],
    "copied as headers": [("HeaderFrom$Value", {"fields": "id,ok", "headers": "n,good", "operation": "copy"})],
    "headers that are dropped": [("InsertHeader", {"header": "origin", "value.literal": "x"}),
                                 ("DropHeaders", {"headers": "origin"})],
    "a topic's name": [("RegexRouter", {"regex": "shop\\.(.*)", "replacement": "eu-$1"}),
                       ("InsertField$Value", {"topic.field": "topic"})],
}  # fmt: skip


@pytest.fixture(scope="module")
def kafkas(home):
    with ConnectTransforms(ensure_connect(home)) as running:
        yield running


def rows(spark, pipeline) -> list[dict[str, Any]]:
    """The rows of RECORDS behind the pipeline's steps."""
    frame = spark.createDataFrame([(json.dumps(r),) for r in RECORDS], "value STRING")
    frame = frame.select(F.from_json("value", COLUMNS).alias("r")).select(
        "r.*", F.lit(None).cast("string").alias("bad")
    )
    made = Transforms([Transform.model_validate(step) for step in pipeline.get("transforms", ())], ["bad"], "bad")
    for part in range(len(made.parts)):
        frame = made.shape(frame, part)
    shaped = frame.where("bad IS NULL").drop("bad")
    return [row.asDict(recursive=True) for row in shaped.collect()]


def imported(config: dict[str, str]):
    made = one(config)
    assert made.pipeline is not None, made.refused
    return made.pipeline


@pytest.mark.parametrize("name", VALUES)
def test_the_values_of_a_sink(name, kafkas, spark):
    given = steps(*VALUES[name])
    expected = [kafkas.sunk(given, TOPIC, record) for record in RECORDS]
    assert rows(spark, imported({**SINK, **given})) == [value for _, value in expected]


@pytest.mark.parametrize("name", KEYS)
def test_the_key_of_a_sinks_row(name, kafkas, spark):
    """A column that key and value both have is the key's: so do Connect's JDBC sinks."""
    given = steps(*KEYS[name])
    field = given["transforms.t0.fields"] if "transforms.t0.fields" in given and name != "masked before" else "email"
    pipeline = imported({**SINK, **given, "pk.mode": "record_key", "pk.fields": field, "insert.mode": "upsert"})
    assert pipeline["sink"]["jdbc"]["pk_fields"] == [field]
    expected = [kafkas.sunk(given, TOPIC, record) for record in RECORDS]
    assert rows(spark, pipeline) == [{**value, **key} for key, value in expected]


@pytest.mark.parametrize("name", TOPICS)
def test_the_records_of_a_source(name, kafkas, spark):
    given = steps(*TOPICS[name])
    pipeline = imported({**SOURCE, **given})
    sink = pipeline["sink"]["kafka"]
    headers = sink.get("headers", {})
    for row, record in zip(rows(spark, pipeline), RECORDS, strict=True):
        topic, key, value, said = kafkas.sourced(given, TOPIC, record)
        assert sink["topic"] == topic
        assert {field: row[field] for field in sink.get("key_fields", ())} == (key or {})
        assert {column: cell for column, cell in row.items() if column not in headers.values()} == value
        texts = {name: row[column] for name, column in headers.items()}
        assert {
            name: str(t).lower() if isinstance(t, bool) else str(t) for name, t in texts.items() if t is not None
        } == {name: text for name, text in said.items() if texts[name] is not None}
