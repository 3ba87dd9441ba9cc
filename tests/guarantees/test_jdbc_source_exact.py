"""What consistency `exact` asks of a database before a window is read, and refuses where the answer isn't known.

Real databases, without Spark.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from sluice.connectors.connections import given
from sluice.databases.connection import address_of, asked
from sluice.databases.kinds import KINDS
from sluice.databases.mariadb.client import pymysql as mysql_of
from sluice.databases.postgresql.client import libpq
from sluice.errors import ActionRequiredError, IntervalError, RetryableError
from sluice.identifiers import sql_quoted
from sluice.protocol.messages import PlannedRange
from sluice.sources.jdbc.noted import NOTED
from sluice.sources.jdbc.reader import JdbcReader
from sluice.sources.jdbc.tables import CONTINUED, SERVER

from .harness import wait_for
from .harness.databases import MariaDatabase, PostgresDatabase, SqliteFile
from .harness.windows import COLUMNS, NUMBERED, TIMED, Polled, connect


def test_a_role_that_does_not_see_others_transactions_is_refused_and_told_what_it_needs(postgresql, on_postgresql):
    postgresql.run("CREATE ROLE reader LOGIN PASSWORD 'only-reads'")
    postgresql.run(f"GRANT SELECT ON {on_postgresql} TO reader")
    reader = PostgresDatabase(postgresql.server, "reader", "only-reads")
    timed = Polled(reader, on_postgresql, **TIMED)
    assert "GRANT pg_read_all_stats" in timed.refusal()
    postgresql.run("GRANT pg_read_all_stats TO reader")
    timed.state()
    postgresql.run("REVOKE pg_read_all_stats FROM reader")
    numbered = Polled(reader, on_postgresql, **NUMBERED)
    assert "GRANT SELECT ON SEQUENCE" in numbered.refusal()
    postgresql.run(f"GRANT SELECT ON SEQUENCE {on_postgresql}_id_seq TO reader")
    numbered.state()
    postgresql.run(f"REVOKE ALL ON SEQUENCE {on_postgresql}_id_seq FROM reader")


@pytest.mark.parametrize(
    ("prepare", "section", "says"),
    [
        ("CREATE VIEW v_{} AS SELECT * FROM {}", {**TIMED, "tables": "v_{}", "validate_non_null": False}, "a view"),
        ("ALTER SEQUENCE {}_id_seq CACHE 5", NUMBERED, "CACHE 5"),
        ("ALTER TABLE {} ALTER id DROP IDENTITY", NUMBERED | {"incrementing_column": "id"}, "has no sequence"),
        ("ALTER TABLE {} ALTER changed DROP NOT NULL", TIMED, "may be null"),
        ("SELECT 1", TIMED | {"timestamp_column": "nothing"}, "There is no column nothing"),
        ("SELECT 1", TIMED | {"timestamp_column": "version"}, "Windows can't be bounded by version (integer)"),
        ("SELECT 1", TIMED | {"db_timezone": "Europe/Berlin"}, "are set back once a year"),
        ("SELECT 1", TIMED | {"tables": "nowhere"}, "There is no table or view nowhere"),
        ("ALTER TABLE {} DROP COLUMN id", NUMBERED, "The database numbers no column"),
        ("INSERT INTO {} (changed) VALUES ('1969-07-20')", TIMED, "before 1970"),
    ],
)  # fmt: skip
def test_what_windows_cannot_be_had_of_is_refused_by_name(postgresql, on_postgresql, prepare, section, says):
    postgresql.run(prepare.format(on_postgresql, on_postgresql))
    section = {k: v.format(on_postgresql) if isinstance(v, str) else v for k, v in section.items()}
    polled = Polled(postgresql, section.pop("tables", on_postgresql), **section)
    try:
        assert says in polled.refusal()
    finally:
        postgresql.run(f"DROP VIEW IF EXISTS v_{on_postgresql}")


@pytest.mark.parametrize(
    ("database", "zero"),
    [("mariadb", "SET sql_mode = ''; INSERT INTO {} (changed) VALUES ('0000-00-00')"),
     ("postgresql", "INSERT INTO {} (changed) VALUES ('1969-07-20')"),
     ("sqlite", "INSERT INTO {} (changed) VALUES ('1969-07-20')")],
    indirect=["database"],
)  # fmt: skip
@pytest.mark.also_on("mariadb")
def test_rows_from_before_1970_are_left_out_as_their_refusal_says(database, table, zero):
    """A view, which once was the way out, is refused by consistency exact."""
    database.run(zero.format(table))
    database.run(f"INSERT INTO {table} (version) VALUES (7)")
    polled = Polled(database, table, **TIMED)
    refusal = polled.refusal()
    assert "before 1970" in refusal
    assert f"`starting_offsets` {{{table}: {{0: 0}}}}" in refusal
    polled = Polled(database, table, **TIMED, starting_offsets={table: {0: 0}})
    wait_for(lambda: polled.poll("version") == [(7,)], "the row")


def test_what_numbers_cannot_be_had_of_is_read_by_the_modes_that_the_refusal_names(postgresql, on_postgresql):
    """A mode without timestamp knows no other `consistency`."""
    postgresql.run(f"ALTER SEQUENCE {on_postgresql}_id_seq CACHE 5")
    refusal = Polled(postgresql, on_postgresql, **NUMBERED).refusal()
    assert "Or set the source's `mode` to bulk, or to timestamp with the `consistency` delay" in refusal
    Polled(postgresql, on_postgresql, mode="bulk").start()
    Polled(postgresql, on_postgresql, **TIMED, consistency="delay").start()
    Polled(postgresql, on_postgresql, **TIMED, consistency="overlap", overlap="1 minute").start()


def test_numbers_that_begin_again_are_read_on_after_what_the_refusal_says(postgresql, on_postgresql):
    polled, insert = numbered(postgresql, on_postgresql)
    postgresql.run(f"TRUNCATE {on_postgresql} RESTART IDENTITY")
    postgresql.run(f"INSERT INTO {on_postgresql} (version) VALUES (9)")
    assert "set the sequence to 3 at least, and name 3 as the table's position" in polled.refusal()
    postgresql.run(f"UPDATE {on_postgresql} SET id = 3; SELECT setval('{on_postgresql}_id_seq', 3)")
    polled.options = polled.options.model_copy(update={"starting_offsets": {on_postgresql: {0: 3}}})
    assert polled.poll() == [(3, 9)]
    polled.options = polled.options.model_copy(update={"starting_offsets": "earliest"})
    postgresql.run(insert)
    assert len(polled.poll()) == 2


def test_a_clock_that_was_set_back_and_numbers_that_begin_again_are_refused(postgresql, on_postgresql):
    timed = Polled(postgresql, on_postgresql, **TIMED)
    timed.position = timed.state().partitions[0].high_watermark + 3_600_000_000
    assert "clock was set back" in timed.refusal()
    numbered = Polled(postgresql, on_postgresql, **NUMBERED)
    postgresql.run(f"INSERT INTO {on_postgresql} (version) VALUES (1), (2)")
    assert len(numbered.poll()) == 2
    postgresql.run(f"DELETE FROM {on_postgresql} WHERE id = 2")
    assert numbered.poll() == []  # which is no beginning again
    postgresql.run(f"TRUNCATE {on_postgresql} RESTART IDENTITY")
    postgresql.run(f"INSERT INTO {on_postgresql} (version) VALUES (1)")
    assert "have begun again" in numbered.refusal()


def test_a_server_of_mariadb_s_whose_rows_others_write_is_refused(topic_name):
    """A replica that stands still just now takes rows later, with times of its primary's; so do nodes of a cluster."""
    from ..cluster.servers import MariaDb, mariadb_programs, missing_mariadb

    if missing_mariadb() is not None:
        pytest.skip(str(missing_mariadb()))
    server = MariaDb(mariadb_programs())
    try:
        server.start()
        database, name = MariaDatabase(server), topic_name("r").replace("-", "_")
        database.run(f"CREATE TABLE {name} ({COLUMNS['mariadb']})")
        timed, numbered = Polled(database, name, **TIMED), Polled(database, name, **NUMBERED)
        timed.poll()
        numbered.poll()
        database.run("CREATE USER 'reads'@'%' IDENTIFIED BY 'only-reads'; GRANT SELECT, PROCESS ON *.* TO 'reads'@'%'")
        blind = Polled(database, name, **TIMED)
        blind.as_login("reads", "only-reads")
        assert "SLAVE MONITOR" in blind.refusal()
        database.run("GRANT REPLICA MONITOR ON *.* TO 'reads'@'%'")
        blind.poll()
        database.run("CHANGE MASTER TO master_host = '127.0.0.1', master_port = 1, master_user = 'nobody'")
        for polled in (timed, numbered):
            assert "set up as a replica" in polled.refusal()
    finally:
        server.stop()


