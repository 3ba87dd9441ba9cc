"""Each kind of change in each kind of sink, by each converter: what the table holds then, or what is refused.

The table of expectations is the page's, docs/guarantees/kinds-of-change.md; `kinds_of_change.py` has the events, and
the meaning of the page's words. The kinds of a table go through one pipeline of each cell, each with keys of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf.json_format import ParseDict

from sluice.errors import ActionRequiredError
from sluice.pipeline.load import PipelineFileError

from ..thorough import also, some_of
from .debezium import PROTO_EVENT, PROTO_KEY, avro_envelope, event, postgresql
from .harness import Flow, kafka_settings
from .harness.databases import PostgresDatabase
from .harness.files import FileFlow
from .harness.flow import invoke
from .harness.jdbc import jdbc_table
from .harness.topics import Topics
from .kinds_of_change import (
    ALL_GO,
    AS_ROWS,
    AS_THEY_ARE,
    BAD,
    BY_HAND,
    BY_TOMBSTONES,
    CHANGES,
    DEBEZIUM,
    EVENTS,
    FAILS,
    REDRIVE,
    REFUSED,
    SENT,
    SOFT,
    TOMBSTONES,
    TRUNCATE_APPLY,
    TRUNCATE_FAILS,
    Event,
    Kind,
    Rows,
    cells,
    row,
)
from .protobuf_records import message_class

DDL = "id BIGINT NOT NULL, v STRING, p STRING"
UNWRAPPED = "id BIGINT, v STRING, p STRING, __deleted STRING"
MARK = {"json": "__deleted", "avro": "__deleted", "protobuf": "deleted"}
"""The field of an unwrapped delete; the tests' registry takes no Protobuf schema with names that begin with _."""
OF_EVENTS = "op STRING, before STRUCT<v: STRING>, after STRUCT<v: STRING>"
HUDI = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
JDBC = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", "delete_enabled": True}
TOPIC = {"tombstones": True, "key_fields": "id"}
Encodes = Callable[[Any, Event | None], tuple[bytes | None, bytes | None]]


@dataclass(frozen=True)
class Kept:
    """A pipeline of a cell, what its reader finds in some columns, the first of them as key, and topics' tombstones."""

    flow: Flow
    rows: Callable[..., dict[Any, tuple[Any, ...]]]
    tombstones: Callable[[], set[int]] | None = None


# Converters --------------------------------------------------------------------------------------------------------


def as_json(_: Any, __: str) -> Encodes:
    def encodes(number: int | None, sent: Event | None) -> tuple[bytes | None, bytes | None]:
        key = None if number is None else json.dumps({"id": number}).encode()
        return key, None if sent is None else json.dumps(sent).encode()

    return encodes


def as_avro(client: Any, topic: str) -> Encodes:
    number = {"name": "id", "type": "long"}
    texts = [{"name": name, "type": ["null", "string"], "default": None} for name in ("v", "p", "__deleted")]
    key = {"type": "record", "name": "Key", "namespace": "shop.public.orders", "fields": [number]}
    flat = {"type": "record", "name": "Value", "namespace": "shop.public.orders", "fields": [number, *texts]}
    keys = AvroSerializer(client, json.dumps(key))
    events = AvroSerializer(client, avro_envelope(number, *texts[:2]))
    rows = AvroSerializer(client, json.dumps(flat))
    of_key, of_value = (SerializationContext(topic, part) for part in ("key", "value"))

    def encodes(number: int | None, sent: Event | None) -> tuple[bytes | None, bytes | None]:
        values = events if sent is not None and "op" in sent else rows
        return (
            None if number is None else keys({"id": number}, of_key),
            None if sent is None else values(sent, of_value),
        )

    return encodes


