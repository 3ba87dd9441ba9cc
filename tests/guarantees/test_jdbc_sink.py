"""Each record is a row of a database's table once: real PostgreSQL and SQLite, with processes that really die.

After each disturbance the rows are compared with the records that were sent, as the database's own clients see them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sluice.connectors.connections import given
from sluice.connectors.views import commit_log_of
from sluice.coordinator import Started
from sluice.errors import ActionRequiredError, IntervalError, RetryableError, SluiceError
from sluice.protocol.messages import AckCommit, WriteStatus
from sluice.protocol.offsets import OFFSETS_KEY, Checkpoint, TopicPartition

from ..thorough import also
from .debezium import Log, event, mysql
from .harness import CLUSTER, Flow, Pause, once_the_lease_is_free
from .harness.databases import CONNECTION, PostgresDatabase, Readable, SqliteFile

DDL = "id BIGINT, v STRING"
UPSERT = {
    "schema": "id BIGINT NOT NULL, v STRING",
    "insert_mode": "upsert",
    "pk_mode": "record_key",
    "pk_fields": "id",
    "delete_enabled": True,
}
TOMBSTONES: dict[str, Any] = {"changes": {"format": "tombstones"}, "source__kafka__key": {"converter": "json"}}


class Table:
    """A pipeline, and its table as a client of the database sees it."""

    def __init__(self, flow: Flow, database: Readable) -> None:
        self.flow, self.database = flow, database
        self.name = flow.pipeline.sink.jdbc.table

    def rows(self, columns: str = "id, v") -> list[tuple[Any, ...]]:
        if self.name not in self.database.tables():
            return []
        return self.database.query(f'SELECT {columns} FROM "{self.name}"')

    def position(self) -> dict[int, int]:
        """The offsets up to which the table has the topic, as its row among the positions says."""
        sql = f"SELECT metadata FROM _sluice_positions WHERE sink_table LIKE '%{self.name}' AND instant IS NOT NULL"
        found = self.database.query(sql)
        if not found:
            return {}
        checkpoint = Checkpoint.model_validate_json(json.loads(found[0][0])[OFFSETS_KEY])
        ends = {p: checkpoint.covered(TopicPartition(CLUSTER, self.flow.topic, p)) for p in self.flow.log_ends()}
        return {p: spans[-1][1] for p, spans in ends.items() if spans}

    def check(self) -> None:
        """Rows and offsets agree, and no record is missing."""
        offsets = self.position()
        covered = [sent for sent in self.flow.sent if sent.offset < offsets.get(sent.partition, 0)]
        assert Counter(self.rows()) == Counter((sent.id, sent.value) for sent in covered)
        assert len(covered) == len(self.flow.sent)
        assert self.staging() == set()

    def staging(self) -> set[str]:
        return self.database.staging()


@pytest.fixture
def make(make_flow, database: Readable, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Table]]:
    for variable, value in database.environment().items():
        monkeypatch.setenv(variable, value)

    def made(partitions: int = 2, *, section: dict[str, Any] | None = None, **settings: Any) -> Table:
        jdbc = {"connection": CONNECTION, "schema": DDL, "auto_create": True, **(section or {})}
        flow = make_flow(partitions, sink__hudi=None, sink__jdbc=jdbc, **settings)
        flow.set(sink__jdbc__table=jdbc.get("table", flow.topic.replace("-", "_")))
        flow.secret_environment = database.environment()
        return Table(flow, database)

    yield made
    for name in database.staging():  # the next test looks for its own
        database.run(f'DROP TABLE "{name}"')


def keyed(number: int, version: str | None, **more: Any) -> tuple[bytes, bytes | None]:
    """A record of a key, or its tombstone."""
    key = json.dumps({"id": number}).encode()
    return key, None if version is None else json.dumps({"id": number, "v": version, **more}).encode()


def refused(flow: Flow) -> SluiceError:
    """How an interval ends that can't be loaded: its run is aborted afterwards, as its DAG does it."""
    run = flow.run()
    started = flow.start(run)
    for number in range(len(started.ranges)):
        flow.write(started, number).wait()
    with pytest.raises(SluiceError) as caught:
        flow.commit(started)
    flow.abort(run)
    return caught.value


# Rows


def test_every_record_is_a_row_once_over_several_intervals_and_write_jobs(make):
    table = make(write__ranges=2)
    for _ in range(3):
        table.flow.produce(60)
        assert table.flow.interval().records == 60
        table.check()
    table.flow.interval_is_empty()
    columns = "state, rows_written, rows_deleted"
    intervals = table.database.query(f"SELECT {columns} FROM _sluice_instants WHERE sink_table LIKE '%{table.name}'")
    assert intervals == [("completed", 60, 0)] * 3
    _shown_without_a_jvm(table)


