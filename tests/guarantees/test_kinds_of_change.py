"""Each kind of change in each kind of sink, by each converter: what the table holds then, or what is refused.

A pipeline of each cell gets the same events. The table of expectations is that of docs/guarantees/kinds-of-change.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf.json_format import ParseDict

from sluice.errors import ActionRequiredError
from sluice.pipeline.load import PipelineFileError

from ..thorough import some_of
from .debezium import PROTO_EVENT, PROTO_KEY, avro_envelope, event, postgresql
from .harness import Flow, kafka_settings
from .harness.databases import PostgresDatabase
from .harness.flow import invoke
from .harness.jdbc import jdbc_table
from .harness.topics import Topics
from .protobuf_records import message_class

COLUMNS = "id BIGINT NOT NULL, v STRING, p STRING"
PLACEHOLDER = "__debezium_unavailable_value"
SETTINGS: dict[str, Any] = {"changes": {"format": "debezium"}, "errors__tolerance": "all"}
HUDI = {
    "sink__hudi__operation": "upsert", "sink__hudi__record_key": "id", "sink__hudi__partition_fields": None,
    "sink__hudi__schema": COLUMNS,
}  # fmt: skip
JDBC = {
    "schema": COLUMNS, "insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", "delete_enabled": True,
}  # fmt: skip
TOPIC = {"tombstones": True, "key_fields": "id", "schema": COLUMNS}
Event = dict[str, Any]
Encodes = Callable[[int, Event | None], tuple[bytes, bytes | None]]


@dataclass(frozen=True)
class Kept:
    """A pipeline of a cell, and the rows that its reader finds, by id."""

    flow: Flow
    rows: Callable[[], dict[int, tuple[str | None, str | None]]]


# Converters --------------------------------------------------------------------------------------------------------


def as_json(_: Any, __: str) -> Encodes:
    return lambda number, told: (
        json.dumps({"id": number}).encode(),
        None if told is None else json.dumps(told).encode(),
    )


def as_avro(client: Any, topic: str) -> Encodes:
    number = {"name": "id", "type": "long"}
    texts = [{"name": name, "type": ["null", "string"], "default": None} for name in ("v", "p")]
    key = {"type": "record", "name": "Key", "namespace": "shop.public.orders", "fields": [number]}
    keys, values = AvroSerializer(client, json.dumps(key)), AvroSerializer(client, avro_envelope(number, *texts))
    of_key, of_value = (SerializationContext(topic, part) for part in ("key", "value"))
    return lambda number, told: (keys({"id": number}, of_key), None if told is None else values(told, of_value))


def as_protobuf(client: Any, topic: str) -> Encodes:
    envelope, key = message_class(PROTO_EVENT, "shop.public.orders.Envelope"), message_class(
        PROTO_KEY, "shop.public.orders.Key"
    )  # fmt: skip
    keys, values = (ProtobufSerializer(one, client, {"use.deprecated.format": False}) for one in (key, envelope))
    of_key, of_value = (SerializationContext(topic, part) for part in ("key", "value"))

    def encodes(number: int, told: Event | None) -> tuple[bytes, bytes | None]:
        made = None
        if told is not None:
            there = {name: value for name, value in told.items() if value is not None}
            made = values(ParseDict(there, envelope(), ignore_unknown_fields=True), of_value)
        return keys(key(id=number), of_key), made

    return encodes


REGISTERED = {"registry": "judge"}
CONVERTERS: dict[str, tuple[dict[str, Any], Callable[[Any, str], Encodes]]] = {
    "json": ({"converter": "json"}, as_json),
    "avro": ({"converter": "avro", **REGISTERED}, as_avro),
    "protobuf": ({"converter": "protobuf", **REGISTERED}, as_protobuf),
}


# Sinks -------------------------------------------------------------------------------------------------------------


def in_hudi(request: pytest.FixtureRequest, settings: dict[str, Any]) -> Kept:
    flow = request.getfixturevalue("make_flow")(1, **HUDI, **settings)
    return Kept(flow, lambda: {number: (v, p) for number, v, p in flow.read("id", "v", "p")})


def in_database(request: pytest.FixtureRequest, settings: dict[str, Any]) -> Kept:
    database: PostgresDatabase = request.getfixturevalue("postgresql")
    for variable, value in database.environment().items():
        request.getfixturevalue("monkeypatch").setenv(variable, value)
    flow = request.getfixturevalue("make_flow")(1, **settings)
    table = jdbc_table(flow, database, {**JDBC, "auto_create": True})
    return Kept(flow, lambda: {n: (v, p) for n, v, p in database.query(f'SELECT id, v, p FROM "{table.name}"')})


def in_topic(request: pytest.FixtureRequest, settings: dict[str, Any]) -> Kept:
    topics: Topics = request.getfixturevalue("make_topics")(1, section=TOPIC, **settings)

    def rows() -> dict[int, tuple[str | None, str | None]]:
        last = {json.loads(one.key or b"")["id"]: one.value for one in topics.found()}
        read = {number: json.loads(value) for number, value in last.items() if value is not None}
        return {number: (row["v"], row["p"]) for number, row in read.items()}

    return Kept(topics.flow, rows)


SINKS = {"hudi": in_hudi, "jdbc": in_database, "kafka": in_topic}


def row(number: int, v: str, p: str = "north") -> dict[str, Any]:
    return {"id": number, "v": v, "p": p}


FIRST = [row(number, v) for number, v in enumerate(("one", "two", "three", "four"), 1)]
_LATE = {"hudi": ("two again", "north"), "jdbc": ("two again", "north"), "kafka": ("late", "north")}
"""An older version of a row that comes later. A topic has all that came, in its order."""
_LATE_OF_DELETED = {"hudi": None, "jdbc": ("late", "north"), "kafka": ("late", "north")}
"""The same where the newer change was a delete: databases and topics don't keep the place of a delete."""
_UNLOGGED = {"hudi": ("one", "south"), "jdbc": ("one", "north"), "kafka": ("one", "north")}
"""An update without the value of one column: all of it, or none, since the event is a bad record."""
_ALL = list(product(CONVERTERS, SINKS))
_TRIED = [("json", "kafka"), ("avro", "jdbc"), ("protobuf", "hudi")]
"""Each converter and each sink once."""


