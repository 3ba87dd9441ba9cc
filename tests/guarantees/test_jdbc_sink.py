"""Each record is a row of a database's table once, and the last version of its key where it has one.

Real PostgreSQL, MariaDB and SQLite; rows are compared with the records that were sent, as the database's own clients
see them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sluice.connectors.connections import given
from sluice.connectors.views import commit_log_of, quarantine_reader_of
from sluice.errors import ActionRequiredError
from sluice.identifiers import dotted, sql_quoted
from sluice.protocol.messages import AckCommit
from sluice.protocol.offsets import OFFSETS_KEY
from sluice.protocol.quarantine import quarantine_path

from .debezium import Log, event, mysql
from .harness.databases import MariaDatabase, PostgresDatabase
from .harness.jdbc import TOMBSTONES, UPSERT, Table, keyed, refused

# Rows


@pytest.mark.also_on("mariadb")
def test_every_record_is_a_row_once_over_several_intervals_and_write_jobs(make_jdbc):
    table = make_jdbc(write__ranges=2)
    for _ in range(3):
        table.flow.produce(60)
        assert table.flow.interval().records == 60
        table.check()
    table.flow.interval_is_empty()
    columns = "state, rows_written, rows_deleted"
    intervals = table.database.query(f"SELECT {columns} FROM _sluice_instants WHERE sink_table LIKE '%{table.name}'")
    assert intervals == [("completed", 60, 0)] * 3
    _shown_without_a_jvm(table)


NAMES = ['Order-Lines "Ü"? 100%', "select.eu"]


def test_a_table_is_called_as_its_database_calls_it(make_jdbc, database):
    """Dash, blank, quote, dot, upper case and a word of SQL's, for the table and that of its bad records."""
    for number, name in enumerate(NAMES):
        section = {**UPSERT, "pk_mode": "record_value", "delete_enabled": False}
        table = make_jdbc(1, section={**section, "table": dotted(name)})
        table.flow.set(errors={"tolerance": "all"})
        for values in ([{"id": number, "v": "a"}, {"id": "bad"}], [{"id": number, "v": name}]):
            table.flow.produce_values([json.dumps(value).encode() for value in values])
            assert table.flow.interval().records == 1
        assert database.query(f"SELECT id, v FROM {sql_quoted(name)}") == [(number, name)]
        assert {name, f"{name}_quarantine"} <= database.tables()
        assert table.staging() == set()
        assert len(commit_log_of("jdbc", table.flow.pipeline.table_id).read().instants) == 2
        path = quarantine_path(table.flow.pipeline.table_id, table.flow.pipeline.errors)
        reader = quarantine_reader_of("jdbc", table.flow.pipeline.sink.options, path)
        ((instant, paths),) = reader.committed().items()
        assert [one.value for one in reader.records(paths)] == [b'{"id": "bad"}'], instant


def _shown_without_a_jvm(table: Table) -> None:
    """The page's look at the table's own commits, and what it says where it may not."""
    log = commit_log_of("jdbc", table.flow.pipeline.table_id)
    instants = [m.transaction for m in table.flow.messages() if isinstance(m, AckCommit)]
    timeline = log.read()
    assert [timeline.standing(instant) for instant in instants] == ["completed"] * 3
    assert timeline.of_others(instants) == []
    facts = log.facts(timeline.instants[instants[-1]])
    assert (facts.rows, OFFSETS_KEY in facts.extra) == (60, True)
    if table.database.connection.password:
        wrong = replace(table.database.connection, password="hunter2")
        with given([wrong]), pytest.raises(ActionRequiredError, match="refuses the page's look") as caught:
            log.read()
        assert "hunter2" not in str(caught.value)


