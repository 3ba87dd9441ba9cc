"""How stored values are read back as they were sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.records.structs import Type

_PLAIN_ZONES = ("UTC", "Etc/UTC", "GMT", "Etc/GMT")


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


def local_time(text: str, kind: Type, zone: str) -> Stored | None:
    """SQL for reading a column of texts or of times without a zone; None if the values may be ambiguous.

    Args:
        text: the database's SQL for the value as text.
        kind: the type of the rows' column, as in Spark's JSON; instants were written as times of `zone`.
        zone: the time zone. In one with daylight saving time, one hour of each year occurs twice.
    """
    if kind != "timestamp":
        return Stored(text)
    return Stored(text, "concat({}, 'Z')") if zone in _PLAIN_ZONES else None