@pytest.mark.thorough
def test_mariadb_s_logins_and_tables_that_can_tell_nothing_are_refused(mariadb, topic_name):
    name = topic_name("h").replace("-", "_")
    mariadb.run(f"CREATE TABLE {name} ({COLUMNS['mariadb']}) ENGINE=MyISAM")
    assert "the table's engine is MyISAM" in Polled(mariadb, name, **TIMED).refusal()
    mariadb.run(f"ALTER TABLE {name} ENGINE=InnoDB")
    mariadb.run(
        f"CREATE USER '{name[:20]}'@'%' IDENTIFIED BY 'only-reads'; GRANT SELECT ON lake.* TO '{name[:20]}'@'%'; "
        f"GRANT REPLICA MONITOR ON *.* TO '{name[:20]}'@'%'"
    )
    polled = Polled(mariadb, name, **TIMED)
    polled.as_login(name[:20], "only-reads")
    refusal = polled.refusal()
    assert "PROCESS" in refusal
    assert "`Rights`" in refusal
    mariadb.run(f"DROP TABLE {name}; DROP USER '{name[:20]}'@'%'")


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("SELECT id, version, changed FROM {} -- the newest", None, ""),
        ("SELECT id, version, changed FROM FROM {}", ActionRequiredError, "FROM"),
        ("SELECT id, nothing AS changed FROM {}", ActionRequiredError, "nothing"),
        ("SELECT id, 1 / 0 AS version, changed FROM {}", ActionRequiredError, "zero"),
    ],
)
def test_a_mistake_in_a_query_is_for_a_person_and_a_comment_at_its_end_is_none(database, table, query, error, says):
    section = {**TIMED, "tables": (), "validate_non_null": False, "query": query.format(table), "consistency": "delay"}
    polled = Polled(database, "query", **section)
    database.run(f"INSERT INTO {table} (version) VALUES (1)")
    if error is None or (says == "zero" and not isinstance(database, PostgresDatabase)):  # which is a null elsewhere
        polled.state()
        return
    with pytest.raises(error, match="finds a mistake in what it is asked") as caught:
        polled.state()
    assert says in str(caught.value)


