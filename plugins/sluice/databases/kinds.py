"""The kinds of databases that are known, each a folder beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sluice.databases.client import Client
from sluice.databases.dialect import Dialect
from sluice.databases.engine import Engine
from sluice.databases.mariadb import client as mariadb
from sluice.databases.mariadb.dialect import MariaDb
from sluice.databases.mariadb.engine import MariaDb as MariaDbEngine
from sluice.databases.postgresql import client as postgresql
from sluice.databases.postgresql.dialect import PostgreSql
from sluice.databases.postgresql.engine import PostgreSql as PostgreSqlEngine
from sluice.databases.sqlite import client as sqlite
from sluice.databases.sqlite.dialect import Sqlite
from sluice.databases.sqlite.engine import Sqlite as SqliteEngine


@dataclass(frozen=True)
class DatabaseKind:
    """One kind of database.

    Attributes:
        dialect: its SQL and types, as a target, and how it is connected to.
        engine: its tables and horizons, as a source.
        client: connects to it without a JVM.
    """

    dialect: Dialect
    engine: Engine
    client: Client


KINDS: Mapping[str, DatabaseKind] = MappingProxyType(
    {
        "mariadb": DatabaseKind(MariaDb(), MariaDbEngine(), mariadb.connected),
        "postgresql": DatabaseKind(PostgreSql(), PostgreSqlEngine(), postgresql.connected),
        "sqlite": DatabaseKind(Sqlite(), SqliteEngine(), sqlite.connected),
    }
)
"""By the part of a JDBC URL after `jdbc:`."""
