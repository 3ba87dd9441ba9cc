"""Looks into a database without a JVM: by Python's own SQLite, by psycopg or PyMySQL where they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sinks.jdbc.address import JdbcAddress

Row = tuple[Any, ...]


Ask = Callable[..., list[Row]]
"""A query with `?` for each value, and the values."""


@dataclass(frozen=True)
class Asking:
    """A connection that answers queries."""

    run: Ask
    describe: Callable[[str], list[tuple[str, str]]]

    def __call__(self, sql: str, *values: Any) -> list[Row]:
        """What a query with `?` for each value finds."""
        return self.run(sql, *values)

    def described(self, query: str) -> list[tuple[str, str]]:
        """The names and types of a query's columns, as far as its database says them; no row is fetched."""
        return self.describe(query)


_WAIT = 5  # seconds: somebody waits for the page
_DRIVERS = ("psycopg", "psycopg2")
_MARIADB = ("pymysql",)
# What the JDBC driver calls by a name of its own, and libpq by another. What isn't here changes how, not where.
_LIBPQ = MappingProxyType(
    {
        **{name: name for name in ("user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")},
        "options": "options",
        "ApplicationName": "application_name",
    }
)


PAGE = "the page"


@dataclass(frozen=True)
class _Look:
    address: JdbcAddress
    wait: int
    who: str


@contextmanager
def asked(address: JdbcAddress, *, wait: int = _WAIT, who: str = PAGE) -> Iterator[Asking]:
    """Queries of a database that change nothing, for as long as the block. Each sees what is committed by then.

    Args:
        address: the database's.
        wait: how many seconds a connection and each query may take.
        who: who asks, for errors.

    Raises:
        ActionRequiredError: this process has no client for it, or the database refuses.
        RetryableError: it doesn't answer.
    """
    clients = {"SQLite": _sqlite, "PostgreSQL": _postgresql, "MariaDB": _mariadb}
    client = clients.get(address.dialect.name)
    if client is None:
        raise ActionRequiredError(
            f"Tables of {address.dialect.name} can't be looked at without a JVM.",
            next_step="look at the control topic's transactions, or ask the database for `_sluice_instants`.",
            connection=address.connection,
        )
    with client(_Look(address, wait, who)) as ask:
        yield ask


@contextmanager
def _sqlite(look: _Look) -> Iterator[Asking]:
    address = look.address
    # Beside a writer a file that may not be written can't be told from one whose writer has died in the middle.
    mode = "ro" if look.who == PAGE else "rw"
    path = address.url.removeprefix("jdbc:sqlite:").removeprefix("file:").partition("?")[0]
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, timeout=look.wait)) as connection:
            connection.execute("PRAGMA query_only = ON")

            def ask(sql: str, *values: Any) -> list[Row]:
                return connection.execute(sql, values).fetchall()

            def describe(query: str) -> list[tuple[str, str]]:
                # The types of a view's columns are known, and those of a query aren't. A temporary one is in no file.
                connection.execute("PRAGMA query_only = OFF")
                connection.execute(f"CREATE TEMP VIEW sluice_query AS {query}")
                found = ask("SELECT name, type FROM pragma_table_xinfo('sluice_query') ORDER BY cid")
                connection.execute("DROP VIEW temp.sluice_query")
                connection.execute("PRAGMA query_only = ON")
                return [(str(name), str(kind)) for name, kind in found]

            yield Asking(ask, describe)
    except sqlite3.Error as error:
        raise RetryableError(
            f"The file of SQLite can't be read: {address.hidden(str(error))}.",
            next_step="it has to be on a disk of this machine's, and readable for the user of "
            + ("Airflow's API server." if look.who == PAGE else "this process."),
            connection=address.connection,
        ) from None


@contextmanager
def _postgresql(look: _Look) -> Iterator[Asking]:
    address = look.address
    driver = _driver(look, "PostgreSQL", _DRIVERS, "pip install 'sluice[postgres]'")
    try:
        with closing(driver.connect(**_libpq(address), connect_timeout=look.wait)) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute(f"SET statement_timeout = '{look.wait}s'")
            cursor.execute("SET default_transaction_read_only = on")

            def ask(sql: str, *values: Any) -> list[Row]:
                cursor.execute(sql.replace("%", "%%").replace("?", "%s") if values else sql, values or None)
                return list(cursor.fetchall())

            def describe(query: str) -> list[tuple[str, str]]:
                cursor.execute(f"SELECT * FROM ({query}) sluice_query LIMIT 0")
                columns = [(str(c[0]), int(c[1]), c[4], c[5]) for c in cursor.description]
                found = []
                for name, kind, precision, scale in columns:
                    ((word,),) = ask("SELECT format_type(?::oid, NULL)", kind)
                    sized = word == "numeric" and precision is not None and precision < 1001
                    found.append((name, f"numeric({precision},{scale})" if sized else str(word)))
                return found

            yield Asking(ask, describe)
    except driver.Error as error:
        state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
        reason = " ".join(address.hidden(str(error)).split())[:500]
        refuses = state.startswith(("28", "3D", "42501")) or "authentication failed" in reason
        raise _failed(look, reason, refuses=refuses) from None