def test_a_session_is_given_back_to_a_pooler_as_it_was(postgresql, monkeypatch):
    """Who gets it next may write, and for as long as it likes."""
    import psycopg

    own = psycopg.connect
    address = address_of(postgresql.connection)
    with own(**libpq(address), autocommit=True) as session:
        before = session.execute("SELECT name, setting FROM pg_settings ORDER BY name").fetchall()
        pooled = MagicMock(wraps=session)
        pooled.cursor.return_value, pooled.close = session.cursor(), lambda: None
        monkeypatch.setattr(psycopg, "connect", lambda **_: pooled)
        with asked(address) as ask:
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                ask("CREATE TABLE written (id INT)")
            session.execute("ROLLBACK")
            for _ in range(8):
                assert ask("SELECT ?::int", 1) == [(1,)]
        assert session.execute("SELECT name, setting FROM pg_settings ORDER BY name").fetchall() == before
        assert pooled.prepare_threshold is None
        session.execute("CREATE TABLE written (id INT)")
        session.execute("DROP TABLE written")


def test_a_session_of_mariadb_s_is_given_back_with_nothing_but_how_its_sql_is_read(mariadb, on_mariadb, monkeypatch):
    """`sql_mode`, `time_zone` and the like a proxy keeps apart for its clients; they are the driver's own, too."""
    import pymysql

    own = pymysql.connect
    moving = ("timestamp", "last_gtid", "rand_seed1", "rand_seed2", "identity", "last_insert_id", "pseudo_thread_id")
    address = address_of(mariadb.connection)
    ours = {one.partition("=")[0] for one in address.dialect.properties["sessionVariables"].split(",")}
    with own(**mysql_of(address), autocommit=True) as session, session.cursor() as cursor:

        def variables():
            cursor.execute("SHOW SESSION VARIABLES")
            return {name: value for name, value in cursor.fetchall() if name not in moving}

        def connect(init_command, **_):
            cursor.execute(init_command)
            return pooled

        before = variables()
        pooled = MagicMock(wraps=session)
        pooled.close = lambda: None
        monkeypatch.setattr(pymysql, "connect", connect)
        with asked(address, wait=60) as ask:
            with pytest.raises(pymysql.Error, match="READ ONLY"):
                ask(f"INSERT INTO {on_mariadb} (version) VALUES (1)")
            session.rollback()
            ask("SELECT 1")
        Polled(mariadb, on_mariadb, **TIMED).start()
        Polled(mariadb, on_mariadb, **NUMBERED).start()
        changed = {name for name, value in variables().items() if before[name] != value}
        assert changed <= ours
        cursor.execute(f"INSERT INTO {on_mariadb} (version) VALUES (1)")


