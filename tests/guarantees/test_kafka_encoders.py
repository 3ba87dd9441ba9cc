"""What is encoded is read as it was by Confluent's deserializers, and by Sluice's own converters, whatever it holds."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from sluice.errors import ActionRequiredError
from sluice.records.plan import WriterSchema
from sluice.rows.converters import ConverterContext
from sluice.rows.converters.avro import Converter as AvroConverter
from sluice.rows.converters.json import Converter as JsonConverter
from sluice.rows.converters.protobuf import Converter as ProtobufConverter
from sluice.rows.records import parse_ddl
from sluice.schemas.registry.config import RegistrySettings
from sluice.schemas.registry.proto_files import registered_files
from sluice.schemas.registry.proto_writing import proto_text
from sluice.schemas.registry.protobuf import read_message
from sluice.sinks.kafka.encoders import Encoded, EncoderContext, encoded, unfit
from sluice.sinks.kafka.options import Encoder
from sluice.sinks.kafka.pinning import pinned_schema

from . import fixed_fields
from .protobuf_records import message_class

# PySpark leaves it to the garbage collector to close the socket that rows came by.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

DDL = (
    "id BIGINT NOT NULL, yes BOOLEAN, i INT, f FLOAT, d DOUBLE, exact DECIMAL(38,10), money DECIMAL(9,2), text STRING, "
    "raw BINARY, day DATE, at TIMESTAMP, list ARRAY<STRING>, map MAP<STRING, BIGINT>, "
    "deep STRUCT<a: STRING, b: STRUCT<x: DATE, m: DECIMAL(20,5)>>, many ARRAY<STRUCT<n: INT, t: TIMESTAMP>>"
)


def maybe(strategy: Any) -> Any:
    return st.none() | strategy


def decimals(precision: int, scale: int) -> Any:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}E-{scale}"))


longs, ints = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
singles = st.floats(width=32, allow_nan=False, allow_infinity=False)
doubles = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
days = st.dates(date(1, 1, 1), date(9999, 12, 31))
moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(lambda t: t.replace(tzinfo=UTC))
# The last of these are None by what a struct has, not by their absence: each row has all columns.
ROW = st.tuples(
    longs, maybe(st.booleans()), maybe(ints), maybe(singles), maybe(doubles), maybe(decimals(38, 10)),
    maybe(decimals(9, 2)), maybe(texts), maybe(st.binary(max_size=20)), maybe(days), maybe(moments),
    maybe(st.lists(maybe(texts), max_size=3)), maybe(st.dictionaries(texts, maybe(longs), max_size=3)),
    maybe(st.tuples(maybe(texts), maybe(st.tuples(maybe(days), maybe(decimals(20, 5)))))),
    maybe(st.lists(maybe(st.tuples(maybe(ints), maybe(moments))), max_size=3)),
)  # fmt: skip
rows_of_all_types = given(rows=st.lists(ROW, min_size=20, max_size=40))
few = settings(
    max_examples=2, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


class Encoders:
    """Encodes rows as a write job does, with a schema that START pins."""

    def __init__(self, spark: Any, jvm: Any, registry: Any, client: Any, subject: str) -> None:
        self.spark, self._jvm, self._registry, self.client, self.subject = spark, jvm, registry, client, subject
        self.kinds = parse_ddl(spark, DDL)

    def pin(self, encoder: str, **more: Any) -> dict[str, Any]:
        registered = {"registry": "judge"} if encoder in ("avro", "protobuf", "json_schema") else {}
        with self._jvm() as jvm:
            return pinned_schema(
                "value", Encoder(encoder=encoder, **registered, **more), json.loads(self.kinds.json()),
                place="sink", name="judged", targets=[self.subject], jvm=jvm,
                registries=lambda _: RegistrySettings("judge", {"url": self._registry.url}), write=True,
            )  # fmt: skip

    def bytes(self, encoder: str, rows: Sequence[Any], pinned: dict[str, Any]) -> list[bytes]:
        frame = self.spark.createDataFrame(list(rows), self.kinds)
        made = frame.select(encoded(self.spark, encoder, self.kinds.names, self.kinds, pinned).alias("value"))
        return [bytes(one["value"]) for one in made.collect()]

    def again(self, converter: Any, values: Sequence[bytes], *, kinds: Any = None, **given: Any) -> list[Any]:
        """The rows that a converter of Sluice's makes of them."""
        frame = self.spark.createDataFrame([(bytearray(one),) for one in values], "value binary")
        context = ConverterContext(
            name="value", spark=self.spark, type=kinds or self.kinds, message=None,
            **{"schemas": (), "options": {}, "registered": False, **given},
        )  # fmt: skip
        made = converter.convert(frame, F.col("value"), context)
        row = F.struct(*(made.value.getField(name).alias(name) for name in self.kinds.names))
        found = made.records.select(row.alias("row"), made.problem.alias("problem")).collect()
        assert [one["problem"] for one in found if one["problem"] is not None] == []
        return [one["row"] for one in found]

    def written(self, rows: Sequence[Any]) -> list[Any]:
        return self.spark.createDataFrame(list(rows), self.kinds).collect()


