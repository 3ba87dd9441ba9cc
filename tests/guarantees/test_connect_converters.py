"""What `import-connect` makes of a converter reads and writes each record as Kafka's own converter does.

The same records go through Kafka's classes in a JVM and through the imported pipeline's converters and encoders in
Spark. Written records are compared byte by byte: key, value and headers. What differs by design is named here with what
Kafka's converter makes of it, and in the import's report or docs/converters.md.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from struct import unpack
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F
from tests.connect.transforms import ConnectTransforms, RefusedError
from tests.connect.worker import ensure_connect
from tests.unit.connectors_of_connect import KAFKAS, TABLE, one, said

from sluice.records.plan import Format
from sluice.records.settings import Converter, Transform
from sluice.rows.converters import ConverterContext, converter_of
from sluice.rows.records import parse_ddl
from sluice.rows.transforms import Transforms
from sluice.sinks.kafka.options import KafkaTopic
from sluice.sinks.kafka.pinning import pinned_schema
from sluice.sinks.kafka.records import written_records

from ..thorough import also
from .test_connect_transforms import SOURCE as OF_TABLE
from .test_connect_transforms import steps

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves the socket of a result to Python's collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
DATA = "org.apache.kafka.connect.data."
JSON = f"{KAFKAS}.json.JsonConverter"
TOPIC = "shop.orders"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)

# The source direction -------------------------------------------------------------------------------------------------

COLUMNS = {
    "id": ("BIGINT", {"type": "int64"}),
    "text": ("STRING", {"type": "string"}),
    "day": ("DATE", {"type": "int32", "name": f"{DATA}Date", "version": 1}),
    "at": ("TIMESTAMP", {"type": "int64", "name": f"{DATA}Timestamp", "version": 1}),
    "money": ("DECIMAL(12,2)", {"type": "bytes", "name": f"{DATA}Decimal", "version": 1,
                                "parameters": {"scale": "2", "connect.decimal.precision": "12"}}),
    "whole": ("DECIMAL(20,0)", {"type": "bytes", "name": f"{DATA}Decimal", "version": 1,
                                "parameters": {"scale": "0", "connect.decimal.precision": "20"}}),
    "fine": ("DECIMAL(38,18)", {"type": "bytes", "name": f"{DATA}Decimal", "version": 1,
                                "parameters": {"scale": "18", "connect.decimal.precision": "38"}}),
    "raw": ("BINARY", {"type": "bytes"}),
    "single": ("FLOAT", {"type": "float"}),
    "double": ("DOUBLE", {"type": "double"}),
    "ok": ("BOOLEAN", {"type": "boolean"}),
    "number": ("INT", {"type": "int32"}),
}  # fmt: skip
"""Each column's type here, and its schema in Connect."""
DDL = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
SCHEMA = {
    "type": "struct",
    "fields": [{**schema, "optional": True, "field": name} for name, (_, schema) in COLUMNS.items()],
    "optional": False,
    "name": "orders",
}
"""As Confluent's JDBC source makes it of a table, but for what the import's report names: columns may be null, and a
Decimal's precision is there."""
NOTHING: dict[str, Any] = dict.fromkeys(COLUMNS)
ROWS: list[dict[str, Any]] = [
    {**NOTHING, "id": 0},
    {**NOTHING, "id": 2**63 - 1, "text": "it's \"q\" \\ /ü\u2028\u0001\t", "day": date(1, 1, 1),
     "at": datetime(1, 1, 1, tzinfo=UTC), "money": Decimal("-9999999999.99"), "whole": Decimal(1234),
     "fine": Decimal("0E-18"), "raw": b"", "single": 16777216.0, "double": 5e-324, "ok": True, "number": -(2**31)},
    {**NOTHING, "id": -(2**63), "text": "", "day": date(9999, 12, 31),
     "at": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "money": Decimal("0.00"), "whole": Decimal(10**20 - 1),
     "fine": Decimal("-0.000000000000000001"), "raw": b"\0\xff\x80", "single": 1.1754943508222875e-38, "double": 1e21,
     "ok": False, "number": 2**31 - 1},
    {**NOTHING, "id": 1, "text": "🦀 beyond U+FFFF \U0001f9801", "day": date(1582, 10, 10),
     "at": datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), "money": Decimal("1.28"), "whole": Decimal(-128),
     "fine": Decimal("12345678901234567890.123456789012345678"), "raw": bytes(range(256)),
     "single": 0.10000000149011612, "double": 0.1, "ok": True, "number": 0},
]  # fmt: skip