def test_a_question_to_mariadb_has_a_limit_of_time(mariadb):
    with asked(address_of(mariadb.connection), wait=7) as ask:
        assert ask("SELECT @@max_statement_time") == [(7.0,)]


_NEW_YORK = "ALTER TABLE {0} ALTER changed TYPE timestamp USING changed AT TIME ZONE 'UTC'"
_UTC = _NEW_YORK + "; ALTER TABLE {0} ALTER changed SET DEFAULT now() AT TIME ZONE 'UTC'"
_TRIGGER = (
    "CREATE FUNCTION f_{0}() RETURNS trigger LANGUAGE plpgsql {1} AS 'BEGIN NEW.changed = now(); RETURN NEW; END'; "
    "CREATE TRIGGER t BEFORE INSERT OR UPDATE ON {0} FOR EACH ROW EXECUTE FUNCTION f_{0}()"
)


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (_NEW_YORK, "nothing says that changed, without a time zone, is written in UTC"),
        (_UTC, None),
        (_UTC.replace("'UTC'", "'America/New_York'"), "is written in UTC"),
        (_UTC + "; " + _TRIGGER.replace("{1}", ""), "is written in UTC"),
        (_NEW_YORK + "; " + _TRIGGER.replace("{1}", "SET timezone = 'UTC'"), None),
        ("ALTER TABLE {0} ALTER changed DROP DEFAULT", "the database doesn't write changed"),
        ("ALTER TABLE {0} ALTER changed SET DEFAULT date_trunc('minute', now())", "the database doesn't write changed"),
        ("ALTER TABLE {0} ALTER changed DROP DEFAULT; " + _TRIGGER.replace("{1}", ""), None),
        ("ALTER TABLE {0} ENABLE ROW LEVEL SECURITY; ALTER TABLE {0} FORCE ROW LEVEL SECURITY", None),  # a superuser
        (
            "CREATE EXTENSION IF NOT EXISTS postgres_fdw; CREATE SERVER IF NOT EXISTS far FOREIGN DATA WRAPPER "
            "postgres_fdw; CREATE FOREIGN TABLE far_{0} (id BIGINT NOT NULL, version INT NOT NULL, changed timestamptz "
            "NOT NULL) SERVER far; ALTER FOREIGN TABLE far_{0} INHERIT {0}",
            "is a foreign table",
        ),
    ],
)
def test_exact_is_refused_where_the_database_does_not_say_that_it_writes_the_times(
    postgresql, on_postgresql, prepare, says
):
    """A session in New York dates rows by its own clock where the column has no zone: five hours before the window."""
    postgresql.run(prepare.format(on_postgresql))
    polled = Polled(postgresql, on_postgresql, **TIMED)
    try:
        if says is None:
            polled.state()
        else:
            assert says in polled.refusal()
    finally:
        postgresql.run(f"DROP TABLE {on_postgresql} CASCADE; DROP FUNCTION IF EXISTS f_{on_postgresql}")


