"""Looks into a database without a JVM, for the page: by Python's own SQLite, or by psycopg where that is installed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sinks.jdbc.address import JdbcAddress

Row = tuple[Any, ...]
Ask = Callable[..., list[Row]]
"""A query with `?` for each value, and the values."""

_WAIT = 5  # seconds: somebody waits for the page
_DRIVERS = ("psycopg", "psycopg2")
# What the JDBC driver calls by a name of its own, and libpq by another. What isn't here changes how, not where.
_LIBPQ = MappingProxyType(
    {
        **{name: name for name in ("user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")},
        "options": "options",
        "ApplicationName": "application_name",
    }
)


@contextmanager
def asked(address: JdbcAddress) -> Iterator[Ask]:
    """Queries of a database that change nothing, for as long as the block.

    Raises:
        ActionRequiredError: this process has no client for it, or the database refuses.
        RetryableError: it doesn't answer.
    """
    clients = {"SQLite": _sqlite, "PostgreSQL": _postgresql}
    client = clients.get(address.dialect.name)
    if client is None:
        raise ActionRequiredError(
            f"Tables of {address.dialect.name} can't be looked at without a JVM.",
            next_step="look at the control topic's transactions, or ask the database for `_sluice_instants`.",
            connection=address.connection,
        )
    with client(address) as ask:
        yield ask


@contextmanager
def _sqlite(address: JdbcAddress) -> Iterator[Ask]:
    path = address.url.removeprefix("jdbc:sqlite:").removeprefix("file:").partition("?")[0]
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_WAIT)) as connection:
            yield lambda sql, *values: connection.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        raise RetryableError(
            f"The file of SQLite can't be read: {address.hidden(str(error))}.",
            next_step="it has to be on a disk of this machine's, and readable for the user of Airflow's API server.",
            connection=address.connection,
        ) from None


@contextmanager
def _postgresql(address: JdbcAddress) -> Iterator[Ask]:
    driver = _driver(address)
    try:
        with closing(driver.connect(**_libpq(address), connect_timeout=_WAIT)) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SET statement_timeout = '{_WAIT}s'")
            cursor.execute("SET default_transaction_read_only = on")
            connection.commit()

            def ask(sql: str, *values: Any) -> list[Row]:
                cursor.execute(sql.replace("?", "%s"), values)
                return list(cursor.fetchall())

            yield ask
    except driver.Error as error:
        state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
        reason = " ".join(address.hidden(str(error)).split())[:500]
        if state.startswith(("28", "3D", "42501")) or "authentication failed" in reason:
            raise ActionRequiredError(
                "The database refuses the page's look at the table.",
                next_step="correct login or password of the Airflow connection, or grant it SELECT on "
                "`_sluice_instants`; the server may also admit tasks' machines only, and not the API server's.",
                connection=address.connection,
                reason=reason,
            ) from None
        raise RetryableError(
            "The database doesn't answer the page.",
            next_step="check that it can be reached from Airflow's API server.",
            connection=address.connection,
            reason=reason,
        ) from None


def _driver(address: JdbcAddress) -> Any:
    for name in _DRIVERS:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ActionRequiredError(
        "This process has no client for PostgreSQL.",
        next_step="install psycopg beside Airflow's API server: `pip install 'sluice[postgres]'`. Till then the page "
        "shows the control topic's transactions alone.",
        connection=address.connection,
    )


def _libpq(address: JdbcAddress) -> Mapping[str, str]:
    """A JDBC URL and its properties as libpq has them.

    Raises:
        ActionRequiredError: the URL is none that libpq could go by.
    """
    where, _, query = address.url.partition("?")
    scheme, _, rest = where.partition("//")
    servers, _, database = rest.partition("/")
    if scheme != "jdbc:postgresql:" or not servers:
        raise ActionRequiredError(
            "The connection's URL names no server.",
            next_step="write it as jdbc:postgresql://host:5432/database.",
            connection=address.connection,
        )
    given = {**address.properties, **dict(parse_qsl(query))}
    found = {_LIBPQ[name]: value for name, value in given.items() if name in _LIBPQ}
    if given.get("ssl", "").lower() == "true":  # which the driver takes for the strictest way
        found.setdefault("sslmode", "verify-full")
    if "currentSchema" in given:
        found["options"] = (
            f"{found.get('options', '')} -c search_path={given['currentSchema'].replace(' ', '')}".strip()
        )
    hosts, ports = zip(*(_server(one) for one in servers.split(",")), strict=True)
    name = unquote(database) or found.get("user", "")
    return {**found, "host": ",".join(hosts), "port": ",".join(ports), "dbname": name}


def _server(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, "5432"
    return host.strip("[]"), port