@pytest.mark.also_on("mariadb")
def test_values_are_in_the_table_as_they_were_in_the_records(make_jdbc, database):
    ddl = (
        "id BIGINT, b BOOLEAN, s SMALLINT, i INT, d DOUBLE, f FLOAT, m DECIMAL(38,18), t TIMESTAMP, n TIMESTAMP_NTZ, "
        "day DATE, v STRING, x BINARY, a ARRAY<INT>, s_ STRUCT<at: TIMESTAMP, no: STRING, days: MAP<STRING, TIMESTAMP>>"
    )
    table = make_jdbc(1, section={"schema": ddl})
    rows = [
        {"id": 1, "b": True, "s": -32768, "i": 2**31 - 1, "d": 0.1, "f": 1.5,
         "m": "12345678901234567890.123456789012345678", "t": "2026-03-29T01:30:00.123456Z",
         "n": "2026-03-29T02:30:00.654321", "day": "1582-10-04", "v": "ü\t'\"\\ 🙂", "x": "AP8B", "a": [1, None, 3],
         "s_": {"at": "2026-03-29T03:04:05.123456+02:00", "days": {"a": "1582-10-04T00:00:00.000001Z", "b": None}}},
        {"id": 2, "t": "0001-01-01T00:00:00.000001Z", "n": "9999-12-31T23:59:59.999999", "day": "9999-12-31", "v": ""},
        {"id": 2**63 - 1},
    ]  # fmt: skip
    table.flow.produce_values([json.dumps(row).encode() for row in rows])
    assert table.flow.interval().records == 3
    first, second, third = sorted(table.rows("id, b, s, i, d, f, m, t, n, day, v, x, a, s_"))
    assert third == (2**63 - 1, *[None] * 13)
    assert (json.loads(first[13]) if isinstance(first[13], str) else first[13]) == {
        "at": "2026-03-29T01:04:05.123456Z",
        "no": None,
        "days": {"a": "1582-10-04T00:00:00.000001Z", "b": None},
    }
    moment, local = datetime(2026, 3, 29, 1, 30, 0, 123456, UTC), datetime(2026, 3, 29, 2, 30, 0, 654321)
    decimal = Decimal("12345678901234567890.123456789012345678")
    plain = (1, True, -32768, 2**31 - 1, 0.1, 1.5)
    assert (*first[:6], first[10], bytes(first[11])) == (*plain, "ü\t'\"\\ 🙂", b"\x00\xff\x01")
    assert second[10] == ""
    if isinstance(database, PostgresDatabase):
        assert first[6:10] == (decimal, moment, local, date(1582, 10, 4))
        assert first[12] == [1, None, 3]
        earliest = datetime(1, 1, 1, 0, 0, 0, 1, UTC)
        assert second[7:10] == (earliest, datetime(9999, 12, 31, 23, 59, 59, 999999), date(9999, 12, 31))
    elif isinstance(database, MariaDatabase):
        assert first[6:10] == (decimal, moment.replace(tzinfo=None), local, date(1582, 10, 4))
        assert first[12] == "[1,null,3]"
        latest = datetime(9999, 12, 31, 23, 59, 59, 999999)
        assert second[7:10] == (datetime(1, 1, 1, 0, 0, 0, 1), latest, latest.date())
    else:
        assert first[6:10] == (str(decimal), str(moment)[:-6], str(local), "1582-10-04")
        assert first[12] == "[1,null,3]"
        assert second[7:10] == ("0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999", "9999-12-31")


def test_a_table_of_the_user_s_own_is_filled_by_the_names_and_types_of_its_columns(make_jdbc, database):
    if not isinstance(database, PostgresDatabase):
        pytest.skip("types of PostgreSQL's")
    database.run("CREATE TYPE mood AS ENUM ('fine', 'bad')")
    database.run(
        'CREATE TABLE own (seq SERIAL, "ID" UUID PRIMARY KEY, doc JSONB, how mood, code CHARACTER VARYING(3), '
        "at TIMESTAMP(6), added TIMESTAMPTZ NOT NULL DEFAULT now())"
    )
    own = {"table": "own", "auto_create": False, "db_timezone": "Europe/Berlin"}
    table = make_jdbc(1, section={**own, "schema": "id STRING, doc STRING, how STRING, code STRING, at TIMESTAMP"})
    unique = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    row = {"id": unique, "doc": '{"a": [1]}', "how": "fine", "code": "übe", "at": "2026-07-01T10:00:00.000001Z"}
    table.flow.produce_values([json.dumps(row).encode()])
    table.flow.interval()
    summer = datetime(2026, 7, 1, 12, 0, 0, 1)
    assert table.rows('seq, "ID"::text, doc, how, code, at') == [(1, unique, {"a": [1]}, "fine", "übe", summer)]


