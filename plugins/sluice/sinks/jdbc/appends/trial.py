"""Tries what a database does with a transaction and with values: its driver may claim more than it does."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from sluice.databases.jdbc.dialect import AnyDatabase
from sluice.errors import SluiceError
from sluice.sinks.jdbc.appends.database import DriverDatabase
from sluice.sinks.jdbc.failures import RowsRefusedError
from sluice.sinks.jdbc.options.names import INSTANTS, POSITIONS

_TRYING = "trying a transaction in its bookkeeping tables"
_TEXT = " ü€中🙂 "  # as long as the shortest column is in bytes, with a blank at its end
_LONG = "x" * 70_000  # more than the texts of two bytes of length
_TOO_LONG = "x" * 18


class _RolledBackError(Exception):
    """The trial's transaction is to be rolled back."""


def require_transactions(database: DriverDatabase, positions: str) -> None:
    """See that what is rolled back is gone, and that values are kept as they are sent.

    Args:
        database: the database.
        positions: the table of positions, as SQL.

    Raises:
        ActionRequiredError: it isn't so; nothing of the trial is left.
        RetryableError: the database doesn't answer.
    """
    key = f"_sluice_trial {uuid4().hex}"
    dialect = database.dialect
    text = " ~ " if isinstance(dialect, AnyDatabase) and dialect.habits.narrow else _TEXT
    found = _tried(database, positions, (key, text, _LONG), RowsRefusedError)
    if database.rows(f"SELECT instant FROM {positions} WHERE sink_table = ?", key, doing=_TRYING):
        database.run(f"DELETE FROM {positions} WHERE sink_table = ?", key, doing=_TRYING)
        raise database.unfit_for(
            "a row of a transaction that was rolled back is there",
            f"have the database make tables that keep transactions, and drop {POSITIONS} and {INSTANTS}; or write to "
            "another database.",
        )
    if found != (text, _LONG):
        raise database.unfit_for(
            "it doesn't keep texts as they are sent",
            f"have the database keep texts of Unicode whole, and drop {POSITIONS} and {INSTANTS}; or write to another "
            "database.",
        )
    if _tried(database, positions, (key, _TOO_LONG, None), SluiceError) is not None:
        raise database.unfit_for(
            "it takes a text that is longer than its column, and cuts it",
            "have it refuse such values (in MySQL by `sql_mode`), or write to another database.",
        )


def _tried(
    database: DriverDatabase, positions: str, row: tuple[str, str, str | None], refusal: type[SluiceError]
) -> tuple[str | None, ...] | None:
    """What is read of a row in the transaction that adds it, and is rolled back; None if the row is refused.

    Args:
        database: the database.
        positions: the table of positions, as SQL.
        row: the row.
        refusal: which errors are a refusal of the row.
    """
    found: tuple[str | None, ...] | None = None
    with suppress(_RolledBackError), database.transaction(_TRYING):
        sql = f"INSERT INTO {positions} (sink_table, instant, metadata) VALUES (?, ?, ?)"
        try:
            database.run(sql, *row, doing=_TRYING)
        except refusal:
            raise _RolledBackError from None
        rows = database.rows(f"SELECT instant, metadata FROM {positions} WHERE sink_table = ?", row[0], doing=_TRYING)
        found = rows[0] if rows else ()
        raise _RolledBackError
    return found