@pytest.mark.parametrize(("converter", "sink"), some_of(_ALL, _TRIED))
def test_a_change_comes_to_what_the_table_says(request, asked, client, bootstrap, monkeypatch, converter, sink):
    settings, encoder = CONVERTERS[converter]
    kept = SINKS[sink](
        request, {**deepcopy(SETTINGS), "source__kafka__value": settings, "source__kafka__key": settings}
    )
    flow, encodes = kept.flow, encoder(client, kept.flow.topic)
    monkeypatch.setenv("SLUICE_KAFKA_SOURCE", kafka_settings(bootstrap).to_environment("source")["SLUICE_KAFKA_SOURCE"])

    def send(*events: tuple[int, Event | None]) -> None:
        flow.produce_keyed([encodes(number, told) for number, told in events])

    send(
        *((row["id"], event("c", postgresql(100 + row["id"]), None, row)) for row in FIRST),
        (1, event("u", postgresql(210), None, row(1, PLACEHOLDER, "south"))),
        (2, event("u", postgresql(220), row(2, "two"), row(2, "two again"))),
        (3, event("d", postgresql(230), row(3, "three"), None)),
        (3, None),
        (4, event("u", postgresql(240), row(4, "four"), row(4, PLACEHOLDER, "south"))),  # REPLICA IDENTITY FULL
        (5, {**event("c", postgresql(250), None, row(5, "five")), "op": "?"}),
    )  # fmt: skip
    flow.interval()
    expected = {1: _UNLOGGED[sink], 2: ("two again", "north"), 4: ("four", "south")}
    assert kept.rows() == expected
    reasons = {group["reason"]: group["records"] for group in said(flow, "list")["groups"]}
    unlogged = {r: n for r, n in reasons.items() if "the database did not log the value of v" in r}
    assert sum(unlogged.values()) == (0 if sink == "hudi" else 1)
    assert sum(reasons.values()) == (1 if sink == "hudi" else 2)

    send(
        (2, event("u", postgresql(205), None, row(2, "late"))), (3, event("u", postgresql(206), None, row(3, "late"))),
    )  # fmt: skip
    flow.interval()
    late = {2: _LATE[sink]} | ({3: _LATE_OF_DELETED[sink]} if _LATE_OF_DELETED[sink] else {})
    assert kept.rows() == expected | late

    if sink == "hudi":
        assert len(said(flow, "redrive", "--dry-run")["sent"]) == 1
    else:
        with pytest.raises(ActionRequiredError, match="doesn't keep the positions of all changes") as caught:
            said(flow, "redrive")
        assert "replay" not in caught.value.next_step  # which this sink refuses as well
        assert sum(one["records"] for one in said(flow, "redrive", "--as-newest", "--dry-run")["sent"]) == 2
        with pytest.raises(PipelineFileError, match="`truncate: apply` takes all rows away"):
            _ = flow.set(changes__truncate="apply").pipeline


def said(flow: Flow, *arguments: str) -> Any:
    done = invoke("quarantine", arguments[0], str(flow.file), *arguments[1:], "--json")
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)
