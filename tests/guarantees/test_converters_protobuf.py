"""Records are rows just as the Protobuf serializer wrote them, of old and new schemas."""

from __future__ import annotations

import json

from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.protobuf import descriptor_pool, message_factory

from sluice.schemas.registry.proto_files import registered_files

from .avro_records import avro, avro_schema
from .converters import REGISTRY, ROWS, Wild, plain, typed_flow, write
from .protobuf_records import NEW_PROTO, OLD_PROTO, message_class, proto_expected, proto_message, proto_row


def test_protobuf_of_old_and_new_schemas(make_flow, asked, client):
    flow = typed_flow(make_flow, "protobuf", message="com.example.Wild")
    wild = Wild(3)
    classes = [message_class(text, "com.example.Wild") for text in (OLD_PROTO, NEW_PROTO)]
    old, new = (ProtobufSerializer(made, client, {"use.deprecated.format": False}) for made in classes)
    sent = []
    for number in range(ROWS):
        is_new = number % 2 == 1
        row = proto_row(wild, number, new=is_new)
        message = proto_message(classes[is_new], row)
        flow.produce_raw(write(flow, new if is_new else old, message))
        sent.append((row, is_new))
    asked.requests()
    flow.interval()
    assert len(asked.requests()) == 3
    expected = {row["id"]: plain(proto_expected(row, new=is_new)) for row, is_new in sent}
    found = {row["id"]: plain(row) for row in flow.all_columns()}
    assert found == expected

    # Another message of the schema, half a message, and text that isn't UTF-8.
    other = message_class(NEW_PROTO, "com.example.Other")
    another = write(flow, ProtobufSerializer(other, client, {"use.deprecated.format": False}), other(id=5))
    good = write(flow, new, proto_message(classes[1], {"id": 1, "select": "abc"}))
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
    place = {"type": "record", "name": "Place", "namespace": "com.example", "fields": [avro("city", "string")]}
    subject = f"{flow.topic}-place"
    client.register_schema(subject, Schema(json.dumps(place), "AVRO"))
    text = avro_schema(avro("home", "com.example.Place"), avro("work", ["null", "com.example.Place"]))
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