@pytest.fixture(scope="module")
def encoders(spark, shared_jvm, registry):
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with SchemaRegistryClient({"url": registry.url}) as client:
        yield Encoders(spark, shared_jvm, registry, client, "judged")


def unscaled_of(number: Decimal, scale: int) -> int:
    """All digits as a whole number; Decimal's own arithmetic rounds to 28."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits))) * 10 ** (exponent + scale) if exponent + scale >= 0 else 0
    return -whole if sign else whole


def named(row: Any) -> dict[str, Any]:
    """A row as a deserializer should have it."""
    names = ["id", "yes", "i", "f", "d", "exact", "money", "text", "raw", "day", "at", "list", "map", "deep", "many"]
    made = dict(zip(names, row, strict=True))
    deep, many = made["deep"], made["many"]
    if deep is not None:
        inner = deep[1]
        made["deep"] = {"a": deep[0], "b": None if inner is None else {"x": inner[0], "m": inner[1]}}
    if many is not None:
        made["many"] = [None if one is None else {"n": one[0], "t": one[1]} for one in many]
    return made


@few
@rows_of_all_types
def test_avro_is_read_by_confluents_deserializer_and_by_our_converter(encoders, rows):
    pinned = encoders.pin("avro")
    values = encoders.bytes("avro", rows, pinned)
    judge = AvroDeserializer(encoders.client)
    context = SerializationContext("judged", MessageField.VALUE)
    assert [judge(value, context) for value in values] == [named(row) for row in rows]
    struct = json.loads(encoders.kinds.json())
    schema = WriterSchema(id=pinned["id"], text=pinned["text"], struct=struct)
    assert encoders.again(AvroConverter(), values, schemas=(schema,), registered=True) == encoders.written(rows)


@pytest.mark.thorough
@few
@rows_of_all_types
def test_json_schema_is_validated_by_confluents_deserializer(encoders, rows):
    pinned = encoders.pin("json_schema")
    values = encoders.bytes("json_schema", rows, pinned)
    judge = JSONDeserializer(pinned["text"], schema_registry_client=encoders.client)
    context = SerializationContext("judged", MessageField.VALUE)
    for value, row in zip(values, rows, strict=True):
        read, wanted = judge(value, context), named(row)
        assert read["id"] == wanted["id"]
        assert read["text"] == wanted["text"]
        assert read["raw"] == (None if wanted["raw"] is None else base64.b64encode(wanted["raw"]).decode())
        assert read["day"] == (None if wanted["day"] is None else wanted["day"].isoformat())
    assert encoders.client.get_schema(pinned["id"]).schema_str == Schema(pinned["text"], "JSON").schema_str


@pytest.mark.thorough
@few
@rows_of_all_types
def test_json_is_read_by_our_converter(encoders, rows):
    values = encoders.bytes("json", rows, {})
    assert encoders.again(JsonConverter(), values) == encoders.written(rows)
    assert all(set(json.loads(value)) == set(encoders.kinds.names) for value in values)


@pytest.mark.thorough
@few
@rows_of_all_types
def test_json_with_schema_is_connects_envelope(encoders, rows):
    """Logical types as Connect has them; by its documentation, since its own classes are in no jar of ours."""
    values = encoders.bytes("json_with_schema", rows, {})
    for value, row in zip(values, rows, strict=True):
        read, wanted = json.loads(value), named(row)
        fields = {one["field"]: one for one in read["schema"]["fields"]}
        assert fields["id"] == {"field": "id", "type": "int64", "optional": False}
        assert fields["exact"]["name"] == "org.apache.kafka.connect.data.Decimal"
        payload = read["payload"]
        assert payload["text"] == wanted["text"]
        day, at, exact = wanted["day"], wanted["at"], wanted["exact"]
        assert payload["day"] == (None if day is None else (day - date(1970, 1, 1)).days)
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        assert payload["at"] == (None if at is None else (at - epoch) // timedelta(milliseconds=1))
        unscaled = payload["exact"] and int.from_bytes(base64.b64decode(payload["exact"]), "big", signed=True)
        assert unscaled == (None if exact is None else unscaled_of(exact, 10))
        if wanted["deep"] is not None and wanted["deep"]["b"] is not None and wanted["deep"]["b"]["m"] is not None:
            said = base64.b64decode(payload["deep"]["b"]["m"])
            assert int.from_bytes(said, "big", signed=True) == unscaled_of(wanted["deep"]["b"]["m"], 5)


def test_a_schema_of_somebody_elses_has_to_take_the_columns(encoders):
    """Without auto_register: what is missing or doesn't fit is said before an interval begins."""
    with pytest.raises(ActionRequiredError, match="no schema under the sink's subject"):
        encoders.pin("avro", subject="nobody-has-it", auto_register=False)
    other = {"type": "record", "name": "other", "fields": [{"name": "id", "type": "string"}]}
    encoders.client.register_schema("others", Schema(json.dumps(other), "AVRO"))
    with pytest.raises(ActionRequiredError, match="can't be written by the schema"):
        encoders.pin("avro", subject="others", auto_register=False)