def test_arrays_of_postgresql_s_hold_arrays_of_single_values(make_jdbc, database):
    if not isinstance(database, PostgresDatabase):
        pytest.skip("the other databases have no arrays")
    database.run(
        "CREATE TABLE arrays (id BIGINT, n INTEGER[], t TEXT[], m NUMERIC(4,1)[], at TIMESTAMPTZ[], u UUID[], "
        "b BOOLEAN[])"
    )
    ddl = (
        "id BIGINT, n ARRAY<BIGINT>, t ARRAY<STRING>, m ARRAY<DECIMAL(10,2)>, at ARRAY<TIMESTAMP>, u ARRAY<STRING>, "
        "b ARRAY<BOOLEAN>"
    )
    table = make_jdbc(1, section={"table": "arrays", "auto_create": False, "schema": ddl})
    texts = ["", "NULL", None, 'a"b', "c\\d", "{e,f}", " ü\n"]
    unique = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    rows = [
        {"id": 1, "n": [1, None, -(2**31)], "t": texts, "m": ["100.5"], "at": ["2026-07-01T10:00:00.000001Z"],
         "u": [unique], "b": [True, None]},
        {"id": 2, "n": []},
    ]  # fmt: skip
    table.flow.produce_values([json.dumps(row).encode() for row in rows])
    table.flow.interval()
    first, second = sorted(table.rows("id, n, t, m, at, u::text[], b"))
    moment = datetime(2026, 7, 1, 10, 0, 0, 1, UTC)
    assert first == (1, [1, None, -(2**31)], texts, [Decimal("100.5")], [moment], [unique], [True, None])
    assert second == (2, [], *[None] * 5)
    table.flow.produce_values([b'{"id": 3, "n": [7, 2147483648]}'])
    error = str(refused(table.flow))
    assert "the value of n does not fit integer[]: it is not from -2147483648 to 2147483647" in error
    assert "offset=2" in error


def test_columns_are_added_where_they_may_be_and_nothing_else_changes(make_jdbc):
    table = make_jdbc(1)
    table.flow.produce(2, partitions=[0])
    table.flow.interval()
    table.flow.set(sink__jdbc__schema="id BIGINT, v STRING, more DOUBLE")
    table.flow.produce(1, partitions=[0], fields={"more": 0.5})
    with pytest.raises(ActionRequiredError, match=r"lacks columns that the rows have: more.*auto_evolve"):
        table.flow.start()
    table.flow.set(sink__jdbc__auto_evolve=True)
    table.flow.interval()
    assert sorted(table.rows("id, more")) == [(0, None), (1, None), (2, 0.5)]


# Versions of keys


def test_the_rows_are_what_the_records_one_by_one_would_have_made(make_jdbc):
    """Keys that are inserted, deleted and inserted again within an interval and over several."""
    table = make_jdbc(2, section=UPSERT, **TOMBSTONES)
    model: dict[int, str] = {}
    steps = [
        [(1, "a"), (1, None), (1, "b"), (2, "a"), (3, "a"), (4, None)],
        [(1, None), (2, "b"), (2, "c"), (3, None), (5, "a"), (5, None), (6, "a")],
        [(1, "c"), (3, "b"), (3, "c"), (6, None), (6, "b"), (6, None)],
    ]
    for records in steps:
        table.flow.produce_keyed([keyed(*record) for record in records], partitioner="murmur2")
        for number, version in records:
            model = (
                {**model, number: version} if version is not None else {n: v for n, v in model.items() if n != number}
            )
        table.flow.interval()
        assert sorted(table.rows()) == sorted(model.items())
    acknowledged = [m for m in table.flow.messages() if isinstance(m, AckCommit)]
    assert [(m.records_written, m.records_deleted) for m in acknowledged] == [(4, 2), (4, 3), (4, 2)]
    assert table.staging() == set()