def as_protobuf(client: Any, topic: str) -> Encodes:
    envelope = message_class(PROTO_EVENT, "shop.public.orders.Envelope")
    flat = message_class(PROTO_ROW, "shop.public.orders.Value")
    key = message_class(PROTO_KEY, "shop.public.orders.Key")
    keys, events, rows = (
        ProtobufSerializer(one, client, {"use.deprecated.format": False}) for one in (key, envelope, flat)
    )
    of_key, of_value = (SerializationContext(topic, part) for part in ("key", "value"))

    def encodes(number: int | None, sent: Event | None) -> tuple[bytes | None, bytes | None]:
        made = None
        if sent is not None:
            renamed = {"__deleted": MARK["protobuf"]}
            there = {renamed.get(name, name): value for name, value in sent.items() if value is not None}
            kind, values = (envelope, events) if "op" in sent else (flat, rows)
            made = values(ParseDict(there, kind(), ignore_unknown_fields=True), of_value)
        return None if number is None else keys(key(id=number), of_key), made

    return encodes


PROTO_ROW = """
syntax = "proto3";
package shop.public.orders;
message Value { int64 id = 1; optional string v = 2; optional string p = 3; string deleted = 4; }
"""
REGISTERED = {"registry": "judge"}
CONVERTERS: dict[str, tuple[dict[str, Any], Callable[[Any, str], Encodes]]] = {
    "json": ({"converter": "json"}, as_json),
    "avro": ({"converter": "avro", **REGISTERED}, as_avro),
    "protobuf": ({"converter": "protobuf", **REGISTERED}, as_protobuf),
}


# Sinks -------------------------------------------------------------------------------------------------------------


def _by_first(rows: Any) -> dict[Any, tuple[Any, ...]]:
    rows = list(rows)
    found = {first: tuple(others) for first, *others in rows}
    assert len(found) == len(rows), f"a row is there twice: {rows}"
    return found


def in_hudi(request: pytest.FixtureRequest, ddl: str, settings: dict[str, Any], *, appends: bool = False) -> Kept:
    section = {} if appends else HUDI
    flow = request.getfixturevalue("make_flow")(
        1, **section, sink__hudi__partition_fields=None, sink__hudi__schema=ddl, **settings
    )
    return Kept(flow, lambda *columns: _by_first(flow.read(*columns)))


def in_database(request: pytest.FixtureRequest, ddl: str, settings: dict[str, Any], *, appends: bool = False) -> Kept:
    database: PostgresDatabase = request.getfixturevalue("postgresql")
    for variable, value in database.environment().items():
        request.getfixturevalue("monkeypatch").setenv(variable, value)
    flow = request.getfixturevalue("make_flow")(1, **settings)
    table = jdbc_table(flow, database, {"schema": ddl, **({} if appends else JDBC)})

    def rows(*columns: str) -> dict[Any, tuple[Any, ...]]:
        return _by_first(database.query(f'SELECT {", ".join(columns)} FROM "{table.name}"'))

    return Kept(flow, rows)


def in_topic(request: pytest.FixtureRequest, ddl: str, settings: dict[str, Any], *, appends: bool = False) -> Kept:
    section = {"schema": ddl, **({} if appends else TOPIC)}
    topics: Topics = request.getfixturevalue("make_topics")(1, section=section, **settings)

    def last() -> dict[int, bytes | None]:
        return {json.loads(one.key)["id"]: one.value for one in topics.found() if one.key is not None}

    def rows(*columns: str) -> dict[Any, tuple[Any, ...]]:
        found = [one.value for one in topics.found()] if appends else list(last().values())
        read = [json.loads(value) for value in found if value is not None]
        return _by_first([one[name] for name in columns] for one in read)

    return Kept(topics.flow, rows, lambda: {number for number, value in last().items() if value is None})


def in_files(request: pytest.FixtureRequest, ddl: str, settings: dict[str, Any], *, appends: bool = True) -> Kept:
    assert appends
    fixtures = ("tmp_path", "bootstrap", "shared_jvm", "drivers", "topic_name")
    folder, bootstrap, jvm, drivers, name = map(request.getfixturevalue, fixtures)
    flow = FileFlow(folder, bootstrap, jvm, drivers, name("t"), **{"sink__files__schema": ddl, **settings})
    flow.create_topic(1)

    def rows(*columns: str) -> dict[Any, tuple[Any, ...]]:
        read = [one for file in flow.files().values() for one in fastavro.reader(BytesIO(file.read_bytes()))]
        return _by_first([one[name] for name in columns] for one in read)

    return Kept(flow, rows)


