"""Clusters with schema registries of their own, whose ids overlap: an id means what its record's cluster says."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from sluice.errors import ActionRequiredError, RetryableError
from sluice.local.process import free_port
from sluice.protocol.messages import StartCommit
from sluice.schemas.registry.config import VARIABLE

from ..registry import LocalRegistry, ensure_registry
from ..thorough import also
from .avro_records import avro, avro_schema
from .harness.flow import invoke
from .harness.streams import Streams, two_clusters
from .quarantined import TOLERANT, quarantine

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
KINDS = {"avro": "AVRO", "json_schema": "JSON", "protobuf": "PROTOBUF"}
Row = dict[str, Any]
_NUMBERS = count()


@pytest.fixture(scope="module")
def west_registry(home, tmp_path_factory):
    """A second registry, which counts its ids from the beginning, too."""
    with LocalRegistry(ensure_registry(home), tmp_path_factory.mktemp("west-registry")) as running:
        yield running


class Registries:
    """The registries of both clusters, and records with ids of theirs."""

    def __init__(self, east: LocalRegistry, west: LocalRegistry) -> None:
        self.of = {"east": east, "west": west}
        self.clients = {name: SchemaRegistryClient({"url": one.url}) for name, one in self.of.items()}

    def register(self, subject: str, kind: str, **schemas: str) -> int:
        """Put a schema into each registry, both under the same id."""
        there = {name: self.fill(name) for name in self.of}
        while there["east"] != there["west"]:
            behind = min(there, key=lambda name: there[name])
            there[behind] = self.fill(behind)
        ids = {self.put(name, subject, schema, kind) for name, schema in schemas.items()}
        assert ids == {there["east"] + 1}
        return ids.pop()

    def put(self, name: str, subject: str, schema: str, kind: str = "avro") -> int:
        """Put a schema into one registry, under its next id: another test's of the same text would have that one's."""
        if kind == "avro":
            schema = json.dumps({**json.loads(schema), "doc": subject})
        return int(self.clients[name].register_schema(subject, Schema(schema, KINDS[kind])))

    def fill(self, name: str) -> int:
        """The newest id, of a schema that nobody uses."""
        return self.put(name, "fillers", avro_schema(avro(f"f{next(_NUMBERS)}", "long")))

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


@pytest.fixture
def registries(registry, west_registry, monkeypatch):
    monkeypatch.setenv(VARIABLE, json.dumps({"reg_east": registry.url, "reg_west": {"url": west_registry.url}}))
    both = Registries(registry, west_registry)
    for one in both.of.values():
        one.requests()
    yield both
    both.close()


@pytest.fixture
def make(make_streams) -> Callable[..., Streams]:
    """A pipeline whose clusters each name a registry; that of the pipeline file is none."""

    def made(converter: str = "avro", **settings: Any) -> Streams:
        value = {"converter": converter, "registry": "reg_nowhere"}
        unset = {"sink__hudi__schema": None, "sink__hudi__partition_fields": None}
        streams = two_clusters(make_streams(**unset, source__kafka__value=value, **settings))
        _map(streams)
        return streams

    return made


def _map(streams: Streams, west: str = "west", **said: str) -> None:
    east = {"topics": streams.topic, "connection": "east", "registry": "reg_east"}
    streams.map(east=east, **{west: {"topics": streams.topic, "connection": "west", "registry": "reg_west", **said}})


def _send(streams: Streams, broker: str, number: int, payload: bytes) -> int:
    with streams.at(broker, streams.topic) as there:
        return there.produce_raw(b"\x00" + number.to_bytes(4, "big") + payload)


def _text(value: str) -> bytes:
    """A short text as Avro writes it; a small number is one byte, of twice its value."""
    return bytes([2 * len(value)]) + value.encode()


def _rows(streams: Streams) -> list[Row]:
    return sorted(streams.flow.all_columns(), key=lambda row: row["id"])


def _said(streams: Streams, *arguments: str) -> Any:
    with streams.environment():
        done = invoke(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


SAME_BYTES = {
    "avro": (avro_schema(avro("id", "long"), avro("{}", "string")), lambda n, text: bytes([2 * n]) + _text(text)),
    "json_schema": (
        json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "{}": {"type": "string"}}}),
        lambda n, text: json.dumps({"id": n, "a": text, "b": text}).encode(),
    ),
    "protobuf": (
        'syntax = "proto3"; message R { optional int64 id = 1; optional string {} = 2; }',
        lambda n, text: b"\x00\x08" + bytes([n]) + b"\x12" + bytes([len(text)]) + text.encode(),
    ),
}


@pytest.mark.parametrize("converter", ["avro", *also("json_schema", "protobuf")])
def test_the_same_bytes_mean_what_their_own_cluster_s_registry_says(make, registries, converter):
    """The id, too, is the same on both clusters: only the cluster says of which schema a record is."""
    streams = make(converter)
    schema, payload = SAME_BYTES[converter]
    schemas = {"east": schema.replace("{}", "a", 1), "west": schema.replace("{}", "b", 1)}
    number = registries.register(f"{streams.topic}-value", converter, **schemas)
    for broker, n in (("east", 1), ("west", 2), ("east", 3), ("west", 4)):
        _send(streams, broker, number, payload(n, f"text {n}"))
    streams.flow.interval()
    assert [(row["id"], row["a"], row["b"]) for row in _rows(streams)] == [
        (1, "text 1", None), (2, None, "text 2"), (3, "text 3", None), (4, None, "text 4"),
    ]  # fmt: skip
    start = next(m for m in reversed(streams.flow.messages()) if isinstance(m, StartCommit))
    assert (start.records.value.schemas, start.records.value.registry) == ((), None)
    assert [(of.connection, of.clusters, [s.id for s in of.schemas]) for of in start.records.value.by_cluster] == [
        ("reg_east", ("east",), [number]), ("reg_west", ("west",), [number]),
    ]  # fmt: skip


def test_schemas_of_both_registries_go_on_and_a_cluster_gets_another_name(make, registries):
    """Each registry is asked for what is new there; a missing field has its own registry's default; and `verify`."""
    streams = make(source__kafka__columns={"c": "cluster"})
    subject = f"{streams.topic}-value"
    plain = avro_schema(avro("id", "long"), avro("v", "string"))
    number = registries.register(subject, "avro", east=plain, west=plain)
    _send(streams, "east", number, b"\x02" + _text("one"))
    _send(streams, "west", number, b"\x04" + _text("two"))
    streams.flow.interval()

    longer = {
        "east": avro_schema(avro("id", "long"), avro("v", "string"), avro("n", "long", default=7)),
        "west": avro_schema(avro("id", "long"), avro("m", "long", default=8), avro("v", "string")),
    }
    newer = registries.register(subject, "avro", **longer)
    for one in registries.of.values():
        one.requests()
    _send(streams, "east", newer, b"\x06" + _text("three") + b"\x0a")
    _send(streams, "west", newer, b"\x08" + b"\x0c" + _text("four"))
    _send(streams, "east", number, b"\x0a" + _text("five"))
    _send(streams, "west", number, b"\x0c" + _text("six"))
    _map(streams, west="far_west")
    streams.flow.interval()
    for one in registries.of.values():
        assert one.requests() == [f"GET /subjects/{subject}/versions{part}" for part in ("/latest", "")]
    rows = [(row["id"], row["v"], row["n"], row["m"], row["c"]) for row in _rows(streams)]
    assert rows == [
        (1, "one", None, None, "east"), (2, "two", None, None, "west"), (3, "three", 5, None, "east"),
        (4, "four", None, 6, "far_west"), (5, "five", 7, None, "east"), (6, "six", None, 8, "far_west"),
    ]  # fmt: skip

    # The pipeline file's registry is another one, and is asked only of clusters that name none; no rows change.
    streams.flow.set(source__kafka__value={"converter": "avro", "registry": "reg_east"})
    streams.map(
        east={"topics": streams.topic, "connection": "east"},
        far_west={"topics": streams.topic, "connection": "west", "registry": "reg_west"},
    )
    _send(streams, "east", newer, b"\x0e" + _text("seven") + b"\x12")
    _send(streams, "west", newer, b"\x10" + b"\x14" + _text("eight"))
    streams.flow.interval()
    assert [(row["id"], row["n"], row["m"]) for row in _rows(streams)][6:] == [(7, 9, None), (8, None, 10)]


