"""Debezium's events lead to the table that their database has, in whatever order and however often they come."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import SerializationContext

from sluice.records.changes import position_of
from sluice.schemas.registry.config import VARIABLE

from .debezium import Log, avro_envelope, event, mysql, postgresql, table_after
from .harness import Flow
from .test_deletes import acknowledged

ORDERS: dict[str, Any] = {
    "sink__hudi__operation": "upsert",
    "sink__hudi__record_key": "id",
    "sink__hudi__partition_fields": None,
    "sink__hudi__schema": "id BIGINT NOT NULL, v STRING NOT NULL, p STRING",
    "sink__hudi__key_placement": None,
    "changes": {"format": "debezium"},
}
MURMUR2 = {"partitioner": "murmur2"}


def row(number: int, v: str | None, p: str | None = "north") -> dict[str, Any]:
    return {"id": number, "v": v, "p": p}


def rows(flow: Flow, *, metadata: bool = True) -> dict[int, dict[str, Any]]:
    found = flow.read("id", "v", "p", metadata=metadata)
    assert len({r[0] for r in found}) == len(found), f"a row is there twice: {sorted(found)}"
    return {r[0]: row(*r) for r in found}


def check(flow: Flow, expected: dict[int, dict[str, Any]]) -> None:
    for metadata in (True, False):
        assert rows(flow, metadata=metadata) == expected


def lsn(source: dict[str, Any]) -> tuple[int, bool]:
    return (source["lsn"], source["snapshot"] == "false")


def binlog(source: dict[str, Any]) -> tuple[int, int, int]:
    return (int(source["file"].rpartition(".")[2]), source["pos"], source["row"])


def test_postgresql_with_every_operation_late_and_twice(make_flow):
    """One partition for each key, as the connector has it, but later events overtaken by earlier ones."""
    flow = make_flow(partitions=2, write__ranges=2, **ORDERS)
    log, sent = Log(), []

    def send(*events: dict[str, Any]) -> None:
        for e in events:
            log.send(e)
            sent.append(e)

    start = 0x16_0000_0000 - 50  # the LSN's low half runs over within the test
    send(*(event("r", postgresql(start, snapshot="true"), after=row(i, f"snap{i}")) for i in range(8)))
    send(event("u", postgresql(start), row(0, None, None), row(0, "at the snapshot's own position")))
    send(event("c", postgresql(start + 10), after=row(20, "new")))
    gone = event("d", postgresql(start + 20), row(1, None, None))  # REPLICA IDENTITY DEFAULT: the key alone
    send(gone)
    log.tombstone(1)
    send(event("u", postgresql(start + 15), None, row(1, "before it was deleted")))
    send(
        event("u", postgresql(start + 60), None, row(2, "second")),
        event("u", postgresql(start + 40), None, row(2, "first")),
    )
    send(gone)
    # A key that changes is a delete and a create at one position.
    send(
        event("d", postgresql(start + 70), row(3, None, None)),
        event("c", postgresql(start + 70), after=row(30, "snap3")),
    )
    log.tombstone(3)
    send(event("m", postgresql(start + 75)))
    first = log.take()
    flow.produce_keyed(first, **MURMUR2)
    flow.interval()
    check(flow, table_after(sent, lsn))
    ack = acknowledged(flow)
    assert (ack.records_read, ack.records_filtered, ack.records_deleted) == (len(first), 3, 3)
    assert ack.records_written == len(first) - 6

    send(
        event("d", postgresql(start + 90), row(4, None, None)),
        event("c", postgresql(start + 100), after=row(4, "again")),
    )
    send(event("d", postgresql(start + 110), row(5, None, None)))
    late = [
        event("u", postgresql(start + 30), None, row(1, "late")),
        event("u", postgresql(start + 95), None, row(4, "late")),
    ]
    late += [
        event("d", postgresql(start + 5), row(20, None, None)),
        event("u", postgresql(start + 12), None, row(2, "late")),
    ]
    send(*late, *sent[:12])
    flow.produce_keyed(log.take(), **MURMUR2)
    flow.interval()
    check(flow, table_after(sent, lsn))
    assert flow.columns() == {"id", "v", "p", "_source_position"}
    positions = dict(flow.read("id", "_source_position"))
    assert (positions[7], positions[0], positions[2]) == tuple(
        position_of(postgresql(start + at, snapshot=snapshot))
        for at, snapshot in ((0, "true"), (0, "false"), (60, "false"))
    )


def test_mysql_in_an_order_of_chance_over_a_binlog_that_rolls_over(make_flow):
    """Updates and deletes of the same rows by one multi-row event, in two intervals, shuffled, with repetitions."""
    flow = make_flow(partitions=1, **{**ORDERS, "sink__hudi__partition_fields": "p"})
    chance = random.Random(5)
    state: dict[int, dict[str, Any]] = {}
    events = []
    for step in range(160):
        place = mysql(999_998 + step // 60, 4 + 700 * (step % 60 // 3), step % 3)
        number = chance.randrange(12)
        old = state.get(number)
        new = row(number, f"v{step}", chance.choice(["north", "south", "east"]))
        if old is None:
            events.append(event("c", place, None, new))
        elif chance.random() < 0.3:
            events.append(event("d", place, old))
        else:
            events.append(event("u", place, old, new))
        if events[-1]["op"] == "d":
            state.pop(number)
        else:
            state[number] = new
    assert table_after(events, binlog) == state
    shuffled = [*events, *chance.choices(events, k=30)]
    chance.shuffle(shuffled)
    for half in (shuffled[:100], shuffled[100:]):
        log = Log()
        for e in half:
            log.send(e)
        flow.produce_keyed(log.take())
        flow.interval()
    check(flow, state)
    last = {(e["after"] or e["before"])["id"]: position_of(e["source"]) for e in events}
    assert dict(flow.read("id", "_source_position")) == {number: last[number] for number in state}
    ack = acknowledged(flow)
    assert ack.records_read == ack.records_written + ack.records_deleted == 90


def test_a_row_whose_old_partition_is_not_known_is_refused(make_flow):
    flow = make_flow(partitions=1, **{**ORDERS, "sink__hudi__partition_fields": "p"})
    log = Log()
    log.send(event("c", postgresql(100), after=row(1, "a", "north")))
    log.send(event("u", postgresql(110), None, row(1, "b", "south")))
    flow.produce_keyed(log.take())
    job = flow.write(flow.start())
    assert job.wait() == 1
    for word in ("REPLICA IDENTITY FULL", "binlog_row_image=FULL", "offset=1"):
        assert word in job.text()
    log.send(event("u", postgresql(120), row(1, "a", "north"), row(1, None, "south")))  # bad, and moves nothing
    log.send(event("c", postgresql(130), None, row(2, "a", "north")))
    log.send(event("u", postgresql(140), row(2, "a", "north"), row(2, "b", "south")))
    flow.produce_keyed(log.take())
    flow.set(errors={"tolerance": "all"})
    flow.interval()
    check(flow, {1: row(1, "a", "north"), 2: row(2, "b", "south")})
    ack = acknowledged(flow)
    assert (ack.records_read, ack.records_written, ack.records_quarantined, ack.records_deleted) == (5, 3, 2, 0)


def test_a_truncate_takes_what_was_there_and_nothing_late_comes_back(make_flow):
    flow = make_flow(partitions=2, **{**ORDERS, "sink__hudi__key_placement": "trusted"})
    sent: list[dict[str, Any]] = []

    def send(*events: dict[str, Any], partition: int) -> None:
        log = Log()
        for e in events:
            log.send(e)
        flow.produce_keyed(log.take(), partition=partition)
        sent.extend(events)

    send(*(event("c", postgresql(100 + i), after=row(i, "old")) for i in range(0, 8, 2)), partition=0)
    send(*(event("c", postgresql(101 + i), after=row(i, "old")) for i in range(1, 8, 2)), partition=1)
    flow.interval()
    check(flow, table_after(sent, lsn))
    send(event("c", postgresql(150), after=row(10, "old")), event("t", postgresql(200)), partition=0)
    send(
        event("c", postgresql(210), after=row(11, "new")),
        event("c", postgresql(190), after=row(13, "old")),
        partition=1,
    )
    run = flow.run()
    job = flow.write(flow.start(run))
    assert job.wait() == 1
    assert "The source's table was emptied by a truncate" in job.text()
    flow.abort(run)
    flow.set(changes={"format": "debezium", "truncate": "apply"})
    flow.interval()
    check(flow, table_after(sent, lsn))
    assert list(rows(flow)) == [11]
    ack = acknowledged(flow)
    assert (ack.records_read, ack.records_written, ack.records_skipped, ack.records_filtered) == (4, 1, 2, 1)
    send(
        event("u", postgresql(120), None, row(2, "late")), event("c", postgresql(220), after=row(4, "new")), partition=0
    )
    flow.interval()
    check(flow, table_after(sent, lsn))
    assert Decimal(flow.note()["emptied_at"]) == position_of(postgresql(200))


@pytest.mark.thorough
def test_a_soft_delete_keeps_the_row_and_what_it_was(make_flow):
    """In Connect's envelope, with the row's key in the record's; and a truncate before there is a table."""
    soft = {"format": "debezium", "delete": "soft", "truncate": "apply"}
    flow = make_flow(partitions=1, **{**ORDERS, "changes": soft})
    enveloped = {"converter": "json", "options": {"schemas.enable": True}}
    flow.set(source__kafka__value=enveloped, source__kafka__key=enveloped)
    log = Log(enveloped=True)
    log.send(event("c", mysql(1, 10), after=row(9, "gone")))
    log.send(event("t", mysql(1, 20)))
    for i in range(4):
        log.send(event("c", mysql(1, 100 + i), after=row(i, f"a{i}")))
    log.send(event("d", mysql(1, 200), row(1, "a1")))
    log.send(event("u", mysql(1, 150), row(1, "a1"), row(1, "late")))
    flow.produce_keyed(log.take())
    flow.interval()
    found = sorted(flow.read("id", "v", "_deleted"))
    assert found == [(0, "a0", False), (1, "a1", True), (2, "a2", False), (3, "a3", False)]
    log.send(event("t", mysql(1, 300)))
    log.send(event("c", mysql(1, 400), after=row(1, "back")))
    flow.produce_keyed(log.take())
    flow.interval()
    found = sorted(flow.read("id", "v", "_deleted"))
    assert found == [(0, "a0", True), (1, "back", False), (2, "a2", True), (3, "a3", True)]


