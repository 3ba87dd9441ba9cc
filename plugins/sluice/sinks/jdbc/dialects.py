"""What differs between databases: their names for things, and which of our types their columns hold. Pure."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from sluice.records.structs import Type, in_words
from sluice.sinks.jdbc.fits import (
    INTEGERS,
    Fit,
    as_is,
    as_json,
    as_local_time,
    as_text,
    checked,
    date_text,
    decimal_of,
    fits_in_years,
    instant_text,
    integer_in,
    within_decimal,
    within_length,
    without_nul,
)
from sluice.sinks.jdbc.names import quoted

_POSITION_DIGITS = 31  # of a position with its point: decimal(30,15)
_LARGEST_EXACT = 15  # decimal digits that a double keeps


@dataclass(frozen=True)
class DatabaseColumn:
    """A column of a table, as its database describes it.

    Attributes:
        name: its name, as the database writes it.
        type: its type in the database's own words, such as `character varying(10)`.
        nullable: whether it may be null.
        filled: whether the database fills it where a row doesn't say it: it has a default, or is an identity.
        generated: whether the database alone may fill it.
    """

    name: str
    type: str
    nullable: bool = True
    filled: bool = False
    generated: bool = False


class Dialect(ABC):
    """One kind of database."""

    name: ClassVar[str]
    driver: ClassVar[str]
    properties: ClassVar[Mapping[str, str]]
    """What its driver is always told."""
    isolation: ClassVar[str]
    """Spark's name for the isolation of a write job's transactions."""
    one_writer: ClassVar[bool]
    """Whether one transaction at a time may write."""
    session: ClassVar[Sequence[str]] = ()
    """Statements with which the coordinator's connections begin."""
    lock_schema: ClassVar[str | None] = None
    """A query that keeps two processes from creating the same table, until their transaction ends."""
    lock_row: ClassVar[str]
    """The end of a query that locks the rows it finds."""
    staging: ClassVar[str]
    """The beginning of a statement that creates a staging table."""
    temporary: ClassVar[str]
    """The beginning of a statement that makes a table of a query, which ends with the transaction or the connection."""
    joined: ClassVar[str]
    """An aggregate that puts texts of several rows into one, with commas between."""
    analyze: ClassVar[bool] = False
    """Whether a new table is to be analyzed before it is joined."""

    @abstractmethod
    def table(self, schema: str, name: str) -> str:
        """A table's name in a statement."""

    @abstractmethod
    def canonical(self, schema: str, name: str) -> str:
        """One name for a table, however a pipeline file spells it."""

    schema_query: ClassVar[str | None]
    """A query for the schema of tables that are named without one; None where there are no schemas."""
    table_query: ClassVar[str]
    """A query for a table's name, given schema and name; no row if it isn't there."""
    tables_query: ClassVar[str]
    """A query for the names of tables, given schema and what these begin with."""
    columns_query: ClassVar[str]
    """A query for name, type, nullable, filled and generated of a table's columns, given schema and name; the last
    three are 0 or 1."""

    @abstractmethod
    def made(self, kind: Type) -> str | None:
        """The type of a column that is created for one of Spark's types; None if there is none."""

    @abstractmethod
    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """How values of one of Spark's types become a column's.

        Args:
            value: the value as Spark SQL.
            kind: its type, as in Spark's JSON.
            column: the database's column.
            zone: the time zone of columns that have times without one.

        Returns:
            A `Fit`, or in words why they don't fit.
        """

    def misfit(self, kind: Type, column: DatabaseColumn) -> str:
        """In words that a column doesn't hold a type."""
        return f"`{column.name}` is {column.type} in the database, which doesn't hold {in_words(kind)}"


_NUMBERS = re.compile(r"\(([\d, ]+)\)")


def parts_of_type(declared: str) -> tuple[str, list[int]]:
    """A declared type's name in lower case, without its numbers, and these: `numeric(10,2)`, `timestamp(6) with …`."""
    numbers = _NUMBERS.search(declared)
    name = " ".join(_NUMBERS.sub(" ", declared.lower()).split())
    return name, [int(n) for n in numbers[1].split(",")] if numbers else []


