"""Records are rows just as their producers' own serializers wrote them, in every format, of old and new schemas."""

from __future__ import annotations

import json
import math
import random
import string
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.messages import AckCommit
from sluice.registry.config import VARIABLE
from sluice.registry.proto_files import registered_files

from ..registry import LocalRegistry, ensure_registry
from .harness import Flow

REGISTRY = "schema_registry_default"
ROWS = 30
MakeFlow = Callable[..., Flow]


@pytest.fixture
def asked(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> LocalRegistry:
    """The registry, as the pipelines of this test know it."""
    monkeypatch.setenv(VARIABLE, registry.url)
    registry.requests()
    return registry


def typed_flow(make_flow: MakeFlow, converter: str, columns: str | None = None, **value: Any) -> Flow:
    """A pipeline whose columns are those of the records' own schema, unless one is given."""
    if converter in ("avro", "protobuf", "json_schema") and "schema_file" not in value:
        value["registry"] = REGISTRY
    section = {"converter": converter, **value}
    given = {"sink__hudi__schema": columns, "sink__hudi__partition_fields": None, "source__kafka__value": section}
    flow: Flow = make_flow(partitions=1, **given)
    return flow


@pytest.fixture
def client(registry: LocalRegistry) -> Iterator[SchemaRegistryClient]:
    """With which producers register their schemas."""
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def write(flow: Flow, serializer: Callable[..., bytes], row: Any, part: str = MessageField.VALUE) -> bytes:
    return serializer(row, SerializationContext(flow.topic, part))


def local(moment: datetime) -> datetime:
    """As PySpark hands a TIMESTAMP to Python."""
    return moment.astimezone().replace(tzinfo=None)


def plain(value: Any) -> Any:
    """What was read, with bytes as bytes, and NaN equal to itself."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class Wild(random.Random):
    """Values as they are in the wild: small and huge, empty, of all of Unicode; and the same in each run."""

    def text(self) -> str:
        letters = string.printable + "äß漢🦀\u2028\u0000'\"\\`"
        return "".join(self.choice(letters) for _ in range(self.choice([0, 1, 5, 40])))

    def some_bytes(self, size: int | None = None) -> bytes:
        return self.randbytes(self.choice([0, 1, 33]) if size is None else size)

    def long(self, bits: int = 63) -> int:
        return self.choice([0, -1, 1, 2**bits - 1, -(2**bits), self.randrange(-(2**bits), 2**bits)])

    def double(self) -> float:
        return self.choice([0.0, -0.5, math.inf, -math.inf, math.nan, 5e-324, 1.7e308, self.uniform(-1e9, 1e9)])

    def single(self) -> float:
        """A number that 32 bits hold."""
        return float(struct.unpack("f", struct.pack("f", self.uniform(-1e6, 1e6)))[0])

    def decimal(self, precision: int, scale: int) -> Decimal:
        return Decimal(self.randrange(-(10**precision) + 1, 10**precision)).scaleb(-scale)

    def moment(self, unit: str = "microseconds") -> datetime:
        size = {"microseconds": 1, "milliseconds": 1000}[unit]
        micros = self.randrange(-(10**15), 4 * 10**15) // size * size  # 1938 to 2096
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)

    def day(self) -> date:
        return date(1970, 1, 1) + timedelta(days=self.randrange(-30_000, 60_000))

    def maybe(self, make: Callable[[], Any]) -> Any:
        return None if self.random() < 0.3 else make()


# Avro -----------------------------------------------------------------------------------------------------------------


def _avro(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def _nested(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [_avro("order", "string"), _avro("n", ["null", "float"]), *more]
    return {"type": "array", "items": {"type": "record", "name": "N", "fields": fields}}


_COMMON = [
    _avro("id", "long"),
    _avro("select", ["null", "string"], default=None),
    _avro("dec", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}),
    _avro("fdec", {"type": "fixed", "name": "F8", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 2}),
    _avro("at_ms", {"type": "long", "logicalType": "timestamp-millis"}),
    _avro("at_us", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    _avro("local_us", {"type": "long", "logicalType": "local-timestamp-micros"}),
    _avro("day", {"type": "int", "logicalType": "date"}),
    _avro("uuid", {"type": "string", "logicalType": "uuid"}),
    _avro("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}),
    _avro("three", {"type": "fixed", "name": "F3", "size": 3}),
    _avro("raw", "bytes"),
    _avro("either", ["null", "int", "string", {"type": "record", "name": "R", "fields": [_avro("x", "int")]}]),
    _avro("numbers", {"type": "map", "values": ["null", "double"]}),
    _avro("flag", "boolean"),
]


def _avro_schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Wild", "namespace": "com.example", "fields": list(fields)})


OLD_AVRO = _avro_schema(*_COMMON, _avro("group", _nested()), _avro("count", "int"), _avro("gone", "string"))
NEW_AVRO = _avro_schema(
    _avro("price", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, default="\u00ff"),
    _avro("count", "long"),
    *reversed(_COMMON),
    _avro("group", _nested(_avro("q", "int", default=3))),
    _avro("where", {"type": "record", "name": "W", "fields": [_avro("city", "string")]}, default={"city": "Köln"}),
    _avro("maybe", ["null", "long"], default=None),
)


def _avro_row(wild: Wild, number: int, *, new: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": number,
        "select": wild.maybe(wild.text),
        "dec": wild.decimal(38, 4),
        "fdec": wild.decimal(18, 2),
        "at_ms": wild.moment("milliseconds"),
        "at_us": wild.maybe(wild.moment),
        "local_us": wild.moment().replace(tzinfo=None),
        "day": wild.day(),
        "uuid": UUID(bytes=wild.randbytes(16)),
        "kind": wild.choice("ABC"),
        "three": wild.some_bytes(3),
        "raw": wild.some_bytes(),
        "either": wild.choice([None, wild.long(31), wild.text(), {"x": wild.long(31)}]),
        "numbers": {wild.text(): wild.maybe(wild.double) for _ in range(wild.randrange(4))},
        "flag": wild.choice([True, False]),
        "group": [{"order": wild.text(), "n": wild.maybe(wild.single)} for _ in range(wild.randrange(3))],
        "count": wild.long(63 if new else 31),
    }
    if not new:
        return {**row, "gone": wild.text()}
    row["group"] = [{**element, "q": wild.long(31)} for element in row["group"]]
    where = {"city": wild.text()}
    return {**row, "price": wild.decimal(6, 2), "where": where, "maybe": wild.maybe(wild.long)}


def _avro_expected(row: dict[str, Any], *, new: bool) -> dict[str, Any]:
    either = row["either"]
    kinds = {int: "member_int", str: "member_string", dict: "member_R"}
    members = dict.fromkeys(kinds.values())
    expected = {
        **row,
        "at_ms": local(row["at_ms"]),
        "at_us": row["at_us"] and local(row["at_us"]),
        "uuid": str(row["uuid"]),
        "either": None if either is None else {**members, kinds[type(either)]: either},
    }
    if new:
        return {**expected, "gone": None}
    # What an old record doesn't have is what the new schema says of it.
    expected["group"] = [{**element, "q": 3} for element in row["group"]]
    return {**expected, "price": Decimal("-0.01"), "where": {"city": "Köln"}, "maybe": None}


def test_avro_of_old_and_new_schemas(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    wild = Wild(1)
    old, new = (AvroSerializer(client, text) for text in (OLD_AVRO, NEW_AVRO))
    rows = [(number, number % 2 == 1) for number in range(ROWS)]
    sent = [(_avro_row(wild, number, new=is_new), is_new) for number, is_new in rows]
    for row, is_new in sent:
        flow.produce_raw(write(flow, new if is_new else old, row))
    asked.requests()
    flow.interval()
    # One request for each schema; it takes one more to know that there is an older one.
    subject = f"/subjects/{flow.topic}-value/versions"
    assert asked.requests() == [f"GET {subject}/latest", f"GET {subject}", f"GET {subject}/1"]
    expected = {row["id"]: plain(_avro_expected(row, new=is_new)) for row, is_new in sent}
    assert {row["id"]: plain(row) for row in flow.all_columns()} == expected

    more = _avro_row(wild, ROWS, new=False)
    flow.produce_raw(write(flow, old, more))
    asked.requests()
    flow.interval()
    assert asked.requests() == [f"GET {subject}/latest"]
    expected[ROWS] = plain(_avro_expected(more, new=False))
    assert {row["id"]: plain(row) for row in flow.all_columns()} == expected


def test_what_cannot_be_read_says_why(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    good = write(flow, AvroSerializer(client, OLD_AVRO), _avro_row(Wild(2), 0, new=False))
    number = int.from_bytes(good[1:5], "big")
    unreadable = f"the value can't be read with its Avro schema ({number})"
    wrong = {
        b"": "shorter than a schema's id",
        good[:4]: "shorter than a schema's id",
        b"{" + good[1:]: "its first byte is 7B, not 00",
        b"\x00\x7f\xff\xff\xff" + good[5:]: "the schema id 2147483647 is not known",
        good[:5]: unreadable,
        good[: len(good) // 2]: unreadable,
        good[:5] + b"\xff" * 40: unreadable,
        # A string that says it is 1 GB long: nothing of that size is ever made room for.
        good[:5] + b"\x00\x02\x80\x80\x80\x80\x08" + good[20:]: unreadable,
    }
    offsets = {flow.produce_raw(value): says for value, says in wrong.items()}
    last = flow.produce_raw(good)
    rows, bad = flow.decoded()
    assert list(rows) == [last]
    assert bad.keys() == offsets.keys()
    assert [bad[offset] for offset, says in offsets.items() if says not in bad[offset]] == []


def test_a_schema_that_does_not_fit_the_newest_makes_bad_records(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    old = write(flow, AvroSerializer(client, _avro_schema(_avro("id", "long"), _avro("v", "int"))), {"id": 1, "v": 2})
    new = write(flow, AvroSerializer(client, _avro_schema(_avro("id", "string"))), {"id": "seven"})
    first, second = flow.produce_raw(old), flow.produce_raw(new)
    rows, bad = flow.decoded()
    assert rows == {second: {"id": "seven"}}
    number = int.from_bytes(old[1:5], "big")
    assert bad == {first: f"schema {number} doesn't fit the table: id is STRING here and BIGINT there"}
    flow.set(source__kafka__starting_offsets={flow.topic: {0: second}})
    flow.interval()
    flow.produce_raw(old)
    run = flow.run()
    job = flow.write(started := flow.start(run))
    assert job.wait() == 1
    with pytest.raises(ActionRequiredError, match=f"schema {number} doesn't fit.*offset=2"):
        flow.commit(started)
    assert flow.abort(run).state == "aborted"


def test_a_subject_of_many_versions(make_flow, asked, client):
    versions = 24
    flow = typed_flow(make_flow, "avro")
    fields = [_avro("id", "long"), *(_avro(f"f{n}", ["null", "string"], default=None) for n in range(versions))]
    expected = {}
    for n in range(versions):
        row = {"id": n, **{f"f{i}": f"{n} {i}" for i in range(n)}}
        offset = flow.produce_raw(write(flow, AvroSerializer(client, _avro_schema(*fields[: n + 1])), row))
        expected[offset] = {**dict.fromkeys(f["name"] for f in fields[:versions]), **row}
    asked.requests()
    rows, bad = flow.decoded()
    assert (rows, bad) == (expected, {})
    assert len(asked.requests()) == versions + 1


# Protobuf -------------------------------------------------------------------------------------------------------------

_PROTO_HEAD = """
syntax = "proto3";
package com.example;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Kind { ZERO = 0; ONE = 1; }
message Other { int64 id = 1; }
message Wild {
  int64 id = 1;
  string select = 2;
  optional int32 maybe = 3;
  repeated int32 numbers = 4;
  map<string, int64> by_name = 5;
  bytes raw = 6;
  Kind kind = 7;
  google.protobuf.Timestamp at = 8;
  oneof either { string text = 9; int32 number = 10; }
  uint32 u32 = 11;
  uint64 u64 = 12;
  double d = 13;
  float f = 14;
  bool flag = 15;
  fixed32 f32 = 16;
  fixed64 f64 = 17;
  sint64 s64 = 18;
  google.protobuf.Int64Value wrapped = 19;
  google.protobuf.Duration took = 20;
  repeated uint64 many = 21;
  Inner inner = 22;
  repeated Inner group = 23;
"""
OLD_PROTO = f"{_PROTO_HEAD} string gone = 30; message Inner {{ string order = 1; }} }}"
NEW_PROTO = f"""{_PROTO_HEAD} message Inner {{ string order = 1; int32 added = 2; optional string also = 3; }}
  int32 extra = 31; repeated string words = 32; optional uint64 perhaps = 33; Inner later = 34;
}}"""


def message_class(text: str, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in registered_files(text, []):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _proto_row(wild: Wild, number: int, *, new: bool) -> dict[str, Any]:
    """The fields of one message; those that are left out are not written."""
    row = {
        "select": wild.text,
        "maybe": lambda: wild.long(31),
        "numbers": lambda: [wild.long(31) for _ in range(wild.randrange(1, 4))],
        "by_name": lambda: {wild.text(): wild.long() for _ in range(3)},
        "raw": wild.some_bytes,
        "kind": lambda: wild.choice([0, 1, 7]),
        "at": wild.moment,
        wild.choice(["text", "number"]): lambda: None,
        "u32": lambda: wild.choice([0, 2**32 - 1, wild.randrange(2**32)]),
        "u64": lambda: wild.choice([0, 2**64 - 1, wild.randrange(2**64)]),
        "d": wild.double,
        "f": wild.single,
        "flag": lambda: wild.choice([True, False]),
        "f32": lambda: wild.choice([2**32 - 1, wild.randrange(2**32)]),
        "f64": lambda: wild.choice([2**64 - 1, wild.randrange(2**64)]),
        "s64": wild.long,
        "wrapped": lambda: wild.choice([0, wild.long()]),
        "took": lambda: (wild.randrange(10**9), wild.randrange(10**9)),
        "many": lambda: [wild.randrange(2**64) for _ in range(wild.randrange(1, 3))],
        "inner": lambda: {"order": wild.text()},
        "group": lambda: [{"order": wild.text()} for _ in range(wild.randrange(1, 3))],
    }
    row["text"] = wild.text
    row["number"] = lambda: wild.long(31)
    row.pop(wild.choice(["text", "number"]))
    if new:
        row |= {
            "extra": lambda: wild.long(31),
            "words": lambda: [wild.text()],
            "perhaps": lambda: wild.randrange(2**64),
        }
    else:
        row["gone"] = wild.text
    return {"id": number, **{name: make() for name, make in row.items() if wild.random() < 0.6}}


def _proto_message(made: Any, row: dict[str, Any]) -> Any:
    special = {"at", "wrapped", "took", "inner", "group", "by_name"}
    message = made(**{name: value for name, value in row.items() if name not in special})
    if "at" in row:
        message.at.FromDatetime(row["at"])
    if "wrapped" in row:
        message.wrapped.value = row["wrapped"]
        message.wrapped.SetInParent()
    if "took" in row:
        message.took.seconds, message.took.nanos = row["took"]
        message.took.SetInParent()
    if "inner" in row:
        message.inner.SetInParent()
        message.inner.order = row["inner"]["order"]
    for element in row.get("group", []):
        message.group.add().order = element["order"]
    message.by_name.update(row.get("by_name", {}))
    return message


def _proto_expected(row: dict[str, Any], *, new: bool) -> dict[str, Any]:
    """Every column: proto3 has no null but where a field has presence."""
    zeros = dict.fromkeys(("u32", "u64", "f32", "f64", "s64"), 0) | {"d": 0.0, "f": 0.0, "flag": False}
    nulls = dict.fromkeys(("maybe", "at", "text", "number", "wrapped", "took", "inner", "gone", "perhaps", "later"))
    empty = {"numbers": [], "by_name": {}, "many": [], "group": [], "words": []}
    expected = {"select": "", "raw": b"", "extra": 0, **zeros, **nulls, **empty, **row}
    added = {"added": 0, "also": None}
    if "inner" in row:
        expected["inner"] = {**row["inner"], **added}
    expected["group"] = [{**element, **added} for element in expected["group"]]
    expected["kind"] = {0: "ZERO", 1: "ONE", 7: "UNKNOWN_ENUM_VALUE_Kind_7"}[row.get("kind", 0)]
    if "at" in row:
        expected["at"] = local(row["at"])
    if "wrapped" in row:
        expected["wrapped"] = {"value": row["wrapped"]}
    if "took" in row:
        expected["took"] = {"seconds": row["took"][0], "nanos": row["took"][1]}
    if not new:
        expected["gone"] = row.get("gone", "")
    return expected


def test_protobuf_of_old_and_new_schemas(make_flow, asked, client):
    flow = typed_flow(make_flow, "protobuf", message="com.example.Wild")
    wild = Wild(3)
    classes = [message_class(text, "com.example.Wild") for text in (OLD_PROTO, NEW_PROTO)]
    old, new = (ProtobufSerializer(made, client, {"use.deprecated.format": False}) for made in classes)
    sent = []
    for number in range(ROWS):
        is_new = number % 2 == 1
        row = _proto_row(wild, number, new=is_new)
        message = _proto_message(classes[is_new], row)
        flow.produce_raw(write(flow, new if is_new else old, message))
        sent.append((row, is_new))
    asked.requests()
    flow.interval()
    assert len(asked.requests()) == 3
    expected = {row["id"]: plain(_proto_expected(row, new=is_new)) for row, is_new in sent}
    found = {row["id"]: plain(row) for row in flow.all_columns()}
    assert found == expected

    # Another message of the schema, half a message, and text that isn't UTF-8.
    other = message_class(NEW_PROTO, "com.example.Other")
    another = write(flow, ProtobufSerializer(other, client, {"use.deprecated.format": False}), other(id=5))
    good = write(flow, new, _proto_message(classes[1], {"id": 1, "select": "abc"}))
    offsets = {
        flow.produce_raw(another): "another message of schema",
        flow.produce_raw(good[:-1]): "can't be read with its Protobuf schema",
        flow.produce_raw(good.replace(b"abc", b"a\xffc")): "can't be read with its Protobuf schema",
    }
    rows, bad = flow.decoded()
    assert rows == {}
    assert [bad[offset] for offset, says in offsets.items() if says not in bad[offset]] == []
    assert len(bad) == len(offsets)
    # A file's first message is spelled in two ways.
    flow.set(source__kafka__value={"converter": "protobuf", "registry": REGISTRY, "message": "com.example.Other"})
    longer = flow.produce_raw(another[:5] + b"\x02\x00" + another[6:])
    rows, bad = flow.decoded()
    assert {offset: row["id"] for offset, row in rows.items()} == {ROWS: 5, longer: 5}


def test_schemas_that_refer_to_others(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    place = {"type": "record", "name": "Place", "namespace": "com.example", "fields": [_avro("city", "string")]}
    subject = f"{flow.topic}-place"
    client.register_schema(subject, Schema(json.dumps(place), "AVRO"))
    text = _avro_schema(_avro("home", "com.example.Place"), _avro("work", ["null", "com.example.Place"]))
    whole = Schema(text, "AVRO", [SchemaReference("com.example.Place", subject, 1)])
    row = {"home": {"city": "Köln"}, "work": None}
    first = flow.produce_raw(write(flow, AvroSerializer(client, whole), row))
    assert flow.decoded() == ({first: row}, {})

    flow = typed_flow(make_flow, "protobuf")
    inner = 'syntax = "proto3"; package com.example; message Place { string city = 1; uint64 size = 2; }'
    outer = 'syntax = "proto3"; package com.example; import "place.proto"; message Person { repeated Place at = 1; }'
    pool = descriptor_pool.DescriptorPool()
    for file in registered_files(outer, [("place.proto", inner)]):
        pool.Add(file)
    person = message_factory.GetMessageClass(pool.FindMessageTypeByName("com.example.Person"))
    serializer = ProtobufSerializer(person, client, {"use.deprecated.format": False})
    message = person()
    message.at.add(city="Bonn", size=2**64 - 1)
    first = flow.produce_raw(write(flow, serializer, message))
    assert flow.decoded() == ({first: {"at": [{"city": "Bonn", "size": 2**64 - 1}]}}, {})


# JSON with a schema ---------------------------------------------------------------------------------------------------

_JSON_OLD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Wild",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "select": {"type": ["string", "null"]},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
        "small": {"type": "integer", "connect.type": "int16"},
        "born": {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"},
        "seen": {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp", "connect.type": "int64"},
        "cost": {
            "type": "string",
            "title": "org.apache.kafka.connect.data.Decimal",
            "connect.type": "bytes",
            "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
        },
        "place": {"$ref": "#/definitions/place"},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": {},
    },
    "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
_JSON_NEW = {
    **_JSON_OLD,
    "properties": {
        "places": {"type": "array", "items": {"$ref": "#/definitions/place"}},
        **{name: kind for name, kind in _JSON_OLD["properties"].items() if name != "price"},  # type: ignore[attr-defined]
        "small": {"type": "integer"},
    },
    "definitions": {
        "place": {"type": "object", "properties": {"zip": {"type": "string"}, "city": {"type": "string"}}},
    },
}


def unscaled(number: int) -> str:
    """A decimal's unscaled value as Connect writes it."""
    return b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def test_json_with_schemas_of_a_registry(make_flow, asked, client):
    flow = typed_flow(make_flow, "json_schema")
    old, new = (JSONSerializer(json.dumps(text), client) for text in (_JSON_OLD, _JSON_NEW))
    row = {
        "id": 1, "select": 'ä"\\🦀', "price": 1.5, "at": "2020-02-29T12:00:00.123456+02:00", "day": "1969-12-31",
        "small": -7, "born": -1, "seen": 1, "cost": unscaled(-12345), "place": {"city": "Köln"}, "tags": {"a": 2**40},
        "anything": {"b": [1, None]},
    }  # fmt: skip
    expected = {
        "id": 1, "select": 'ä"\\🦀', "price": 1.5, "at": local(datetime(2020, 2, 29, 10, 0, 0, 123456, UTC)),
        "day": date(1969, 12, 31), "small": -7, "born": date(1969, 12, 31),
        "seen": local(datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)), "cost": Decimal("-123.45"),
        "place": {"city": "Köln", "zip": None}, "tags": {"a": 2**40}, "anything": '{"b":[1,null]}', "places": None,
    }  # fmt: skip
    flow.produce_raw(write(flow, old, row))
    newer = {**row, "id": 2, "small": 2**40, "day": None, "places": [{"city": "Bonn", "zip": "5"}]}
    del newer["price"]
    flow.produce_raw(write(flow, new, newer))
    flow.interval()
    newer = {**expected, "id": 2, "small": 2**40, "day": None, "price": None}
    newer |= {"places": [{"city": "Bonn", "zip": "5"}]}
    assert {row["id"]: row for row in flow.all_columns()} == {1: expected, 2: newer}
    good = write(flow, old, row)
    wrong = {
        good[:-3]: "can't be read with its JSON schema",
        good[:5] + b"[1]": "can't be read with its JSON schema",
        good[:5] + b'{"id": "seven"}': "can't be read with its JSON schema",
        b'{"id": 1}': "its first byte is 7B, not 00",
    }
    offsets = {flow.produce_raw(value): says for value, says in wrong.items()}
    rows, bad = flow.decoded()
    assert rows == {}
    assert {offset: says for offset, says in offsets.items() if says not in bad[offset]} == {}