_DATETIME = "ALTER TABLE {0} MODIFY changed DATETIME(6) NOT NULL"


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (_DATETIME + " DEFAULT current_timestamp(6)", "of type DATETIME, is written in UTC"),
        (_DATETIME + " DEFAULT utc_timestamp(6)", None),
        (_DATETIME + " DEFAULT utc_timestamp(6) ON UPDATE current_timestamp(6)", "of type DATETIME, is written in UTC"),
        (_DATETIME + " DEFAULT utc_timestamp(6); CREATE TRIGGER t_{0} BEFORE UPDATE ON {0} FOR EACH ROW "
         "SET NEW.changed = now(6)", "of type DATETIME, is written in UTC"),
        ("ALTER TABLE {0} MODIFY changed TIMESTAMP(6) NOT NULL DEFAULT '2020-01-01'", "the database doesn't write"),
        ("ALTER TABLE {0} MODIFY changed TIMESTAMP(6) NOT NULL DEFAULT '2020-01-01'; CREATE TRIGGER t_{0} BEFORE "
         "INSERT ON {0} FOR EACH ROW SET NEW.changed = now(6)", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_exact_is_refused_where_mariadb_does_not_say_that_it_writes_the_times(database, table, prepare, says):
    """A DATETIME holds the clock of each session's own zone."""
    for statement in prepare.format(table).split("; "):
        database.run(statement)
    polled = Polled(database, table, **TIMED)
    if says is None:
        polled.state()
    else:
        assert says in polled.refusal()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("changed TEXT NOT NULL", "the database doesn't write changed"),
        ("changed TEXT NOT NULL DEFAULT (datetime('now', 'localtime'))", "the database doesn't write changed"),
        ("changed TEXT NOT NULL DEFAULT '2020-01-01 00:00:00'", "the database doesn't write changed"),
        ("changed TEXT NOT NULL DEFAULT (datetime('now'))", None),
        ("changed TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))", None),
        ("changed DATETIME NOT NULL DEFAULT current_timestamp", None),
    ],
)
def test_exact_is_refused_where_sqlite_does_not_say_that_it_writes_the_times(tmp_path, columns, says):
    database = SqliteFile(tmp_path / "shop.db")
    database.run(f"CREATE TABLE t (id INTEGER PRIMARY KEY, {columns})")
    polled = Polled(database, "t", **TIMED)
    if says is None:
        polled.start()
        return
    assert says in polled.refusal()
    dates = "UPDATE t SET changed = datetime('now') WHERE id = NEW.id"
    database.run(f"CREATE TRIGGER dates AFTER INSERT ON t BEGIN {dates}; END")
    polled.start()


def test_a_write_job_reads_no_other_file_and_nothing_of_an_interval_that_two_servers_have_planned(tmp_path):
    database = SqliteFile(tmp_path / "shop.db")
    database.run(f"CREATE TABLE t ({COLUMNS['sqlite']}); INSERT INTO t (version) VALUES (1)")
    polled = Polled(database, "t", **NUMBERED)
    (bounds,) = polled.start().partitions
    ranges = [PlannedRange(cluster="shop", topic="t", partition=0, start=0, end=bounds.window_end)]
    polled.start()  # which compares the file with that of the one before
    assert CONTINUED in polled.last
    two = {**polled.last, CONTINUED: json.dumps({"inode": "0"})}
    with given([replace(database.connection, id="shop")]):
        with pytest.raises(IntervalError, match="Two servers have answered START"):
            JdbcReader(MagicMock(), None, two).read(ranges, "read_committed")
        (tmp_path / "other.db").touch()
        (tmp_path / "other.db").rename(database.file)
        with pytest.raises(RetryableError, match="another server than the one that START has looked at"):
            JdbcReader(MagicMock(), None, polled.last).read(ranges, "read_committed")


