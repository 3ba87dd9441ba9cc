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
    """Records for one topic, in the order in which they arrive; each as key and value."""

    key: str = "id"
    enveloped: bool = False
    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)

    def send(self, message: Mapping[str, Any], key: Any = None) -> None:
        row = message.get("after") or message.get("before") or {}
        key = row.get(self.key) if key is None else key
        self.records.append((None if key is None else self._key(key), self._encoded(message)))

    def tombstone(self, key: Any) -> None:
        self.records.append((self._key(key), None))

    def _key(self, key: Any) -> bytes:
        return self._encoded({self.key: key})

    def _encoded(self, message: Mapping[str, Any]) -> bytes:
        """As Connect's JSON converter writes it: with `schemas.enable`, in an envelope of its own."""
        if not self.enveloped:
            return json.dumps(message).encode()
        fields = [{"type": "struct", "optional": True, "field": name, "fields": []} for name in message]
        return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": message}).encode()

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


def avro_envelope(*columns: Mapping[str, Any]) -> str:
    """The schema that the PostgreSQL connector registers for a table's values, with the table's columns."""

    def maybe(name: str, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": ["null", kind], "default": None}

    value = {"type": "record", "name": "Value", "fields": list(columns), "connect.name": "shop.public.orders.Value"}
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [
            *({"name": name, "type": "string"} for name in ("version", "connector", "name")),
            {"name": "ts_ms", "type": "long"},
            {
                "name": "snapshot",
                "type": [
                    {
                        "type": "string",
                        "connect.version": 1,
                        "connect.parameters": {"allowed": "true,first,first_in_data_collection,last,false,incremental"},
                        "connect.default": "false",
                        "connect.name": "io.debezium.data.Enum",
                    },
                    "null",
                ],
                "default": "false",
            },
            {"name": "db", "type": "string"},
            maybe("sequence", "string"),
            maybe("ts_us", "long"),
            maybe("ts_ns", "long"),
            {"name": "schema", "type": "string"},
            {"name": "table", "type": "string"},
            maybe("txId", "long"),
            maybe("lsn", "long"),
            maybe("xmin", "long"),
        ],
        "connect.name": "io.debezium.connector.postgresql.Source",
    }
    transaction = {
        "type": "record",
        "name": "block",
        "namespace": "event",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "total_order", "type": "long"},
            {"name": "data_collection_order", "type": "long"},
        ],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.orders",
        "fields": [
            maybe("before", value),
            maybe("after", "Value"),
            {"name": "source", "type": source},
            maybe("transaction", transaction),
            {"name": "op", "type": "string"},
            maybe("ts_ms", "long"),
        ],
        "connect.name": "shop.public.orders.Envelope",
    }
    return json.dumps(envelope)


PROTO_EVENT = """
syntax = "proto3";
package shop.public.orders;
message Envelope {
  Value before = 1;
  Value after = 2;
  Source source = 3;
  string op = 5;
  optional int64 ts_ms = 6;
  message Value { int64 id = 1; optional string v = 2; optional string p = 3; }
  message Source { string connector = 1; string snapshot = 2; optional int64 lsn = 3; }
}
"""
"""What the Protobuf converter registers for such a table's values, without the fields that nobody reads."""
PROTO_KEY = 'syntax = "proto3"; package shop.public.orders; message Key { int64 id = 1; }'