def _shown_without_a_jvm(table: Table) -> None:
    """The page's look at the table's own commits, and what it says where it may not."""
    log = commit_log_of("jdbc", table.flow.pipeline.table_id)
    instants = [m.transaction for m in table.flow.messages() if isinstance(m, AckCommit)]
    timeline = log.read()
    assert [timeline.standing(instant) for instant in instants] == ["completed"] * 3
    assert timeline.of_others(instants) == []
    facts = log.facts(timeline.instants[instants[-1]])
    assert (facts.rows, OFFSETS_KEY in facts.extra) == (60, True)
    if isinstance(table.database, PostgresDatabase):
        wrong = PostgresDatabase(table.database.server, password="hunter2")
        with given([wrong.connection]), pytest.raises(ActionRequiredError, match="refuses the page's look") as caught:
            log.read()
        assert "hunter2" not in str(caught.value)


def test_values_are_in_the_table_as_they_were_in_the_records(make, database):
    ddl = (
        "id BIGINT, b BOOLEAN, s SMALLINT, i INT, d DOUBLE, f FLOAT, m DECIMAL(38,18), t TIMESTAMP, n TIMESTAMP_NTZ, "
        "day DATE, v STRING, x BINARY, a ARRAY<INT>"
    )
    table = make(1, section={"schema": ddl})
    rows = [
        {"id": 1, "b": True, "s": -32768, "i": 2**31 - 1, "d": 0.1, "f": 1.5,
         "m": "12345678901234567890.123456789012345678", "t": "2026-03-29T01:30:00.123456Z",
         "n": "2026-03-29T02:30:00.654321", "day": "1582-10-04", "v": "ü\t'\"\\ 🙂", "x": "AP8B", "a": [1, None, 3]},
        {"id": 2, "t": "0001-01-01T00:00:00.000001Z", "n": "9999-12-31T23:59:59.999999", "day": "9999-12-31", "v": ""},
        {"id": 2**63 - 1},
    ]  # fmt: skip
    table.flow.produce_values([json.dumps(row).encode() for row in rows])
    assert table.flow.interval().records == 3
    first, second, third = sorted(table.rows("id, b, s, i, d, f, m, t, n, day, v, x, a"))
    assert third == (2**63 - 1, *[None] * 12)
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
    else:
        assert first[6:10] == (str(decimal), str(moment)[:-6], str(local), "1582-10-04")
        assert first[12] == "[1,null,3]"
        assert second[7:10] == ("0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999", "9999-12-31")


def test_a_table_of_the_user_s_own_is_filled_by_the_names_and_types_of_its_columns(make, postgresql, database):
    if not isinstance(database, PostgresDatabase):
        pytest.skip("SQLite has no such types")
    database.run("CREATE TYPE mood AS ENUM ('fine', 'bad')")
    database.run(
        'CREATE TABLE own (seq SERIAL, "ID" UUID PRIMARY KEY, doc JSONB, how mood, code CHARACTER VARYING(3), '
        "at TIMESTAMP(6), added TIMESTAMPTZ NOT NULL DEFAULT now())"
    )
    own = {"table": "own", "auto_create": False, "db_timezone": "Europe/Berlin"}
    table = make(1, section={**own, "schema": "id STRING, doc STRING, how STRING, code STRING, at TIMESTAMP"})
    unique = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    row = {"id": unique, "doc": '{"a": [1]}', "how": "fine", "code": "übe", "at": "2026-07-01T10:00:00.000001Z"}
    table.flow.produce_values([json.dumps(row).encode()])
    table.flow.interval()
    summer = datetime(2026, 7, 1, 12, 0, 0, 1)
    assert table.rows('seq, "ID"::text, doc, how, code, at') == [(1, unique, {"a": [1]}, "fine", "übe", summer)]


def test_columns_are_added_where_they_may_be_and_nothing_else_changes(make):
    table = make(1)
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


def test_the_rows_are_what_the_records_one_by_one_would_have_made(make):
    """Keys that are inserted, deleted and inserted again within an interval and over several."""
    table = make(2, section=UPSERT, **TOMBSTONES)
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


def test_events_of_debezium_s_come_to_the_rows_of_their_source(make):
    """In whatever order they come; what the source's database didn't log stops the interval, and is told."""
    section = {**UPSERT, "pk_mode": "record_value"}
    table = make(1, section=section, changes={"format": "debezium"})

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


