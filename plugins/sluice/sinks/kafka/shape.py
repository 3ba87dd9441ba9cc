"""Assigns a row's columns to a record's key, value, headers and timestamp. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.sinks.kafka.options import SINGLE
from sluice.sinks.kafka.options.pinned import PinnedTopic


@dataclass(frozen=True)
class Shape:
    """The columns by their role.

    Attributes:
        key: the key's columns; empty if records have no key.
        value: the value's columns.
        headers: each header's column.
        headers_from: the column of the source records' headers; empty if these aren't passed through.
        timestamp: the timestamp's column; empty if it is the source record's, or the time of sending.
    """

    key: tuple[str, ...]
    value: tuple[str, ...]
    headers: Mapping[str, str]
    headers_from: str
    timestamp: str


def shape_of(pinned: PinnedTopic, columns: Sequence[str]) -> Shape:
    """The shape of records, given START-COMMIT's settings and the table's columns.

    Raises:
        ValueError: the rows lack a named column, or an encoder of a single column has several, or none.
    """
    key, value, headers = pinned.key_fields, pinned.value_fields, pinned.headers
    headers_from, timestamp = pinned.headers_from, pinned.timestamp_column
    named = {"key_fields": key, "value_fields": value, "headers": tuple(headers.values())}
    named |= {"headers_from": (headers_from,) if headers_from else (), "timestamp": (timestamp,) if timestamp else ()}
    for place, names in named.items():
        missing = [name for name in names if name not in columns]
        if missing:
            raise ValueError(f"{place} names a column that the rows don't have: {', '.join(missing)}")
    single = pinned.value_encoder in SINGLE
    if not value:
        taken = {*headers.values(), headers_from, timestamp, *pinned.without, *(key if single else ())}
        value = tuple(name for name in columns if name not in taken)
    if single and len(value) != 1:
        raise ValueError(
            f"value.encoder {pinned.value_encoder} writes one column, and there are {', '.join(value) or 'none'}: "
            "name one in value_fields"
        )
    if not value:
        raise ValueError("no column is left for the value")
    return Shape(key, value, headers, headers_from, timestamp)


def struct_of(fields: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Spark's type of some columns, in the order of their names."""
    known = {str(one["name"]): one for one in fields}
    return {"type": "struct", "fields": [dict(known[name]) for name in names]}