@pytest.mark.parametrize("section", [TIMED, NUMBERED], ids=["times", "numbers"])
def test_a_file_of_sqlite_s_in_the_place_of_another_is_refused_and_a_vacuum_is_not(tmp_path, section):
    database = SqliteFile(tmp_path / "shop.db")
    database.run(f"CREATE TABLE t ({COLUMNS['sqlite']}); INSERT INTO t (version) VALUES (1)")
    polled, found = Polled(database, "t", **section), []
    wait_for(lambda: found.extend(polled.poll()) or len(found) == 1, "the row")
    database.run("VACUUM")
    polled.start()
    shutil.copy(database.file, tmp_path / "backup.db")
    database.run("INSERT INTO t (version) VALUES (2)")
    wait_for(lambda: found.extend(polled.poll()) or len(found) == 2, "the row")
    (tmp_path / "backup.db").rename(database.file)
    engine, url = KINDS["sqlite"].engine, f"jdbc:sqlite:{database.file}"
    assert not engine.is_here(url, json.loads(polled.last[SERVER]))
    database.run("INSERT INTO t (version) VALUES (3), (4)")
    assert "it is another file" in polled.refusal()
    polled.options = polled.options.model_copy(update={"starting_offsets": {"t": {0: polled.position}}})
    polled.start()
    assert engine.is_here(url, json.loads(polled.last[SERVER]))


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_a_zone_that_mariadb_does_not_know_is_refused(database, table):
    """Its tables of zones are empty after a plain installation: each time of a zone would be converted to null."""
    database.run(_DATETIME.format(table) + " DEFAULT current_timestamp(6)")
    section = {
        "mode": "timestamp",
        "timestamp_column": "changed",
        "consistency": "delay",
        "timestamp_delay": "1 second",
    }
    polled = Polled(database, table, **section, db_timezone="Asia/Kolkata")
    assert "knows no time zone Asia/Kolkata" in polled.refusal()


def test_rows_of_sessions_in_another_zone_are_read_where_the_default_names_the_zone(postgresql, on_postgresql):
    postgresql.run(_UTC.format(on_postgresql))
    polled, seen = Polled(postgresql, on_postgresql, **TIMED), []
    with connect(postgresql) as writer:
        writer.cursor().execute("SET timezone = 'America/New_York'")
        writer.commit()
        for _ in range(3):
            writer.cursor().execute(f"INSERT INTO {on_postgresql} (version) VALUES (1)")
            writer.commit()
            time.sleep(0.4)
            seen += polled.poll("id")
    assert sorted(seen) == [(1,), (2,), (3,)]


def test_a_table_that_an_earlier_release_began_keeps_its_keys_of_char_without_blanks(postgresql, on_postgresql):
    """A key that is sent with its blanks from some interval on would be another row than before."""
    postgresql.run(f"ALTER TABLE {on_postgresql} ADD COLUMN code CHAR(3) NOT NULL DEFAULT 'a'")
    polled = Polled(postgresql, on_postgresql, **TIMED)
    now = polled.columns()
    assert now["code"] == 'textin(bpcharout("code"))'
    earlier = {**now, "code": '("code")::text'}
    postgresql.run(f"ALTER TABLE {on_postgresql} ADD COLUMN later CHAR(3)")
    assert polled.columns(earlier) == {**earlier, "later": 'textin(bpcharout("later"))'}
    assert polled.columns(now)["code"] == now["code"]


# What began again, or came to the table, since the last window


def numbered(database, name):
    """A table that is read by its numbers, after its first two rows; and the statement that inserts two more."""
    polled, insert = Polled(database, name, **NUMBERED), f"INSERT INTO {sql_quoted(name)} (version) VALUES (1), (2)"
    database.run(insert)
    assert len(polled.poll()) == 2
    return polled, insert


_ANEW = {
    "postgresql": ("TRUNCATE {} RESTART IDENTITY", "its sequence was restarted"),
    "mariadb": ("TRUNCATE {}", "the table was emptied, or made anew"),
}


@pytest.mark.parametrize("database", _ANEW, indirect=True)
def test_numbers_that_began_again_and_have_passed_what_was_read_are_refused(database, table):
    """A table that is filled anew each night: its new rows have numbers that were read."""
    anew, says = _ANEW[database.name]
    polled, insert = numbered(database, table)
    database.run(f"DELETE FROM {table} WHERE id = 2")
    database.run(insert)
    assert len(polled.poll()) == 2
    database.run(anew.format(table))
    for _ in range(4):
        database.run(insert)
    refusal = polled.refusal()
    assert says in refusal
    assert "If new rows have numbers below 5, number them anew" in refusal
    assert polled.refusal() == refusal  # until a person has looked
    polled.options = polled.options.model_copy(update={"starting_offsets": {table: {0: 5}}})
    assert sorted(id_ for id_, _ in polled.poll()) == [5, 6, 7, 8]
    database.run(insert)
    assert len(polled.poll()) == 2


