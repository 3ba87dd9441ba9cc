"""Keys and values apart, formats without a registry, and what START says of schemas that it can't use or get."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.messages import AckCommit
from sluice.schemas.registry.config import VARIABLE
from sluice.schemas.registry.proto_files import registered_files

from ..registry import LocalRegistry, ensure_registry
from .avro_records import OLD_AVRO, avro, avro_bytes, avro_expected, avro_row, avro_schema
from .converters import REGISTRY, Wild, local, plain, typed_flow, write
from .json_schema_records import JSON_OLD
from .protobuf_records import NEW_PROTO, message_class, proto_expected, proto_message, proto_row

# Formats without a schema registry ------------------------------------------------------------------------------------


def test_key_and_value_apart_with_parts_of_the_record(make_flow, asked, client):
    flow = typed_flow(make_flow, "csv", schema="id INT, day DATE, name STRING", options={"sep": ";"})
    flow.set(
        source__kafka__key={"converter": "avro", "registry": REGISTRY, "as": "who"},
        source__kafka__columns={
            "at": "timestamp", "kind_of_time": "timestamp_type", "came_from": "topic", "part": "partition",
            "place": "offset", "hdr": "headers", "raw_key": "key",
            "raw": "value",
        },
    )  # fmt: skip
    serializer = AvroSerializer(client, json.dumps({"type": "record", "name": "K", "fields": [avro("order", "long")]}))
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
        "raw": b'7;2020-01-02;"a;b"',
    }  # fmt: skip
    assert [without_key[name] for name in ("id", "who", "raw_key", "raw")] == [8, None, None, b"8;;"]
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


def numbers(flow, place):
    """Kafka's serializers of numbers, whose width is all that tells them apart."""
    flow.set(
        source__kafka__key={"converter": "double", "as": "key"},
        source__kafka__value={"converter": "integer", "as": "n"},
    )
    flow.set(source__kafka__starting_offsets={flow.topic: {0: place + 1}})
    least, most = (flow.produce_raw(struct.pack(">i", n), key=struct.pack(">d", n / 3)) for n in (-(2**31), 2**31 - 1))
    short = flow.produce_raw(b"\x00\x01", key=None)
    rows, bad = flow.decoded()
    assert rows == {n: {"n": value, "key": value / 3} for n, value in ((least, -(2**31)), (most, 2**31 - 1))}
    assert bad == {short: "the value has 2 bytes, and 4 are needed"}


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
    numbers(flow, fourth)


def test_schemas_from_files(make_flow):
    flow = typed_flow(make_flow, "avro", schema_file="wild.avsc")
    (flow.folder / "wild.avsc").write_text(OLD_AVRO)
    import fastavro

    wild = Wild(5)
    sent = [avro_row(wild, number, new=False) for number in range(5)]
    for row in sent:
        flow.produce_raw(avro_bytes(fastavro, json.loads(OLD_AVRO), row))
    broken = flow.produce_raw(b"\x00")
    rows, bad = flow.decoded()
    expected = [plain({**avro_expected(row, new=True), "gone": row["gone"]}) for row in sent]
    assert [plain(row) for row in rows.values()] == expected
    assert bad == {broken: "the value can't be read with its Avro schema"}

    # A record whose fields are all null is a record.
    (flow.folder / "nulls.avsc").write_text(avro_schema(*(avro(n, ["null", "long"]) for n in "ab")))
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
    values = [proto_row(wild, number, new=True) for number in range(5)]
    for row in values:
        flow.produce_raw(proto_message(made, row).SerializeToString())
    rows, bad = flow.decoded()
    expected = [{k: v for k, v in plain(proto_expected(row, new=True)).items() if k != "gone"} for row in values]
    assert ([plain(row) for row in rows.values()], bad) == (expected, {})


# What START refuses ---------------------------------------------------------------------------------------------------


def test_schemas_that_cannot_be_used_are_told_at_start(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    flow.produce_raw(b"x")
    tree = json.dumps({"type": "record", "name": "T", "fields": [avro("next", ["null", "T"])]})
    subjects = {
        "tree": Schema(tree, "AVRO"),
        "text": Schema('"string"', "AVRO"),
        "json": Schema(json.dumps(JSON_OLD), "JSON"),
    }
    subjects["case"] = Schema(avro_schema(avro("id", "long"), avro("Id", "string")), "AVRO")
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
    schema = avro_schema(avro("id", "long"))
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