def in_base64(number: Decimal, scale: int) -> str:
    """A decimal as Connect's bytes."""
    sign, digits, exponent = number.as_tuple()
    unscaled = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale) * (-1 if sign else 1)
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


def connects(name: str, value: Any) -> Any:
    """A value in the payload of Connect's envelope."""
    if isinstance(value, Decimal):
        return in_base64(value, int(COLUMNS[name][1]["parameters"]["scale"]))
    if isinstance(value, datetime):
        return (value - EPOCH) // (1000 * MICRO)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    return b64encode(value).decode() if isinstance(value, bytes) else value


def enveloped(row: dict[str, Any], schema: Any = None) -> bytes:
    payload = {name: connects(name, value) for name, value in row.items()}
    return json.dumps({"schema": schema or SCHEMA, "payload": payload}).encode()


@pytest.fixture(scope="module")
def kafkas(home):
    with ConnectTransforms(ensure_connect(home)) as running:
        yield running


def pipeline_of(config):
    made = one(config)
    assert made.pipeline is not None, made.refused
    return made.pipeline


def records(spark, config, rows) -> list[tuple[Any, ...]]:
    """Topic, key, value and headers of the records that the imported pipeline makes of a table's rows."""
    pipeline = pipeline_of(config)
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], DDL)
    frame = frame.withColumn("bad", F.lit(None).cast("string"))
    made = Transforms([Transform.model_validate(step) for step in pipeline.get("transforms", ())], ["bad"], "bad")
    for part in range(len(made.parts)):
        frame = made.shape(frame, part)
    frame = frame.drop("bad")
    ddl = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema.fields)
    section = KafkaTopic.model_validate({"staging": "/nowhere", "schema": ddl, **pipeline["sink"]["kafka"]})
    writer = section.writer("orders", None, maintained=False, schema_ddl=ddl)
    fields = {field.name: field.jsonValue() for field in parse_ddl(spark, ddl).fields}
    options = dict(writer.options)
    for name, encoder, columns in (("key", section.key, section.key_fields), ("value", section.value, fields)):
        struct = {"type": "struct", "fields": [fields[column] for column in columns]}
        pinned = pinned_schema(
            name, encoder, struct, place=name, name="orders", targets=[TOPIC], jvm=None, registries=None, write=False
        )  # fmt: skip
        options[f"{name}_schema"] = json.dumps(pinned)
    found = written_records(spark, writer.model_copy(update={"options": options}), frame).collect()

    def whole(data: Any) -> bytes | None:
        return None if data is None else bytes(data)

    return [
        (one.topic, whole(one.key), whole(one.value), tuple((h.key, whole(h.value)) for h in one.headers or ()))
        for one in found
    ]


ENVELOPE, PLAIN = {"schemas.enable": "true"}, {"schemas.enable": "false"}
NUMERIC = {"decimal.format": "NUMERIC"}
KEYED = [("ValueToKey", {"fields": "id,text"}), ("InsertHeader", {"header": "origin", "value.literal": "shop eu"}),
         ("RegexRouter", {"regex": "shop\\.(.*)", "replacement": "eu-$1"})]  # fmt: skip
WRITTEN = {
    "plain": (PLAIN, PLAIN, KEYED),
    "plain, decimals are numbers": (PLAIN, PLAIN | NUMERIC, KEYED),
    "an envelope": (ENVELOPE, ENVELOPE, KEYED),
    "an envelope, decimals are numbers": (ENVELOPE, ENVELOPE | NUMERIC, []),
    "the envelope by default": ({}, {}, [("ValueToKey", {"fields": "money,day,at"})]),
    "a name of the schema": (PLAIN, ENVELOPE, [("SetSchemaMetadata$Value", {"schema.name": "com.example.Order"})]),
    "a hoisted value": (PLAIN, PLAIN, [("HoistField$Value", {"field": "row"})]),
    "the key is one text": ("string", PLAIN, [("ValueToKey", {"fields": "id"}), ("ExtractField$Key", {"field": "id"})]),
    "the key is one number": (PLAIN, PLAIN, [("ValueToKey", {"fields": "number"}),
                                             ("ExtractField$Key", {"field": "number"})]),
}  # fmt: skip


