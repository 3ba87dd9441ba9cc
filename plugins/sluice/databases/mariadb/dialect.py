"""The dialect of MariaDB. Pure.

In MariaDB, statements that define tables commit implicitly, so a commit's transaction contains only statements for
temporary tables, which don't (https://mariadb.com/kb/en/sql-statements-that-cause-an-implicit-commit/).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from sluice.databases.dialect import DatabaseColumn, Dialect, Kind, parts_of_type
from sluice.databases.fits import (
    Fit,
    as_is,
    as_json,
    as_local_time,
    as_text,
    date_text,
    decimal_of,
    decimal_text,
    finite,
    fits_in_years,
    integer_in,
    one_of,
    until_2038,
    within_decimal,
    within_length,
    within_microseconds,
    within_octets,
    without_blanks_at_end,
)
from sluice.databases.stored import Stored, local_time
from sluice.identifiers import dotted, sql_quoted
from sluice.records.structs import Type

_COLLATION = "utf8mb4_nopad_bin"  # texts that differ in any way are different keys
_KEY_CHARACTERS = 768  # InnoDB's 3,072 bytes, at four bytes per character
# Quotes are as in standard SQL, no value is truncated or rounded silently, and whole texts of keys are compared.
_SESSION = (
    "sql_mode='STRICT_ALL_TABLES,ANSI_QUOTES,PIPES_AS_CONCAT,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_ENGINE_SUBSTITUTION',"
    "time_zone='+00:00',max_sort_length=4096,group_concat_max_len=1048576,innodb_lock_wait_timeout=60,"
    "lock_wait_timeout=60"
)
# https://mariadb.com/kb/en/mariadb-error-code-reference/
_CODES: Mapping[Kind, tuple[int, ...]] = MappingProxyType(
    {
        # No room or memory, too many connections, a shutdown, a lock or its timeout, a killed connection, a failing
        # network, a table that is just being changed; and a server that is read-only, as after a failover.
        "passing": (
            *(3, 1020, 1021, 1026, 1028, 1030, 1037, 1038, 1040, 1041, 1047, 1053, 1077, 1114, 1135, 1152, 1158, 1159),
            *(1160, 1161, 1180, 1197, 1203, 1205, 1206, 1213, 1226, 1290, 1317, 1412, 1637, 1792, 1836, 1927, 1969),
            3024,
        ),
        "login": (1044, 1045, 1049, 1129, 1130, 1251, 1275, 1698, 1820, 1862, 4151),
        "refused": (1142, 1143, 1227, 1370, 1419),
        "data": (
            *(1048, 1062, 1153, 1169, 1216, 1217, 1264, 1265, 1292, 1364, 1365, 1366, 1406, 1411, 1441, 1451),
            *(1452, 1525, 1644, 1690, 1761, 1762, 1918, 4025),
        ),
        # Names that aren't there, and mistakes in SQL, for Python's client, which has no SQLSTATE.
        "other": (
            *(1046, 1051, 1052, 1054, 1060, 1064, 1065, 1071, 1109, 1110, 1111, 1115, 1118, 1136, 1146, 1149, 1193),
            *(1222, 1231, 1235, 1241, 1247, 1248, 1271, 1305, 1318, 1356, 1442, 1449, 1582, 1583, 1630),
        ),
    }
)
_CONNECTION = re.compile(r"\(conn=\d+\) ")  # the driver puts it before each message
_NAME = r"""['"`][^'"`\n]*['"`]"""
_COLUMN = rf"column (?:{_NAME}\.)*{_NAME} at row \d+"
# Messages that name columns and constraints alone. A value between quotes may have the words of another message, so a
# message is known from its beginning to its end.
_PLAIN = re.compile(
    rf"Column {_NAME} cannot be null|Field {_NAME} doesn't have a default value|"
    rf"(?:Data too long|Out of range value|Data truncated) for {_COLUMN}|"
    r"Cannot (?:add or update a child|delete or update a parent) row: a foreign key constraint fails \([^'\n]*\)|"
    rf"CONSTRAINT {_NAME} failed for [^'\n]*|Got a packet bigger than 'max_allowed_packet' bytes"
)
_QUOTING = tuple(
    re.compile(words, re.DOTALL)
    for words in (
        rf"(?P<before>Duplicate entry) '.*'(?P<after> for key {_NAME})",
        rf"(?P<before>Incorrect [\w ]+ value:) '.*'(?P<after> for {_COLUMN})",
        r"(?P<before>Truncated incorrect [\w ]+ value:) '.*'(?P<after>)",
    )
)


# https://mariadb.com/docs/connectors/mariadb-connector-j: logins, TLS, time-outs, buffers, and how statements are
# prepared. Settings of time zones and types, which change values, aren't among them.
_SETTINGS = (
    "sslMode", "serverSslCert", "enabledSslCipherSuites", "enabledSslProtocolSuites", "keyStore", "keyStorePassword",
    "keyPassword", "keyStoreType", "trustStore", "trustStorePassword", "trustStoreType", "fallbackToSystemKeyStore",
    "fallbackToSystemTrustStore", "credentialType", "restrictedAuth", "servicePrincipalName", "serverRsaPublicKeyFile",
    "allowPublicKeyRetrieval", "connectTimeout", "socketTimeout", "tcpKeepAlive", "tcpKeepIdle", "tcpKeepCount",
    "tcpKeepInterval", "tcpAbortiveClose", "useCompression", "maxAllowedPacket", "connectionAttributes",
    "useServerPrepStmts", "cachePrepStmts", "prepStmtCacheSize", "useReadAheadInput", "disablePipeline",
    "defaultFetchSize", "maxQuerySizeToLog",
)  # fmt: skip


class MariaDb(Dialect):
    """MariaDB 10.6 and later, with InnoDB."""

    name = "MariaDB"
    driver = "org.mariadb.jdbc.Driver"
    codes = _CODES
    properties = MappingProxyType({"sessionVariables": _SESSION, "allowLocalInfile": "false"})
    settings = _SETTINGS
    one_writer_advice = (
        "Name one server, as jdbc:mariadb://host:3306/database, or a host name or an address that leads to the server "
        "that writes."
    )
    connection_types = ("mysql", "mariadb")
    # Values are sent in binary form: as text, quotes in them would count twice against max_allowed_packet.
    batch_properties = MappingProxyType({"useServerPrepStmts": "true"})
    row_limit_query = "SELECT @@max_allowed_packet"
    isolation = "READ_COMMITTED"
    one_writer = False
    # REPEATABLE READ, the default, would read positions from before it waited for another process's lock.
    session = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET idle_transaction_timeout = 60")
    lock_schema = "SELECT get_lock('sluice', 60)"
    unlock_schema = "SELECT release_lock('sluice')"
    lock_row = " FOR UPDATE"
    refusal_query = (
        "SELECT CASE WHEN version() NOT LIKE '%MariaDB%' THEN 'it is MySQL, whose SQL is another' "
        "WHEN @@lower_case_table_names <> 0 THEN 'it changes the case of tables'' names (lower_case_table_names)' END"
    )
    unfit_query = (
        "SELECT coalesce(concat('its engine is ', engine, ', which has no transactions'), 'it is a view') "
        "FROM information_schema.tables WHERE table_schema = ? AND table_name = ? AND coalesce(engine, '') <> 'InnoDB'"
    )
    staging_begins = "CREATE TABLE"
    # OR REPLACE: a temporary table remains after its transaction was rolled back.
    temporary = "CREATE OR REPLACE TEMPORARY TABLE {} ENGINE=InnoDB AS"
    drop_temporary = "DROP TEMPORARY TABLE"
    table_options = f" ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={_COLLATION}"
    long_text = "LONGTEXT"
    joined = "group_concat({} SEPARATOR ',')"
    joins = True
    schema_query = "SELECT database()"
    table_query = "SELECT table_name FROM information_schema.tables WHERE table_schema = ? AND table_name = ?"
    tables_query = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = ? AND locate(?, table_name) = 1 "
        "ORDER BY table_name"
    )
    columns_query = (
        "SELECT column_name, column_type, is_nullable = 'YES', "
        "column_default IS NOT NULL OR extra LIKE '%auto_increment%', is_generated = 'ALWAYS' "
        "FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position"
    )
    _MADE = MappingProxyType(
        {
            "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT",
            # FLOAT is read with six digits only; TIMESTAMP ends in 2038.
            "float": "DOUBLE", "double": "DOUBLE", "string": "LONGTEXT", "binary": "LONGBLOB", "date": "DATE",
            "timestamp": "DATETIME(6)", "timestamp_ntz": "DATETIME(6)",
        }
    )  # fmt: skip
    _BITS = MappingProxyType({"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64})
    _OCTETS = MappingProxyType({"tiny": 2**8 - 1, "": 2**16 - 1, "medium": 2**24 - 1, "long": 2**32 - 1})
    _READ = ("uuid", "inet4", "inet6")

    json_object = "CAST(json_object({}) AS CHAR)"
    # A JSON object can't have texts of two collations.
    hexadecimal = f"CAST(hex({{}}) AS CHAR) COLLATE {_COLLATION}"
    time_text = f"CAST({{}} AS CHAR) COLLATE {_COLLATION}"

    def stored(self, kind: Type, column: DatabaseColumn, zone: str) -> Stored | None:
        """See `Dialect`."""
        name, there = sql_quoted(column.name), parts_of_type(column.type)[0]
        text = f"CAST({name} AS CHAR)"
        if isinstance(kind, Mapping):
            return Stored(text, is_json=True)
        if kind == "binary":
            return Stored(f"hex({name})", "unhex({})")
        if there == "timestamp":  # in the session's time zone, which is UTC
            return Stored(text, "concat({}, 'Z')")
        if there == "datetime" or there == "varchar" or there.endswith("text"):
            return local_time(text, kind, zone)
        plain = there.removesuffix(" unsigned") in ("tinyint", "smallint", "mediumint", "int", "bigint")
        # A float has six digits as text.
        return Stored(text) if plain or there in ("decimal", "double", "date") else None

    def url(self, host: str, port: int | None, schema: str, login: str) -> str:  # noqa: ARG002
        """See `Dialect`."""
        return f"jdbc:mariadb://{host}:{port or 3306}/{schema}"

    def several_servers(self, where: str, given: Mapping[str, str], *, exact: bool) -> str | None:  # noqa: ARG002
        """See `Dialect`. By a mode the driver goes to another server in the middle of a session, without its settings.

        It also repeats a transaction there, by `transactionReplay`, on another state of the tables.
        """
        mode, slashes, rest = where.removeprefix("jdbc:mariadb:").partition("//")
        servers = rest.partition("/")[0]
        if mode.strip(":") and slashes:
            return "it names a mode of the driver's"
        if "(" in servers:
            return "it describes servers in brackets"
        return "it names several" if exact and "," in servers else None

    def table(self, schema: str, name: str) -> str:
        """See `Dialect`. With the schema, which is a database in MariaDB."""
        return f"{sql_quoted(schema)}.{sql_quoted(name)}"

    def canonical(self, schema: str, name: str) -> str:
        """See `Dialect`. With the schema."""
        return dotted(schema, name)

    def temporary_table(self, schema: str, name: str) -> str:
        """See `Dialect`. Temporary tables are in a schema, too."""
        return self.table(schema, name)

    def staging(self, name: str, table: str, columns: str, places: Mapping[str, int | None]) -> str:
        """See `Dialect`. An outer join makes all columns nullable."""
        own = ", ".join(
            f"{sql_quoted(place)} {'BIGINT' if length is None else f'VARCHAR({length})'}"
            for place, length in places.items()
        )
        nothing = f"FROM (SELECT 1 AS one) n LEFT JOIN {table} AS t ON 1 = 0 WHERE 1 = 0"
        return f"CREATE TABLE {name} ({own}){self.table_options} AS SELECT {columns} {nothing}"

    def refused(self, said: str, code: int, state: str) -> str:
        """See `Dialect`."""
        text = said.strip()
        before = _CONNECTION.match(text)
        text = text[before.end() :] if before else text
        for quoting in _QUOTING:
            found = quoting.fullmatch(text)
            if found is not None:
                return f"{found['before']} …{found['after']}"
        return text if _PLAIN.fullmatch(text) else f"error {code}, SQLSTATE {state or 'unknown'}"

    def made(self, kind: Type, in_key: int = 0) -> str | None:
        """See `Dialect`. Nested values are JSON; a key's texts and bytes are limited by the length of InnoDB's keys."""
        if isinstance(kind, Mapping):
            return None if in_key else "JSON"
        length = min(255, _KEY_CHARACTERS // max(in_key, 1))
        if in_key and kind in ("string", "binary"):
            return f"{'VARCHAR' if kind == 'string' else 'VARBINARY'}({length})"
        decimal = decimal_of(kind)
        return f"DECIMAL({decimal[0]},{decimal[1]})" if decimal else self._MADE.get(str(kind))

    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """See `Dialect`."""
        name, numbers = parts_of_type(column.type.removesuffix(" zerofill"))
        if name.startswith("enum("):
            members = [one.replace("''", "'") for one in re.findall(r"'((?:[^']|'')*)'", column.type)]
            found = one_of(value, members) if kind == "string" else None
        else:
            found = self._fit(value, kind, name, numbers, zone)
        return self.misfit(kind, column) if found is None else found

    def _fit(self, value: str, kind: Type, name: str, numbers: list[int], zone: str) -> Fit | None:
        if name.endswith("text"):
            text = as_json(value) if isinstance(kind, Mapping) else as_text(value, kind, zone)
            return text and within_octets(text, self._OCTETS[name.removesuffix("text")])
        if isinstance(kind, Mapping):
            return None
        if name in ("varchar", "char"):
            text = as_text(value, kind, zone)
            held = text and within_length(text, numbers[0])
            return held and without_blanks_at_end(held) if name == "char" else held
        if kind == "binary":
            return self._fit_bytes(value, name, numbers)
        bits = self._BITS.get(name.removesuffix(" unsigned"))
        if bits is not None:
            return as_is(value) if kind == "boolean" else integer_in(value, kind, bits, signed=" " not in name)
        if name == "decimal":
            if kind == "string":
                return decimal_text(value, numbers)
            return within_decimal(value, kind, numbers)
        if name in ("float", "double"):
            held_by = ("float", "double", "byte", "short", "integer") if name == "double" else ("float",)
            return finite(value, kind) if kind in held_by else None
        if name in self._READ:
            return as_is(value) if kind == "string" else None
        return self._fit_time(value, kind, name, numbers[0] if numbers else 0, zone)

    def _fit_bytes(self, value: str, name: str, numbers: list[int]) -> Fit | None:
        if name == "varbinary":
            return within_octets(as_is(value), numbers[0])
        return within_octets(as_is(value), self._OCTETS[name.removesuffix("blob")]) if name.endswith("blob") else None

    @staticmethod
    def _fit_time(value: str, kind: Type, name: str, digits: int, zone: str) -> Fit | None:
        if name == "date":
            return fits_in_years(date_text(value), value) if kind == "date" else None
        if name == "datetime" and kind in ("timestamp", "timestamp_ntz"):
            return within_microseconds(fits_in_years(as_local_time(value, kind, zone), value), value, digits)
        if name == "timestamp" and kind == "timestamp":
            return within_microseconds(until_2038(as_local_time(value, kind, "UTC"), value), value, digits)
        return None