@pytest.mark.thorough
def test_changes_are_shaped_on_their_way_and_rows_that_a_filter_no_longer_takes_go(make_flow):
    """A partition that is computed from the row: what an update takes away is computed from `before`."""
    flow = make_flow(
        partitions=1,
        **ORDERS,
        source__kafka__value={"schema": "id BIGINT, v STRING, region STRING"},
        source__kafka__columns={"arrived": "offset"},
        transforms=[{"filter": "v <> 'hidden'"}, {"set": {"p": "upper(region)"}}, {"drop": "region"}],
    )
    flow.set(sink__hudi__partition_fields="p", sink__hudi__schema="id BIGINT, v STRING, p STRING, arrived BIGINT")

    def image(number: int, v: str, region: str) -> dict[str, Any]:
        return {"id": number, "v": v, "region": region}

    log = Log()
    for i in range(4):
        log.send(event("c", mysql(7, 100 + i), None, image(i, "a", "north")))
    log.send(event("u", mysql(7, 200), image(0, "a", "north"), image(0, "b", "south")))
    log.send(event("u", mysql(7, 210), image(1, "a", "north"), image(1, "b", "north")))
    log.send(event("u", mysql(7, 220), image(2, "a", "north"), image(2, "hidden", "south")))
    flow.produce_keyed(log.take())
    flow.interval()
    found = sorted(flow.read("id", "v", "p", "arrived"))
    assert found == [(0, "b", "SOUTH", 4), (1, "b", "NORTH", 5), (3, "a", "NORTH", 3)]
    log.send(event("u", mysql(7, 300), image(2, "hidden", "south"), image(2, "seen", "south")))
    log.send(event("d", mysql(7, 310), image(3, "a", "north")))
    log.send(event("u", mysql(7, 320), image(0, "b", "south"), image(0, "hidden", "south")))
    flow.produce_keyed(log.take())
    flow.interval()
    assert sorted(flow.read("id", "v", "p")) == [(1, "b", "NORTH"), (2, "seen", "SOUTH")]
    ack = acknowledged(flow)
    assert (ack.records_read, ack.records_written, ack.records_deleted, ack.records_filtered) == (3, 1, 2, 0)