TRIED = ("plain", "an envelope", "plain, decimals are numbers")


@pytest.mark.parametrize("name", [*TRIED, *also(*(name for name in WRITTEN if name not in TRIED))])
def test_a_source_s_records_are_connect_s_byte_for_byte(name, kafkas, spark):
    key, value, transforms = WRITTEN[name]
    config = {name: setting for name, setting in OF_TABLE.items() if ".converter" not in name}
    config |= {"value.converter": JSON, **{f"value.converter.{k}": v for k, v in value.items()}}
    if key == "string":
        config["key.converter"] = f"{KAFKAS}.storage.StringConverter"
    else:
        config |= {"key.converter": JSON, **{f"key.converter.{k}": v for k, v in key.items()}}
    config |= steps(*transforms) if transforms else {}
    rows = [row for row in ROWS if name != "the key is one number" or row["number"] is not None]
    theirs = [kafkas.sent(config, TOPIC, enveloped(row)) for row in rows]
    assert records(spark, config, rows) == [(one.topic, one.key, one.value, one.headers) for one in theirs]


BY_DESIGN = {
    "columns may be null": ({"optional": False}, "every column is optional"),
    "whole numbers": ({"type": "int16"}, "whole numbers are int32 or int64"),
}
"""How a field's schema may differ from Connect's, and the words of the report."""


@pytest.mark.parametrize("name", also(*BY_DESIGN))
def test_what_differs_in_an_envelope_s_schema_is_in_the_report(name, kafkas, spark):
    field, words = BY_DESIGN[name]
    config = {name: setting for name, setting in OF_TABLE.items() if ".converter" not in name}
    config |= {"value.converter": JSON, "key.converter": JSON}
    schema = {**SCHEMA, "fields": [{**one, **(field if one["field"] == "number" else {})} for one in SCHEMA["fields"]]}
    row = {**ROWS[3], "number": 7}
    theirs = json.loads(kafkas.sent(config, TOPIC, enveloped(row, schema)).value)
    ((_, _, value, _),) = records(spark, config, [row])
    ours = json.loads(value)
    assert ours["payload"] == theirs["payload"]
    assert [one for one in ours["schema"]["fields"] if one not in theirs["schema"]["fields"]] == [
        {"type": "int32", "optional": True, "field": "number"}
    ]
    found = said(one(config), "value.converter")
    assert (found.verdict, words in found.what) == ("differs", True)


@pytest.mark.parametrize("key", ["the record's one column", *also("one column alone")])
def test_a_null_is_no_key_and_the_report_says_so(key, kafkas, spark):
    alone = [("ExtractField$Key", {"field": "number"})] if key == "one column alone" else []
    config = {**OF_TABLE, **steps(("ValueToKey", {"fields": "number"}), *alone)}
    theirs = kafkas.sent(config, TOPIC, enveloped(ROWS[0])).key
    assert theirs == (b"null" if alone else b'{"number":null}')
    assert [one[1] for one in records(spark, config, ROWS[:1])] == [None]
    assert "no key" in said(one(config), "key.converter").what


# The sink direction ---------------------------------------------------------------------------------------------------

NESTED = {
    "inner": ("STRUCT<due: DATE, cost: DECIMAL(9,3), name: STRING>", {"type": "struct", "fields": [
        {"type": "int32", "name": f"{DATA}Date", "version": 1, "optional": True, "field": "due"},
        {"type": "bytes", "name": f"{DATA}Decimal", "version": 1, "parameters": {"scale": "3"}, "optional": True,
         "field": "cost"},
        {"type": "string", "optional": True, "default": "nobody", "field": "name"},
    ]}),
    "list": ("ARRAY<STRING>", {"type": "array", "items": {"type": "string", "optional": True}}),
    "map": ("MAP<STRING, BIGINT>", {"type": "map", "keys": {"type": "string"},
                                    "values": {"type": "int64", "optional": True}}),
    "time": ("INT", {"type": "int32", "name": f"{DATA}Time", "version": 1}),
    "tiny": ("TINYINT", {"type": "int8"}),
    "small": ("SMALLINT", {"type": "int16"}),
}  # fmt: skip
"""Further columns of a sink's records."""
READ = {**COLUMNS, **NESTED}
READ_DDL = ", ".join(f"{name} {kind}" for name, (kind, _) in READ.items())
DEFAULTS = {"text": "a \"text\"", "day": -7, "at": 1_700_000_000_123, "money": in_base64(Decimal("-0.01"), 2),
            "raw": "AP8=", "double": 0.5, "ok": True, "number": 7, "list": ["a", None],
            "map": {"a": 1}, "small": -1}  # fmt: skip