@pytest.mark.thorough
def test_an_append_is_verified_by_each_cluster_s_registry_also_after_a_rename(make, registries):
    streams = make()
    schema, payload = SAME_BYTES["avro"]
    number = registries.register(
        f"{streams.topic}-value", "avro", east=schema.replace("{}", "a"), west=schema.replace("{}", "b")
    )
    for broker, n in (("east", 1), ("west", 2)):
        _send(streams, broker, number, payload(n, f"text {n}"))
    streams.flow.interval()
    _map(streams, west="far_west")
    done = streams.flow.verify("--json")
    assert done.exit_code == 0, done.output
    (interval,) = json.loads(done.stdout)["intervals"]
    assert (interval["in_topic"], interval["in_table"], interval["same"]) == (2, 2, True)


@pytest.mark.thorough
def test_bad_records_name_the_registry_and_are_read_when_it_knows_their_schema(make, registries):
    streams = make(**{**TOLERANT, **UPSERT})
    flow, subject, own = streams.flow, f"{streams.topic}-value", str(streams.flow.file)
    old = avro_schema(avro("id", "long"), avro("a", "string"))
    number = registries.register(subject, "avro", east=old, west=old)
    later = avro_schema(avro("id", "long"), avro("b", "string"))
    newer = registries.register(subject, "avro", east=later)
    for broker, n in (("east", 1), ("west", 2)):
        _send(streams, broker, number, bytes([2 * n]) + _text("old"))
        _send(streams, broker, newer, bytes([20 * n]) + _text("new"))
    flow.interval()
    assert [(row["id"], row["a"], row["b"]) for row in _rows(streams)] == [
        (1, "old", None), (2, "old", None), (10, None, "new"),
    ]  # fmt: skip
    (bad,) = quarantine(flow)
    assert bad["kafka_topic"] == f"west/{streams.topic}"
    assert f"the schema id {newer} of reg_west is not known" in bad["reason"]

    # There it is another schema, of the same id: what is sent again is read with that one.
    other = avro_schema(avro("id", "long"), avro("a", "string"), avro("c", "long", default=3))
    assert registries.put("west", subject, other) == newer
    _send(streams, "west", newer, bytes([60]) + _text("whole") + b"\x08")
    assert _said(streams, "quarantine", "redrive", own, "--as-newest")["sent"] == [
        {"cluster": "west", "topic": streams.topic, "partition": 0, "records": 1}
    ]
    flow.interval()
    assert [(row["id"], row["a"], row["b"], row["c"]) for row in _rows(streams)] == [
        (1, "old", None, None), (2, "old", None, None), (10, None, "new", None), (30, "whole", None, 4),
    ]  # fmt: skip
    assert f"can't be read with its Avro schema ({newer} of reg_west)" in quarantine(flow)[-1]["reason"]


