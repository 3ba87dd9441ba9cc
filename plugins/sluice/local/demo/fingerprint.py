"""Whether two sets of rows are the same, whatever their order: their number, and a checksum over every value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

Columns = Mapping[str, type]
_PYTHON = {"INT": int, "BIGINT": int, "DOUBLE": float, "STRING": str}
_BITS = 64


def columns_of(ddl: str) -> Columns:
    """The columns of a table's schema (Spark DDL of plain types) and what their values are in Python."""
    return {name: _PYTHON[kind.upper()] for name, kind in re.findall(r"(\w+)\s+(\w+)[^,]*", ddl)}


@dataclass(frozen=True)
class Fingerprint:
    """Equal if the rows are equal: a sum of hashes ignores their order, but detects a doubled row.

    Attributes:
        rows: how many there are.
        checksum: the sum of a 64-bit hash of each row, modulo 2**64.
    """

    rows: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows, checksum {self.checksum:016x}"


def fingerprint(rows: Iterable[Mapping[str, Any]], columns: Columns) -> Fingerprint:
    """The fingerprint of rows of these columns; a field that a row lacks is null, as it is in the table."""
    count = checksum = 0
    for row in rows:
        count += 1
        checksum += _hash([None if row.get(n) is None else kind(row[n]) for n, kind in columns.items()])
    return Fingerprint(count, checksum % 2**_BITS)


def last_versions(records: Iterable[Mapping[str, Any]], key: str, ordering: str) -> Iterable[Mapping[str, Any]]:
    """The last version of each key: the largest of the ordering field, and of equals the one that came last."""
    last: dict[Any, Mapping[str, Any]] = {}
    for record in records:
        known = last.get(record[key])
        if known is None or record[ordering] >= known[ordering]:
            last[record[key]] = record
    return last.values()


def _hash(row: list[Any]) -> int:
    return int.from_bytes(blake2b(json.dumps(row).encode(), digest_size=_BITS // 8).digest(), "big")
