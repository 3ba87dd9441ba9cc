"""What can't be loaded into a database is told in one message, and nothing of the interval is there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sluice.coordinator import Started
from sluice.databases.connection import address_of
from sluice.errors import ActionRequiredError, RetryableError

from .harness.databases import CONNECTION, MariaDatabase, SqliteFile
from .harness.jdbc import Table, refused


def test_a_value_that_does_not_fit_is_told_with_its_place(make_jdbc, database):
    if isinstance(database, SqliteFile):
        pytest.skip("a text of SQLite's may have any length")
    database.run("CREATE TABLE narrow (id INTEGER, v CHARACTER VARYING(4))")
    table = make_jdbc(1, section={"table": "narrow", "auto_create": False})
    table.flow.produce(5, partitions=[0])
    table.flow.produce_raw(b'{"id": 5, "v": "long text"}')
    error = refused(table.flow)
    assert isinstance(error, ActionRequiredError)
    kind = "varchar(4)" if isinstance(database, MariaDatabase) else "character varying(4)"
    assert f"the value of v does not fit {kind}: it is longer than 4 characters" in str(error)
    assert f"topic={table.flow.topic}, partition=0, offset=5" in str(error)
    assert (table.rows(), table.staging(), table.position()) == ([], set(), {})


def test_a_constraint_that_is_broken_stops_the_interval_whole(make_jdbc, database):
    name = f"unique_{database.name}"
    database.run(f"CREATE TABLE {name} (id BIGINT, v VARCHAR(40) UNIQUE)")
    table = make_jdbc(1, section={"table": name, "auto_create": False})
    table.flow.produce(3, partitions=[0])
    table.flow.interval()
    table.flow.produce_raw(b'{"id": 9, "v": "new"}')
    told = "a1) already exists.\n' for key 'x"  # as a database's own words
    table.flow.produce_raw(json.dumps({"id": 10, "v": told}).encode())
    table.flow.produce_raw(json.dumps({"id": 11, "v": told}).encode())
    error = refused(table.flow)
    assert isinstance(error, ActionRequiredError)
    assert "The database refuses the rows" in str(error)
    assert ("duplicate" if isinstance(database, MariaDatabase) else "unique") in str(error).lower()
    assert "a1" not in str(error)
    named = {"mariadb": "for key 'v'", "postgresql": f'"{name}_v_key"', "sqlite": f"{name}.v"}[database.name]
    assert named in str(error)
    assert (len(table.rows()), table.position(), table.staging()) == (3, {0: 3}, set())


def test_what_a_check_refuses_is_not_quoted(make_jdbc, database):
    name = f"checked_{database.name}"
    database.run(f"CREATE TABLE {name} (id BIGINT, v VARCHAR(40), CONSTRAINT short CHECK (length(v) < 9))")
    table = make_jdbc(1, section={"table": name, "auto_create": False})
    table.flow.produce_raw(json.dumps({"id": 170017, "v": "first line\nsecond line"}).encode())
    error = str(refused(table.flow))
    assert "The database refuses the rows" in error
    assert "short" in error
    assert "line" not in error
    assert "170017" not in error


def test_a_null_that_the_table_has_no_place_for_is_told_with_its_place(make_jdbc, database):
    name = f"never_null_{database.name}"
    database.run(f"CREATE TABLE {name} (id BIGINT, v VARCHAR(20) NOT NULL)")
    table = make_jdbc(1, section={"table": name, "auto_create": False})
    table.flow.produce_raw(b'{"id": 1}')
    error = refused(table.flow)
    assert "the column v must not be null in the database" in str(error)
    assert "offset=0" in str(error)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (None, r"The table isn't there.*auto_create"),
        ("id BIGINT", r"lacks columns that the rows have: v.*auto_evolve"),
        ("id REAL, v VARCHAR(9)", r"doesn't hold the rows: `id` is (real|double)"),
        ("id BIGINT, v VARCHAR(9), x INTEGER NOT NULL", r"`x` must not be null, has no default, and no row has it"),
    ],
)
def test_a_table_that_cannot_hold_the_rows_is_refused_before_anything_is_read(make_jdbc, database, columns, says):
    name = "other"
    database.run(f"DROP TABLE IF EXISTS {name}")
    if columns is not None:
        database.run(f"CREATE TABLE {name} ({columns})")
    table = make_jdbc(1, section={"table": name, "auto_create": False})
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
        ({"schema": "nowhere"}, ActionRequiredError, r"refuses the connection.*database ['\"]nowhere['\"]"),
        ({"port": 1}, RetryableError, "failed while connecting"),
        (
            {"type": "jdbc", "host": "jdbc:oracle:thin:@h:1/x"},
            ActionRequiredError,
            "no JDBC driver that takes a URL of jdbc:oracle",
        ),
        ({"type": "jdbc", "host": "nonsense"}, ActionRequiredError, "no address of a database"),
    ],
)
def test_a_wrong_connection_is_told_in_one_message(make_jdbc, database, monkeypatch, changed, error, says):
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has no login")
    table = make_jdbc(1)
    table.flow.produce(1, partitions=[0])
    _another(table, monkeypatch, **changed)
    with pytest.raises(error, match=says) as caught:
        table.flow.start()
    told = str(caught.value)
    assert "wrong-password" not in told
    assert database.server.password not in told
    assert f"connection={CONNECTION}" in told


def test_a_folder_that_is_not_there_is_told(make_jdbc, database, monkeypatch):
    if not isinstance(database, SqliteFile):
        pytest.skip("of SQLite")
    table = make_jdbc(1)
    table.flow.produce(1, partitions=[0])
    _another(table, monkeypatch, host="/nowhere/at/all.db")
    with pytest.raises(ActionRequiredError, match="connecting to it"):
        table.flow.start()


@pytest.mark.also_on("mariadb")
def test_a_login_without_rights_is_told_what_it_needs(make_jdbc, database, monkeypatch):
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has no rights")
    if isinstance(database, MariaDatabase):
        database.run("CREATE DATABASE closed; CREATE USER stranger IDENTIFIED BY 'poor-password'")
        database.run("GRANT SELECT ON closed.* TO stranger; GRANT SELECT ON lake.* TO stranger")
    else:
        database.run("CREATE ROLE stranger LOGIN PASSWORD 'poor-password'; CREATE SCHEMA closed")
    table = make_jdbc(1, section={"table": "closed.flights"})
    table.flow.produce(1, partitions=[0])
    _another(table, monkeypatch, login="stranger", password="poor-password")
    with pytest.raises(ActionRequiredError, match=r"doesn't permit creating _sluice_positions.*Rights"):
        table.flow.start()


def test_a_driver_that_is_not_there_is_told(make_jdbc, database, monkeypatch):
    table = make_jdbc(1)
    table.flow.produce(1, partitions=[0])
    dialect = address_of(database.connection).dialect
    monkeypatch.setattr(type(dialect), "driver", "org.nowhere.Driver")
    with pytest.raises(ActionRequiredError, match=r"driver failed while connecting.*org\.nowhere\.Driver.*class path"):
        table.flow.start()


def test_a_disk_that_is_full_leaves_nothing_half_there(make_jdbc, database):
    """SQLite counts its pages: as it refuses one more, the others' disks do."""
    if not isinstance(database, SqliteFile):
        pytest.skip("of SQLite, which has a limit of its own")
    table = make_jdbc(1)
    table.flow.produce(20, partitions=[0])
    table.flow.interval()
    pages = database.query("PRAGMA page_count")[0][0]
    table.flow.secret_environment.update(_limited(database, pages + 20))
    table.flow.produce(2000, partitions=[0], values="v" * 100)
    run = table.flow.run()
    job = table.flow.write(table.flow.start(run))
    assert job.wait() != 0
    assert "[error] The database failed while writing to a staging table" in job.text()
    assert "recovery=retry" in job.text()
    assert "its disk is full or fails" in job.text()
    table.flow.abort(run)
    assert (len(table.rows()), table.position(), table.staging()) == (20, {0: 20}, set())
    table.flow.secret_environment.update(database.environment())
    table.flow.interval()
    table.check()


def _limited(database: SqliteFile, pages: int) -> dict[str, str]:
    ((variable, value),) = database.environment().items()
    limited = {**json.loads(value)[0], "extra": {"properties": {"max_page_count": pages}}}
    return {variable: json.dumps([limited])}


def test_the_password_shows_in_no_message_and_no_log(make_jdbc, database):
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has no login")
    table = make_jdbc(1)
    table.flow.produce(5, partitions=[0])
    started: Started = table.flow.start()
    job = table.flow.write(started)
    job.succeed()
    table.flow.commit(started)
    told = job.text() + "".join(message.model_dump_json() for message in table.flow.messages())
    assert table.name in told
    assert database.server.password not in told
