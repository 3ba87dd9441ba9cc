"""Records are rows just as the JSON Schema serializer or Kafka Connect wrote them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry.json_schema import JSONSerializer

from sluice.errors import ActionRequiredError

from ..thorough import also
from .converters import local, typed_flow, write
from .json_schema_records import JSON_NEW, JSON_OLD, unscaled


def test_json_with_schemas_of_a_registry(make_flow, asked, client):
    flow = typed_flow(make_flow, "json_schema")
    old, new = (JSONSerializer(json.dumps(text), client) for text in (JSON_OLD, JSON_NEW))
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
    sixth = flow.produce_raw(b'{"schema": null, "payload": {"id": 2, "name": 1.10}}')
    rows, bad = flow.decoded()
    written = {**dict.fromkeys(expected), "id": 2, "name": "1.10"}
    assert rows == {first: expected, second: {**expected, "inner": None}, sixth: written}
    assert "the record's schema says" in bad[third]
    assert "the record's schema says" in bad[fourth]
    assert "no payload" in bad[fifth]


def test_fields_that_no_column_has_are_kept_as_they_were_written(make_flow):
    """Numbers digit by digit, nested ones too; null isn't missing; case counts; a field that is there twice is bad."""
    flow = typed_flow(
        make_flow, "json", "id BIGINT, name STRING, others MAP<STRING, STRING>", options={"rest": "others"}
    )
    kept = {
        rb'{"id":1,"n":1.10,"e":1E400,"i":-0,"d":12345678901234567890123.450,"t":"1.10","b":true,"z":null}': {
            "n": "1.10", "e": "1E400", "i": "-0", "d": "12345678901234567890123.450", "t": "1.10", "b": "true",
            "z": None,
        },
        rb'{ "id" : 2 , "a" : [ 1.0, {"x" : 1e999, "y 5":"\"7.0\"", "z":"-3\\"} ], "s":"say \"1.10\", 5", "":"" }': {
            "a": r'[1.0,{"x":1e999,"y 5":"\"7.0\"","z":"-3\\"}]', "s": 'say "1.10", 5', "": "",
        },
        b'{"ID":3,"id":3,"others":{"id":[3.0]},"Id":null,"\xc3\xa9":"\\u00e9 1.0"}': {
            "ID": "3", "others": '{"id":[3.0]}', "Id": None, "é": "é 1.0",
        },
        b'{"id":4}': {},
        b'{"id":10,"name":1.10,"n":1.10}': {"n": "1.10"},
        b'{"shape":"unknown","long":"' + b"x1.0 \\\"" * 20_000 + b'","n":' + b"9" * 900 + b"}": {
            "shape": "unknown", "long": 'x1.0 "' * 20_000, "n": "9" * 900,
        },
    }  # fmt: skip
    offsets = {flow.produce_raw(value): others for value, others in kept.items()}
    wrong = {
        b'{"id":5,"a":1,"a":1}': "a map has a key twice",
        b'{"id":6,"a":1.0.0}': "is not JSON",
        b'{"id":7,"a":1}{"b":2}': "has more after its JSON object",
        b'{"id":8,"a":"\\ud800"}': "surrogate",
        b'{"id":9,"a":{"b":[1,}}': "is not JSON",
    }
    says = {flow.produce_raw(value): words for value, words in wrong.items()}
    rows, bad = flow.decoded()
    assert {offset: row["others"] for offset, row in rows.items()} == offsets
    assert [row["name"] for row in rows.values() if row["id"] == 10] == ["1.10"]
    assert {offset: words for offset, words in says.items() if words not in bad.get(offset, "")} == {}, bad
    flow.set(sink__hudi__schema="id BIGINT, name STRING, others MAP<STRING, BIGINT>")
    with pytest.raises(ActionRequiredError, match="`others MAP<STRING, STRING>`"):
        flow.start()


@pytest.mark.parametrize("options", [{}, *also({"schemas.enable": True})])
def test_a_table_may_have_nothing_of_an_object_but_its_record_s_place(make_flow, options):
    converter = {"converter": "json", "options": options}
    flow = make_flow(
        partitions=1, sink__hudi__schema="n BIGINT", sink__hudi__partition_fields=None, errors__tolerance="all",
        source__kafka__columns={"n": "offset"}, source__kafka__value=converter, source__kafka__key=converter,
    )  # fmt: skip
    sent = json.dumps({"payload": {"id": 1}} if options else {"id": 1}).encode()
    flow.produce_keyed([(sent, sent), (sent, b"{"), (b"{", sent)])
    rows, bad = flow.decoded()
    assert rows == {0: {"n": 0}}
    assert bad.keys() == {1, 2}
