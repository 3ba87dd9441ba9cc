"""Looks into a database without a JVM: by Python's own SQLite, by psycopg or PyMySQL where they are."""

from __future__ import annotations

import sqlite3
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from sluice.errors import ActionRequiredError, RetryableError
from sluice.identifiers import percent_marks
from sluice.sinks.jdbc.address import JdbcAddress
from sluice.sinks.jdbc.dialect import Kind, kind_of_state

Row = tuple[Any, ...]


Ask = Callable[..., list[Row]]
"""A query with `?` for each value, and the values."""


@dataclass(frozen=True)
class Asking:
    """A connection that answers queries."""

    run: Ask
    describe: Callable[[str], list[tuple[str, str]]]
    begun: Callable[[Sequence[str]], AbstractContextManager[None]] = lambda _: nullcontext()

    def __call__(self, sql: str, *values: Any) -> list[Row]:
        """What a query with `?` for each value finds."""
        return self.run(sql, *values)

    def described(self, query: str) -> list[tuple[str, str]]:
        """The names and types of a query's columns, as far as its database says them; no row is fetched."""
        return self.describe(query)

    def together(self, *begin: str) -> AbstractContextManager[None]:
        """Questions of one transaction, which these statements begin; it changes nothing."""
        return self.begun(begin)


_WAIT = 5  # seconds: a reader waits for the page
_DRIVERS = ("psycopg", "psycopg2")
_MARIADB = ("pymysql",)
# Options that the JDBC driver and libpq name differently. Options that aren't here change how, not where.
_LIBPQ = MappingProxyType(
    {
        **{name: name for name in ("user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")},
        "options": "options",
        "channelBinding": "channel_binding",
        "gssEncMode": "gssencmode",
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
    # Beside a writer, a read-only file can't be distinguished from one whose writer has died in the middle.
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
                connection.execute(f"CREATE TEMP VIEW sluice_query AS\n{query}")
                found = ask("SELECT name, type FROM pragma_table_xinfo('sluice_query') ORDER BY cid")
                connection.execute("DROP VIEW temp.sluice_query")
                connection.execute("PRAGMA query_only = ON")
                return [(str(name), str(kind)) for name, kind in found]

            yield Asking(ask, describe)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_ERROR:
            raise _failed(look, address.hidden(str(error)), "other") from None
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
            if hasattr(connection, "prepare_threshold"):  # a pooler's next server connection hasn't what was prepared
                connection.prepare_threshold = None
            asking = _AskingPostgreSql(connection.cursor(), look)
            yield Asking(asking.ask, asking.describe)
    except driver.Error as error:
        state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
        said = address.hidden(str(error))
        reason = " ".join(said.split())[:500]
        kind = kind_of_state(state) if state else "passing"
        if kind == "data":
            reason = address.dialect.refused(said, 0, state)[:500]
        if not state and any(words in reason for words in _FATAL):  # libpq has no state of a login that fails
            kind = "login"
        raise _failed(look, reason, kind) from None


# PostgreSQL's words for a login, a database or a machine that it doesn't let in.
_FATAL = ("authentication failed", "does not exist", "no pg_hba.conf entry", "permission denied for database")


class _OneServer:
    """Refuses answers of a second server."""

    def __init__(self, look: _Look) -> None:
        self._look = look
        self._server: Row | None = None

    def answered(self, server: Row) -> None:
        """Take note of the server that answers.

        Raises:
            RetryableError: it is another one than before.
        """
        if self._server not in (None, server):
            raise RetryableError(
                f"Two servers answer {self._look.who}, so the answers of one can't be taken together with the other's.",
                next_step="the step is retried; if it comes back, have the connection lead to one server.",
                connection=self._look.address.connection,
            )
        self._server = server


class _AskingPostgreSql:
    """Questions to PostgreSQL, each in a separate transaction, and all to one server.

    Nothing is set for longer than a transaction: a pooler hands the session on to others as it is.
    """

    def __init__(self, cursor: Any, look: _Look) -> None:
        self._cursor, self._look = cursor, look
        self._one_server = _OneServer(look)

    def ask(self, sql: str, *values: Any) -> list[Row]:
        """See `Asking`."""
        with self._question():
            self._cursor.execute(percent_marks(sql) if values else sql, values or None)
            return list(self._cursor.fetchall())

    def describe(self, query: str) -> list[tuple[str, str]]:
        """See `Asking`."""
        with self._question():
            self._cursor.execute(f"SELECT * FROM (\n{query}\n) sluice_query LIMIT 0")
            columns = [(str(c[0]), int(c[1]), c[4], c[5]) for c in self._cursor.description]
        found = []
        for name, kind, precision, scale in columns:
            ((word,),) = self.ask("SELECT format_type(?::oid, NULL)", kind)
            sized = word == "numeric" and precision is not None and precision < 1001
            found.append((name, f"numeric({precision},{scale})" if sized else str(word)))
        return found

    @contextmanager
    def _question(self) -> Iterator[None]:
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
        self._cursor.execute(f"{begin}; SET LOCAL statement_timeout = '{self._look.wait}s'")
        self._cursor.execute("SELECT pg_postmaster_start_time()::text || coalesce(inet_server_addr()::text, '')")
        self._one_server.answered(self._cursor.fetchone())
        yield
        self._cursor.execute("COMMIT")


@contextmanager
def _mariadb(look: _Look) -> Iterator[Asking]:
    address = look.address
    driver = _driver(look, "MariaDB", _MARIADB, "pip install 'sluice[mariadb]'")
    session = f"SET {address.dialect.properties['sessionVariables']}, max_statement_time={look.wait}, tx_read_only=1"
    waits = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), look.wait)
    try:
        with closing(driver.connect(**_pymysql(address), **waits, init_command=session, autocommit=True)) as connection:
            asking = _AskingMariaDb(connection.cursor(), look)
            yield Asking(asking.ask, asking.describe, asking.together)
    except driver.Error as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        said = address.hidden(str(error.args[-1] if error.args else error))
        reason = " ".join(address.hidden(str(error)).split())[:500]
        # https://mariadb.com/kb/en/mariadb-error-codes/: from 2000 to 2999 they are the client's, of the connection.
        of_connection = code < 1000 or 2000 <= code < 3000
        kind = address.dialect.kind_of(code) or ("passing" if of_connection else "other")
        if kind == "data":
            reason = address.dialect.refused(said, code, "")[:500]
        if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            raise _wrong_certificate(look, reason) from None
        raise _failed(look, reason, kind) from None


