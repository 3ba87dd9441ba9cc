"""The position of Connect's JDBC source: the records of its offsets topic as positions here. Pure.

A key is `["connector", {"table": "orders"}]`, `{"protocol": "1", "table": "shop.public.orders"}` in its second member
since protocol 1, or `{"query": "query"}`; a value holds `incrementing`, `timestamp` (milliseconds) and
`timestamp_nanos` (of its second) of the last row that was sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.errors import ActionRequiredError
from sluice.untrusted import json_of

Found = Mapping[str, Mapping[str, Any]]
"""A connector's source offsets by their partitions, these as JSON."""


@dataclass(frozen=True)
class ConnectorPosition:
    """A connector's position in one table.

    Attributes:
        time: the last row's, in microseconds since 1970; None where the connector has kept none.
        number: the last row's number; None where the connector has kept none.
    """

    time: int | None = None
    number: int | None = None


def stored(name: str, records: Iterable[tuple[bytes | None, bytes | None]], before: Found | None = None) -> Found:
    """A connector's offsets in a compacted topic: the last value of each key; a tombstone removes it.

    Args:
        name: the connector's.
        records: keys and values, each key's in their order. Records in another format than Connect's are skipped, as
            there.
        before: the offsets of another topic, for partitions missing in this one.
    """
    found = dict(before or {})
    for key, value in records:
        read = _json(key)
        if not isinstance(read, list) or len(read) != 2 or read[0] != name or not isinstance(read[1], dict):
            continue
        if any(isinstance(one, dict | list) for one in read[1].values()):  # Connect has flat ones only
            continue
        partition = json.dumps(read[1], sort_keys=True)
        offset = _json(value)
        if isinstance(offset, dict):
            found[partition] = offset
        elif value is None:
            found.pop(partition, None)
    return found


def position_in(found: Found, table: str | None) -> ConnectorPosition | None:
    """The connector's position in a table; None where it has stored none.

    Args:
        found: its offsets.
        table: the table's name in the pipeline file; None for a query.

    Raises:
        ActionRequiredError: it has offsets of two tables that may be this one; or they can't be read.
    """
    partitions = [(json.loads(partition), offset) for partition, offset in found.items()]
    if table is None:
        of = [offset for partition, offset in partitions if "query" in partition]
        return _read(of[0], "the query") if of else None
    named = [(str(one["table"]), one.get("protocol"), offset) for one, offset in partitions if "table" in one]
    full = {name: offset for name, protocol, offset in named if protocol is not None and _same(name, table)}
    if len(full) > 1:
        raise ActionRequiredError(
            f"The connector has offsets of several tables that may be {table}.",
            next_step="name the table with its schema in the connector's configuration.",
            tables=", ".join(sorted(full)),
        )
    # As the connector does: offsets of protocol 1, else of protocol 0, which had no schemas.
    bare = {name: offset for name, protocol, offset in named if protocol is None and name == table.rpartition(".")[2]}
    chosen = [*full.values(), *bare.values()]
    return _read(chosen[0], table) if chosen else None


def starting(mode: str, topic: str, number_column: str, at: ConnectorPosition, grain: int = 1) -> dict[str, Any]:
    """The keys of the source's section that resume after that position; none to read everything.

    Args:
        mode: the section's.
        topic: the table's name there, or the query's.
        number_column: the connector's `incrementing.column.name`.
        at: the connector's position.
        grain: the microseconds between two times of the database.

    Raises:
        ActionRequiredError: the last time is between two times of the database.
    """
    if mode == "bulk":
        return {}
    if mode == "incrementing":
        return {} if at.number is None else {"starting_offsets": {topic: {0: at.number + 1}}}
    if at.time is None:
        return {}
    if at.time % grain:
        raise ActionRequiredError(
            f"The connector's position in {topic} is between two seconds, and times are read by whole ones there.",
            next_step="import it without --offsets, and write starting_offsets yourself (docs/jdbc-source.md).",
            microseconds=at.time,
        )
    if mode == "timestamp":
        return {"starting_offsets": {topic: {0: at.time + grain}}}
    # Rows of the last time were read up to a number: read that time again, its rows with a larger number only.
    section: dict[str, Any] = {"starting_offsets": {topic: {0: at.time}}}
    section["starting_ids"] = {topic: -1 if at.number is None else at.number}
    return section | ({"incrementing_column": number_column} if number_column else {})


def _json(text: bytes | None) -> Any:
    try:
        return None if text is None else json_of(text)
    except ValueError:
        return None


def _same(name: str, table: str) -> bool:
    """Whether one name is the other, perhaps qualified with a catalog or a schema."""
    return name == table or name.endswith(f".{table}") or table.endswith(f".{name}")


def _read(offset: Mapping[str, Any], what: str) -> ConnectorPosition:
    time, nanos, number = (offset.get(key) for key in ("timestamp", "timestamp_nanos", "incrementing"))
    if not all(one is None or (isinstance(one, int) and not isinstance(one, bool)) for one in (time, nanos, number)):
        raise ActionRequiredError(
            f"The connector's offset of {what} isn't one of a JDBC source.",
            next_step="import it without --offsets, and write starting_offsets yourself (docs/jdbc-source.md).",
            offset=json.dumps(offset)[:200],
        )
    if time is None:
        return ConnectorPosition(None, number)
    fraction = time % 1000 * 1000 if nanos is None else nanos // 1000
    return ConnectorPosition(time // 1000 * 1_000_000 + fraction, number)