def test_connects_envelope(make_flow):
    ddl = "id BIGINT, born DATE, seen TIMESTAMP, cost DECIMAL(12,2), name STRING, inner STRUCT<due: DATE>"
    flow = typed_flow(make_flow, "json", ddl, options={"schemas.enable": True})
    data = "org.apache.kafka.connect.data."
    decimal = {"type": "bytes", "field": "cost", "name": f"{data}Decimal", "parameters": {"scale": "2"}}
    due = {"type": "int32", "field": "due", "name": f"{data}Date"}
    schema = {
        "type": "struct",
        "fields": [
            {"type": "int64", "field": "id"},
            {"type": "int32", "field": "born", "name": f"{data}Date"},
            {"type": "int64", "field": "seen", "name": f"{data}Timestamp"},
            decimal,
            {"type": "struct", "field": "inner", "fields": [due]},
        ],
    }
    payload = {"id": 1, "born": -1, "seen": 1, "cost": unscaled(-12345), "name": "x", "inner": {"due": 1}}
    seen = local(datetime(1970, 1, 1, 0, 0, 0, 1000, UTC))
    expected = {
        "id": 1, "born": date(1969, 12, 31), "seen": seen, "cost": Decimal("-123.45"), "name": "x",
        "inner": {"due": date(1970, 1, 2)},
    }  # fmt: skip

    def send(payload: Any, schema: Any = schema) -> int:
        return flow.produce_raw(json.dumps({"schema": schema, "payload": payload}).encode())

    first = send(payload)
    # Without a schema the payload's values are what they look like.
    plainly = {**payload, "born": "1969-12-31", "seen": "1970-01-01T00:00:00.001Z", "cost": "-123.45"}
    second = send({**plainly, "inner": None}, schema=None)
    other_scale = {**decimal, "parameters": {"scale": "3"}}
    third = send(payload, schema={**schema, "fields": [*schema["fields"][:3], other_scale]})
    fourth = send({**payload, "born": "yesterday"})
    fifth = flow.produce_raw(b'{"id": 1}')
    rows, bad = flow.decoded()
    assert rows == {first: expected, second: {**expected, "inner": None}}
    assert "the record's schema says" in bad[third]
    assert "the record's schema says" in bad[fourth]
    assert "no payload" in bad[fifth]


