"""What a producer makes of rows of `typed_values`, in each format that a converter reads.

No code of Sluice's and none of Spark's is in here: formats are written by other implementations, or by hand.
"""

from __future__ import annotations

import base64
import csv
import json
import math
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Final

import fastavro

from .typed_values import (
    COLUMNS,
    DEEP,
    EPOCH,
    Array,
    Fields,
    Kind,
    Mapped,
    Row,
    Wild,
    columns_ddl,
    numbers_of,
    unscaled_of,
)


@dataclass(frozen=True)
class Sent:
    """A record: its bytes, and the row that it says."""

    value: bytes
    row: Row


@dataclass(frozen=True)
class Producer:
    """A format's records.

    Attributes:
        converter: the pipeline's `source.kafka.value`, without a file.
        columns: the columns that its records have.
        send: makes a record of a row.
        schema: the text or bytes of the schema file; None where it needs none.
        id: the schema's id, where records have Confluent's wire format.
        finite: whether it has neither NaN nor infinity.
        full: whether it has no null in lists and maps.
    """

    converter: Mapping[str, Any]
    columns: Mapping[str, Kind]
    send: Callable[[Wild, Row], Sent]
    schema: bytes | None = None
    id: int | None = None
    finite: bool = False
    full: bool = False

    def records(self, seed: int, rows: int) -> Iterator[Sent]:
        """So many records."""
        wild = Wild(seed, finite=self.finite, full=self.full)
        return (self.send(wild, wild.row(self.columns, number)) for number in range(rows))


def _without(*names: str) -> dict[str, Kind]:
    return {name: kind for name, kind in COLUMNS.items() if name not in names}


def _only(*names: str) -> dict[str, Kind]:
    return {name: COLUMNS[name] for name in names}


def _frame(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


# JSON


def iso(wild: Wild, moment: datetime) -> str:
    """A time as ISO 8601 has it, in one of its ways, and in any zone if it has one."""
    if moment.tzinfo is not None:
        for minutes in (wild.choice([0, 0, 120, -210, 345, 14 * 60]), 0):
            try:
                shifted = moment.astimezone(timezone(timedelta(minutes=minutes)))
            except OverflowError:  # before the year 1, or after 9999, over there
                continue
            break
        text = shifted.isoformat(wild.choice("T "))
        return wild.choice([text.replace("+00:00", "Z"), text, text.removesuffix("+00:00")])
    return moment.isoformat(wild.choice("T "))


def json_of(wild: Wild, value: Any) -> str:
    """JSON with all digits of numbers: Python's own would write a Decimal as a float, or not at all."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {json_of(wild, v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(json_of(wild, one) for one in value) + "]"
    if isinstance(value, Decimal):
        return wild.choice([format(value, "f"), str(value)])
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, datetime):
        return json.dumps(iso(wild, value))
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    return json.dumps(value, ensure_ascii=wild.random() < 0.5)


def _json(wild: Wild, row: Row) -> Sent:
    return Sent(json_of(wild, row).encode(), row)


# Connect's envelope

_CONNECT: Final = "org.apache.kafka.connect.data."
_DEBEZIUM: Final = "io.debezium.time."
_PLAIN: Final = {
    "BOOLEAN": "boolean", "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64", "FLOAT": "float",
    "DOUBLE": "double", "STRING": "string", "BINARY": "bytes", "TIMESTAMP_NTZ": "string",
}  # fmt: skip


def whole(moment: datetime, unit: timedelta) -> int:
    """A time as a whole number of a unit since 1970, rounded down."""
    return (moment - EPOCH) // unit


def of_unscaled(number: Decimal, scale: int) -> bytes:
    """A decimal as Connect's bytes."""
    unscaled = unscaled_of(number, scale)
    return unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)


def _enveloped(wild: Wild, kind: Kind, value: Any) -> tuple[dict[str, Any], Any, Any]:
    """The value's schema, how it is written, and what is left of it: milliseconds of a Timestamp."""
    if isinstance(kind, Fields):
        parts = {name: _enveloped(wild, one, (value or {}).get(name)) for name, one in kind.of.items()}
        schema = {"type": "struct", "fields": [{"field": name, **said} for name, (said, _, _) in parts.items()]}
        if value is None:
            return schema, None, None
        return schema, {n: made for n, (_, made, _) in parts.items()}, {n: left for n, (_, _, left) in parts.items()}
    if isinstance(kind, Array):
        assert isinstance(kind.of, str)
        return {"type": "array", "items": {"type": _PLAIN[kind.of]}}, value, value
    if isinstance(kind, Mapped):
        assert isinstance(kind.of, str)
        return {"type": "map", "keys": {"type": "string"}, "values": {"type": _PLAIN[kind.of]}}, value, value
    if kind == "DATE":
        days = None if value is None else (value - EPOCH.date()).days
        return {"type": "int32", "name": wild.choice([f"{_CONNECT}Date", f"{_DEBEZIUM}Date"])}, days, value
    if kind == "TIMESTAMP":
        return _of_moment(wild, value)
    if kind.startswith("DECIMAL"):
        _, scale = numbers_of(kind)
        said = {"type": "bytes", "name": f"{_CONNECT}Decimal", "version": 1, "parameters": {"scale": str(scale)}}
        return said, None if value is None else of_unscaled(value, scale), value
    return {"type": _PLAIN[kind]}, value, value