def test_a_key_in_two_partitions_is_refused_unless_a_column_orders_its_versions(make):
    section = {**UPSERT, "schema": "id BIGINT NOT NULL, v STRING, ts BIGINT", "delete_enabled": False}
    table = make(2, section=section, source__kafka__key={"converter": "json"})
    table.flow.produce_keyed([keyed(1, "a", ts=1)], partition=1)
    table.flow.produce_keyed([keyed(1, "b", ts=2)], partition=0)
    error = refused(table.flow)
    assert "A key is in two partitions" in str(error)
    assert "id=1" in str(error)
    assert table.rows() == []
    table.flow.set(sink__jdbc__ordering_field="ts")
    table.flow.interval()
    assert table.rows() == [(1, "b")]


def test_an_update_changes_rows_that_are_there_and_adds_none(make, database):
    section = {**UPSERT, "insert_mode": "update", "delete_enabled": False, "pk_mode": "record_value"}
    table = make(1, section=section)
    table.flow.produce(1, partitions=[0])
    table.flow.interval()
    assert table.rows() == []
    database.run(f"INSERT INTO {table.name} (id, v) VALUES (7, 'before')")
    table.flow.produce(3, partitions=[0], ids=[6, 7, 8], values="x")
    table.flow.interval()
    assert table.rows() == [(7, "x7")]


def test_what_the_table_has_already_is_not_read_again_out_of_its_order(make):
    """An older version would take the place of a newer row, and nothing in the table says that it is newer."""
    section = {**UPSERT, "delete_enabled": False, "pk_mode": "record_value", "ordering_field": "id"}
    table = make(1, section=section)
    table.flow.produce(3, partitions=[0])
    instant = table.flow.interval().instant
    run = table.flow.run(kind="replay", instant=instant)
    with pytest.raises(ActionRequiredError, match=r"sink\.jdbc can't tell records that are read out of their order"):
        table.flow.coordinator().start(run)
    assert len(table.rows()) == 3
    table.flow.produce(5, partitions=[0])
    # A window ahead would be in order, and what is before it out of order from then on.
    ahead = table.flow.run(kind="range", offsets={table.flow.topic: {0: (5, 7)}})
    with pytest.raises(ActionRequiredError, match="let runs read on from where the table stands"):
        table.flow.coordinator().start(ahead)
    table.flow.interval()
    assert len(table.rows()) == 8


# Deaths


COMMIT_POINTS = [
    "coordinator.before_hudi_commit",
    "jdbc.before_transaction",
    "jdbc.before_database_commit",
    "jdbc.after_database_commit",
    "coordinator.before_ack_commit",
]


@pytest.mark.parametrize("point", [*COMMIT_POINTS[1:4], *also(COMMIT_POINTS[0], COMMIT_POINTS[4])])
def test_a_coordinator_that_is_killed_while_it_commits(make, point):
    """The interval is there whole or not at all, then and when the next one has come by."""
    table = make()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    offset = str(started.control_offset)
    step = table.flow.step("commit", "--control-offset", offset, failpoint=f"{point}=kill")
    assert step.killed, step.err
    done = point in ("jdbc.after_database_commit", "coordinator.before_ack_commit")
    assert len(table.rows()) == (40 if done else 0)
    assert sum(table.position().values()) == (40 if done else 0)
    if COMMIT_POINTS.index(point) % 2:
        assert table.flow.commit(started).state == "committed"
    table.flow.produce(20)
    table.flow.interval()
    table.check()


@pytest.mark.parametrize("point", ["after_open_instant", *also("before_start_commit", "after_start_commit")])
def test_a_coordinator_that_is_killed_while_it_starts(make, database, point):
    table = make()
    table.flow.produce(40)
    step = table.flow.step("start", "--run-id", "first", failpoint=f"coordinator.{point}=kill")
    assert step.killed, step.err
    table.flow.interval()
    table.check()
    sql = f"SELECT state FROM _sluice_instants WHERE sink_table LIKE '%{table.name}'"
    assert database.query(sql) == [("completed",)]


@pytest.mark.parametrize("end", ["committed", *also("aborted")])
def test_a_zombie_reaches_nothing_but_a_staging_table_of_its_own(make, end):
    table = make()
    table.flow.produce(40)
    run = table.flow.run()
    started = table.flow.start(run)
    zombie = table.flow.zombie(started)
    if end == "aborted":
        table.flow.abort(run)
    else:
        table.flow.write(started).succeed()
        table.flow.commit(started)
        table.check()
    before = table.rows()
    zombie.write()
    assert len(table.staging()) == 1
    assert table.rows() == before
    zombie.hear()
    statuses = [m for m in table.flow.messages() if isinstance(m, WriteStatus) and m.error is None]
    assert len(statuses) == (0 if end == "aborted" else 1)
    table.flow.produce(20)
    table.flow.interval()
    table.check()