# Formats without a schema registry ------------------------------------------------------------------------------------


def test_key_and_value_apart_with_parts_of_the_record(make_flow, asked, client):
    flow = typed_flow(make_flow, "csv", schema="id INT, day DATE, name STRING", options={"sep": ";"})
    flow.set(
        source__kafka__key={"converter": "avro", "registry": REGISTRY, "as": "who"},
        source__kafka__columns={
            "at": "timestamp", "kind_of_time": "timestamp_type", "came_from": "topic", "part": "partition",
            "place": "offset", "hdr": "headers", "raw_key": "key",
        },
    )  # fmt: skip
    serializer = AvroSerializer(client, json.dumps({"type": "record", "name": "K", "fields": [_avro("order", "long")]}))
    key = write(flow, serializer, {"order": 2**40}, MessageField.KEY)
    sender = Producer({"bootstrap.servers": flow.bootstrap, "log_level": 0})
    headers = [("trace", b"\x00\x01"), ("trace", None)]
    sender.produce(flow.topic, b'7;2020-01-02;"a;b"', key, headers=headers, timestamp=1_577_934_245_678)
    assert sender.flush(30) == 0
    flow.produce_raw(b"8;;", key=None)
    flow.interval()
    row, without_key = sorted((plain(r) for r in flow.all_columns()), key=lambda r: r["place"])
    assert row == {
        "id": 7, "day": date(2020, 1, 2), "name": "a;b", "who": {"order": 2**40},
        "at": local(datetime(2020, 1, 2, 3, 4, 5, 678000, UTC)), "kind_of_time": 0, "came_from": flow.topic, "part": 0,
        "place": 0, "hdr": [{"key": "trace", "value": b"\x00\x01"}, {"key": "trace", "value": None}], "raw_key": key,
    }  # fmt: skip
    assert (without_key["id"], without_key["who"], without_key["raw_key"]) == (8, None, None)
    wrong = {
        (b"9;2020-01-02", key): "not a line of 3 values",
        (b"nine;2020-01-02;x", key): "one is not of its column's type",
        (b"9;2020-01-02;\xff", key): "the value is not UTF-8",
        (b"9;2020-01-02;x", key[:5]): "key: the key can't be read with its Avro schema",
        (b"9;2020-01-02;x", b"x"): "key: the key is shorter",
    }
    offsets = {flow.produce_raw(value, key=given): says for (value, given), says in wrong.items()}
    rows, bad = flow.decoded()
    assert rows == {}
    assert {offset: (says, bad[offset]) for offset, says in offsets.items() if says not in bad[offset]} == {}