UPSERTS = {"hudi": in_hudi, "jdbc": in_database, "kafka": in_topic}
APPENDS = {"files": in_files, **UPSERTS}


# Cells -------------------------------------------------------------------------------------------------------------


class Cell:
    """A pipeline, and records by a converter."""

    def __init__(self, request: pytest.FixtureRequest, converter: str, kept: Kept, tables: Mapping[str, Any]) -> None:
        self.flow, self.kept, self._cells = kept.flow, kept, tables
        _, encoder = CONVERTERS[converter]
        client, bootstrap = map(request.getfixturevalue, ("client", "bootstrap"))
        self._encodes = encoder(client, self.flow.topic)
        variable = "SLUICE_KAFKA_SOURCE"
        request.getfixturevalue("monkeypatch").setenv(
            variable, kafka_settings(bootstrap).to_environment("source")[variable]
        )

    def send(self, *records: Any) -> None:
        self.flow.produce_keyed([self._encodes(number, sent) for number, sent in records])

    def words(self, kind: Kind) -> str:
        """The words of the page's cell."""
        return str(self._cells[kind.name])

    def check(self, kinds: tuple[Kind, ...], columns: tuple[str, ...]) -> None:
        """Each kind comes to the words of its cell, over two intervals if there are records for the next."""
        self.send(*(record for kind in kinds for record in kind.sent))
        self.flow.interval()
        self._check(
            {kind.name: kind.at_first if kind.later else kind.means[self.words(kind)] for kind in kinds}, columns
        )
        bad = [kind for kind in kinds if self.words(kind) == BAD]
        reasons = [group["reason"] for group in said(self.flow, "list")["groups"]] if bad else []
        for kind in bad:
            assert any(re.search(kind.reason, reason) for reason in reasons), (kind.name, reasons)
        if self.kept.tombstones is not None:
            assert self.kept.tombstones() == {number for kind in kinds for number in kind.tombstones}
        later = [record for kind in kinds for record in kind.later]
        if later:
            self.send(*later)
            self.flow.interval()
            self._check({kind.name: kind.means[self.words(kind)] for kind in kinds}, columns)

    def _check(self, expected: Mapping[str, Rows], columns: tuple[str, ...]) -> None:
        assert self.kept.rows(*columns) == {
            number: found for rows in expected.values() for number, found in rows.items()
        }


def settings_of(converter: str, schema: str | None = None, **more: Any) -> dict[str, Any]:
    of_key, _ = CONVERTERS[converter]
    of_value = {**of_key, "schema": schema} if schema is not None and converter == "json" else of_key
    return deepcopy({
        "source__kafka__value": of_value, "source__kafka__key": of_key, "errors__tolerance": "all", **more
    })  # fmt: skip


_ALL = list(product(CONVERTERS, UPSERTS))
_TRIED = [("json", "kafka"), ("avro", "jdbc"), ("protobuf", "hudi")]
"""Each converter and each sink once."""


@pytest.mark.parametrize(("converter", "sink"), some_of(_ALL, _TRIED))
def test_a_change_comes_to_what_the_table_says(request, asked, converter, sink):
    settings = settings_of(converter, changes={"format": "debezium", "truncate": "ignore"})
    cell = Cell(request, converter, UPSERTS[sink](request, DDL, settings), cells(DEBEZIUM, sink))
    cell.check(EVENTS, ("id", "v", "p"))
    flow, words = cell.flow, cells(DEBEZIUM, sink)[REDRIVE]
    bad = sum(group["records"] for group in said(flow, "list")["groups"])
    if words == SENT:
        assert sum(one["records"] for one in said(flow, "redrive", "--dry-run")["sent"]) == bad
    else:
        assert words == BY_HAND
        with pytest.raises(ActionRequiredError, match="doesn't keep the positions of all changes") as caught:
            said(flow, "redrive")
        assert "replay" not in caught.value.next_step  # which this sink refuses as well
        assert sum(one["records"] for one in said(flow, "redrive", "--as-newest", "--dry-run")["sent"]) == bad