def message(payload: Any, *, defaults: dict[str, Any] | None = None, **schemas: Any) -> bytes:
    """A record in the envelope, with fields' defaults, and with other schemas of some fields."""
    given = defaults or {}
    fields = [
        {**schema, "optional": True, "field": name, **({"default": given[name]} if name in given else {}),
         **schemas.get(name, {})}
        for name, (_, schema) in READ.items()
    ]  # fmt: skip
    return json.dumps({"schema": {"type": "struct", "fields": fields, "optional": False}, "payload": payload}).encode()


def sink(**converter: str) -> dict[str, str]:
    config = {key: value for key, value in TABLE.items() if not key.startswith("value.")}
    return {**config, "value.converter": JSON, **{f"value.converter.{k}": v for k, v in converter.items()}}


def values(spark, config, data, ddl=READ_DDL) -> list[tuple[Any, str | None]]:
    """What the imported pipeline makes of records: the row in Connect's plain JSON, and what is wrong with it."""
    section = Converter.model_validate(pipeline_of(config)["source"]["kafka"]["value"])
    kind = parse_ddl(spark, ddl)
    given = ConverterContext(
        name="value", spark=spark, type=kind if section.as_ is None else kind[0].dataType, schemas=(),
        options=section.options, message=None, registered=False,
    )  # fmt: skip
    frame = spark.createDataFrame([(None if one is None else bytearray(one),) for one in data], "value BINARY")
    made = converter_of(Format(converter=section.converter)).convert(frame, F.col("value"), given)
    value = made.value.withField("at", F.unix_millis(made.value["at"])) if "at" in kind.names else made.value
    found = made.records.select(value.alias("row"), made.problem.alias("problem")).collect()
    return [(None if one.problem or one.row is None else in_json(one.row, kind.names), one.problem) for one in found]


def in_json(value: Any, columns: Sequence[str] = ()) -> Any:
    if isinstance(value, Row):
        return {name: in_json(one) for name, one in value.asDict().items() if name in (columns or value.__fields__)}
    if isinstance(value, dict):
        return {name: in_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [in_json(one) for one in value]
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - EPOCH) // (1000 * MICRO)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    return b64encode(value).decode() if isinstance(value, bytearray) else value


