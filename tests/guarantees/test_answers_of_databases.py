"""What PostgreSQL, MariaDB and SQLite answer, each for real, is an error of the right kind; values are in none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from sluice.databases.connection import address_of
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.sinks.jdbc.database import Database, connected
from sluice.sinks.jdbc.failures import RowsRefusedError

from .harness.databases import MariaDatabase, PostgresDatabase, Readable, SqliteFile

_DATA, _ACT, _PASSES = RowsRefusedError, ActionRequiredError, RetryableError
_TABLES = (
    "CREATE TABLE a (id INTEGER NOT NULL PRIMARY KEY, v VARCHAR(99) UNIQUE, n SMALLINT, CONSTRAINT few CHECK (n < 9))",
    "CREATE TABLE b (id INTEGER NOT NULL, CONSTRAINT of_a FOREIGN KEY (id) REFERENCES a (id))",
    "INSERT INTO a VALUES (1, 'one', 1), (2, 'two', 2)",
)
_ANYWHERE = {
    "INSERT INTO a VALUES (1, 'secretvalue', 1)": _DATA,
    "INSERT INTO a VALUES (3, 'one', 1)": _DATA,
    "INSERT INTO b VALUES (NULL)": _DATA,
    "INSERT INTO a VALUES (3, 'secretvalue', 11)": _DATA,
    "INSERT INTO b VALUES (77)": _DATA,
    "INSERT INTO gone VALUES (1)": _ACT,
    "INSERT INTO a (gone) VALUES (1)": _ACT,
    "INSRT": _ACT,
}


def _raised(state: str) -> str:
    """A statement that PostgreSQL's server answers with a SQLSTATE."""
    return f"DO $$ BEGIN RAISE EXCEPTION 'secretvalue' USING ERRCODE = '{state}'; END $$"


def _signalled(state: str, code: int) -> str:
    """A statement that MariaDB's server answers with a SQLSTATE and a number."""
    return f"SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'words'"


_OF_ONE: dict[type[Readable], dict[str, type[SluiceError]]] = {
    PostgresDatabase: {
        "INSERT INTO a VALUES (3, 'secretvalue', 99999)": _DATA,  # 22003
        "INSERT INTO a (id) VALUES ('secretvalue')": _DATA,  # 22P02
        _raised("P0001"): _DATA,
        _raised("44000"): _DATA,
        _raised("54000"): _DATA,
        "SET ROLE poor; INSERT INTO a VALUES (3, 'x', 1)": _ACT,  # 42501
        "SET default_transaction_read_only = on; INSERT INTO a VALUES (3, 'x', 1)": _PASSES,  # 25006
        "SET temp_file_limit = 64; SET work_mem = 64; CREATE TEMP TABLE c AS SELECT repeat('x', 900) || i FROM "
        "generate_series(1, 9999) i ORDER BY 1": _PASSES,  # 53400
        "SET statement_timeout = 20; SELECT pg_sleep(9)": _PASSES,  # 57014
        "SELECT pg_terminate_backend(pg_backend_pid())": _PASSES,
        **{_raised(state): _PASSES for state in ("53100", "53200", "57P03", "58030", "XX000", "40001", "ZZ999")},
    },
    MariaDatabase: {
        "INSERT INTO a VALUES (3, 'secretvalue', 99999)": _DATA,  # 1264
        "INSERT INTO a (id) VALUES ('secretvalue')": _DATA,  # 1366
        _signalled("45000", 1644): _DATA,
        "SET SESSION TRANSACTION READ ONLY; INSERT INTO a VALUES (3, 'x', 1)": _PASSES,  # 1792
        "SET max_statement_time = 0.02; SELECT sleep(9)": _PASSES,  # 1969
        "KILL CONNECTION connection_id()": _PASSES,
        _signalled("HY000", 1114): _PASSES,
        _signalled("HY000", 1290): _PASSES,
        _signalled("HY000", 29999): _PASSES,
        _signalled("HY000", 1130): _ACT,
        _signalled("HY000", 1449): _ACT,
    },
    SqliteFile: {
        "PRAGMA query_only = ON; INSERT INTO a VALUES (3, 'x', 1)": _ACT,
        "PRAGMA max_page_count = 1; CREATE TABLE c AS SELECT hex(randomblob(99999)) AS v": _PASSES,  # the disk is full
    },
}  # fmt: skip


@pytest.fixture
def tables(database: Readable) -> Iterator[Readable]:
    for statement in _TABLES:
        database.run(statement)
    if isinstance(database, PostgresDatabase):
        database.run("CREATE ROLE poor")
    yield database
    database.run("DROP TABLE b")
    database.run("DROP TABLE a")
    if isinstance(database, PostgresDatabase):
        database.run("DROP ROLE poor")


