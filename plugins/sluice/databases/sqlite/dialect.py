"""The dialect of SQLite. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sluice.databases.dialect import DatabaseColumn, Dialect, Kind
from sluice.databases.fits import INTEGERS, Fit, as_is, as_json, as_text, checked, decimal_of
from sluice.databases.stored import Stored, local_time
from sluice.errors import ActionRequiredError
from sluice.identifiers import dotted, sql_quoted
from sluice.records.structs import Type

_POSITION_DIGITS = 31  # characters of a position, a decimal(30,15), with its point
_LARGEST_EXACT = 15  # decimal digits that a double represents exactly
# https://sqlite.org/rescode.html
_CODES: Mapping[Kind, tuple[int, ...]] = MappingProxyType(
    {
        # An abort, busy, locked, no memory, interrupted, input or output failed, disk full, a race for the lock, a
        # schema that has changed.
        "passing": (4, 5, 6, 7, 9, 10, 13, 15, 17),
        "refused": (3, 8, 14, 23),  # no permission, read-only, can't be opened, not authorized
        "data": (18, 19, 20),  # too big, a constraint, a wrong type
        "other": (1, 11, 21, 25, 26),  # a mistake in the statement, a damaged file, or one that is no database
    }
)

# https://sqlite.org/pragma.html. Settings that read uncommitted rows, or leave locks out, aren't among them.
_SETTINGS = (
    "mode", "cache_size", "foreign_keys", "journal_mode", "journal_size_limit", "max_page_count", "mmap_size",
    "page_size", "synchronous", "temp_store",
)  # fmt: skip


class Sqlite(Dialect):
    """SQLite 3.35 and later, with a file that all processes see at the same path."""

    name = "SQLite"
    driver = "org.sqlite.JDBC"
    codes = _CODES
    # Of a file whose folder isn't there, and of one that this process may not make.
    signs = MappingProxyType({"other": ("path to",), "refused": ("Permission denied",)})
    properties = MappingProxyType({"transaction_mode": "IMMEDIATE", "busy_timeout": "120000"})
    settings = _SETTINGS
    connection_types = ("sqlite",)
    # After some errors SQLite rolls back by itself: https://sqlite.org/lang_transaction.html
    hidden_causes = MappingProxyType(
        {"no transaction is active": "SQLite broke the transaction off, as it does where its disk is full or fails"}
    )
    isolation = "SERIALIZABLE"
    one_writer = True
    lock_row = ""  # its transactions lock the file
    staging_begins = "CREATE TABLE"
    temporary = "CREATE TEMPORARY TABLE {} AS"
    joined = "group_concat({}, ',')"
    schema_query = None
    table_query = "SELECT name FROM sqlite_master WHERE ? = '' AND type = 'table' AND lower(name) = lower(?)"
    tables_query = (
        "SELECT name FROM sqlite_master WHERE ?1 = '' AND type = 'table' AND substr(name, 1, length(?2)) = ?2 "
        "ORDER BY name"
    )
    columns_query = (
        'SELECT name, type, "notnull" = 0 AND pk = 0, '
        "dflt_value IS NOT NULL OR (pk > 0 AND lower(type) = 'integer'), "
        "hidden IN (2, 3) FROM pragma_table_xinfo(?2) WHERE ?1 = '' ORDER BY cid"
    )
    _MADE = MappingProxyType(
        {
            "boolean": "BOOLEAN", "byte": "INTEGER", "short": "INTEGER", "integer": "INTEGER", "long": "INTEGER",
            "float": "REAL", "double": "REAL", "string": "TEXT", "binary": "BLOB", "date": "TEXT",
            "timestamp": "TEXT", "timestamp_ntz": "TEXT",
        }
    )  # fmt: skip

    json_object = "CAST(json_object({}) AS TEXT)"
    hexadecimal = "CASE WHEN {0} IS NOT NULL THEN hex({0}) END"
    time_text = "{}"

    def stored(self, kind: Type, column: DatabaseColumn, zone: str) -> Stored | None:
        """See `Dialect`."""
        name = sql_quoted(column.name)
        if kind == "binary":
            return Stored(self.hexadecimal.format(name), "unhex({})")
        # A number cast to text has 15 digits; `quote` gives all digits that distinguish it from other numbers.
        text = f"CASE typeof({name}) WHEN 'real' THEN quote({name}) ELSE CAST({name} AS TEXT) END"
        return Stored(text, is_json=True) if isinstance(kind, Mapping) else local_time(text, kind, zone)

    def url(self, host: str, port: int | None, schema: str, login: str) -> str:  # noqa: ARG002
        """The host is the file's path."""
        return f"jdbc:sqlite:{host}"

    def require_url(self, url: str, connection: str) -> None:
        """See `Dialect`."""
        if not re.match(r"jdbc:sqlite:(file:)?/", url):
            raise ActionRequiredError(
                "The Airflow connection names no file of SQLite's by its absolute path.",
                next_step="give the path from / on: each process opens the file for itself, from another folder.",
                connection=connection,
            )

    def table(self, schema: str, name: str) -> str:  # noqa: ARG002 - there are none
        """See `Dialect`. Without a schema."""
        return sql_quoted(name)

    def canonical(self, schema: str, name: str) -> str:  # noqa: ARG002
        """See `Dialect`. In lower case, since names are case-insensitive in SQLite."""
        return dotted(name.lower())

    def kind_of(self, code: int) -> Kind | None:
        """See `Dialect`. The last byte of an extended code is its primary code."""
        return super().kind_of(code & 0xFF)

    def made(self, kind: Type, in_key: int = 0) -> str | None:  # noqa: ARG002
        """See `Dialect`. Decimals are text, since SQLite's numbers keep 15 digits; so are times, which have no type."""
        if isinstance(kind, Mapping) or decimal_of(kind):
            return "TEXT"
        return self._MADE.get(str(kind))

    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """See `Dialect`. By the affinity of the declared type (https://sqlite.org/datatype3.html)."""
        found = self._fit(value, kind, _affinity(column.type), column.type.lower(), zone)
        return self.misfit(kind, column) if found is None else found

    @staticmethod
    def _fit(value: str, kind: Type, affinity: str, declared: str, zone: str) -> Fit | None:
        if isinstance(kind, Mapping):
            return as_json(value) if affinity in ("TEXT", "BLOB") else None
        if kind == "binary":
            return as_is(value) if affinity == "BLOB" else None
        plain = affinity == "BLOB" and kind in ("boolean", *INTEGERS)  # such a column can hold values of any type
        if affinity in ("TEXT", "BLOB") and not plain:
            return _sortable(value, kind) or as_text(value, kind, zone)
        if kind in ("date", "timestamp", "timestamp_ntz"):
            holds_text = affinity == "NUMERIC" and ("date" in declared or "time" in declared)
            return as_text(value, kind, zone) if holds_text else None
        decimal = decimal_of(kind)
        if decimal:
            return as_is(value) if affinity == "NUMERIC" and decimal[0] <= _LARGEST_EXACT else None
        if kind in ("float", "double"):
            return _a_number(value) if affinity in ("REAL", "NUMERIC") else None
        exact = kind in ("boolean", *INTEGERS) and not (affinity == "REAL" and kind == "long")
        return as_is(value) if exact else None


def _sortable(value: str, kind: Any) -> Fit | None:
    """A position as text that sorts like the number, which is never negative."""
    if kind != "decimal(30,15)":
        return None
    return checked(f"lpad(cast({value} AS STRING), {_POSITION_DIGITS}, '0')", f"{value} < 0", "it is negative")


def _a_number(value: str) -> Fit:
    """A number that isn't NaN, which SQLite would store as null."""
    return checked(value, f"isnan({value})", "it is NaN, which SQLite takes for null")


def _affinity(declared: str) -> str:
    upper = declared.upper()
    if "INT" in upper:
        return "INTEGER"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if not upper or "BLOB" in upper:
        return "BLOB"
    return "REAL" if any(word in upper for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"
