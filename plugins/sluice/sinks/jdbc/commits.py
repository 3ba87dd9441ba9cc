"""Reads the intervals of a database's table without a JVM, for the page: the rows of `_sluice_instants`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sluice.connectors.clock import time_of
from sluice.connectors.connections import connection
from sluice.connectors.views import CommitFacts, Instant, Timeline
from sluice.databases.client import Ask
from sluice.databases.connection import address_of, asked
from sluice.errors import ActionRequiredError
from sluice.sinks.jdbc.metadata import kept_metadata
from sluice.sinks.jdbc.options.names import INSTANTS, KEPT, schema_and_name
from sluice.sinks.jdbc.statements import Target

_ID = "jdbc://"


@dataclass(frozen=True)
class _Intervals:
    """A table's intervals: a function that runs queries, the SQL name of their table, and the key of their rows."""

    ask: Ask
    sql: str
    key: str


class DatabaseCommits:
    """One table's intervals; see `sluice.connectors.views.CommitLog`.

    Args:
        table: its id, `jdbc://<connection>/<table>`.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def read(self) -> Timeline | None:
        """The intervals in the database, including pending ones; None if nothing was ever written."""
        with self._intervals() as found:
            if found is None:
                return None
            sql = f"SELECT instant, state, completed FROM {found.sql} WHERE sink_table = ? ORDER BY instant"
            rows = found.ask(sql, found.key)
        instants = {str(i): _instant(str(i), str(state), done) for i, state, done in rows}
        committed = sum(not one.pending for one in instants.values())
        return Timeline(instants, archives=committed >= KEPT)

    def facts(self, instant: Instant) -> CommitFacts:
        """An interval's facts, from its row; deleted rows count as rows."""
        with self._intervals() as found:
            columns = "rows_written, rows_deleted, metadata"
            sql = f"SELECT {columns} FROM {found.sql} WHERE sink_table = ? AND instant = ?" if found else ""
            rows = found.ask(sql, found.key, instant.requested) if found else []
        if not rows:
            raise ActionRequiredError(
                "The interval is no longer in the database.",
                next_step=f"the database keeps the last {KEPT:,} intervals; look for older ones in the control topic.",
                table=self._table,
                instant=instant.requested,
            )
        written, deleted, metadata = rows[0]
        return CommitFacts(
            operation=None,
            rows=int(written or 0) + int(deleted or 0),
            bytes_written=0,
            files=0,
            table_partitions=0,
            extra=tuple(sorted(kept_metadata(metadata))),
        )

    @contextmanager
    def _intervals(self) -> Iterator[_Intervals | None]:
        connection_id, _, table = self._table.removeprefix(_ID).partition("/")
        if not (self._table.startswith(_ID) and connection_id and table):
            raise ActionRequiredError(
                "This is no id of a database's table.",
                next_step="an id is jdbc://<connection>/<table>; find out which other program writes to the control "
                "topic.",
                table=self._table,
            )
        address = address_of(connection(connection_id))
        dialect = address.dialect
        schema, name = schema_and_name(table)
        with asked(address) as ask:
            if dialect.schema_query is not None and not schema:
                schema = str(ask(dialect.schema_query)[0][0] or "")
            there = ask(dialect.table_query, schema, INSTANTS)
            own = Target(dialect, schema, name).own(INSTANTS)
            yield _Intervals(ask, own, dialect.canonical(schema, name)) if there else None


def _instant(instant: str, state: str, completed: str | None) -> Instant:
    done = state == "completed"
    time = time_of(completed) if done and completed else None
    return Instant(instant, completed if done else None, "interval", not done, instant, time, is_commit=done)