@pytest.mark.thorough
def test_avro_events_bring_the_tables_columns_with_them(make_flow, registry, monkeypatch):
    """The database adds a column while events of both schemas are in one interval; deletes have but the key."""
    monkeypatch.setenv(VARIABLE, registry.url)
    by_registry = {"converter": "avro", "registry": "schema_registry_default"}
    flow = make_flow(partitions=2, **{**ORDERS, "sink__hudi__schema": None})
    flow.set(source__kafka__value=by_registry, source__kafka__key=by_registry)
    number = {"name": "id", "type": "long"}
    columns = [number, {"name": "v", "type": ["null", "string"], "default": None}]
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    added = {"name": "amount", "type": ["null", amount], "default": None}
    key = {"type": "record", "name": "Key", "namespace": "shop.public.orders", "fields": [number]}
    with SchemaRegistryClient({"url": registry.url}) as client:
        keys = AvroSerializer(client, json.dumps(key))
        old, new = (AvroSerializer(client, avro_envelope(*c)) for c in (columns, [*columns, added]))

        def send(*events: tuple[Any, dict[str, Any] | None, AvroSerializer]) -> None:
            of_key, of_value = (SerializationContext(flow.topic, part) for part in ("key", "value"))
            records = [
                (keys({"id": number}, of_key), None if message is None else serializer(message, of_value))
                for number, message, serializer in events
            ]
            flow.produce_keyed(records, **MURMUR2)

        def row(number: int, v: str | None, **more: Any) -> dict[str, Any]:
            return {"id": number, "v": v, **more}

        first = [(i, event("r", postgresql(500, snapshot="true"), None, row(i, f"snap{i}")), old) for i in range(6)]
        gone = event("d", postgresql(520), row(1, None))
        send(*first, (0, event("u", postgresql(510), None, row(0, "u")), old), (1, gone, old), (1, None, old))
        send((2, event("u", postgresql(530), None, row(2, "u", amount=Decimal("7.50"))), new))
        flow.interval()
        seen = {(0, "u", None), (2, "u", Decimal("7.50")), *((i, f"snap{i}", None) for i in (3, 4, 5))}
        assert set(flow.read("id", "v", "amount")) == seen
        assert flow.columns() == {"id", "v", "amount", "_source_position"}
        send((1, event("u", postgresql(515), None, row(1, "late")), old))
        send((0, event("d", postgresql(550), row(0, None)), old))
        send((3, event("u", postgresql(560), None, row(3, "u", amount=Decimal(1))), new))
        flow.interval()
    seen = {(2, "u", Decimal("7.50")), (3, "u", Decimal("1.00")), (4, "snap4", None), (5, "snap5", None)}
    assert set(flow.read("id", "v", "amount")) == seen