def test_of_two_attempts_one_counts(make):
    table = make()
    table.flow.produce(40)
    started = table.flow.start()
    zombie = table.flow.zombie(started)
    table.flow.write(started).succeed()
    zombie.write()
    assert len(table.staging()) == 2
    table.flow.commit(started)
    table.check()
    zombie.hear()


def test_an_interval_that_is_committed_twice_is_there_once(make):
    table = make()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    for _ in range(2):
        assert table.flow.commit(started).records == 40
        table.check()


def test_of_two_runs_at_once_one_commits(make):
    table = make()
    table.flow.produce(40)
    first = table.flow.start()
    table.flow.write_all(first)
    second = table.flow.start()
    table.flow.write_all(second)
    with pytest.raises(IntervalError):
        table.flow.commit(first)
    assert table.rows() == []
    table.flow.commit(second)
    table.check()


def test_an_interval_that_is_aborted_leaves_nothing(make):
    table = make()
    table.flow.produce(40)
    run = table.flow.run()
    table.flow.write_all(table.flow.start(run))
    assert len(table.staging()) == 1
    assert table.flow.abort(run).state == "aborted"
    assert (table.rows(), table.staging(), table.position()) == ([], set(), {})
    table.flow.interval()
    table.check()


def test_a_process_that_stands_still_before_its_transaction_commits_nothing_afterwards(make, tmp_path):
    """The run is aborted meanwhile: the database has to refuse what nobody could take off again."""
    table = make(control__commit_timeout="1 second")
    table.flow.produce(40)
    run = table.flow.run()
    started = table.flow.start(run)
    table.flow.write_all(started)
    pause = Pause("jdbc.before_transaction", tmp_path)
    frozen = table.flow.spawn("commit", "--control-offset", str(started.control_offset), failpoint=pause.failpoint)
    pause.wait(frozen)
    assert once_the_lease_is_free(lambda: table.flow.abort(run)).state == "aborted"
    pause.release()
    assert frozen.wait(600) != 0
    out, err = frozen.communicate()
    assert "rolled back" in err, out + err
    assert (table.rows(), table.position()) == ([], {})
    table.flow.interval()
    table.check()


def test_of_two_processes_that_carry_a_commit_out_one_does(make, tmp_path):
    table = make(control__commit_timeout="1 second")
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    pause = Pause("jdbc.before_transaction", tmp_path)
    frozen = table.flow.spawn("commit", "--control-offset", str(started.control_offset), failpoint=pause.failpoint)
    pause.wait(frozen)
    once_the_lease_is_free(lambda: table.flow.commit(started))
    table.check()
    pause.release()
    assert frozen.wait(600) == 0, frozen.communicate()
    table.check()
    frozen.communicate()


def test_rows_that_are_gone_from_staging_are_never_taken_for_none(make, database):
    """As when PostgreSQL crashes, which keeps no rows of an unlogged table."""
    table = make()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    (staged,) = table.staging()
    database.run(f'DELETE FROM "{staged}" WHERE id = 3')
    with pytest.raises(IntervalError, match=r"staged are gone.*found=39, reported=40"):
        table.flow.commit(started)
    assert (table.rows(), table.position()) == ([], {})
    table.flow.interval()
    table.check()


def test_rows_that_spark_has_staged_twice_are_taken_once(make, database):
    table = make()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    (staged,) = table.staging()
    database.run(f'INSERT INTO "{staged}" SELECT * FROM "{staged}"')
    table.flow.commit(started)
    table.check()


# Bad input


def test_a_value_that_does_not_fit_is_told_with_its_place(make, database):
    if isinstance(database, SqliteFile):
        pytest.skip("a text of SQLite's may have any length")
    database.run("CREATE TABLE narrow (id INTEGER, v CHARACTER VARYING(4))")
    table = make(1, section={"table": "narrow", "auto_create": False})
    table.flow.produce(5, partitions=[0])
    table.flow.produce_raw(b'{"id": 5, "v": "long text"}')
    error = refused(table.flow)
    assert isinstance(error, ActionRequiredError)
    assert "the value of v does not fit character varying(4): it is longer than 4 characters" in str(error)
    assert f"topic={table.flow.topic}, partition=0, offset=5" in str(error)
    assert (table.rows(), table.staging(), table.position()) == ([], set(), {})


