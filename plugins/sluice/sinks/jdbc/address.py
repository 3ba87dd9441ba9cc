"""A database's address and login, from an Airflow connection. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sluice.connectors.connections import ConnectionSettings
from sluice.errors import ActionRequiredError
from sluice.redact import HIDDEN, redact_text, secret_values
from sluice.sinks.jdbc.dialect import Dialect
from sluice.sinks.jdbc.dialects import DIALECTS

_POSTGRES_TYPES = ("postgres", "postgresql")
_MARIADB_TYPES = ("mysql", "mariadb")
# libpq's names in a postgres connection's extra field, and the JDBC driver's names for them.
_EXTRA = MappingProxyType(
    {
        **{name: name for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "options")},
        "application_name": "ApplicationName",
        "connect_timeout": "connectTimeout",
    }
)


@dataclass(frozen=True)
class JdbcAddress:
    """A database's address; no part of it shows in a repr.

    Attributes:
        connection: the Airflow connection's id.
        dialect: the database's dialect.
        url: the URL for the driver, which may contain a password.
        properties: the driver's properties, including login and password.
    """

    connection: str
    dialect: Dialect
    url: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)

    def hidden(self, text: str) -> str:
        """A driver's message, without any URL, login or password that it quotes."""
        secrets = {self.url, self.url.partition("?")[2], *secret_values(dict(self.properties))}
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return redact_text(text)


def address_of(connection: ConnectionSettings) -> JdbcAddress:
    """The address of a database, from an Airflow connection.

    Raises:
        ActionRequiredError: the connection has no address, or one of an unknown kind of database.
    """
    url = _url(connection)
    if not url.startswith("jdbc:"):
        raise ActionRequiredError(
            "The Airflow connection has no address of a database.",
            next_step="give it the type postgres, mysql (for MariaDB) or sqlite, or the type jdbc with a whole URL as "
            "its host, such as jdbc:postgresql://host:5432/database.",
            connection=connection.id,
            type=connection.type or "(none)",
        )
    if url.startswith("jdbc:sqlite:") and not re.match(r"jdbc:sqlite:(file:)?/", url):
        raise ActionRequiredError(
            "The Airflow connection names no file of SQLite's by its absolute path.",
            next_step="give the path from / on: each process opens the file for itself, from a folder of its own.",
            connection=connection.id,
        )
    kind = re.match(r"jdbc:(\w+):", url)
    dialect = DIALECTS.get(kind[1]) if kind else None
    if dialect is None:
        raise ActionRequiredError(
            f"Sluice isn't made for this database: {kind[1] if kind else 'its URL names none'}.",
            next_step=f"use one of {', '.join(sorted(DIALECTS))}; what the SQL of another one would do was never "
            "tried.",
            connection=connection.id,
        )
    login = {"user": connection.login, "password": connection.password}
    given = {**_extra(connection), **{name: value for name, value in login.items() if value}}
    return JdbcAddress(connection.id, dialect, url, {**given, **dialect.properties})


def _url(connection: ConnectionSettings) -> str:
    host = connection.host or ""
    if connection.type in _POSTGRES_TYPES and host and not host.startswith("jdbc:"):
        return f"jdbc:postgresql://{host}:{connection.port or 5432}/{connection.schema or connection.login or ''}"
    if connection.type in _MARIADB_TYPES and host and not host.startswith("jdbc:"):
        return f"jdbc:mariadb://{host}:{connection.port or 3306}/{connection.schema or ''}"
    if connection.type == "sqlite" and host.startswith("/"):
        return f"jdbc:sqlite:{host}"
    return host


def _extra(connection: ConnectionSettings) -> dict[str, str]:
    """The driver's properties: `properties` of the extra field, and libpq's settings that the driver supports."""
    own = connection.extra.get("properties", {})
    if not isinstance(own, Mapping):
        raise ActionRequiredError(
            "`properties` in the connection's extra field is no JSON object.",
            next_step='correct it, for example to {"properties": {"sslmode": "verify-full"}}.',
            connection=connection.id,
        )
    libpq = {} if connection.type in (*_MARIADB_TYPES, "sqlite") else connection.extra
    known = {_EXTRA[name]: value for name, value in libpq.items() if name in _EXTRA}
    return {name: str(value) for name, value in {**known, **own}.items()}
