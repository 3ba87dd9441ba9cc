"""Records are rows just as the Avro serializer wrote them, of old and new schemas; what can't be read says why."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer

from sluice.errors import ActionRequiredError
from sluice.schemas.registry.config import VARIABLE

from ..registry import LocalRegistry, ensure_registry
from .avro_records import NEW_AVRO, OLD_AVRO, avro, avro_expected, avro_row, avro_schema
from .converters import ROWS, Wild, plain, typed_flow, write


def test_avro_of_old_and_new_schemas(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    wild = Wild(1)
    old, new = (AvroSerializer(client, text) for text in (OLD_AVRO, NEW_AVRO))
    rows = [(number, number % 2 == 1) for number in range(ROWS)]
    sent = [(avro_row(wild, number, new=is_new), is_new) for number, is_new in rows]
    for row, is_new in sent:
        flow.produce_raw(write(flow, new if is_new else old, row))
    asked.requests()
    flow.interval()
    # One request for each schema; it takes one more to know that there is an older one.
    subject = f"/subjects/{flow.topic}-value/versions"
    assert asked.requests() == [f"GET {subject}/latest", f"GET {subject}", f"GET {subject}/1"]
    expected = {row["id"]: plain(avro_expected(row, new=is_new)) for row, is_new in sent}
    assert {row["id"]: plain(row) for row in flow.all_columns()} == expected

    more = avro_row(wild, ROWS, new=False)
    flow.produce_raw(write(flow, old, more))
    asked.requests()
    flow.interval()
    assert asked.requests() == [f"GET {subject}/latest", f"GET {subject}"]
    expected[ROWS] = plain(avro_expected(more, new=False))
    assert {row["id"]: plain(row) for row in flow.all_columns()} == expected


def test_what_cannot_be_read_says_why(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    good = write(flow, AvroSerializer(client, OLD_AVRO), avro_row(Wild(2), 0, new=False))
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
    old = write(flow, AvroSerializer(client, avro_schema(avro("id", "long"), avro("v", "int"))), {"id": 1, "v": 2})
    new = write(flow, AvroSerializer(client, avro_schema(avro("id", "string"))), {"id": "seven"})
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


def test_a_version_that_was_registered_and_deleted_between_two_intervals_is_read(make_flow, asked, client):
    flow = typed_flow(make_flow, "avro")
    old, new = ([avro("id", "long")], [avro("id", "long"), avro("v", ["null", "string"], default=None)])
    first, second, third = ({"id": 1}, {"id": 2, "v": "came and went"}, {"id": 3})
    old_one, new_one = (AvroSerializer(client, avro_schema(*fields)) for fields in (old, new))
    flow.produce_raw(write(flow, old_one, first))
    flow.interval()
    flow.produce_raw(write(flow, new_one, second))
    client.delete_version(f"{flow.topic}-value", 2)
    flow.produce_raw(write(flow, old_one, third))
    flow.interval()
    rows = {row["id"]: row["v"] for row in flow.all_columns()}
    assert rows == {1: None, 2: "came and went", 3: None}


@pytest.mark.thorough
def test_an_id_that_names_another_schema_now_stops_the_interval(make_flow, home, tmp_path, monkeypatch):
    """A registry that was set up anew begins at the same ids; Avro has no checksum, so any bytes can be read by any."""
    with LocalRegistry(ensure_registry(home), tmp_path / "registry") as registry:
        monkeypatch.setenv(VARIABLE, registry.url)
        flow = typed_flow(make_flow, "avro")
        with SchemaRegistryClient({"url": registry.url}) as client:
            schema = avro_schema(avro("id", "long"), avro("v", "long"))
            flow.produce_raw(write(flow, AvroSerializer(client, schema), {"id": 1, "v": 2}))
        flow.interval()
        registry.stop()
        registry.start()
        with SchemaRegistryClient({"url": registry.url}) as client:
            schema = avro_schema(avro("id", "long"), avro("w", "string"))
            value = write(flow, AvroSerializer(client, schema), {"id": 2, "w": "two"})
        flow.produce_raw(value)
        with pytest.raises(ActionRequiredError, match="another schema under an id that it gave before") as caught:
            flow.start()
        assert caught.value.where["id"] == int.from_bytes(value[1:5], "big")
        assert [(row["id"], row["v"]) for row in flow.all_columns()] == [(1, 2)]


def test_a_subject_of_many_versions(make_flow, asked, client):
    versions = 24
    flow = typed_flow(make_flow, "avro")
    fields = [avro("id", "long"), *(avro(f"f{n}", ["null", "string"], default=None) for n in range(versions))]
    expected = {}
    for n in range(versions):
        row = {"id": n, **{f"f{i}": f"{n} {i}" for i in range(n)}}
        offset = flow.produce_raw(write(flow, AvroSerializer(client, avro_schema(*fields[: n + 1])), row))
        expected[offset] = {**dict.fromkeys(f["name"] for f in fields[:versions]), **row}
    asked.requests()
    rows, bad = flow.decoded()
    assert (rows, bad) == (expected, {})
    assert len(asked.requests()) == versions + 1
