"""Each record is a row once of a table of a database that only its JDBC driver knows; what it lacks is refused.

H2, Derby, and MariaDB by a URL of MySQL's, which has catalogs for schemas and other marks around names.
Rows are compared with the records that were sent, as the databases' own clients see them.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from sluice.connectors.connections import ConnectionSettings
from sluice.connectors.views import commit_log_of
from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol.messages import WriteStatus
from sluice.sinks.jdbc.appends.database import DriverDatabase
from sluice.sinks.jdbc.appends.table import AppendedTable
from sluice.sinks.jdbc.options.names import INSTANTS, POSITIONS

from ..cluster.servers import LOOPBACK
from ..databases_in_java import JavaServer
from ..thorough import also
from .harness import Flow, once_the_lease_is_free
from .harness.databases import CONNECTION, MariaDatabase, Readable, mariadb_server
from .harness.jdbc import DDL, Table, refused, require_refused

ROWS = "id BIGINT, v VARCHAR(90)"
UNICODE = "ALTER DATABASE lake CHARACTER SET utf8mb4"


class InJava(Readable):
    """H2 or Derby."""

    def __init__(self, server: JavaServer) -> None:
        self.server, self.name = server, server.name

    @property
    def connection(self) -> ConnectionSettings:
        return replace(self.server.connection, id=CONNECTION)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.server.query(sql)]

    def run(self, sql: str) -> None:
        self.server.run(sql)

    def tables(self) -> set[str]:
        derby = "SELECT tablename FROM sys.systables WHERE tabletype = 'T'"
        h2 = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'PUBLIC'"
        return {name for (name,) in self.query(derby if self.name == "derby" else h2)}


class AsMySql(MariaDatabase):
    """MariaDB, whose driver takes MySQL's URL when it is asked to."""

    name = "mysql"
    settings = ""

    @property
    def connection(self) -> ConnectionSettings:
        url = f"jdbc:mysql://{LOOPBACK}:{self.server.port}/lake?permitMysqlScheme{self.settings}"
        driver = {"driver_class": "org.mariadb.jdbc.Driver"}
        return ConnectionSettings(
            CONNECTION, "jdbc", host=url, login="sluice", password=self.server.password, extra=driver
        )


class Appended(Table):
    """A table whose columns a test has made."""

    def rows(self, columns: str = "id, v") -> list[tuple[Any, ...]]:
        found = super().rows(columns)
        return [(int(number), *others) for number, *others in found] if columns == "id, v" else found


@pytest.fixture(scope="module")
def h2(h2_server):
    return InJava(h2_server)


@pytest.fixture(scope="module")
def derby(derby_server):
    return InJava(derby_server)


@pytest.fixture(scope="module")
def mysql():
    with mariadb_server() as server:
        database = AsMySql(server)
        database.run(UNICODE)
        yield database