# Protobuf has no null in a list or a map.
PROTO_ROW = st.tuples(
    longs, maybe(st.booleans()), maybe(ints), maybe(singles), maybe(doubles), maybe(decimals(38, 10)),
    maybe(decimals(9, 2)), maybe(texts), maybe(st.binary(max_size=20)), maybe(days), maybe(moments),
    st.lists(texts, max_size=3), st.dictionaries(texts, longs, max_size=3),
    maybe(st.tuples(maybe(texts), maybe(st.tuples(maybe(days), maybe(decimals(20, 5)))))),
    st.lists(st.tuples(maybe(ints), maybe(moments)), max_size=3),
)  # fmt: skip


@few
@given(rows=st.lists(PROTO_ROW, min_size=20, max_size=40))
def test_protobuf_is_read_by_confluents_deserializer_and_by_our_converter(encoders, rows):
    pinned = encoders.pin("protobuf", subject="judged-protobuf")
    values = encoders.bytes("protobuf", rows, pinned)
    text = encoders.client.get_schema(pinned["id"]).schema_str
    judge = ProtobufDeserializer(message_class(text, "sluice.judged"), {"use.deprecated.format": False})
    context = SerializationContext("judged", MessageField.VALUE)
    read = [from_message(judge(value, context)) for value in values]
    assert read == [named(row) for row in rows]
    message = read_message(registered_files(text, []), "sluice.judged")
    schema = WriterSchema(
        id=pinned["id"], text=base64.b64encode(message.descriptors).decode(), struct=message.logical,
        parsed=message.parsed, message=message.name, indexes=message.indexes,
    )  # fmt: skip
    kinds = StructType.fromJson(message.logical)
    again = encoders.again(ProtobufConverter(), values, kinds=kinds, schemas=(schema,), registered=True)
    assert [back(row) for row in again] == [named(row) for row in rows]