def test_text_and_bytes_and_a_converter_of_ones_own(make_flow):
    flow = typed_flow(make_flow, "string", **{"as": "line"})
    flow.set(source__kafka__key={"converter": "bytes", "as": "key"})
    first = flow.produce_raw("ä🦀".encode(), key=b"\xff")
    second = flow.produce_raw(b"\xff", key=b"k")
    third = flow.produce_raw(b"", key=None)
    rows, bad = flow.decoded()
    assert plain(rows) == {first: {"line": "ä🦀", "key": b"\xff"}, third: {"line": "", "key": None}}
    assert bad == {second: "the value is not UTF-8"}
    own = {"converter": "fixed_width:FixedWidth", "options": {"widths": "3,5"}}
    flow.set(source__kafka__key=None, source__kafka__value={**own, "schema": "id INT, name STRING"})
    flow.set(source__kafka__starting_offsets={flow.topic: {0: third}})
    fourth = flow.produce_raw(b"042Mark ")
    rows, bad = flow.decoded()
    assert rows == {fourth: {"id": 42, "name": "Mark"}}
    assert bad == {third: "the value is not 8 bytes long"}


def test_schemas_from_files(make_flow):
    flow = typed_flow(make_flow, "avro", schema_file="wild.avsc")
    (flow.folder / "wild.avsc").write_text(OLD_AVRO)
    import fastavro

    wild = Wild(5)
    sent = [_avro_row(wild, number, new=False) for number in range(5)]
    for row in sent:
        flow.produce_raw(_avro_bytes(fastavro, json.loads(OLD_AVRO), row))
    broken = flow.produce_raw(b"\x00")
    rows, bad = flow.decoded()
    expected = [plain({**_avro_expected(row, new=True), "gone": row["gone"]}) for row in sent]
    assert [plain(row) for row in rows.values()] == expected
    assert bad == {broken: "the value can't be read with its Avro schema"}

    # A record whose fields are all null is a record.
    (flow.folder / "nulls.avsc").write_text(_avro_schema(*(_avro(n, ["null", "long"]) for n in "ab")))
    flow.set(source__kafka__value={"converter": "avro", "schema_file": "nulls.avsc"})
    flow.set(source__kafka__starting_offsets={flow.topic: {0: broken}})
    nulls = flow.produce_raw(b"\x00\x00")
    rows, bad = flow.decoded()
    assert rows == {nulls: {"a": None, "b": None}}
    assert list(bad) == [broken]

    flow = typed_flow(make_flow, "protobuf", schema_file="wild.desc", message="com.example.Wild")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    (flow.folder / "wild.desc").write_bytes(FileDescriptorSet(file=registered_files(NEW_PROTO, [])).SerializeToString())
    made = message_class(NEW_PROTO, "com.example.Wild")
    values = [_proto_row(wild, number, new=True) for number in range(5)]
    for row in values:
        flow.produce_raw(_proto_message(made, row).SerializeToString())
    rows, bad = flow.decoded()
    expected = [{k: v for k, v in plain(_proto_expected(row, new=True)).items() if k != "gone"} for row in values]
    assert ([plain(row) for row in rows.values()], bad) == (expected, {})