@contextmanager
def _mariadb(look: _Look) -> Iterator[Asking]:
    address = look.address
    driver = _driver(look, "MariaDB", _MARIADB, "pip install 'sluice[mariadb]'")
    session = f"SET {address.dialect.properties['sessionVariables']}, max_statement_time={look.wait}, tx_read_only=1"
    waits = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), look.wait)
    try:
        with closing(driver.connect(**_pymysql(address), **waits, init_command=session, autocommit=True)) as connection:
            cursor = connection.cursor()

            def ask(sql: str, *values: Any) -> list[Row]:
                cursor.execute(sql.replace("%", "%%").replace("?", "%s") if values else sql, values or None)
                return list(cursor.fetchall())

            def describe(query: str) -> list[tuple[str, str]]:
                cursor.execute(f"SELECT * FROM ({query}) sluice_query LIMIT 0")
                return [(str(c[0]), _mariadb_type(c[1], c[4], c[5])) for c in cursor.description]

            yield Asking(ask, describe)
    except driver.Error as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        reason = " ".join(address.hidden(str(error)).split())[:500]
        raise _failed(look, reason, refuses=address.dialect.kind_of(code) in ("login", "refused")) from None


# https://mariadb.com/kb/en/result-set-packets/: the types of the protocol's columns.
_MARIADB_TYPES = MappingProxyType(
    {
        1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 7: "timestamp(6)", 8: "bigint", 9: "mediumint",
        10: "date", 11: "time", 12: "datetime(6)", 13: "year", 16: "bit",
    }
)  # fmt: skip


def _mariadb_type(code: int, length: int, scale: int) -> str:
    if code in (0, 246):  # its length has the sign, and the point where there is one
        return f"decimal({length - 1 - (scale > 0)},{scale})"
    return _MARIADB_TYPES.get(code, "text")


def _failed(look: _Look, reason: str, *, refuses: bool) -> ActionRequiredError | RetryableError:
    said = {"connection": look.address.connection, "reason": reason}
    page = look.who == PAGE
    if refuses:
        grants = (
            "or grant it SELECT on `_sluice_instants`; the server may also admit tasks' machines only, and not the API "
            "server's."
        )
        return ActionRequiredError(
            f"The database refuses {look.who}'s look at the table.",
            next_step="correct login or password of the Airflow connection, "
            + (grants if page else "or grant it what docs/jdbc-source.md names under `Rights`."),
            **said,
        )
    return RetryableError(
        f"The database doesn't answer {look.who}.",
        next_step="check that it can be reached from Airflow's "
        + ("API server." if page else "workers; the step is retried."),
        **said,
    )


def _driver(look: _Look, database: str, names: Sequence[str], install: str) -> Any:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    page = f"beside Airflow's API server: `{install}`. Till then the page shows the control topic's transactions alone."
    raise ActionRequiredError(
        f"This process has no client for {database}.",
        next_step=f"install {names[0]} {page if look.who == PAGE else f'beside Airflow: `{install}`.'}",
        connection=look.address.connection,
    )


def _parts(address: JdbcAddress, kind: str, port: str) -> tuple[str, str, dict[str, str]]:
    """The servers of a JDBC URL, its database, and what URL and connection say besides.

    Raises:
        ActionRequiredError: the URL is of another kind, or names no server.
    """
    where, _, query = address.url.partition("?")
    scheme, _, rest = where.partition("//")
    servers, _, database = rest.partition("/")
    if scheme != f"jdbc:{kind}:" or not servers:
        raise ActionRequiredError(
            "The connection's URL names no server.",
            next_step=f"write it as jdbc:{kind}://host:{port}/database.",
            connection=address.connection,
        )
    return servers, database, {**address.properties, **dict(parse_qsl(query))}


def _pymysql(address: JdbcAddress) -> Mapping[str, Any]:
    """A JDBC URL of MariaDB's and its properties as PyMySQL has them; of several servers the first.

    Raises:
        ActionRequiredError: the URL is none that PyMySQL could go by.
    """
    servers, database, given = _parts(address, "mariadb", "3306")
    host, port = _server(servers.partition(",")[0], "3306")
    found: dict[str, Any] = {"host": host, "port": int(port), "database": unquote(database) or None}
    found |= {name: given[name] for name in ("user", "password") if name in given}
    mode = given.get("sslMode", "disable").lower()
    if mode not in ("disable", "false", "0"):
        checked = mode not in ("trust", "no_verification")
        found |= {
            "ssl_verify_cert": checked,
            "ssl_verify_identity": mode in ("verify-full", "true", "1", "verify_identity"),
        }
        found |= {"ssl_ca": given["serverSslCert"]} if "serverSslCert" in given else {"ssl": {"check_hostname": False}}
    return found


def _libpq(address: JdbcAddress) -> Mapping[str, str]:
    """A JDBC URL and its properties as libpq has them.

    Raises:
        ActionRequiredError: the URL is none that libpq could go by.
    """
    servers, database, given = _parts(address, "postgresql", "5432")
    found = {_LIBPQ[name]: value for name, value in given.items() if name in _LIBPQ}
    if given.get("ssl", "").lower() == "true":  # which the driver takes for the strictest way
        found.setdefault("sslmode", "verify-full")
    if "currentSchema" in given:
        found["options"] = (
            f"{found.get('options', '')} -c search_path={given['currentSchema'].replace(' ', '')}".strip()
        )
    hosts, ports = zip(*(_server(one, "5432") for one in servers.split(",")), strict=True)
    name = unquote(database) or found.get("user", "")
    return {**found, "host": ",".join(hosts), "port": ",".join(ports), "dbname": name}


def _server(text: str, standard: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, standard
    return host.strip("[]"), port