def test_a_constraint_that_is_broken_stops_the_interval_whole(make, database):
    name = f"unique_{database.name}"
    database.run(f"CREATE TABLE {name} (id BIGINT, v VARCHAR(20) UNIQUE)")
    table = make(1, section={"table": name, "auto_create": False})
    table.flow.produce(3, partitions=[0])
    table.flow.interval()
    table.flow.produce_raw(b'{"id": 9, "v": "new"}')
    table.flow.produce_raw(b'{"id": 10, "v": "a1"}')
    error = refused(table.flow)
    assert isinstance(error, ActionRequiredError)
    assert "The database refuses the rows" in str(error)
    assert "unique" in str(error).lower()
    assert (len(table.rows()), table.position(), table.staging()) == (3, {0: 3}, set())


def test_a_null_that_the_table_has_no_place_for_is_told_with_its_place(make, database):
    name = f"never_null_{database.name}"
    database.run(f"CREATE TABLE {name} (id BIGINT, v VARCHAR(20) NOT NULL)")
    table = make(1, section={"table": name, "auto_create": False})
    table.flow.produce_raw(b'{"id": 1}')
    error = refused(table.flow)
    assert "the column v must not be null in the database" in str(error)
    assert "offset=0" in str(error)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (None, r"The table isn't there.*auto_create"),
        ("id BIGINT", r"lacks columns that the rows have: v.*auto_evolve"),
        ("id REAL, v VARCHAR(9)", r"doesn't hold the rows: `id` is real"),
        ("id BIGINT, v VARCHAR(9), x INTEGER NOT NULL", r"`x` must not be null, has no default, and no row has it"),
    ],
)
def test_a_table_that_cannot_hold_the_rows_is_refused_before_anything_is_read(make, database, columns, says):
    name = "other"
    database.run(f"DROP TABLE IF EXISTS {name}")
    if columns is not None:
        database.run(f"CREATE TABLE {name} ({columns})")
    table = make(1, section={"table": name, "auto_create": False})
    table.flow.produce(1, partitions=[0])
    with pytest.raises(ActionRequiredError, match=f"(?i){says}"):
        table.flow.start()
    assert not any(m.type == "START-COMMIT" for m in table.flow.messages())


def _another(table: Table, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    connection = {**json.loads(next(iter(table.database.environment().values())))[0], **changed}
    variable = next(iter(table.database.environment()))
    monkeypatch.setenv(variable, json.dumps([connection]))


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"password": "wrong-password"}, ActionRequiredError, "refuses the connection"),
        ({"schema": "nowhere"}, ActionRequiredError, 'database "nowhere" does not exist'),
        ({"port": 1}, RetryableError, "failed while connecting"),
        (
            {"type": "jdbc", "host": "jdbc:oracle:thin:@h:1/x"},
            ActionRequiredError,
            "isn't made for this database: oracle",
        ),
        ({"type": "jdbc", "host": "nonsense"}, ActionRequiredError, "no address of a database"),
    ],
)
def test_a_wrong_connection_is_told_in_one_message(make, database, monkeypatch, changed, error, says):
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has no login")
    table = make(1)
    table.flow.produce(1, partitions=[0])
    _another(table, monkeypatch, **changed)
    with pytest.raises(error, match=says) as caught:
        table.flow.start()
    told = str(caught.value)
    assert "wrong-password" not in told
    assert database.server.password not in told
    assert f"connection={CONNECTION}" in told


def test_a_folder_that_is_not_there_is_told(make, database, monkeypatch):
    if not isinstance(database, SqliteFile):
        pytest.skip("of SQLite")
    table = make(1)
    table.flow.produce(1, partitions=[0])
    _another(table, monkeypatch, host="/nowhere/at/all.db")
    with pytest.raises(ActionRequiredError, match="connecting to it"):
        table.flow.start()


def test_a_login_without_rights_is_told_what_it_needs(make, database, monkeypatch):
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has no rights")
    database.run("CREATE ROLE poor LOGIN PASSWORD 'poor-password'; CREATE SCHEMA closed")
    table = make(1, section={"table": "closed.flights"})
    table.flow.produce(1, partitions=[0])
    _another(table, monkeypatch, login="poor", password="poor-password")
    with pytest.raises(ActionRequiredError, match=r"doesn't permit creating _sluice_positions.*Rights"):
        table.flow.start()


def test_the_password_shows_in_no_message_and_no_log(make, database):
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has no login")
    table = make(1)
    table.flow.produce(5, partitions=[0])
    started: Started = table.flow.start()
    job = table.flow.write(started)
    job.succeed()
    table.flow.commit(started)
    told = job.text() + "".join(message.model_dump_json() for message in table.flow.messages())
    assert table.name in told
    assert database.server.password not in told
