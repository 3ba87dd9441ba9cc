"""The databases that the sink writes to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sluice.sinks.jdbc.dialect import Dialect
from sluice.sinks.jdbc.mariadb import MariaDb
from sluice.sinks.jdbc.postgresql import PostgreSql
from sluice.sinks.jdbc.sqlite import Sqlite

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {"mariadb": MariaDb(), "postgresql": PostgreSql(), "sqlite": Sqlite()}
)
"""The dialects, by the part of a URL after `jdbc:`."""
