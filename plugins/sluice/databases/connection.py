"""From an Airflow connection to a database: its address, its engine, and queries without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sluice.connectors.connections import ConnectionSettings
from sluice.databases.address import JdbcAddress
from sluice.databases.client import PAGE, Asking, Look
from sluice.databases.dialect import Dialect
from sluice.databases.engine import Engine
from sluice.databases.jdbc.dialect import DRIVER_CLASS, AnyDatabase
from sluice.databases.kinds import KINDS, DatabaseKind
from sluice.errors import ActionRequiredError

_WAIT = 5  # seconds: a reader waits for the page


def address_of(connection: ConnectionSettings) -> JdbcAddress:
    """The address of a database, from an Airflow connection.

    Raises:
        ActionRequiredError: the connection has no address, or one that names no kind of database.
    """
    url = _url(connection)
    if not url.startswith("jdbc:"):
        raise ActionRequiredError(
            "The Airflow connection has no address of a database.",
            next_step=f"give it the type {_types()}; or the type jdbc with a whole URL as its host, such as "
            "jdbc:postgresql://host:5432/database.",
            connection=connection.id,
            type=connection.type or "(none)",
        )
    named = re.match(r"jdbc:([\w+.-]+):", url)
    if named is None:
        raise ActionRequiredError(
            "The URL of the Airflow connection names no kind of database.",
            next_step=f"write it as jdbc:<kind>:…, where the kind is one of {', '.join(sorted(KINDS))}, or another one "
            "that has a JDBC driver.",
            connection=connection.id,
        )
    kind = KINDS.get(named[1])
    dialect = AnyDatabase(named[1], str(connection.extra.get(DRIVER_CLASS) or "")) if kind is None else kind.dialect
    dialect.require_url(url, connection.id)
    login = {"user": connection.login, "password": connection.password}
    given = {**_extra(connection, dialect), **{name: value for name, value in login.items() if value}}
    return JdbcAddress(connection.id, dialect, url, {**given, **dialect.properties})


def engine_of(address: JdbcAddress) -> Engine:
    """The engine of a database."""
    return _kind(address).engine


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
    if who == PAGE and isinstance(address.dialect, AnyDatabase):
        raise ActionRequiredError(
            f"The page can't look into {address.dialect.name}, which only a JDBC driver knows: Airflow's API server "
            "runs no Java.",
            next_step="the page shows the control topic's transactions alone; look for the table's intervals in its "
            "`_sluice_instants`.",
            connection=address.connection,
        )
    with _kind(address).client(Look(address, wait, who)) as ask:
        yield ask


def _kind(address: JdbcAddress) -> DatabaseKind:
    if isinstance(address.dialect, AnyDatabase):
        # Here, since they need Py4J, which Airflow's API server may lack.
        from sluice.databases.jdbc.client import connected
        from sluice.databases.jdbc.engine import AnyEngine

        return DatabaseKind(address.dialect, AnyEngine(address.dialect.subprotocol), connected)
    return next(kind for kind in KINDS.values() if kind.dialect.name == address.dialect.name)


def _types() -> str:
    """The types of Airflow connections that name a database, each with its kind of database."""
    dialects = (kind.dialect for kind in KINDS.values())
    return ", ".join(f"{' or '.join(one.connection_types)} for {one.name}" for one in dialects if one.connection_types)


def _url(connection: ConnectionSettings) -> str:
    host = connection.host or ""
    if host and not host.startswith("jdbc:"):
        for kind in KINDS.values():
            if connection.type in kind.dialect.connection_types:
                return kind.dialect.url(host, connection.port, connection.schema or "", connection.login or "")
    return host


def _extra(connection: ConnectionSettings, dialect: Dialect) -> dict[str, str]:
    """The driver's properties: `properties` of the extra field, and what Airflow's own hook reads there."""
    own = connection.extra.get("properties", {})
    if not isinstance(own, Mapping):
        raise ActionRequiredError(
            "`properties` in the connection's extra field is no JSON object.",
            next_step='correct it, for example to {"properties": {"sslmode": "verify-full"}}.',
            connection=connection.id,
        )
    names = dialect.extra_fields
    known = {names[name]: value for name, value in connection.extra.items() if name in names}
    return {name: str(value) for name, value in {**known, **own}.items()}