def from_message(message: Any) -> Any:
    """A message as Python's values: absent is None, and a message with a meaning is what it means."""
    kind = message.DESCRIPTOR.full_name
    if kind == "google.protobuf.Timestamp":
        return message.ToDatetime(tzinfo=UTC)
    if kind == "google.type.Date":
        return date(message.year, message.month, message.day)
    if kind == "confluent.type.Decimal":
        return Decimal(f"{int.from_bytes(message.value, 'big', signed=True)}E-{message.scale}")
    made: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            made[field.name] = dict(value)
        elif field.is_repeated:
            made[field.name] = [from_message(one) if field.message_type else one for one in value]
        elif field.has_presence and not message.HasField(field.name):
            made[field.name] = None
        else:
            made[field.name] = from_message(value) if field.message_type else value
    return made


def back(value: Any) -> Any:
    """A row of the converter's, whose dates and decimals are structs of their messages' fields."""
    if isinstance(value, list):
        return [back(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, bytearray):
        return bytes(value)
    if not isinstance(value, Row):
        return value
    names = set(value.asDict())
    if names == {"year", "month", "day"}:
        return date(value.year, value.month, value.day)
    if names == {"value", "precision", "scale"}:
        return Decimal(f"{int.from_bytes(value['value'], 'big', signed=True)}E-{value.scale}")
    return {name: back(one) for name, one in value.asDict().items()}


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("a b", "STRING", "no field of the name 'a b'"),
        ("x", "TIMESTAMP_NTZ", "x: Protobuf has no timestamp_ntz"),
        ("x", "ARRAY<ARRAY<INT>>", "x: Protobuf has no array of arrays"),
        ("x", "MAP<DOUBLE, INT>", "x: Protobuf has no map with keys of type double"),
        ("x", "MAP<INT, ARRAY<INT>>", "x: Protobuf has no map of arrays"),
        ("x", "STRUCT<y: INTERVAL DAY>", "y: Protobuf has no interval day"),
    ],
)
def test_what_protobuf_has_no_type_for_is_refused_by_name(spark, name, kind, says):
    struct = StructType([StructField(name, _parse_datatype_string(kind))])
    with pytest.raises(ValueError, match=says):
        proto_text(json.loads(struct.json()), "sluice.judged")


def test_a_null_in_a_list_is_said_and_not_written(encoders):
    kinds = parse_ddl(encoders.spark, "deep STRUCT<list: ARRAY<STRING>>, map MAP<STRING, INT>")
    rows = [((["a"],), {"a": 1}), ((["a", None],), {}), (None, {"a": None})]
    frame = encoders.spark.createDataFrame(rows, kinds)
    words = [one[0] for one in frame.select(unfit(encoders.spark, "protobuf", kinds.names, kinds, {})).collect()]
    assert [word and word.split()[2] for word in words] == [None, "deep", "map"]


class NothingMade:
    """An encoder that makes a null of each row whose `a` is null, and gives no reason."""

    def encode(self, row, given: EncoderContext) -> Encoded:
        assert (given.name, given.type.names, dict(given.options)) == ("key", ["a"], {})
        return Encoded(row.getField("a").cast("binary"), F.lit(None).cast("string"))


class TextMade:
    """An encoder that makes no bytes."""

    def encode(self, row, given: EncoderContext) -> Encoded:
        return Encoded(row.getField("a"), F.lit(None).cast("string"))


