"""Debezium's change events as its connectors publish them, and a plain model of the table that they lead to.

Field names and values are those of the connectors' documentation, version 3: the envelope with `before`, `after`,
`source`, `op`, `ts_ms`; `source` of PostgreSQL with `lsn` and `sequence`, of MySQL with `file`, `pos`, `row`, `gtid`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
_TIME = 1_790_000_000_000


def postgresql(lsn: int, *, snapshot: str = "false") -> dict[str, Any]:
    return {
        "version": "3.0.8.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": _TIME + lsn % 1000,
        "snapshot": snapshot,
        "db": "shop",
        "sequence": json.dumps([str(lsn - 8), str(lsn)]),
        "ts_us": (_TIME + lsn % 1000) * 1000,
        "ts_ns": (_TIME + lsn % 1000) * 1_000_000,
        "schema": "public",
        "table": "orders",
        "txId": 700 + lsn % 100,
        "lsn": lsn,
        "xmin": None,
    }


def mysql(file: int, pos: int, row: int = 0, *, snapshot: str = "false") -> dict[str, Any]:
    return {
        "version": "3.0.8.Final",
        "connector": "mysql",
        "name": "shop",
        "ts_ms": _TIME,
        "snapshot": snapshot,
        "db": "shop",
        "sequence": None,
        "ts_us": _TIME * 1000,
        "ts_ns": _TIME * 1_000_000,
        "table": "orders",
        "server_id": 0 if snapshot != "false" else 223_344,
        "gtid": None,
        "file": f"mysql-bin.{file:06}",
        "pos": pos,
        "row": row,
        "thread": 11,
        "query": None,
    }


def event(op: str, source: Mapping[str, Any], before: Row | None = None, after: Row | None = None) -> dict[str, Any]:
    found = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": _TIME + 500}
    if op in ("t", "m"):
        found = {k: v for k, v in found.items() if k not in ("before", "after")}
    if op == "m":
        found["message"] = {"prefix": "audit", "content": "aGVsbG8="}
    return found


@dataclass
class Log:
    """Records for one topic, in the order in which they arrive; each as key, value and partition."""

    key: str = "id"
    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)

    def send(self, message: Mapping[str, Any], key: Any = None) -> None:
        row = message.get("after") or message.get("before") or {}
        key = row.get(self.key) if key is None else key
        encoded = None if key is None else json.dumps({self.key: key}).encode()
        self.records.append((encoded, json.dumps(message).encode()))

    def tombstone(self, key: Any) -> None:
        self.records.append((json.dumps({self.key: key}).encode(), None))

    def take(self) -> list[tuple[bytes | None, bytes | None]]:
        taken, self.records = self.records, []
        return taken


def table_after(events: list[dict[str, Any]], position: Any, key: str = "id") -> dict[Any, dict[str, Any]]:
    """The rows that all events lead to, in whatever order they came: those of the change with the largest position.

    A truncate takes what was there before it; `position` orders events by their source.
    """
    emptied = max((position(e["source"]) for e in events if e["op"] == "t"), default=None)
    newest: dict[Any, tuple[Any, dict[str, Any]]] = {}
    for e in events:
        if e["op"] in ("t", "m"):
            continue
        at = position(e["source"])
        identity = (e["after"] or e["before"])[key]
        if (emptied is None or at >= emptied) and (identity not in newest or at >= newest[identity][0]):
            newest[identity] = (at, e)
    return {k: e["after"] for k, (_, e) in newest.items() if e["op"] != "d"}
