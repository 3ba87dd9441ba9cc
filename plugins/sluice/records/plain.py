"""Columns of plain names and types, by the rules of Spark and Hudi, without a JVM. Pure.

Most tables have no others. Whatever else there may be in a schema is left to Spark: all functions answer None then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sluice.records.structs import Type, field, struct


class _Kind(NamedTuple):
    """A type's name in DDL, and in Avro."""

    ddl: str
    avro: Any


_KINDS: Final = {
    "boolean": _Kind("BOOLEAN", "boolean"),
    "byte": _Kind("TINYINT", "int"),
    "short": _Kind("SMALLINT", "int"),
    "integer": _Kind("INT", "int"),
    "long": _Kind("BIGINT", "long"),
    "float": _Kind("FLOAT", "float"),
    "double": _Kind("DOUBLE", "double"),
    "string": _Kind("STRING", "string"),
    "binary": _Kind("BINARY", "bytes"),
    "date": _Kind("DATE", {"type": "int", "logicalType": "date"}),
    "timestamp": _Kind("TIMESTAMP", {"type": "long", "logicalType": "timestamp-micros"}),
}
_WORDS: Final = {
    **{kind.ddl.lower(): name for name, kind in _KINDS.items()},
    "byte": "byte",
    "short": "short",
    "integer": "integer",
    "long": "long",
    "real": "float",
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLUMN: Final = re.compile(rf"\s*({_NAME.pattern})\s+([A-Za-z]+)(\s+NOT\s+NULL)?\s*", re.IGNORECASE)


def plain_struct(ddl: str) -> Type | None:
    """Spark's type of DDL."""
    found = [_COLUMN.fullmatch(part) for part in ddl.split(",")]
    fields = []
    for one in found:
        kind = _WORDS.get(one[2].lower()) if one is not None else None
        if one is None or kind is None:
            return None
        fields.append(field(one[1], kind, nullable=one[3] is None))
    made = struct(fields)
    return made if _is_plain(made) else None


def plain_ddl(kind: Type) -> str | None:
    """A struct as Spark writes it in DDL."""
    if not _is_plain(kind):
        return None
    return ",".join(
        f"{one['name']} {_KINDS[one['type']].ddl}{'' if one['nullable'] else ' NOT NULL'}" for one in kind["fields"]
    )


def plain_avro(kind: Type, record: str) -> str | None:
    """A struct as the schema of an Avro record, as Hudi makes it of columns that may all be null.

    Args:
        kind: the struct.
        record: the record's name.
    """
    if not _is_plain(kind) or _NAME.fullmatch(record) is None:
        return None
    fields = [
        {"name": one["name"], "type": ["null", _KINDS[one["type"]].avro], "default": None} for one in kind["fields"]
    ]
    made = {"type": "record", "name": record, "namespace": f"hoodie.{record}", "fields": fields}
    return json.dumps(made, separators=(",", ":"))


def _is_plain(kind: Type) -> bool:
    if not isinstance(kind, Mapping) or kind.get("type") != "struct":
        return False
    named = [str(one["name"]).lower() for one in kind["fields"]]
    return len(set(named)) == len(named) and all(
        _NAME.fullmatch(str(one["name"])) and isinstance(one["type"], str) and one["type"] in _KINDS
        and not one.get("metadata")
        for one in kind["fields"]
    )  # fmt: skip