def test_a_registry_that_is_down_names_its_cluster_and_nothing_begins(make, registries, monkeypatch):
    streams = make()
    schema = avro_schema(avro("id", "long"))
    number = registries.register(f"{streams.topic}-value", "avro", east=schema, west=schema)
    for broker, n in (("east", 1), ("west", 2)):
        _send(streams, broker, number, bytes([2 * n]))
    there = {"reg_east": registries.of["east"].url, "reg_west": registries.of["west"].url}
    monkeypatch.setenv(VARIABLE, json.dumps({**there, "reg_west": f"http://127.0.0.1:{free_port()}"}))
    with pytest.raises(RetryableError, match=r"does not answer.*clusters=west, connection=reg_west"):
        streams.flow.start()
    # One registry for all would mix their ids up, and one that nobody knows is the cluster's, too.
    monkeypatch.setenv(VARIABLE, there["reg_east"])
    with pytest.raises(ActionRequiredError, match="names one schema registry, and the clusters have several"):
        streams.flow.start()
    monkeypatch.setenv(VARIABLE, json.dumps({"reg_east": there["reg_east"]}))
    with pytest.raises(ActionRequiredError, match=r"settings are missing.*clusters=west, connection=reg_west"):
        streams.flow.start()
    assert streams.flow.messages() == []
    monkeypatch.setenv(VARIABLE, json.dumps(there))
    streams.flow.interval()
    assert [row["id"] for row in _rows(streams)] == [1, 2]


def test_a_cluster_without_a_schema_yet_holds_no_other_up(make, registries):
    streams = make()
    subject = f"{streams.topic}-value"
    number = registries.fill("east") + 1
    _send(streams, "east", number, b"\x04")
    with pytest.raises(ActionRequiredError, match="none of the subjects"):
        streams.flow.start()
    assert registries.put("east", subject, avro_schema(avro("id", "long"))) == number
    streams.flow.interval()
    assert [row["id"] for row in _rows(streams)] == [2]