def _avro_bytes(fastavro: Any, schema: Any, row: Any) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return buffer.getvalue()


# What START refuses ---------------------------------------------------------------------------------------------------


def test_schemas_that_cannot_be_used_are_told_at_start(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    flow.produce_raw(b"x")
    tree = json.dumps({"type": "record", "name": "T", "fields": [_avro("next", ["null", "T"])]})
    subjects = {
        "tree": Schema(tree, "AVRO"),
        "text": Schema('"string"', "AVRO"),
        "json": Schema(json.dumps(_JSON_OLD), "JSON"),
    }
    subjects["case"] = Schema(_avro_schema(_avro("id", "long"), _avro("Id", "string")), "AVRO")
    subjects["proto"] = Schema('syntax = "proto3"; package p; message M { int32 a = 1; }', "PROTOBUF")
    names = {name: f"{flow.topic}-{name}" for name in subjects}
    for name, schema in subjects.items():
        client.register_schema(names[name], schema)
    cases = [
        ({"converter": "avro"}, f"has none of the subjects.*subjects={flow.topic}-value"),
        ({"converter": "avro", "subject": names["tree"]}, "A schema of the registry can't be used.*recursive"),
        ({"converter": "avro", "subject": names["text"]}, r"one value \(STRING\).*source.kafka.value.as"),
        ({"converter": "avro", "subject": names["json"]}, "another kind under this subject: JSON.*value.converter"),
        ({"converter": "avro", "subject": names["case"]}, "differ in case only.*: id and Id"),
        ({"converter": "protobuf", "subject": names["proto"], "message": "p.N"}, "no message p.N; there are p.M"),
    ]
    for value, says in cases:
        flow.set(source__kafka__value={**value, "registry": REGISTRY})
        with pytest.raises(ActionRequiredError, match=says) as caught:
            flow.start()
        assert caught.value.next_step
    assert flow.messages() == []


# The registry is not there --------------------------------------------------------------------------------------------


def test_only_start_needs_the_registry(make_flow, home, tmp_path, monkeypatch):
    flow = typed_flow(make_flow, "avro")
    schema = _avro_schema(_avro("id", "long"))
    with LocalRegistry(ensure_registry(home), tmp_path) as registry:
        monkeypatch.setenv(VARIABLE, registry.url)
        with SchemaRegistryClient({"url": registry.url}) as client:
            value = write(flow, AvroSerializer(client, schema), {"id": 7})
        flow.produce_raw(value)
        run = flow.run()
        started = flow.start(run)
    flow.write_all(started)
    flow.commit(started)
    assert flow.all_columns() == [{"id": 7}]
    flow.produce_raw(value)
    with pytest.raises(RetryableError, match=r"does not answer.*schema_registry_default"):
        flow.start()
    assert isinstance(flow.messages()[-1], AckCommit)  # nothing was opened