@pytest.mark.parametrize(
    ("statement", "rebuilds"),
    [
        ("ALTER TABLE {} ADD COLUMN w INT", False),
        ("ALTER TABLE {} ADD INDEX (version)", False),
        ("ANALYZE TABLE {}", False),
        ("OPTIMIZE TABLE {}", True),
        ("ALTER TABLE {} MODIFY version BIGINT NOT NULL DEFAULT 0", True),
    ],
)
@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_a_table_of_mariadb_s_that_was_rebuilt_is_read_on_once_a_person_says_so(database, table, statement, rebuilds):
    """Its id is another, as after a TRUNCATE; its rows are the same."""
    polled, insert = numbered(database, table)
    timed = Polled(database, table, **TIMED)
    timed.poll()
    database.query(statement.format(table))
    database.run(insert)
    if rebuilds:
        assert "an ALTER or OPTIMIZE that rebuilds it" in polled.refusal()
        polled.options = polled.options.model_copy(update={"starting_offsets": {table: {0: 3}}})
    assert sorted(id_ for id_, _ in polled.poll()) == [3, 4]
    timed.start()  # times don't begin again


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_partitions_of_mariadb_s_come_and_go_and_one_that_was_emptied_is_refused(database, topic_name):
    name = f"{topic_name('p')} ü"
    there = sql_quoted(name)
    ranges = "PARTITION p0 VALUES LESS THAN (3), PARTITION p1 VALUES LESS THAN (5)"
    database.run(f"CREATE TABLE {there} ({COLUMNS['mariadb']}) PARTITION BY RANGE (id) ({ranges})")
    polled, insert = numbered(database, name)
    database.run(f"ALTER TABLE {there} ADD PARTITION (PARTITION p2 VALUES LESS THAN (7))")
    database.run(insert)
    assert len(polled.poll()) == 2
    database.run(f"ALTER TABLE {there} DROP PARTITION p0")
    database.run(insert)
    assert len(polled.poll()) == 2
    database.run(f"ALTER TABLE {there} TRUNCATE PARTITION p2")  # whose numbers are given again
    database.run(insert)
    assert "may have begun again" in polled.refusal()
    database.run(f"DROP TABLE {there}")


def test_a_note_of_an_earlier_release_is_none_and_the_next_one_is_compared(postgresql, on_postgresql):
    polled, insert = Polled(postgresql, on_postgresql, **NUMBERED), f"INSERT INTO {on_postgresql} (version) VALUES (1)"
    postgresql.run(insert)
    polled.poll()
    polled.last = {name: value for name, value in polled.last.items() if name != NOTED}
    postgresql.run(f"ALTER SEQUENCE {on_postgresql}_id_seq RESTART WITH 2")
    postgresql.run(insert)
    assert polled.poll() == [(2, 1)]
    postgresql.run(f"ALTER SEQUENCE {on_postgresql}_id_seq RESTART WITH 3")
    postgresql.run(insert)
    assert "its sequence was restarted" in polled.refusal()


@pytest.mark.parametrize("section", [TIMED, NUMBERED], ids=["times", "numbers"])
def test_a_filled_table_that_becomes_a_partition_is_refused_and_an_empty_one_is_not(postgresql, topic_name, section):
    name = topic_name("p").replace("-", "_")
    columns = "id BIGINT GENERATED BY DEFAULT AS IDENTITY, version INT NOT NULL DEFAULT 0"
    postgresql.run(
        f"CREATE TABLE {name} ({columns}, changed TIMESTAMPTZ NOT NULL DEFAULT now()) PARTITION BY LIST (version); "
        f"CREATE TABLE {name}_0 PARTITION OF {name} FOR VALUES IN (0)"
    )
    polled, insert = Polled(postgresql, name, **section), f"INSERT INTO {name} (version) VALUES"
    postgresql.run(f"{insert} (0), (0)")
    time.sleep(0.2)
    assert len(polled.poll()) == 2
    postgresql.run(f"CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES IN (1)")
    postgresql.run(f"{insert} (1), (0)")
    time.sleep(0.2)
    assert len(polled.poll()) == 2
    postgresql.run(f"ALTER TABLE {name} DETACH PARTITION {name}_1")
    assert polled.poll() == []
    postgresql.run(f"ALTER TABLE {name} ATTACH PARTITION {name}_1 FOR VALUES IN (1)")  # and its row was read
    refusal = polled.refusal()
    assert f"{name}_1 became a part of the table" in refusal
    read_to = json.loads(polled.last[NOTED])[name]["read_to"]
    assert f"read_up_to={read_to}" in refusal
    polled.options = polled.options.model_copy(update={"starting_offsets": {name: {0: read_to}}})
    assert polled.poll() == []
    polled.options = polled.options.model_copy(update={"starting_offsets": "earliest"})
    assert polled.poll() == []
    postgresql.run(f"CREATE TABLE {name}_2 (LIKE {name} INCLUDING ALL EXCLUDING IDENTITY)")
    postgresql.run(f"INSERT INTO {name}_2 (id, version, changed) VALUES (1, 2, '2020-01-01')")
    postgresql.run(f"ALTER TABLE {name} ATTACH PARTITION {name}_2 FOR VALUES IN (2)")
    assert f"{name}_2 became a part of the table" in polled.refusal()
    postgresql.run(f"UPDATE {name}_2 SET id = 100, changed = now(); SELECT setval('{name}_id_seq', 100)")
    time.sleep(0.2)
    assert polled.poll("version") == [(2,)]
    postgresql.run(f"DROP TABLE {name}")