def numbers(value: Any) -> Any:
    """Without the differences of 1 and 1.0, and of what Java and Python call the smallest number."""
    if isinstance(value, dict):
        return {name: numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    tiny = isinstance(value, Decimal) and value and abs(value) < Decimal("1e-300")
    return Decimal(repr(float(value))) if tiny or isinstance(value, float) else value


SAME = {
    "nothing": message({}),
    "nulls": message(dict.fromkeys(READ)),
    "defaults of missing fields": message({"id": 1}, defaults=DEFAULTS),
    "defaults of nulls": message({**dict.fromkeys(READ), "id": 1}, defaults=DEFAULTS),
    "values beside defaults": message(
        {"id": 1, "number": 0, "text": "", "ok": False, "money": in_base64(Decimal("0.00"), 2)}, defaults=DEFAULTS
    ),
    "a default in a struct": message({"inner": {"due": 1}}),
    "a decimal's default that is a number": message({}, defaults={"money": 12.34, "fine": 0.5}),
    "decimals are numbers": message({"money": 12.34, "whole": 12345, "fine": 1e-18}),
    "small and negative numbers": message({"money": -0.01, "whole": -1, "fine": -5e-10}),
    "numbers that could be base64": message({"whole": 1234, "money": 1234}),
    "base64 that could be numbers": message({"whole": "1234", "money": "9999"}),
    "more digits than a double has": message({"fine": "X", "whole": "Y"})
    .replace(b'"X"', b"12345678901234567890.123456789012345678").replace(b'"Y"', b"12345678901234567891"),
    "a decimal in a struct": message({"inner": {"cost": 1.5}}),
    "bytes of a decimal in a struct": message({"inner": {"cost": in_base64(Decimal("-1.500"), 3), "due": -1}}),
    "a list and a map": message({"list": ["", None, "ü"], "map": {"": None, "a": 2**63 - 1}}),
    "empty ones": message({"list": [], "map": {}, "inner": {}}),
    "ends of numbers": message({"id": -(2**63), "number": 2**31 - 1, "tiny": -128, "small": 32767, "double": 5e-324}),
    "a whole number of a double": message({"double": 1, "single": 1}),
    "a time of day": message({"time": 86_399_999}),
    "ends of times": message({"day": -719162, "at": -62135596800000}),
    "last ends of times": message({"day": 2932896, "at": 253402300799999}),
    "a text of all kinds": message({"text": "it's \"q\" \\ ü 🦀 \u2028"}),
    "without a schema": json.dumps({"schema": None, "payload": {"id": 1, "text": "x"}}).encode(),
}  # fmt: skip


def filled(row: Any) -> Any:
    """A row of Kafka's with all columns: where a record has no schema, its fields are those that it has."""
    return {**dict.fromkeys(READ), **row}


NUMBERED = [
    "a decimal's default that is a number", "decimals are numbers", "small and negative numbers",
    "numbers that could be base64", "more digits than a double has", "a decimal in a struct",
]  # fmt: skip
"""Of these, which Kafka's converter reads with other scales than their schemas', it writes none itself."""


@pytest.fixture(scope="module")
def written(kafkas):
    """Records by hand, and as Kafka's own converter writes them, with decimals as bytes and as numbers."""
    config = {**sink(), "key.converter": JSON}
    data = dict(SAME)
    for form in ("BASE64", "NUMERIC"):
        for name in SAME:
            if name not in (*NUMBERED, "without a schema"):
                sent = kafkas.sent({**config, "value.converter.decimal.format": form}, TOPIC, SAME[name])
                data[f"{name}, {form}"] = sent.value
    return data


@pytest.fixture(scope="module")
def read(spark, written):
    """What is made of all records of the tests below, by their bytes."""
    others = [data for data, _ in (*MADE_ANOTHER.values(), *REFUSED_HERE.values(), *READ_HERE.values())]
    data = [*written.values(), *others, *REFUSED_BY_BOTH]
    return dict(zip(data, values(spark, sink(), data), strict=True))


def test_a_sink_s_values_are_connect_s(kafkas, written, read):
    config = sink()
    assert {name: read[data][1] for name, data in written.items() if read[data][1]} == {}
    differ = {
        name: read[data][0]
        for name, data in written.items()
        if numbers(read[data][0]) != numbers(filled(kafkas.read(config, "value", data)[1]))
    }
    assert differ == {}


@pytest.mark.thorough
def test_a_null_stays_null_where_connect_keeps_it(kafkas, spark):
    config = sink(**{"replace.null.with.default": "false"})
    data = message({"id": 1}, defaults=DEFAULTS)
    ((row, problem),) = values(spark, config, [data])
    assert problem is None
    assert row == {**dict.fromkeys(READ), "id": 1}
    # Asked for a field, Kafka's Struct answers with the default nonetheless, as its JSON converter asks it.
    assert kafkas.read(config, "value", data)[0] == "Struct{id=1}"


MADE_ANOTHER = {
    "a byte beyond its range": (message({"tiny": 300}), {"tiny": 44}),
    "a number beyond its range": (message({"number": 2**40}), {"number": 0}),
    "a fraction of a whole number": (message({"number": 1.5}), {"number": 1}),
    "a text that is a number": (message({"number": "5"}), {"number": 0}),
    "a text that is a flag": (message({"ok": "true"}), {"ok": False}),
    "a text in the place of a fraction": (message({"double": "NaN"}), {"double": 0}),
}
"""What Kafka's converter makes another value of; here each makes a bad record."""


def test_what_connect_makes_another_value_of_is_a_bad_record(kafkas, read):
    for data, theirs in MADE_ANOTHER.values():
        assert kafkas.read(sink(), "value", data)[1] == {**dict.fromkeys(READ), **theirs}
        assert read[data][1]


REFUSED_BY_BOTH = [
    b"", b"null", b"5", b"{", b'{"id": 1}', b'{"schema": null}', message({"raw": "not base64!"}),
    message({"money": ""}), message({"day": "yesterday"}), message({}, defaults={"day": "yesterday"}),
]  # fmt: skip
REFUSED_HERE = {
    "no payload": (b'{"schema": null, "payload": null}', None),
    "an optional record": (b'{"schema": {"type": "struct", "fields": [], "optional": true}, "payload": null}', None),
}
READ_HERE = {
    "no schema": (b'{"payload": {"id": 1}}', {"id": 1}),
    "further fields of the envelope": (b'{"schema": null, "payload": {"id": 1}, "more": 2}', {"id": 1}),
    "a required field that is missing": (message({}, number={"optional": False}), {}),
}


def test_records_that_aren_t_read(kafkas, read):
    for data in [*REFUSED_BY_BOTH, *(data for data, _ in READ_HERE.values())]:
        with pytest.raises(RefusedError):
            kafkas.read(sink(), "value", data)
    for data, theirs in REFUSED_HERE.values():
        assert kafkas.read(sink(), "value", data)[1] == theirs
    refused = [*REFUSED_BY_BOTH, *(data for data, _ in REFUSED_HERE.values())]
    assert [data for data in refused if not read[data][1]] == []
    assert [read[data] for data, _ in READ_HERE.values()] == [
        ({**dict.fromkeys(READ), **row}, None) for _, row in READ_HERE.values()
    ]


def test_objects_without_an_envelope(kafkas, spark):
    config = sink(**PLAIN)
    ddl = "id BIGINT, text STRING, double DOUBLE, ok BOOLEAN, list ARRAY<STRING>, inner STRUCT<a: BIGINT>"
    data = [
        b'{"id": 1, "text": "\xc3\xbc", "double": 0.5, "ok": true, "list": ["a", null], "inner": {"a": null}}',
        b'{"id": -9223372036854775808, "text": null, "double": 1, "ok": false, "list": [], "inner": null}',
    ]
    found = values(spark, config, data, ddl)
    assert [problem for _, problem in found] == [None, None]
    assert [numbers(row) for row, _ in found] == [numbers(kafkas.read(config, "value", one)[1]) for one in data]


TEXTS = [b"", b"x", "it's ü 🦀".encode(), b"\0"]
SINGLE = {
    "storage.StringConverter": ("STRING", TEXTS, [b"\xff"]),
    "converters.ByteArrayConverter": ("BINARY", [*TEXTS, b"\xff\0"], []),
    "converters.ShortConverter": ("SMALLINT", [b"\0\1", b"\x80\0", b"\x7f\xff"], [b"\0", b"\0\0\0"]),
    "converters.IntegerConverter": ("INT", [b"\0\0\0\1", b"\x80\0\0\0"], [b"", b"\0\0\0"]),
    "converters.LongConverter": ("BIGINT", [b"\0" * 7 + b"\1", b"\x80" + b"\0" * 7], [b"\0" * 4]),
    "converters.FloatConverter": ("FLOAT", [b"\x3f\x80\0\0", b"\0\0\0\1", b"\xbf\0\0\0"], [b"\0"]),
    "converters.DoubleConverter": ("DOUBLE", [b"\x3f\xf0" + b"\0" * 6, b"\0" * 7 + b"\1"], [b"\0" * 9]),
}
"""Converters of one value: the column's type, bytes that are read, and bytes that aren't."""


@pytest.mark.parametrize("name", ["storage.StringConverter", *also(*list(SINGLE)[1:])])
def test_one_value(name, kafkas, spark):
    kind, good, bad = SINGLE[name]
    config = {**sink(), "value.converter": f"{KAFKAS}.{name}"}
    found = values(spark, config, [*good, *bad], f"x {kind}")
    theirs = [kafkas.read(config, "value", data)[1] for data in good]
    if kind == "FLOAT":
        theirs = [unpack(">f", data)[0] for data in good]
        assert [f"{one:.2g}" for one in theirs] == [f"{kafkas.read(config, 'value', data)[1]:.2g}" for data in good]
    assert [numbers(row) for row, _ in found[: len(good)]] == [numbers(one) for one in theirs]
    assert [row for row, problem in found[len(good) :] if problem is None] == []
    assert kafkas.read(config, "value", None)[1] is None
    for data in bad:
        if kind == "STRING":  # Java puts a question mark in the place of what is no text
            assert kafkas.read(config, "value", data)[1] == "\ufffd"
        else:
            with pytest.raises(RefusedError):
                kafkas.read(config, "value", data)
