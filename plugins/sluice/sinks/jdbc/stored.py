"""SQL that reads stored values back as they were sent: each database's, and Spark SQL for the resulting texts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sluice.identifiers import sql_quoted
from sluice.records.structs import Type
from sluice.sinks.jdbc.dialect import DatabaseColumn, parts_of_type

SESSION: Final[Mapping[str, str]] = MappingProxyType(
    {
        "PostgreSQL": "SET DateStyle = 'ISO, YMD'; SET TimeZone = 'UTC'; SET extra_float_digits = 1",
        "SQLite": "",
        "MariaDB": "",
    }
)
"""The first statements of a reader's connection, by the database's name."""
_PLAIN_ZONES = ("UTC", "Etc/UTC", "GMT", "Etc/GMT")
_TEXTS = ("text", "character varying", "citext", "name")
_NUMBERS = ("boolean", "smallint", "integer", "bigint", "numeric", "real", "double precision", "date")


@dataclass(frozen=True)
class Stored:
    """SQL for reading a column.

    Attributes:
        text: the database's SQL for the value as text.
        value: Spark SQL for the value, with `{}` for that text; it is cast to the column's type afterwards.
        is_json: whether the text is JSON of a nested value.
    """

    text: str
    value: str = "{}"
    is_json: bool = False


def stored(database: str, kind: Type, column: DatabaseColumn, zone: str) -> Stored | None:
    """SQL for reading a column's values as they were sent; None if the database may write them differently.

    Args:
        database: the database's name.
        kind: the type of the rows' column, as in Spark's JSON.
        column: the database's column.
        zone: the time zone for columns with times that have none. In a zone with daylight saving time, one hour of
            each year occurs twice, and values in it are ambiguous.
    """
    name = sql_quoted(column.name)
    if database == "SQLite":
        return _of_sqlite(kind, name, zone)
    if database == "MariaDB":
        return _of_mariadb(kind, parts_of_type(column.type)[0], name, zone)
    return _of_postgresql(kind, parts_of_type(column.type)[0], name, zone)


def _of_postgresql(kind: Type, there: str, name: str, zone: str) -> Stored | None:
    text = f"{name}::text"
    if isinstance(kind, Mapping):
        return Stored(text, is_json=True)
    if kind == "binary":
        return Stored(f"encode({name}, 'hex')", "unhex({})")
    if there == "timestamp with time zone":
        return Stored(f"({name} AT TIME ZONE 'UTC')::text", "concat({}, 'Z')")
    if there in (*_TEXTS, "timestamp", "timestamp without time zone"):
        return _zoned(Stored(text), kind, zone)
    return Stored(text) if there in _NUMBERS else None  # uuid, json, an enumeration, blanks at the end


def _of_sqlite(kind: Type, name: str, zone: str) -> Stored | None:
    if kind == "binary":
        return Stored(f"CASE WHEN {name} IS NOT NULL THEN hex({name}) END", "unhex({})")
    # A number cast to text has 15 digits; `quote` gives all digits that distinguish it from other numbers.
    text = f"CASE typeof({name}) WHEN 'real' THEN quote({name}) ELSE CAST({name} AS TEXT) END"
    if isinstance(kind, Mapping):
        return Stored(text, is_json=True)
    return _zoned(Stored(text), kind, zone)


def _of_mariadb(kind: Type, there: str, name: str, zone: str) -> Stored | None:
    text = f"CAST({name} AS CHAR)"
    if isinstance(kind, Mapping):
        return Stored(text, is_json=True)
    if kind == "binary":
        return Stored(f"hex({name})", "unhex({})")
    if there == "timestamp":  # in the session's time zone, which is UTC
        return Stored(text, "concat({}, 'Z')")
    if there == "datetime" or there == "varchar" or there.endswith("text"):
        return _zoned(Stored(text), kind, zone)
    plain = there.removesuffix(" unsigned") in ("tinyint", "smallint", "mediumint", "int", "bigint")
    return Stored(text) if plain or there in ("decimal", "double", "date") else None  # float has six digits as text


def _zoned(found: Stored, kind: Type, zone: str) -> Stored | None:
    """For a column of instants: a local time in the pipeline's zone, converted to an instant."""
    if kind != "timestamp":
        return found
    return Stored(found.text, "concat({}, 'Z')") if zone in _PLAIN_ZONES else None