def test_a_filled_table_that_inherits_is_refused_also_where_the_login_may_not_read_it_itself(postgresql, on_postgresql):
    postgresql.run(f"INSERT INTO {on_postgresql} (version) VALUES (1)")
    role = f"{on_postgresql}_reader"
    postgresql.run(f"CREATE ROLE {role} LOGIN PASSWORD 'only-reads'; GRANT pg_read_all_stats TO {role}")
    postgresql.run(f"GRANT SELECT ON {on_postgresql} TO {role}")
    polled = Polled(PostgresDatabase(postgresql.server, role, "only-reads"), on_postgresql, **TIMED)
    time.sleep(0.2)
    assert len(polled.poll()) == 1
    postgresql.run(f"CREATE TABLE {on_postgresql}_b (LIKE {on_postgresql} INCLUDING DEFAULTS)")
    postgresql.run(f"INSERT INTO {on_postgresql}_b (id, changed) VALUES (7, '2020-01-01')")
    postgresql.run(f"ALTER TABLE {on_postgresql}_b INHERIT {on_postgresql}")
    assert f"{on_postgresql}_b became a part of the table" in polled.refusal()
    postgresql.run(f"DROP TABLE {on_postgresql} CASCADE; DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_part_that_a_subscription_writes_to_is_refused(postgresql, topic_name):
    """The subscription is of a partition of a partition, as without `publish_via_partition_root`."""
    name = topic_name("p").replace("-", "_")
    postgresql.run(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, changed TIMESTAMPTZ NOT NULL DEFAULT now()) PARTITION BY LIST (id); "
        f"CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES IN (1, 2) PARTITION BY LIST (id); "
        f"CREATE TABLE {name}_b PARTITION OF {name}_a FOR VALUES IN (1)"
    )
    polled = Polled(postgresql, name, **TIMED)
    polled.start()
    postgresql.run(f"CREATE SUBSCRIPTION {name} CONNECTION 'host=none' PUBLICATION p WITH (connect = false)")
    postgresql.run(
        "INSERT INTO pg_subscription_rel SELECT oid, "
        f"'{name}_b'::regclass, 'r', '0/0' FROM pg_subscription WHERE subname = '{name}'"
    )
    assert f"a subscription writes to {name}_b" in polled.refusal()
    postgresql.run(f"ALTER SUBSCRIPTION {name} SET (slot_name = NONE)")
    postgresql.run(f"DROP SUBSCRIPTION {name}")
    postgresql.run(f"DROP TABLE {name}")


def test_a_row_level_policy_that_applies_to_the_login_is_refused(postgresql, on_postgresql):
    """It may show a row later than it was written, below the end of a window that was read."""
    postgresql.run("CREATE ROLE policed LOGIN PASSWORD 'only-reads'; GRANT pg_read_all_stats TO policed")
    postgresql.run(f"GRANT SELECT ON {on_postgresql} TO policed; ALTER TABLE {on_postgresql} ENABLE ROW LEVEL SECURITY")
    polled = Polled(PostgresDatabase(postgresql.server, "policed", "only-reads"), on_postgresql, **TIMED)
    assert "a row-level policy" in polled.refusal()
    postgresql.run(f"DROP TABLE {on_postgresql}; DROP ROLE policed")