def _of_moment(wild: Wild, value: datetime | None) -> tuple[dict[str, Any], Any, Any]:
    name, step = wild.choice(
        [(f"{_CONNECT}Timestamp", 1000), (f"{_DEBEZIUM}Timestamp", 1000), (f"{_DEBEZIUM}MicroTimestamp", 1)]
    )
    if value is None:
        return {"type": "int64", "name": name}, None, None
    micros = whole(value, timedelta(microseconds=1))
    chosen = wild.random()
    if chosen < 0.2:
        return {"type": "string", "name": f"{_DEBEZIUM}ZonedTimestamp"}, value, value
    if chosen < 0.4 and abs(micros) < 2**63 // 1000:
        return {"type": "int64", "name": f"{_DEBEZIUM}NanoTimestamp"}, micros * 1000 + wild.randrange(1000), value
    left = EPOCH + timedelta(microseconds=micros // step * step)
    return {"type": "int64", "name": name}, micros // step, left


def _envelope(wild: Wild, row: Row) -> Sent:
    columns = {name: COLUMNS[name] for name in row}
    schema, payload, left = _enveloped(wild, Fields(columns), row)
    return Sent(f'{{"schema": {json.dumps(schema)}, "payload": {json_of(wild, payload)}}}'.encode(), left)


# JSON Schema

_JSON_TYPES: Final = {
    "BOOLEAN": {"type": "boolean"},
    "TINYINT": {"type": "integer", "connect.type": "int8"},
    "SMALLINT": {"type": "integer", "connect.type": "int16"},
    "INT": {"type": "integer", "connect.type": "int32"},
    "BIGINT": {"type": "integer"},
    "FLOAT": {"type": "number", "connect.type": "float32"},
    "DOUBLE": {"type": "number"},
    "STRING": {"type": "string"},
    "BINARY": {"type": "string", "connect.type": "bytes"},
    "DATE": {"type": "string", "format": "date"},
    "TIMESTAMP": {"type": "string", "format": "date-time"},
}
_AS_NUMBERS: Final = ("days", "times", "deep")
"""Columns whose dates and times are Connect's numbers, and whose decimals are its bytes."""


def _schema_of(kind: Kind, *, numbers: bool) -> dict[str, Any]:
    if isinstance(kind, Fields):
        fields = {
            name: {"oneOf": [{"type": "null"}, {**_schema_of(one, numbers=numbers), "connect.index": place}]}
            for place, (name, one) in enumerate(kind.of.items())
        }
        return {"type": "object", "properties": fields}
    if isinstance(kind, Array):
        return {"type": "array", "items": _schema_of(kind.of, numbers=numbers)}
    if isinstance(kind, Mapped):
        return {"type": "object", "additionalProperties": _schema_of(kind.of, numbers=numbers)}
    if kind.startswith("DECIMAL"):
        precision, scale = numbers_of(kind)
        parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
        said = {"title": f"{_CONNECT}Decimal", "connect.parameters": parameters}
        return {"type": "string", "connect.type": "bytes", **said} if numbers else {"type": "number", **said}
    if numbers and kind in ("DATE", "TIMESTAMP"):
        name = "Date" if kind == "DATE" else "Timestamp"
        return {"type": "integer", "title": f"{_CONNECT}{name}"}
    return _JSON_TYPES[kind]


def _numbered(kind: Kind, value: Any) -> tuple[Any, Any]:
    """A value with Connect's numbers for times and bytes for decimals, and what is left of it."""
    if value is None:
        return None, None
    if isinstance(kind, Array):
        pairs = [_numbered(kind.of, one) for one in value]
        return [made for made, _ in pairs], [left for _, left in pairs]
    if isinstance(kind, Mapped | Fields):
        of = {k: _numbered(kind.of if isinstance(kind, Mapped) else kind.of[k], one) for k, one in value.items()}
        return {k: made for k, (made, _) in of.items()}, {k: left for k, (_, left) in of.items()}
    if kind == "DATE":
        return (value - EPOCH.date()).days, value
    if kind == "TIMESTAMP":
        millis = whole(value, timedelta(milliseconds=1))
        return millis, EPOCH + timedelta(milliseconds=millis)
    if kind.startswith("DECIMAL"):
        return of_unscaled(value, numbers_of(kind)[1]), value
    return value, value


def _by_json_schema(wild: Wild, row: Row) -> Sent:
    made, left = dict(row), dict(row)
    for name in _AS_NUMBERS:
        made[name], left[name] = _numbered(COLUMNS[name], row[name])
    return Sent(_frame(_JSON_ID) + json_of(wild, made).encode(), left)


_JSON_ID, _AVRO_ID, _PROTO_ID = 3, 70_000, 2**31 - 1
_OF_JSON_SCHEMA: Final = _without("local", "locals")
JSON_SCHEMA: Final = {
    "type": "object",
    "properties": {
        name: {"oneOf": [{"type": "null"}, {**_schema_of(kind, numbers=name in _AS_NUMBERS), "connect.index": place}]}
        for place, (name, kind) in enumerate(_OF_JSON_SCHEMA.items())
    },
}


# Avro

_AVRO: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",  # tables have INT for both
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
    "TIMESTAMP_NTZ": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def avro_of(kind: Kind, name: str) -> Any:
    """A type as Avro has it, nullable."""
    if isinstance(kind, Array):
        made: Any = {"type": "array", "items": avro_of(kind.of, f"{name}_element")}
    elif isinstance(kind, Mapped):
        made = {"type": "map", "values": avro_of(kind.of, f"{name}_value")}
    elif isinstance(kind, Fields):
        fields = [{"name": n, "type": avro_of(one, f"{name}_{n}"), "default": None} for n, one in kind.of.items()]
        made = {"type": "record", "name": name, "fields": fields}
    elif kind.startswith("DECIMAL"):
        precision, scale = numbers_of(kind)
        made = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        if name == "exact":
            made |= {"type": "fixed", "name": "sixteen", "size": 16}
    else:
        made = _AVRO[kind]
    return ["null", made]


AVRO: Final = {**avro_of(Fields(COLUMNS), "wild")[1], "namespace": "com.example"}
_PARSED_AVRO: Final = fastavro.parse_schema(AVRO)


def _avro(_: Wild, row: Row) -> Sent:
    out = BytesIO()
    out.write(_frame(_AVRO_ID))
    fastavro.schemaless_writer(out, _PARSED_AVRO, row)
    return Sent(out.getvalue(), row)


# Protobuf

PROTO: Final = """
syntax = "proto3";
package com.example;
import "google/protobuf/timestamp.proto";
message Other { int64 id = 1; }
message Wild {
  message Inner { google.protobuf.Timestamp at = 1; repeated string list = 2; }
  message Deep { optional string text = 1; google.protobuf.Timestamp at = 3; optional bytes raw = 5; Inner inner = 6; }
  message One { optional sfixed64 n = 1; google.protobuf.Timestamp at = 2; }
  optional bool yes = 1;
  optional sint32 whole = 4;
  optional int64 big = 5;
  optional float single = 6;
  optional double double = 7;
  optional fixed64 unsigned = 12;
  optional string text = 13;
  optional bytes raw = 14;
  google.protobuf.Timestamp at = 16;
  Deep deep = 18;
  repeated double doubles = 20;
  repeated One many = 22;
  repeated string texts = 24;
  map<string, sint64> numbers = 25;
  map<string, google.protobuf.Timestamp> times = 26;
}
"""
_OF_PROTO: Final[dict[str, Kind]] = {
    **_only("yes", "whole", "big", "single", "double", "unsigned", "text", "raw", "at"),
    "deep": Fields({name: DEEP.of[name] for name in ("text", "at", "raw", "inner")}),
    "many": Array(Fields({"n": "BIGINT", "at": "TIMESTAMP"})),
    **_only("doubles", "texts", "numbers", "times"),
}


def compiled(proto: str, folder: Path) -> bytes:
    """A .proto file as protoc's set of descriptors, its imports included."""
    (folder / "wild.proto").write_text(proto)
    out = folder / "wild.desc"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
    subprocess.run([*command, f"--descriptor_set_out={out}", "wild.proto"], check=True, cwd=folder)
    return out.read_bytes()


def message_of(descriptors: bytes, name: str) -> Any:
    """The class of a message, by Google's own library."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _filled(message: Any, row: Row) -> Any:
    for name, value in row.items():
        if isinstance(value, datetime | dict | list):
            _fill(getattr(message, name), value)
        elif value is not None:
            setattr(message, name, int(value) if isinstance(value, Decimal) else value)
    return message


def _fill(field: Any, value: Any) -> None:
    """A message, a list or a map in a message."""
    if isinstance(value, datetime):
        _timed(field, value)
    elif isinstance(value, dict) and hasattr(field, "DESCRIPTOR"):
        field.SetInParent()
        _filled(field, value)
    elif isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, datetime):
                _timed(field[key], one)
            else:
                field[key] = one
    elif value and isinstance(value[0], dict):
        for one in value:
            _filled(field.add(), one)
    else:
        field.extend(value)


def _timed(field: Any, value: datetime) -> None:
    micros = whole(value, timedelta(microseconds=1))
    field.seconds, field.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
    field.SetInParent()


def _protobuf(message: Any) -> Callable[[Wild, Row], Sent]:
    def send(_: Wild, row: Row) -> Sent:
        place = b"\x02\x02"  # one index, which is 1, as zigzag numbers: the file's second message
        return Sent(_frame(_PROTO_ID) + place + _filled(message(), row).SerializeToString(), _widened(row))

    return send


def _widened(row: Row) -> Row:
    """The row with the fields of the table's structs that the message doesn't have."""
    made = dict(row)
    if row["deep"] is not None:
        made["deep"] = {**dict.fromkeys(DEEP.of), **row["deep"]}
    made["many"] = [{**one, "m": None} for one in row["many"]]
    return made


# CSV and single values

_OF_CSV: Final = {name: kind for name, kind in COLUMNS.items() if isinstance(kind, str) and kind != "BINARY"}


def _csv(wild: Wild, row: Row) -> Sent:
    row = {**row, "text": row["text"] and row["text"].replace("\uffff", "\ufffe")}  # that one is a bad record
    made = []
    for value in row.values():
        if isinstance(value, datetime):
            text = iso(wild, value)
        elif isinstance(value, float) and not math.isfinite(value):
            text = {math.inf: "Inf", -math.inf: "-Inf"}.get(value, "NaN")
        elif isinstance(value, bool):
            text = str(value).lower()
        else:
            text = format(value, "f") if isinstance(value, Decimal) else str(value)
        made.append("" if value is None else text)
    out = StringIO()
    csv.writer(out).writerow(made)
    line = out.getvalue().removesuffix("\r\n") + wild.choice(["", "\n", "\r\n"])
    return Sent(line.encode(), {name: None if value == "" else value for name, value in row.items()})


def _one(code: str) -> Callable[[Wild, Row], Sent]:
    """The value of the only column, packed."""

    def send(_: Wild, row: Row) -> Sent:
        (value,) = row.values()
        if value is None:
            value = 0.0 if code in (">f", ">d") else 0
        return Sent(struct.pack(code, value), dict.fromkeys(row, value))

    return send


def _text(_: Wild, row: Row) -> Sent:
    (value,) = row.values()
    return Sent((value or "").encode(), dict.fromkeys(row, value or ""))


def _bytes(_: Wild, row: Row) -> Sent:
    (value,) = row.values()
    return Sent(value or b"", dict.fromkeys(row, value or b""))


NUMBERS: Final = ("short", "integer", "long", "float", "double")


def producers(folder: Path) -> dict[str, Producer]:
    """A producer for each converter, by its name; `envelope` is `json` in Connect's envelope."""
    enveloped = _without("days", "locals", "many", "sums", "times")
    descriptors = compiled(PROTO, folder)
    wild = message_of(descriptors, "com.example.Wild")
    named = {"converter": "protobuf", "message": "com.example.Wild"}
    return {
        "json": Producer({"converter": "json"}, COLUMNS, _json, finite=True),
        "envelope": Producer(
            {"converter": "json", "options": {"schemas.enable": "true"}, "schema": columns_ddl(enveloped)},
            enveloped, _envelope, finite=True,
        ),
        "json_schema": Producer(
            {"converter": "json_schema"}, _OF_JSON_SCHEMA, _by_json_schema, json.dumps(JSON_SCHEMA).encode(), _JSON_ID,
            finite=True,
        ),
        "avro": Producer({"converter": "avro"}, COLUMNS, _avro, json.dumps(AVRO).encode(), _AVRO_ID),
        "protobuf": Producer(named, _OF_PROTO, _protobuf(wild), descriptors, _PROTO_ID, full=True),
        "csv": Producer({"converter": "csv", "schema": columns_ddl(_OF_CSV)}, _OF_CSV, _csv),
        "string": Producer({"converter": "string", "as": "text"}, _only("text"), _text),
        "bytes": Producer({"converter": "bytes", "as": "raw"}, _only("raw"), _bytes),
        "short": Producer({"converter": "short", "as": "small"}, _only("small"), _one(">h")),
        "integer": Producer({"converter": "integer", "as": "whole"}, _only("whole"), _one(">i")),
        "long": Producer({"converter": "long", "as": "big"}, _only("big"), _one(">q")),
        "float": Producer({"converter": "float", "as": "single"}, _only("single"), _one(">f")),
        "double": Producer({"converter": "double", "as": "double"}, _only("double"), _one(">d")),
    }  # fmt: skip