def test_events_of_debezium_s_come_to_the_rows_of_their_source(make_jdbc):
    """In whatever order they come; what the source's database didn't log stops the interval, and is told."""
    section = {**UPSERT, "pk_mode": "record_value"}
    table = make_jdbc(1, section=section, changes={"format": "debezium"})

    def send(*events: dict[str, Any]) -> None:
        sent = Log()
        for one in events:
            sent.send(one)
        table.flow.produce_keyed(sent.take())

    def row(number: int, v: str) -> dict[str, Any]:
        return {"id": number, "v": v}

    late = event("u", mysql(3, 900), None, row(1, "older"))
    send(
        event("c", mysql(3, 100), after=row(1, "a")),
        event("c", mysql(3, 200), after=row(2, "a")),
        event("u", mysql(12, 50), None, row(1, "newest")),
        event("d", mysql(12, 60), before=row(2, "a")),
        late,
    )
    table.flow.interval()
    assert table.rows() == [(1, "newest")]
    send(late, event("c", mysql(12, 70), after=row(2, "again")))
    table.flow.interval()
    assert sorted(table.rows()) == [(1, "newest"), (2, "again")]
    send(event("u", mysql(12, 80), None, row(2, "__debezium_unavailable_value")))
    error = refused(table.flow)
    assert "did not log the value of v" in str(error)
    assert "offset=7" in str(error)
    assert sorted(table.rows()) == [(1, "newest"), (2, "again")]


def test_a_key_in_two_partitions_is_refused_unless_a_column_orders_its_versions(make_jdbc):
    section = {**UPSERT, "schema": "id BIGINT NOT NULL, v STRING, ts BIGINT", "delete_enabled": False}
    table = make_jdbc(2, section=section, source__kafka__key={"converter": "json"})
    table.flow.produce_keyed([keyed(170017, "a", ts=1)], partition=1)
    table.flow.produce_keyed([keyed(170017, "b", ts=2)], partition=0)
    error = refused(table.flow)
    assert "A key is in two partitions" in str(error)
    topic = table.flow.topic
    assert error.where["key"] == "id"
    assert error.where["one_of_its_versions"] in (f"{topic}[0]@0", f"{topic}[1]@0")
    assert "170017" not in str(error)
    assert table.rows() == []
    table.flow.set(sink__jdbc__ordering_field="ts")
    table.flow.interval()
    assert table.rows() == [(170017, "b")]


def test_an_update_changes_rows_that_are_there_and_adds_none(make_jdbc, database):
    section = {**UPSERT, "insert_mode": "update", "delete_enabled": False, "pk_mode": "record_value"}
    table = make_jdbc(1, section=section)
    table.flow.produce(1, partitions=[0])
    table.flow.interval()
    assert table.rows() == []
    database.run(f"INSERT INTO {table.name} (id, v) VALUES (7, 'before')")
    table.flow.produce(3, partitions=[0], ids=[6, 7, 8], values="x")
    table.flow.interval()
    assert table.rows() == [(7, "x7")]


def test_what_the_table_has_already_is_not_read_again_out_of_its_order(make_jdbc):
    """An older version would take the place of a newer row, and nothing in the table says that it is newer."""
    section = {**UPSERT, "delete_enabled": False, "pk_mode": "record_value", "ordering_field": "id"}
    table = make_jdbc(1, section=section)
    table.flow.produce(3, partitions=[0])
    instant = table.flow.interval().instant
    run = table.flow.run(kind="replay", instant=instant)
    with pytest.raises(ActionRequiredError, match=r"sink\.jdbc can't tell records that are read out of their order"):
        table.flow.coordinator().start(run)
    assert len(table.rows()) == 3
    table.flow.produce(5, partitions=[0])
    # A window ahead would be in order, and what is before it out of order from then on.
    ahead = table.flow.run(kind="range", offsets={table.flow.topic: {0: (5, 7)}})
    with pytest.raises(ActionRequiredError, match="let runs read on from the table's position"):
        table.flow.coordinator().start(ahead)
    table.flow.interval()
    assert len(table.rows()) == 8
