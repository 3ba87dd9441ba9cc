"""Avro records of an old and of a new schema, and the rows that they come to."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

from .converters import Wild, local


def avro(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def _nested(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [avro("order", "string"), avro("n", ["null", "float"]), *more]
    return {"type": "array", "items": {"type": "record", "name": "N", "fields": fields}}


_COMMON = [
    avro("id", "long"),
    avro("select", ["null", "string"], default=None),
    avro("dec", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}),
    avro("fdec", {"type": "fixed", "name": "F8", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 2}),
    avro("at_ms", {"type": "long", "logicalType": "timestamp-millis"}),
    avro("at_us", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    avro("local_us", {"type": "long", "logicalType": "local-timestamp-micros"}),
    avro("day", {"type": "int", "logicalType": "date"}),
    avro("uuid", {"type": "string", "logicalType": "uuid"}),
    avro("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}),
    avro("three", {"type": "fixed", "name": "F3", "size": 3}),
    avro("raw", "bytes"),
    avro("either", ["null", "int", "string", {"type": "record", "name": "R", "fields": [avro("x", "int")]}]),
    avro("numbers", {"type": "map", "values": ["null", "double"]}),
    avro("flag", "boolean"),
]


def avro_schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Wild", "namespace": "com.example", "fields": list(fields)})


OLD_AVRO = avro_schema(*_COMMON, avro("group", _nested()), avro("count", "int"), avro("gone", "string"))
NEW_AVRO = avro_schema(
    avro("price", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, default="\u00ff"),
    avro("count", "long"),
    *reversed(_COMMON),
    avro("group", _nested(avro("q", "int", default=3))),
    avro("where", {"type": "record", "name": "W", "fields": [avro("city", "string")]}, default={"city": "Köln"}),
    avro("maybe", ["null", "long"], default=None),
)


def avro_row(wild: Wild, number: int, *, new: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": number,
        "select": wild.maybe(wild.text),
        "dec": wild.decimal(38, 4),
        "fdec": wild.decimal(18, 2),
        "at_ms": wild.moment("milliseconds"),
        "at_us": wild.maybe(wild.moment),
        "local_us": wild.moment().replace(tzinfo=None),
        "day": wild.day(),
        "uuid": UUID(bytes=wild.randbytes(16)),
        "kind": wild.choice("ABC"),
        "three": wild.some_bytes(3),
        "raw": wild.some_bytes(),
        "either": wild.choice([None, wild.long(31), wild.text(), {"x": wild.long(31)}]),
        "numbers": {wild.text(): wild.maybe(wild.double) for _ in range(wild.randrange(4))},
        "flag": wild.choice([True, False]),
        "group": [{"order": wild.text(), "n": wild.maybe(wild.single)} for _ in range(wild.randrange(3))],
        "count": wild.long(63 if new else 31),
    }
    if not new:
        return {**row, "gone": wild.text()}
    row["group"] = [{**element, "q": wild.long(31)} for element in row["group"]]
    where = {"city": wild.text()}
    return {**row, "price": wild.decimal(6, 2), "where": where, "maybe": wild.maybe(wild.long)}


def avro_expected(row: dict[str, Any], *, new: bool) -> dict[str, Any]:
    either = row["either"]
    kinds = {int: "member_int", str: "member_string", dict: "member_R"}
    members = dict.fromkeys(kinds.values())
    expected = {
        **row,
        "at_ms": local(row["at_ms"]),
        "at_us": row["at_us"] and local(row["at_us"]),
        "uuid": str(row["uuid"]),
        "either": None if either is None else {**members, kinds[type(either)]: either},
    }
    if new:
        return {**expected, "gone": None}
    # What an old record doesn't have is what the new schema says of it.
    expected["group"] = [{**element, "q": 3} for element in row["group"]]
    return {**expected, "price": Decimal("-0.01"), "where": {"city": "Köln"}, "maybe": None}


def avro_bytes(fastavro: Any, schema: Any, row: Any) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return buffer.getvalue()
