"""PostgreSQL, as the sink speaks to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sluice.records.structs import Type
from sluice.sinks.jdbc.dialect import DatabaseColumn, Dialect, parts_of_type
from sluice.sinks.jdbc.fits import (
    Fit,
    as_is,
    as_json,
    as_local_time,
    as_text,
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
    staging_begins = "CREATE UNLOGGED TABLE"
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

    def made(self, kind: Type, in_key: int = 0) -> str | None:  # noqa: ARG002
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