class PostgreSql(Dialect):
    """PostgreSQL 12 and later."""

    name = "PostgreSQL"
    driver = "org.postgresql.Driver"
    properties = MappingProxyType(
        {
            "stringtype": "unspecified",  # a text is of the column's type: uuid, jsonb, timestamptz
            "reWriteBatchedInserts": "true",
            "tcpKeepAlive": "true",
        }
    )
    isolation = "READ_COMMITTED"
    one_writer = False
    # A process that stands still in its transaction loses it, and with it the locks that others wait for.
    session = ("SET lock_timeout = '60s'", "SET idle_in_transaction_session_timeout = '60s'")
    lock_schema = "SELECT pg_advisory_xact_lock(736217551)"
    lock_row = " FOR UPDATE"
    # Its rows are lost if the server crashes, and the commit, which counts them, then refuses the interval.
    staging = "CREATE UNLOGGED TABLE"
    temporary = "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS"
    joined = "string_agg({}, ',')"
    analyze = True
    schema_query = "SELECT current_schema()"
    table_query = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = ? AND tablename = ?"
    tables_query = (
        "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = ? AND starts_with(tablename::text, ?::text) "
        "ORDER BY tablename"
    )
    columns_query = (
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), (NOT a.attnotnull)::int, "
        "(a.atthasdef OR a.attidentity <> '')::int, (a.attgenerated <> '' OR a.attidentity = 'a')::int "
        "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = ? AND c.relname = ? AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )
    _MADE = MappingProxyType(
        {
            "boolean": "BOOLEAN", "byte": "SMALLINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT",
            "float": "REAL", "double": "DOUBLE PRECISION", "string": "TEXT", "binary": "BYTEA", "date": "DATE",
            "timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP",
        }
    )  # fmt: skip
    _BITS = MappingProxyType({"smallint": 16, "integer": 32, "bigint": 64})
    _TEXTS = ("text", "character varying", "character", "citext", "name", "bpchar")
    # Anything else that isn't one of these is sent as text, which the server reads: uuid, inet, an enumeration.
    _NO_TEXTS = ("boolean", "numeric", "real", "double precision", "bytea", "date", "json", "jsonb", "money", "bit",
                 "smallint", "integer", "bigint", "interval")  # fmt: skip

    def table(self, schema: str, name: str) -> str:
        """With its schema."""
        return f"{quoted(schema)}.{quoted(name)}"

    def canonical(self, schema: str, name: str) -> str:
        """With its schema, too."""
        return f"{schema}.{name}"

    def made(self, kind: Type) -> str | None:
        """Nested values are JSON."""
        if isinstance(kind, Mapping):
            return "JSONB"
        decimal = decimal_of(kind)
        return f"NUMERIC({decimal[0]},{decimal[1]})" if decimal else self._MADE.get(str(kind))

    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """See `Dialect`. Times travel as text, so that no clock but the pipeline's has a say in them."""
        name, numbers = parts_of_type(column.type)
        found = self._fit(value, kind, name, numbers, zone)
        return self.misfit(kind, column) if found is None else found

    def _fit(self, value: str, kind: Type, name: str, numbers: list[int], zone: str) -> Fit | None:
        if isinstance(kind, Mapping):
            return without_nul(as_json(value)) if name in ("json", "jsonb", "text") else None
        if name in self._TEXTS:
            text = as_text(value, kind, zone)
            return text and within_length(without_nul(text), numbers[0] if numbers else None)
        if name == "boolean" or name == "bytea":
            return as_is(value) if kind == {"boolean": "boolean", "bytea": "binary"}[name] else None
        if name in self._BITS:
            return integer_in(value, kind, self._BITS[name])
        if name == "numeric":
            return within_decimal(value, kind, numbers)
        if name in ("real", "double precision"):
            held = ("float", "double", "byte", "short", "integer") if name == "double precision" else ("float",)
            return as_is(value) if kind in held else None
        return self._fit_time(value, kind, name, zone) or self._fit_read(value, kind, name)

    @staticmethod
    def _fit_time(value: str, kind: Type, name: str, zone: str) -> Fit | None:
        if name == "date":
            return fits_in_years(date_text(value), value) if kind == "date" else None
        if name == "timestamp with time zone":
            return fits_in_years(instant_text(value), value) if kind == "timestamp" else None
        if name in ("timestamp", "timestamp without time zone") and kind in ("timestamp", "timestamp_ntz"):
            return fits_in_years(as_local_time(value, kind, zone), value)
        return None

    def _fit_read(self, value: str, kind: Type, name: str) -> Fit | None:
        plain = name not in self._NO_TEXTS and not name.endswith("[]") and not name.startswith(("time", "bit"))
        return without_nul(as_is(value)) if kind == "string" and (plain or name in ("json", "jsonb")) else None


class Sqlite(Dialect):
    """SQLite 3.35 and later, as a file that all processes see at the same path."""

    name = "SQLite"
    driver = "org.sqlite.JDBC"
    properties = MappingProxyType({"transaction_mode": "IMMEDIATE", "busy_timeout": "120000"})
    isolation = "SERIALIZABLE"
    one_writer = True
    lock_row = ""  # its transactions lock the file
    staging = "CREATE TABLE"
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

    def table(self, schema: str, name: str) -> str:  # noqa: ARG002 - there are none
        """Without a schema."""
        return quoted(name)

    def canonical(self, schema: str, name: str) -> str:  # noqa: ARG002
        """In lower case: here names are the same in either."""
        return name.lower()

    def made(self, kind: Type) -> str | None:
        """Decimals are text, since numbers of this database keep 15 digits; and so are times, which it has none of."""
        if isinstance(kind, Mapping) or decimal_of(kind):
            return "TEXT"
        return self._MADE.get(str(kind))

    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """See `Dialect`; by the affinity of the declared type, as https://sqlite.org/datatype3.html has it."""
        found = self._fit(value, kind, _affinity(column.type), column.type.lower(), zone)
        return self.misfit(kind, column) if found is None else found

    @staticmethod
    def _fit(value: str, kind: Type, affinity: str, declared: str, zone: str) -> Fit | None:
        if isinstance(kind, Mapping):
            return as_json(value) if affinity in ("TEXT", "BLOB") else None
        if kind == "binary":
            return as_is(value) if affinity == "BLOB" else None
        plain = affinity == "BLOB" and kind in ("boolean", *INTEGERS)  # such a column has values of any type
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
    """A position as text that is sorted like the number: it is never negative."""
    if kind != "decimal(30,15)":
        return None
    return checked(f"lpad(cast({value} AS STRING), {_POSITION_DIGITS}, '0')", f"{value} < 0", "it is negative")


def _a_number(value: str) -> Fit:
    """SQLite takes NaN for null."""
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


DIALECTS: Mapping[str, Dialect] = MappingProxyType({"postgresql": PostgreSql(), "sqlite": Sqlite()})
"""By what comes after `jdbc:` in a URL."""