@pytest.fixture(params=["h2", *also("derby", "mysql")])
def database(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def make(jvm_with_drivers, spark_with_drivers, bootstrap, tmp_path, topic_name, monkeypatch):
    """Makes a pipeline that appends to a table of its own: `make(h2, "id BIGINT", 2, section={…})`."""
    made: list[Readable] = []

    def make_one(
        database: Readable, columns: str = ROWS, partitions: int = 2, *, section=None, options="", **settings
    ) -> Appended:
        flow = Flow(tmp_path, bootstrap, jvm_with_drivers, spark_with_drivers, topic_name("t"), **settings)
        flow.create_topic(partitions)
        name = flow.topic.replace("-", "_")
        if columns:
            database.run(f'CREATE TABLE "{name}" ({columns}) {options}')
        for variable, value in database.environment().items():
            monkeypatch.setenv(variable, value)
            flow.secret_environment[variable] = value
        into = {"connection": CONNECTION, "schema": DDL, "table": name, **(section or {})}
        flow.set(sink__hudi=None, sink__jdbc=into)
        made.append(database)
        return Appended(flow, database)

    yield make_one
    for database in made:
        database.drop_staging()


# Rows


def test_every_record_is_a_row_once_over_several_intervals_and_write_jobs(make, database):
    table = make(database, write__ranges=2)
    for _ in range(3):
        table.flow.produce(60)
        assert table.flow.interval().records == 60
        table.check()
    table.flow.interval_is_empty()
    columns = "state, rows_written, rows_deleted"
    found = database.query(f"SELECT {columns} FROM \"_sluice_instants\" WHERE sink_table LIKE '%{table.name}'")
    assert [(state, int(rows), int(gone)) for state, rows, gone in found] == [("completed", 60, 0)] * 3
    with pytest.raises(ActionRequiredError, match="The page can't look into"):
        commit_log_of("jdbc", table.flow.pipeline.table_id).read()


@pytest.mark.parametrize("point", ["jdbc.before_database_commit", "jdbc.after_database_commit"])
def test_a_coordinator_that_is_killed_while_it_commits(make, database, point):
    table = make(database)
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    step = table.flow.step("commit", "--control-offset", str(started.control_offset), failpoint=f"{point}=kill")
    assert step.killed, step.err
    done = point == "jdbc.after_database_commit"
    assert len(table.rows()) == (40 if done else 0)
    assert sum(table.position().values()) == (40 if done else 0)
    assert table.flow.commit(started).state == "committed"
    table.flow.produce(20)
    table.flow.interval()
    table.check()


def test_a_zombie_reaches_nothing_but_a_staging_table_of_its_own(make, database):
    table = make(database)
    table.flow.produce(40)
    started = table.flow.start()
    zombie = table.flow.zombie(started)
    table.flow.write(started).succeed()
    table.flow.commit(started)
    table.check()
    zombie.write()
    assert len(table.staging()) == 1
    zombie.hear()
    statuses = [m for m in table.flow.messages() if isinstance(m, WriteStatus) and m.error is None]
    assert len(statuses) == 1
    table.flow.produce(20)
    table.flow.interval()
    table.check()


def test_an_interval_that_is_aborted_leaves_nothing_and_is_not_committed_afterwards(make, database):
    """A process that stood still before its transaction finds that the interval is gone."""
    table = make(database, control__commit_timeout="1 second")
    table.flow.produce(40)
    run = table.flow.run()
    started = table.flow.start(run)
    table.flow.write_all(started)
    pause, frozen = table.flow.frozen_commit(started, "jdbc.before_transaction")
    assert once_the_lease_is_free(lambda: table.flow.abort(run)).state == "aborted"
    assert (table.rows(), table.staging(), table.position()) == ([], set(), {})
    pause.release()
    require_refused(table, frozen)


def test_a_commit_is_refused_whose_interval_is_taken_back_within_its_transaction(make, h2):
    table = make(h2)
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    pause, frozen = table.flow.frozen_commit(started, "jdbc.before_position")
    h2.run(f"DELETE FROM \"_sluice_instants\" WHERE sink_table LIKE '%{table.name}' AND state = 'pending'")
    pause.release()
    require_refused(table, frozen)


@pytest.mark.parametrize("change", ["DELETE FROM {0} WHERE id = 3", *also("INSERT INTO {0} SELECT * FROM {0}")])
def test_rows_that_are_gone_from_staging_or_are_there_twice_are_not_committed(make, h2, change):
    table = make(h2)
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    (staged,) = table.staging()
    h2.run(change.format(f'"{staged}"'))
    with pytest.raises(IntervalError, match=r"staged are gone.*found=39|has staged its rows twice.*found=80"):
        table.flow.commit(started)
    assert (table.rows(), table.position()) == ([], {})
    table.flow.interval()
    table.check()


# Values

TYPES = {
    "h2": "id BIGINT, b BOOLEAN, s SMALLINT, i INT, d DOUBLE PRECISION, f REAL, m DECIMAL(31, 18), t TIMESTAMP, "
    "n TIMESTAMP WITH TIME ZONE, born DATE, v VARCHAR(90), x VARBINARY(9), a CLOB, big NUMERIC(50, 2), code CHAR(3)",
    "derby": "id BIGINT, b BOOLEAN, s SMALLINT, i INT, d DOUBLE, f REAL, m DECIMAL(31, 18), t TIMESTAMP, n TIMESTAMP, "
    "born DATE, v VARCHAR(90), x VARCHAR(9) FOR BIT DATA, a CLOB, big NUMERIC(20, 2), code CHAR(3)",
    "mysql": "id BIGINT, b BOOLEAN, s SMALLINT, i INT, d DOUBLE, f FLOAT, m DECIMAL(31, 18), t DATETIME(6), "
    "n DATETIME(6), born DATE, v VARCHAR(90), x VARBINARY(9), a LONGTEXT, big NUMERIC(50, 2), code CHAR(3)",
}
READ = {
    "h2": "id, b, s, i, d, f, m, t, n, born, v, rawtohex(x), a, big, code",
    "derby": "id, b, s, i, d, f, m, t, n, born, v, x, a, big, code",
    "mysql": "id, b, s, i, d, f, m, t, n, born, v, hex(x), a, big, code",
}
RECORDS = (
    "id BIGINT, b BOOLEAN, s SMALLINT, i INT, d DOUBLE, f FLOAT, m DECIMAL(31,18), t TIMESTAMP, n TIMESTAMP, "
    "born DATE, v STRING, x BINARY, a ARRAY<INT>, big DECIMAL(12,2), code STRING"
)


def test_values_are_in_the_table_as_they_were_in_the_records(make, database):
    """And what of them each driver writes alike is compared by `sluice verify`."""
    table = make(database, TYPES[database.name], 1, section={"schema": RECORDS})
    strict = {"x": "AP8B"} if database.name == "derby" else {}  # its driver takes nulls of bytes for a BLOB alone
    rows: list[dict[str, Any]] = [
        {"id": 1, "b": True, "s": -32768, "i": 2**31 - 1, "d": 0.1, "f": 1.5, "m": "1234567890123.123456789012345678",
         "t": "2026-03-29T01:30:00.123456Z", "n": "2026-03-29T03:30:00.654321+02:00", "born": "1582-10-04",
         "v": "ü\t'\"\\ 🙂 ", "x": "AP8B", "a": [1, None, 3], "big": "9999999999.99", "code": "übe"},
        {"id": 2, "t": "0001-01-01T00:00:00.000001Z", "n": "9999-12-31T23:59:59.999999Z", "born": "9999-12-31",
         "v": "", **strict},
        {"id": 2**63 - 1, **strict},
    ]  # fmt: skip
    table.flow.produce_values([json.dumps(row).encode() for row in rows])
    assert table.flow.interval().records == 3
    first, second, third = sorted(database.query(f'SELECT {READ[database.name]} FROM "{table.name}"'), key=_number)
    assert third == (third[0], *[None] * 10, first[11] if strict else None, *[None] * 3)
    assert int(third[0]) == 2**63 - 1
    assert str(first[1]).lower() in ("true", "1")
    assert [float(one) for one in first[2:6]] == [-32768, 2**31 - 1, 0.1, 1.5]
    assert (Decimal(first[6]), Decimal(first[13])) == (Decimal(str(rows[0]["m"])), Decimal("9999999999.99"))
    assert [str(one).removesuffix("+00") for one in first[7:10]] == [
        "2026-03-29 01:30:00.123456",
        "2026-03-29 01:30:00.654321",
        "1582-10-04",
    ]
    assert (first[10], first[11].lower(), first[12], first[14]) == ("ü\t'\"\\ 🙂 ", "00ff01", "[1,null,3]", "übe")
    assert [str(one).removesuffix("+00") for one in second[7:11]] == [
        "0001-01-01 00:00:00.000001",
        "9999-12-31 23:59:59.999999",
        "9999-12-31",
        "",
    ]
    told = table.flow.verify("--json")
    found = json.loads(told.output[told.output.index("{") :])
    assert [one["same"] for one in found["intervals"]] == [True]
    assert found["columns_left_out"] == ["b", "d", "f", "t", "n", "born", "x", "a"]
    database.run(f"UPDATE \"{table.name}\" SET v = 'other' WHERE id = 2")
    assert table.flow.verify().exit_code == 1


def _number(row):
    return int(row[0])


@pytest.mark.parametrize(
    ("column", "kind", "value", "says"),
    [
        ("v VARCHAR(3)", "STRING", "a🙂b", "longer than 3 units"),
        *also(
            ("v DECIMAL(9, 2)", "DECIMAL(12,3)", "1.234", "more than 9 digits with 2 after the point"),
            ("v NUMERIC(50, 2)", "DECIMAL(12,3)", "1.234", "more than 50 digits with 2 after the point"),
            ("v SMALLINT", "INT", 32768, "not from -32768 to 32767"),
            ("v TIMESTAMP(3)", "TIMESTAMP", "2026-01-01T00:00:00.0001Z", "more than 3 digits"),
            ("v CHAR(3)", "STRING", "ab", "3 characters that the database would fill it up to"),
            ("v VARBINARY(2)", "BINARY", "AP8B", "longer than 2 bytes"),
            ("v BIGINT NOT NULL", "BIGINT", None, "must not be null"),
        ),
    ],
)
def test_a_value_that_does_not_fit_stops_the_interval(make, h2, column, kind, value, says):
    table = make(h2, f"id BIGINT, {column}", 1, section={"schema": f"id BIGINT, v {kind}"})
    table.flow.produce_values([json.dumps(row).encode() for row in ({"id": 1}, {"id": 2, "v": value})])
    assert says in str(refused(table.flow))
    assert (h2.query(f'SELECT id FROM "{table.name}"'), table.position(), table.staging()) == ([], {}, set())


# Refusals, before anything is written


def begin(table: Appended) -> str:
    """What START says, which doesn't write."""
    table.flow.produce(1, partitions=[0])
    with pytest.raises(ActionRequiredError) as caught:
        table.flow.start()
    assert not any(m.type == "START-COMMIT" for m in table.flow.messages())
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sink__jdbc__auto_create": True}, "only appends rows.*asks for more: sink.jdbc.auto_create"),
        ({"errors": {"tolerance": "all"}}, "asks for more: errors.tolerance all"),
        ({"sink__jdbc__insert_mode": "upsert", "sink__jdbc__pk_mode": "record_value", "sink__jdbc__pk_fields": "id"},
         "asks for more: sink.jdbc.insert_mode upsert"),
        ({"sink__jdbc__table": "nowhere"}, "The table isn't there.*in upper and lower case"),
        ({"sink__jdbc__schema": "id BIGINT, w STRING"}, "lacks columns that the rows have: w.*add them or leave"),
        ({"sink__jdbc__schema": "id BIGINT, v MAP<STRING, INT>, u STRING"}, "`U` is of the type uuid in the database"),
    ],
)  # fmt: skip
def test_what_is_more_than_appending_is_refused_with_a_next_step(make, h2, settings, says):
    table = make(h2, f"{ROWS}, u UUID", 1)
    table.flow.set(**settings)
    said = begin(table)
    assert _matches(says, said), said
    assert h2.server.password not in said