@pytest.mark.parametrize(("converter", "sink"), some_of(_ALL, [("avro", "jdbc")]))
def test_a_soft_delete_comes_to_what_the_table_says(request, asked, converter, sink):
    settings = settings_of(converter, changes={"format": "debezium", "delete": "soft"})
    cell = Cell(request, converter, UPSERTS[sink](request, DDL, settings), cells(DEBEZIUM, sink))
    cell.check(SOFT, ("id", "v", "p", "_deleted"))


@pytest.mark.parametrize(("converter", "sink"), some_of(_ALL, [("json", "kafka")]))
def test_a_tombstone_comes_to_what_the_table_says(request, asked, converter, sink):
    settings = settings_of(
        converter, UNWRAPPED, changes={"format": "tombstones"},
        transforms=[{"filter": f"{MARK[converter]} = 'false'"}, {"drop": MARK[converter]}],
    )  # fmt: skip
    cell = Cell(request, converter, UPSERTS[sink](request, DDL, settings), cells(BY_TOMBSTONES, sink))
    cell.check(TOMBSTONES, ("id", "v", "p"))


@pytest.mark.parametrize(("converter", "sink"), some_of(_ALL, []))
def test_a_truncate_comes_to_what_the_table_says(request, asked, converter, sink):
    settings = settings_of(converter, changes={"format": "debezium"})
    cell = Cell(request, converter, UPSERTS[sink](request, DDL, settings), cells(DEBEZIUM, sink))
    flow = cell.flow
    cell.send((1, event("c", postgresql(100), None, row(1, "before"))))
    flow.interval()
    cell.send(
        (2, event("c", postgresql(300), None, row(2, "after"))), (None, event("t", postgresql(200))),
        (3, event("c", postgresql(150), None, row(3, "before, and late"))),
    )  # fmt: skip
    assert cells(DEBEZIUM, sink)[TRUNCATE_FAILS] == FAILS
    run = flow.run()
    job = flow.write(flow.start(run))
    assert job.wait() == 1
    for words in ("The source's table was emptied by a truncate", "if the sink can do that"):
        assert words in job.text()
    flow.abort(run)
    if cells(DEBEZIUM, sink)[TRUNCATE_APPLY] == REFUSED:
        with pytest.raises(PipelineFileError, match="`truncate: apply` takes all rows away"):
            _ = flow.set(changes__truncate="apply").pipeline
        flow.set(changes__truncate="ignore")
        rows = {number: (v, "north") for number, v in ((1, "before"), (2, "after"), (3, "before, and late"))}
    else:
        assert cells(DEBEZIUM, sink)[TRUNCATE_APPLY] == ALL_GO
        flow.set(changes__truncate="apply")
        rows = {2: ("after", "north")}
    flow.interval()
    assert cell.kept.rows("id", "v", "p") == rows


@pytest.mark.parametrize("sink", UPSERTS)
@pytest.mark.parametrize("converter", [*some_of([("avro",), ("protobuf",)], [])])
def test_a_topic_of_rows_without_envelopes_is_refused_at_start(request, asked, converter, sink):
    """Where schemas say it; of JSON each is a bad record."""
    settings = settings_of(converter, changes={"format": "debezium"})
    cell = Cell(request, converter, UPSERTS[sink](request, DDL, settings), {})
    cell.send((1, row(1, "made", __deleted="false")))
    with pytest.raises(ActionRequiredError, match="no Debezium events") as caught:
        cell.flow.start()
    assert "ExtractNewRecordState" in caught.value.next_step


# Sinks that append -------------------------------------------------------------------------------------------------

