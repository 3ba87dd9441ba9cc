"""How values that were sent are read again as they were: as SQL of each database, and Spark SQL of its text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sluice.records.structs import Type
from sluice.sinks.jdbc.dialect import DatabaseColumn, parts_of_type
from sluice.sinks.jdbc.names import quoted

SESSION: Final[Mapping[str, str]] = MappingProxyType(
    {"PostgreSQL": "SET DateStyle = 'ISO, YMD'; SET TimeZone = 'UTC'; SET extra_float_digits = 1", "SQLite": ""}
)
"""By a database's name the statement with which a reader's connection begins."""
_PLAIN_ZONES = ("UTC", "Etc/UTC", "GMT", "Etc/GMT")
_TEXTS = ("text", "character varying", "citext", "name")
_NUMBERS = ("boolean", "smallint", "integer", "bigint", "numeric", "real", "double precision", "date")


@dataclass(frozen=True)
class Stored:
    """How a column is read.

    Attributes:
        text: SQL of the database, of its value as text.
        value: Spark SQL of the value, with `{}` for that text; it is cast to the column's type afterwards.
        is_json: whether the text is JSON of a nested value.
    """

    text: str
    value: str = "{}"
    is_json: bool = False


def stored(database: str, kind: Type, column: DatabaseColumn, zone: str) -> Stored | None:
    """How a column's values are read as they were sent; None where the database writes them in its own way.

    Args:
        database: its name.
        kind: the type of the rows' column, as in Spark's JSON.
        column: the database's.
        zone: the time zone of columns that have times without one. In one whose clocks are changed, an hour of each
            year is there twice, and which of the two a value is of nobody knows any more.
    """
    name = quoted(column.name)
    if database == "SQLite":
        return _of_sqlite(kind, name, zone)
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
    # A number's own text has 15 digits; as SQL quotes it, it has all that tell it from others.
    text = f"CASE typeof({name}) WHEN 'real' THEN quote({name}) ELSE CAST({name} AS TEXT) END"
    if isinstance(kind, Mapping):
        return Stored(text, is_json=True)
    return _zoned(Stored(text), kind, zone)


def _zoned(found: Stored, kind: Type, zone: str) -> Stored | None:
    """A text that is a time of day in the pipeline's zone, where it is to be a moment."""
    if kind != "timestamp":
        return found
    return Stored(found.text, "concat({}, 'Z')") if zone in _PLAIN_ZONES else None
