"""The databases that are read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sluice.errors import ActionRequiredError
from sluice.sinks.jdbc.address import JdbcAddress
from sluice.sources.jdbc.engine import Engine
from sluice.sources.jdbc.mariadb import MariaDb
from sluice.sources.jdbc.postgresql import PostgreSql
from sluice.sources.jdbc.sqlite import Sqlite

ENGINES: Mapping[str, Engine] = MappingProxyType(
    {engine.name: engine for engine in (PostgreSql(), MariaDb(), Sqlite())}
)
"""By the names of their dialects."""


def engine_of(address: JdbcAddress) -> Engine:
    """The engine of a database.

    Raises:
        ActionRequiredError: it is none that is read.
    """
    found = ENGINES.get(address.dialect.name)
    if found is None:
        raise ActionRequiredError(
            f"Tables of {address.dialect.name} can't be read.",
            next_step=f"read those of {', '.join(sorted(ENGINES))}.",
            connection=address.connection,
        )
    return found