def test_an_encoder_of_ones_own_gets_the_columns_and_its_options_and_says_what_it_can_t_write(spark):
    kinds = parse_ddl(spark, "name STRING, id INT")
    frame = spark.createDataFrame([("Mark", 42), ("Marianne", 7), (None, 1234)], kinds)
    own = f"{fixed_fields.__name__}:FixedFields", ["id", "name"], kinds, {"options": {"widths": "3,5"}}
    made = frame.select(encoded(spark, *own), unfit(spark, *own)).collect()
    assert [(data and bytes(data), problem) for data, problem in made] == [
        (b"42 Mark ", None),
        (None, "its column name has more than 5 characters"),
        (None, "its column id has more than 3 characters"),
    ]


def test_an_encoder_of_ones_own_makes_no_delete_of_a_row_for_which_it_has_no_bytes(spark):
    kinds = parse_ddl(spark, "a STRING")
    own = f"{__name__}:NothingMade", ["a"], kinds, {}, "key"
    made = spark.createDataFrame([("x",), (None,)], kinds).select(encoded(spark, *own), unfit(spark, *own)).collect()
    assert [(data and bytes(data), problem) for data, problem in made] == [(b"x", None), (None, "its key is null")]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("none.such:Encoder", r"The encoder none\.such:Encoder can't be imported.*on the Python path"),
        (f"{fixed_fields.__name__}:Other", r"The encoder \S+fixed_fields:Other can't be imported"),
        (f"{__name__}:TextMade", "makes STRING of a row, and a record has BINARY"),
    ],
)
def test_an_encoder_of_ones_own_that_can_t_be_used_is_said(spark, name, says):
    with pytest.raises(ActionRequiredError, match=says):
        encoded(spark, name, ["a"], parse_ddl(spark, "a STRING"), {})


def test_a_column_keeps_its_number(encoders):
    """By the subject's last schema: one that is gone leaves its number behind, and a new one takes the next."""
    numbers = {}
    for ddl in ("a INT, b STRING, c STRUCT<x: INT, y: INT>", "d INT, c STRUCT<y: INT>, a INT", "b STRING, a INT"):
        encoders.kinds = parse_ddl(encoders.spark, ddl)
        pinned = encoders.pin("protobuf", subject="numbered")
        assert encoders.pin("protobuf", subject="numbered") == pinned
        text = encoders.client.get_schema(pinned["id"]).schema_str
        numbers[ddl] = {f.name: f.number for f in message_class(text, "sluice.judged").DESCRIPTOR.fields}
    encoders.kinds = parse_ddl(encoders.spark, DDL)
    assert list(numbers.values()) == [{"a": 1, "b": 2, "c": 3}, {"d": 4, "c": 3, "a": 1}, {"b": 5, "a": 1}]


def test_a_message_of_somebody_elses_is_found_by_its_name(encoders):
    text = 'syntax = "proto3"; package p; message A { string id = 1; } message B { message C { int64 id = 7; } }'
    encoders.client.register_schema("others-protobuf", Schema(text, "PROTOBUF"))
    given = {"subject": "others-protobuf", "auto_register": False}
    kinds, encoders.kinds = encoders.kinds, parse_ddl(encoders.spark, "id BIGINT NOT NULL")
    try:
        with pytest.raises(ActionRequiredError, match=r"column id is long, and the schema's field string"):
            encoders.pin("protobuf", **given)
        with pytest.raises(ActionRequiredError, match=r"no message p\.D; there are p\.A, p\.B, p\.B\.C"):
            encoders.pin("protobuf", record_name="p.D", **given)
        pinned = encoders.pin("protobuf", record_name="p.B.C", **given)
        (value,) = encoders.bytes("protobuf", [(5,)], pinned)
    finally:
        encoders.kinds = kinds
    assert value[5:] == b"\x04\x02\x00" + b"\x38\x05"  # two indexes, 1 and 0; field 7 is 5