class _AskingMariaDb:
    """Questions of MariaDB, each in a transaction, and all of one server.

    A proxy that sends each statement where it pleases leaves those of a transaction together.
    """

    def __init__(self, cursor: Any, look: _Look) -> None:
        self._cursor, self._look = cursor, look
        self._one_server = _OneServer(look)
        self._begun = False

    def ask(self, sql: str, *values: Any) -> list[Row]:
        """See `Asking`."""
        with self._question():
            self._cursor.execute(percent_marks(sql) if values else sql, values or None)
            return list(self._cursor.fetchall())

    def describe(self, query: str) -> list[tuple[str, str]]:
        """See `Asking`."""
        with self._question():
            self._cursor.execute(f"SELECT * FROM (\n{query}\n) sluice_query LIMIT 0")
            return [(str(c[0]), _mariadb_type(c[1], c[4], c[5])) for c in self._cursor.description]

    @contextmanager
    def together(self, begin: Sequence[str]) -> Iterator[None]:
        """See `Asking`."""
        for statement in begin:
            self._cursor.execute(statement)
        self._require_one_server()
        self._begun = True
        try:
            yield
        finally:
            self._begun = False
            self._cursor.execute("ROLLBACK")

    @contextmanager
    def _question(self) -> Iterator[None]:
        if self._begun:
            yield
            return
        self._cursor.execute("START TRANSACTION")
        self._require_one_server()
        yield
        self._cursor.execute("COMMIT")

    def _require_one_server(self) -> None:
        self._cursor.execute("SELECT @@global.hostname, @@global.port, @@global.server_id, @@global.datadir")
        self._one_server.answered(self._cursor.fetchone())


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


def _wrong_certificate(look: _Look, reason: str) -> ActionRequiredError:
    return ActionRequiredError(
        f"The database's certificate isn't one that {look.who} accepts.",
        next_step="look whether the server of the Airflow connection is the right one. If it is, give it a certificate "
        "of its host's name that is valid, or name the certificate of its authority in `serverSslCert`.",
        connection=look.address.connection,
        reason=reason,
    )


def _failed(look: _Look, reason: str, kind: Kind) -> ActionRequiredError | RetryableError:
    said = {"connection": look.address.connection, "reason": reason}
    page = look.who == PAGE
    if kind in ("data", "other"):
        return ActionRequiredError(
            f"The database can't answer {look.who}: it finds a mistake in what it is asked.",
            next_step="correct what the database names: a `query` of the pipeline's, a column, or a value that an "
            "expression of it can't take.",
            **said,
        )
    if kind != "passing":
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
    host, port = _server(servers.partition(",")[0], "3306", address.connection)
    found: dict[str, Any] = {"host": host, "port": int(port), "database": unquote(database) or None}
    found |= {name: given[name] for name in ("user", "password") if name in given}
    mode = given.get("sslMode", "disable").lower()
    if mode not in _WITHOUT_TLS:
        found["ssl"] = _tls(mode, given.get("serverSslCert"), address.connection)
    return found


# The driver's words, https://mariadb.com/docs/connectors/mariadb-connector-j/using-tls-ssl-with-mariadb-connector-j.
_WITHOUT_TLS = ("disable", "disabled", "false", "0")
_UNCHECKED = ("trust", "required", "no_verification")
_NAME_UNCHECKED = ("verify-ca", "verify_ca")


def _tls(mode: str, authority: str | None, connection: str) -> ssl.SSLContext:
    """How the server is checked: as the JDBC driver does, by any other mode as strictly as possible.

    PyMySQL's own settings don't have the server's name checked where they name no authority's certificate.

    Raises:
        ActionRequiredError: the authority's certificate can't be read.
    """
    inline = authority is not None and authority.lstrip().startswith("-----BEGIN ")
    try:
        context = ssl.create_default_context(cafile=None if inline else authority, cadata=authority if inline else None)
    except (OSError, ValueError):  # ssl.SSLError among them
        raise ActionRequiredError(
            "The certificate of the database's authority can't be read.",
            next_step="`serverSslCert` of the connection names a PEM file that Airflow's machines have, or is PEM.",
            connection=connection,
        ) from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # certificates that a server has generated don't pass it
    context.check_hostname = mode not in (*_UNCHECKED, *_NAME_UNCHECKED)
    context.verify_mode = ssl.CERT_NONE if mode in _UNCHECKED else ssl.CERT_REQUIRED
    return context


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
    hosts, ports = zip(*(_server(one, "5432", address.connection) for one in servers.split(",")), strict=True)
    name = unquote(database) or found.get("user", "")
    return {**found, "host": ",".join(hosts), "port": ",".join(ports), "dbname": name}


def _server(text: str, standard: str, connection: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, standard
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ActionRequiredError(
            "The connection's URL has a port that is no number.",
            next_step=f"write its server as host:{standard}.",
            connection=connection,
        )
    return host.strip("[]"), port