def test_a_view_and_a_missing_driver_are_refused(make, h2, monkeypatch):
    table = make(h2, "", 1)
    h2.run(f'CREATE VIEW "{table.name}" AS SELECT CAST(1 AS BIGINT) AS id, CAST(NULL AS VARCHAR(9)) AS v')
    assert "can't be one transaction: it is a view" in begin(table)
    other = replace(h2.connection, host="jdbc:nowhere://db/lake")
    monkeypatch.setattr(InJava, "connection", other)
    for variable, value in h2.environment().items():
        monkeypatch.setenv(variable, value)
    assert "no JDBC driver that takes a URL of jdbc:nowhere" in begin(table)


def test_of_two_processes_that_make_the_bookkeeping_tables_both_go_on(make, h2, monkeypatch):
    """One finds that a table is there when it makes it; so with the table's own row."""
    table = make(h2, partitions=1)
    table.flow.produce(2, partitions=[0])
    table.flow.interval()
    real, hidden = DriverDatabase.has_table, [POSITIONS, POSITIONS, INSTANTS]  # the first look, and before each is made

    def has_table(database, schema, name):
        if name in hidden:
            hidden.remove(name)
            return False
        return real(database, schema, name)

    monkeypatch.setattr(DriverDatabase, "has_table", has_table)
    looks = iter([False, True])
    monkeypatch.setattr(AppendedTable, "_has_position", lambda _: next(looks))
    table.flow.produce(2, partitions=[0])
    table.flow.interval()
    assert hidden == []
    table.check()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "columns", "options", "says"),
    [
        ("&sessionVariables=default_storage_engine=MyISAM", ROWS, "", "a transaction that was rolled back is there"),
        ("&sessionVariables=sql_mode=''", ROWS, "", "a text that is longer than its column, and cuts it"),
        ("", ROWS, "ENGINE = MyISAM", "its engine is MyISAM, which keeps no transactions"),
        ("", "id BIGINT, v TIMESTAMP", "", "`v` is of the type timestamp in the database"),
    ],
)
def test_a_database_that_only_claims_to_keep_transactions_or_values_is_refused(
    make, mysql, monkeypatch, settings, columns, options, says
):
    """MariaDB's driver says that it has transactions, whatever engine its tables have."""
    mysql.run("DROP TABLE IF EXISTS _sluice_positions, _sluice_instants")
    monkeypatch.setattr(AsMySql, "settings", settings)
    said = begin(make(mysql, columns, 1, options=options))
    assert says in said, said
    assert mysql.query("SELECT count(*) FROM _sluice_positions") == [(0,)]
    mysql.run("DROP TABLE _sluice_positions, _sluice_instants")


@pytest.mark.thorough
def test_a_database_of_another_character_set_is_refused(make, mysql):
    mysql.run("DROP TABLE IF EXISTS _sluice_positions, _sluice_instants; ALTER DATABASE lake CHARACTER SET latin1")
    assert "doesn't keep texts as they are sent" in begin(make(mysql, partitions=1))
    mysql.run(f"DROP TABLE _sluice_positions, _sluice_instants; {UNICODE}")


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.DOTALL) is not None