@contextmanager
def _connected(jvm, database: Readable, *session: str) -> Iterator[Database]:
    with connected(jvm.jvm, address_of(database.connection)) as found:
        for statement in session:
            _run(found, statement)
        yield found


def _run(database: Database, statement: str) -> None:
    """A statement, or a query whose rows are thrown away."""
    (database.rows if statement.startswith(("SELECT", "PRAGMA max")) else database.run)(statement)


def _fails(database: Database, statements: str) -> SluiceError:
    *before, last = [statements] if statements.startswith("DO") else statements.split("; ")
    for statement in before:
        _run(database, statement)
    with pytest.raises(SluiceError) as caught:
        _run(database, last)
    return caught.value


def test_each_answer_is_of_its_kind(tables, shared_jvm):
    of_one = _OF_ONE[type(tables)]
    with shared_jvm() as jvm:
        for statement, kind in {**_ANYWHERE, **of_one}.items():
            first = ("PRAGMA foreign_keys = ON",) if isinstance(tables, SqliteFile) else ()
            with _connected(jvm, tables, *first) as database:
                error = _fails(database, statement)
            assert type(error) is kind, (statement, error)
            assert "secretvalue" not in str(error) or kind is _PASSES, error
            assert not any(sign in str(error) for sign in ("\n", "\tat ", "Traceback")), error
            assert tables.connection.password is None or tables.connection.password not in str(error)


def test_locks_are_waited_for_in_a_retry(tables, shared_jvm):
    """A lock that isn't had in time, a deadlock, and a row that another transaction has changed meanwhile."""
    if isinstance(tables, SqliteFile):
        pytest.skip("SQLite has one lock")
    postgresql = isinstance(tables, PostgresDatabase)
    wait = "SET lock_timeout = 100" if postgresql else "SET innodb_lock_wait_timeout = 1"
    change = "UPDATE a SET n = n + 1 WHERE id = {}"
    with shared_jvm() as jvm, _connected(jvm, tables) as one, _connected(jvm, tables) as other:
        with suppress(RetryableError), one.transaction("holding"):
            one.run(change.format(1))
            # What is set in a transaction comes after the sink's own settings of it.
            with _connected(jvm, tables) as third, suppress(RetryableError), third.transaction("waiting"):
                third.run(wait)
                assert type(_fails(third, change.format(1))) is RetryableError
            errors: list[SluiceError] = []
            locked = threading.Event()
            crossing = threading.Thread(target=_crosses, args=(other, change, locked, errors))
            crossing.start()
            locked.wait()
            try:
                one.run(change.format(2))
            except SluiceError as error:
                errors.append(error)
                raise
            finally:
                if errors:
                    one._connection.rollback()
        crossing.join()
        assert [type(error) for error in errors] == [RetryableError]
        if postgresql:
            one.run("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            with one.transaction("changing"):
                one.rows("SELECT * FROM a")
                other.run(change.format(1))
                assert type(_fails(one, change.format(1))) is RetryableError
                one._connection.rollback()


def _crosses(database: Database, change: str, locked: threading.Event, errors: list[SluiceError]) -> None:
    try:
        with database.transaction("crossing"):
            database.run(change.format(2))
            locked.set()
            database.run(change.format(1))
    except SluiceError as error:
        errors.append(error)


def test_a_server_that_cannot_be_trusted_or_is_not_there(database, shared_jvm):
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has no server")
    wrong = {
        "login": (replace(database.connection, password="secretvalue"), ActionRequiredError),
        "nobody listens": (replace(database.connection, port=1), RetryableError),
        "host": (replace(database.connection, host="no-such-host.invalid"), RetryableError),
    }
    if isinstance(database, PostgresDatabase):
        wrong["no encryption"] = (replace(database.connection, extra={"sslmode": "require"}), ActionRequiredError)
    with shared_jvm() as jvm:
        for name, (connection, kind) in wrong.items():
            with pytest.raises(SluiceError) as caught, connected(jvm.jvm, address_of(connection)):
                pass
            assert type(caught.value) is kind, (name, caught.value)
            assert "secretvalue" not in str(caught.value)


def test_a_file_that_is_no_database_needs_a_person(shared_jvm, tmp_path):
    file = tmp_path / "no.db"
    file.write_bytes(b"no database, and longer than the header of one" * 99)
    with shared_jvm() as jvm, _connected(jvm, SqliteFile(file)) as database:
        assert type(_fails(database, "SELECT * FROM a")) is ActionRequiredError


def test_a_path_that_is_not_there_needs_a_person(shared_jvm, tmp_path):
    with (
        shared_jvm() as jvm,
        pytest.raises(ActionRequiredError, match="does not exist"),
        _connected(jvm, SqliteFile(tmp_path / "missing" / "a.db")),
    ):
        pass
