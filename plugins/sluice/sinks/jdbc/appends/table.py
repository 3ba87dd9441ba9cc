"""A table that rows are appended to, by statements that each database knows which keeps to the standard."""

from __future__ import annotations

from sluice.errors import ActionRequiredError
from sluice.pipeline.model import Pipeline
from sluice.sinks.jdbc.appends.database import DriverDatabase
from sluice.sinks.jdbc.appends.trial import require_transactions
from sluice.sinks.jdbc.failures import RowsRefusedError
from sluice.sinks.jdbc.merge import COMMITTING
from sluice.sinks.jdbc.options import Jdbc
from sluice.sinks.jdbc.options.names import KEPT
from sluice.sinks.jdbc.table import JdbcTable

_OPENING = "opening the interval"


class AppendedTable(JdbcTable):
    """See `JdbcTable`."""

    def prepare_bookkeeping(self) -> None:
        """See `JdbcTable`. Then sees from them that the database keeps transactions."""
        super().prepare_bookkeeping()
        database = self._database
        assert isinstance(database, DriverDatabase)
        require_transactions(database, self._positions)

    def last_commits(self) -> list[str]:
        """See `JdbcTable`. A row each: no aggregate joins texts in all databases."""
        found = self._database.rows(
            f"SELECT instant FROM {self._instants} WHERE sink_table = ? AND state = 'completed'", self._key
        )
        return sorted(str(instant) for (instant,) in found)

    def _add_position(self) -> None:
        try:
            with self._database.transaction(_OPENING):
                self._run(f"INSERT INTO {self._positions} (sink_table) VALUES (?)", _OPENING, self._key)
        except RowsRefusedError:
            if not self._has_position():  # otherwise another process has added it meanwhile
                raise

    def _locked_position(self) -> list[tuple[str | None, ...]]:
        """See `JdbcTable`. By an update that changes nothing: not all databases know FOR UPDATE."""
        self._run(f"UPDATE {self._positions} SET instant = instant WHERE sink_table = ?", COMMITTING, self._key)
        return self._database.rows(
            f"SELECT instant FROM {self._positions} WHERE sink_table = ?", self._key, doing=COMMITTING
        )

    def _forget_old(self) -> None:
        where = "sink_table = ? AND state = 'completed'"
        sql = f"SELECT count(*), min(instant) FROM {self._instants} WHERE {where}"
        while True:
            ((number, oldest),) = self._database.rows(sql, self._key, doing=COMMITTING)
            if int(number or 0) <= KEPT:
                return
            self._run(f"DELETE FROM {self._instants} WHERE {where} AND instant = ?", COMMITTING, self._key, oldest)


def require_appends(pipeline: Pipeline, options: Jdbc, name: str) -> None:
    """Check that a pipeline asks for nothing but rows that are appended.

    Args:
        pipeline: the pipeline.
        options: its section of the sink.
        name: the database's name.

    Raises:
        ActionRequiredError: it asks for more.
    """
    place = pipeline.sink.place
    more = {
        f"{place}.insert_mode {options.insert_mode}": options.insert_mode != "insert",
        f"{place}.tables": bool(options.tables),
        f"{place}.auto_create": options.auto_create,
        f"{place}.auto_evolve": options.auto_evolve,
        "errors.tolerance all": pipeline.errors.tolerance == "all",
    }
    asked = [one for one, is_asked in more.items() if is_asked]
    if asked:
        raise ActionRequiredError(
            f"Sluice knows {name} by its JDBC driver alone, and only appends rows to a table that is there. The "
            f"pipeline asks for more: {', '.join(asked)}.",
            next_step="create the table, and leave these settings out; or load a table of MariaDB, PostgreSQL or "
            "SQLite. docs/jdbc-sink.md, under `Other databases`.",
            table=options.table_id,
        )
