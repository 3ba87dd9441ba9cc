"""The dialect of PostgreSQL. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import unquote

from sluice.databases.dialect import DatabaseColumn, Dialect, parts_of_type
from sluice.databases.fits import (
    Fit,
    as_array,
    as_is,
    as_json,
    as_local_time,
    as_text,
    date_text,
    decimal_of,
    decimal_text,
    fits_in_years,
    instant_text,
    integer_in,
    within_decimal,
    within_length,
    without_escaped_nul,
    without_nul,
)
from sluice.databases.stored import Stored, local_time
from sluice.identifiers import dotted, sql_quoted
from sluice.records.structs import Type

# https://www.postgresql.org/docs/current/errcodes-appendix.html: states whose messages quote the value, or may do so.
_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "22001": "a value is longer than its column",
        "22003": "a number is outside of its column's range",
        "22007": "a text is no date or time",
        "22008": "a date or time is outside of its column's range",
        "22012": "it would divide by zero",
        "22021": "a text has a character that the database's encoding hasn't",
        "44000": "a row isn't one that the view shows",
        "54000": "a value is too large for an index",
        "P0001": "a trigger refuses a row, in words that the database's log has",
        "22P02": "a text isn't of its column's type",
        "22P05": "a text has a character that the database's encoding hasn't",
    }
)

# https://jdbc.postgresql.org/documentation/use/: logins, TLS, time-outs, buffers, and how statements are prepared.
_SETTINGS = (
    "sslmode", "ssl", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslpasswordcallback", "sslfactory",
    "sslhostnameverifier", "sslNegotiation", "sslResponseTimeout", "channelBinding", "requireAuth", "gssEncMode",
    "gssLib", "gssResponseTimeout", "gssUseDefaultCreds", "kerberosServerName", "jaasApplicationName", "jaasLogin",
    "useSpnego", "sspiServiceClass", "connectTimeout", "loginTimeout", "socketTimeout", "cancelSignalTimeout",
    "tcpKeepAlive", "tcpNoDelay", "receiveBufferSize", "sendBufferSize", "maxSendBufferSize", "ApplicationName",
    "currentSchema", "options", "defaultRowFetchSize", "adaptiveFetch", "adaptiveFetchMinimum", "adaptiveFetchMaximum",
    "prepareThreshold", "preparedStatementCacheQueries", "preparedStatementCacheSizeMiB", "binaryTransfer",
    "binaryTransferEnable", "binaryTransferDisable", "preferQueryMode",
)  # fmt: skip
# The server's own, in `options`: https://www.postgresql.org/docs/current/runtime-config-client.html
_SERVERS = (
    "search_path", "role", "application_name", "statement_timeout", "lock_timeout", "work_mem", "temp_buffers", "jit",
    "idle_in_transaction_session_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count",
    "tcp_user_timeout",
)  # fmt: skip
_CHOICE = "targetServerType"
_PRIMARY = ("primary", "master")  # the second is an older name of the first
_OPTION = re.compile(r"(?:-c\s*|--)([\w.]+)=(?:\\.|\S)*(?:\s+|$)")

# Types whose values are read back as they were sent.
_TEXTS = ("text", "character varying", "citext", "name")
_PLAIN = ("boolean", "smallint", "integer", "bigint", "numeric", "real", "double precision", "date")


class PostgreSql(Dialect):
    """PostgreSQL 12 and later."""

    name = "PostgreSQL"
    driver = "org.postgresql.Driver"
    properties = MappingProxyType(
        {
            "stringtype": "unspecified",  # the server converts a text to the column's type: uuid, jsonb, timestamptz
            "reWriteBatchedInserts": "true",
            "tcpKeepAlive": "true",
            "logServerErrorDetail": "false",  # where the server quotes rows
        }
    )
    settings = _SETTINGS
    choosing = (_CHOICE, "loadBalanceHosts", "hostRecheckSeconds")
    one_writer_advice = (
        "Of several servers that the URL names, targetServerType=primary (and none of the settings loadBalanceHosts "
        "and hostRecheckSeconds) has all processes look for the one that writes; or name one server."
    )
    connection_types = ("postgres", "postgresql")
    # libpq's names, and the JDBC driver's.
    extra_fields = MappingProxyType(
        {
            **{name: name for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "options")},
            "application_name": "ApplicationName",
            "connect_timeout": "connectTimeout",
        }
    )
    isolation = "READ_COMMITTED"
    one_writer = False
    # A process that is suspended in a transaction loses it, and with it the locks that other processes wait for.
    in_transaction = (
        "SELECT set_config('lock_timeout', '60s', true), set_config('idle_in_transaction_session_timeout', '60s', true)"
    )
    lock_schema = "SELECT pg_advisory_xact_lock(736217551)"
    lock_row = " FOR UPDATE"
    # UNLOGGED: rows are lost if the server crashes, and the commit, which counts them, then refuses the interval.
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
    # Columns of all other types, such as uuid, inet or an enumeration, get texts, which the server converts.
    _NO_TEXTS = ("boolean", "numeric", "real", "double precision", "bytea", "date", "json", "jsonb", "money", "bit",
                 "smallint", "integer", "bigint", "interval")  # fmt: skip

    json_object = "CAST(json_build_object({}) AS TEXT)"
    hexadecimal = "encode({}, 'hex')"
    time_text = "to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
    reading_session = "SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL TimeZone = 'UTC'; SET LOCAL extra_float_digits = 1"

    def stored(self, kind: Type, column: DatabaseColumn, zone: str) -> Stored | None:
        """See `Dialect`."""
        name, there = sql_quoted(column.name), parts_of_type(column.type)[0]
        text = f"{name}::text"
        if isinstance(kind, Mapping):
            return Stored(text, is_json=True)
        if kind == "binary":
            return Stored(f"encode({name}, 'hex')", "unhex({})")
        if there == "timestamp with time zone":
            return Stored(f"({name} AT TIME ZONE 'UTC')::text", "concat({}, 'Z')")
        if there in (*_TEXTS, "timestamp", "timestamp without time zone"):
            return local_time(text, kind, zone)
        return Stored(text) if there in _PLAIN else None  # uuid, json, an enumeration, blanks at the end

    def url(self, host: str, port: int | None, schema: str, login: str) -> str:
        """Without a database libpq and the driver take the login's name."""
        return f"jdbc:postgresql://{host}:{port or 5432}/{schema or login}"

    def is_of_the_writer(self, name: str, value: str) -> bool:
        """See `Dialect`."""
        return name == _CHOICE and value in _PRIMARY

    def unknown_values(self, given: Mapping[str, str]) -> list[str]:
        """See `Dialect`. What `options` set on the server."""
        options = unquote(given.get("options", "")).strip()
        names, rest = _OPTION.findall(options), _OPTION.sub("", options)
        return [f"options: {name}" for name in names if name not in _SERVERS] + ["options"] * bool(rest)

    def several_servers(self, where: str, given: Mapping[str, str], *, exact: bool) -> str | None:
        """See `Dialect`. The driver never changes the server of a connection."""
        if exact and "," in where and not self.is_of_the_writer(_CHOICE, given.get(_CHOICE, "")):
            return "it names several, without targetServerType=primary"
        return None

    def table(self, schema: str, name: str) -> str:
        """See `Dialect`. With the schema."""
        return f"{sql_quoted(schema)}.{sql_quoted(name)}"

    def canonical(self, schema: str, name: str) -> str:
        """See `Dialect`. With the schema, too."""
        return dotted(schema, name)

    def refused(self, said: str, code: int, state: str) -> str:  # noqa: ARG002
        """The first line of a message of class 23 names constraint and columns; what follows quotes the row."""
        if state.startswith("23"):
            return said.strip().partition("\n")[0]
        return f"{_VALUES.get(state, 'a value does not fit')} (SQLSTATE {state})"

    def made(self, kind: Type, in_key: int = 0) -> str | None:  # noqa: ARG002
        """See `Dialect`. Nested values are JSON."""
        if isinstance(kind, Mapping):
            return "JSONB"
        decimal = decimal_of(kind)
        return f"NUMERIC({decimal[0]},{decimal[1]})" if decimal else self._MADE.get(str(kind))

    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """See `Dialect`. Times are sent as text, so that no time zone but the pipeline's affects them."""
        name, numbers = parts_of_type(column.type)
        found = self._fit(value, kind, name, numbers, zone)
        return self.misfit(kind, column) if found is None else found

    def _fit(self, value: str, kind: Type, name: str, numbers: list[int], zone: str) -> Fit | None:
        if name.endswith("[]"):
            return self._fit_array(value, kind, name.removesuffix("[]").strip(), numbers, zone)
        if isinstance(kind, Mapping):
            if name == "jsonb":
                return without_escaped_nul(as_json(value))
            return as_json(value) if name in ("json", "text") else None
        if name in self._TEXTS:
            text = as_text(value, kind, zone)
            return text and within_length(without_nul(text), numbers[0] if numbers else None)
        if name == "boolean" or name == "bytea":
            return as_is(value) if kind == {"boolean": "boolean", "bytea": "binary"}[name] else None
        if name in self._BITS:
            return integer_in(value, kind, self._BITS[name])
        if name == "numeric":
            if kind == "string":
                return decimal_text(value, numbers, ("NaN",) if numbers else ("NaN", "-?Infinity"))
            return within_decimal(value, kind, numbers)
        if name in ("real", "double precision"):
            held = ("float", "double", "byte", "short", "integer") if name == "double precision" else ("float",)
            return as_is(value) if kind in held else None
        return self._fit_time(value, kind, name, zone) or self._fit_read(value, kind, name)

    def _fit_array(self, value: str, kind: Type, name: str, numbers: list[int], zone: str) -> Fit | None:
        element = kind["elementType"] if isinstance(kind, Mapping) and kind["type"] == "array" else None
        if element is None or element == "binary" or isinstance(element, Mapping):
            return None
        fit = self._fit("x", element, name, numbers, zone)
        return fit and as_array(value, fit)

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
        if kind != "string" or not (plain or name in ("json", "jsonb")):
            return None
        fit = without_nul(as_is(value))
        return without_escaped_nul(fit) if name == "jsonb" else fit