_APPENDED = list(product(CONVERTERS, APPENDS))


@pytest.mark.parametrize(("converter", "sink"), some_of(_APPENDED, [("json", "files")]))
def test_an_event_without_changes_is_a_row(request, asked, converter, sink):
    """Each of the transforms sees the event as its producer made it; `changes` are refused."""
    settings = settings_of(
        converter, OF_EVENTS, source__kafka__columns={"n": "offset"}, source__kafka__key=None,
        transforms=[{"select": ["n", "op", "before.v AS was", "after.v AS v"]}],
    )  # fmt: skip
    kept = APPENDS[sink](request, "n BIGINT, op STRING, was STRING, v STRING", settings, appends=True)
    cell = Cell(request, converter, kept, cells(AS_THEY_ARE, sink))
    cell.check(AS_ROWS, ("n", "op", "was", "v"))
    assert cells(AS_THEY_ARE, sink)[CHANGES] == REFUSED
    if sink == "files":
        assert {words for table in (DEBEZIUM, BY_TOMBSTONES) for words in cells(table, sink).values()} == {REFUSED}
    for given in ("debezium", "tombstones"):
        with pytest.raises(PipelineFileError, match="`changes` update and delete rows"):
            _ = cell.flow.set(changes={"format": given}, source__kafka__key={"converter": "json"}).pipeline


# Columns that `changes` adds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"format": "debezium"}, *also({"format": "tombstones"}, None)])
def test_without_soft_deletes_a_column_of_the_records_may_be_called_deleted(request, asked, changes):
    settings = settings_of("json", changes=changes, transforms=[{"filter": "_deleted = 'no'"}])
    made = in_files if changes is None else in_topic
    kept = made(request, "id BIGINT NOT NULL, v STRING, _deleted STRING", settings)
    cell = Cell(request, "json", kept, {})
    versions = [row(1, "a", _deleted="no"), row(2, "b", _deleted="no"), row(3, "c", _deleted="yes")]
    versions += [] if changes is None else [row(2, "b", _deleted="yes")]
    envelopes = changes == {"format": "debezium"}
    cell.send(
        *((one["id"], event("c", postgresql(at), None, one) if envelopes else one) for at, one in enumerate(versions))
    )
    cell.flow.interval()
    rows = {1: ("a", "no")} | ({2: ("b", "no")} if changes is None else {})
    assert kept.rows("id", "v", "_deleted") == rows


@pytest.mark.parametrize(
    ("ddl", "schema", "transforms", "says"),
    [
        (DDL, "id BIGINT, v STRING, _DELETED STRING", [], "a step make, too: _DELETED"),
        *also(
            (DDL, "id BIGINT, v STRING", [{"set": {"_deleted": "v = 'x'"}}], "a step make, too: _deleted"),
            (DDL, "id BIGINT, v STRING, _source_position BIGINT", [], "a step make, too: _source_position"),
            (f"{DDL}, _source_position STRING", None, [], "_source_position: DECIMAL(30,15), not STRING"),
            (f"{DDL}, _deleted STRING", None, [], "_deleted: BOOLEAN, not STRING"),
            (f"{DDL}, _hoodie_is_deleted BOOLEAN", None, [], "`_hoodie_is_deleted` begins like a column"),
        ),
    ],
    ids=["a field", "a step", "the position", "the position's type", "the mark's type", "Hudi's own mark"],
)
def test_start_refuses_what_has_the_columns_that_changes_adds(request, asked, ddl, schema, transforms, says):
    settings = settings_of("json", schema, changes={"format": "debezium", "delete": "soft"}, transforms=transforms)
    cell = Cell(request, "json", in_hudi(request, ddl, settings), {})
    cell.send((1, event("c", postgresql(100), None, row(1, "made"))))
    with pytest.raises(ActionRequiredError, match=re.escape(says)):
        cell.flow.start()


def said(flow: Flow, *arguments: str) -> Any:
    done = invoke("quarantine", arguments[0], str(flow.file), *arguments[1:], "--json")
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)
