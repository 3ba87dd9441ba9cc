"""Protobuf messages of an old and of a new schema, and the rows that they come to."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, message_factory

from sluice.schemas.registry.proto_files import registered_files

from .converters import Wild, local

_PROTO_HEAD = """
syntax = "proto3";
package com.example;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Kind { ZERO = 0; ONE = 1; }
message Other { int64 id = 1; }
message Wild {
  int64 id = 1;
  string select = 2;
  optional int32 maybe = 3;
  repeated int32 numbers = 4;
  map<string, int64> by_name = 5;
  bytes raw = 6;
  Kind kind = 7;
  google.protobuf.Timestamp at = 8;
  oneof either { string text = 9; int32 number = 10; }
  uint32 u32 = 11;
  uint64 u64 = 12;
  double d = 13;
  float f = 14;
  bool flag = 15;
  fixed32 f32 = 16;
  fixed64 f64 = 17;
  sint64 s64 = 18;
  google.protobuf.Int64Value wrapped = 19;
  google.protobuf.Duration took = 20;
  repeated uint64 many = 21;
  Inner inner = 22;
  repeated Inner group = 23;
"""
OLD_PROTO = f"{_PROTO_HEAD} string gone = 30; message Inner {{ string order = 1; }} }}"
NEW_PROTO = f"""{_PROTO_HEAD} message Inner {{ string order = 1; int32 added = 2; optional string also = 3; }}
  int32 extra = 31; repeated string words = 32; optional uint64 perhaps = 33; Inner later = 34;
}}"""


def message_class(text: str, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in registered_files(text, []):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def proto_row(wild: Wild, number: int, *, new: bool) -> dict[str, Any]:
    """The fields of one message; those that are left out are not written."""
    row = {
        "select": wild.text,
        "maybe": lambda: wild.long(31),
        "numbers": lambda: [wild.long(31) for _ in range(wild.randrange(1, 4))],
        "by_name": lambda: {wild.text(): wild.long() for _ in range(3)},
        "raw": wild.some_bytes,
        "kind": lambda: wild.choice([0, 1, 7]),
        "at": wild.moment,
        wild.choice(["text", "number"]): lambda: None,
        "u32": lambda: wild.choice([0, 2**32 - 1, wild.randrange(2**32)]),
        "u64": lambda: wild.choice([0, 2**64 - 1, wild.randrange(2**64)]),
        "d": wild.double,
        "f": wild.single,
        "flag": lambda: wild.choice([True, False]),
        "f32": lambda: wild.choice([2**32 - 1, wild.randrange(2**32)]),
        "f64": lambda: wild.choice([2**64 - 1, wild.randrange(2**64)]),
        "s64": wild.long,
        "wrapped": lambda: wild.choice([0, wild.long()]),
        "took": lambda: (wild.randrange(10**9), wild.randrange(10**9)),
        "many": lambda: [wild.randrange(2**64) for _ in range(wild.randrange(1, 3))],
        "inner": lambda: {"order": wild.text()},
        "group": lambda: [{"order": wild.text()} for _ in range(wild.randrange(1, 3))],
    }
    row["text"] = wild.text
    row["number"] = lambda: wild.long(31)
    row.pop(wild.choice(["text", "number"]))
    if new:
        row |= {
            "extra": lambda: wild.long(31),
            "words": lambda: [wild.text()],
            "perhaps": lambda: wild.randrange(2**64),
        }
    else:
        row["gone"] = wild.text
    return {"id": number, **{name: make() for name, make in row.items() if wild.random() < 0.6}}


def proto_message(made: Any, row: dict[str, Any]) -> Any:
    special = {"at", "wrapped", "took", "inner", "group", "by_name"}
    message = made(**{name: value for name, value in row.items() if name not in special})
    if "at" in row:
        message.at.FromDatetime(row["at"])
    if "wrapped" in row:
        message.wrapped.value = row["wrapped"]
        message.wrapped.SetInParent()
    if "took" in row:
        message.took.seconds, message.took.nanos = row["took"]
        message.took.SetInParent()
    if "inner" in row:
        message.inner.SetInParent()
        message.inner.order = row["inner"]["order"]
    for element in row.get("group", []):
        message.group.add().order = element["order"]
    message.by_name.update(row.get("by_name", {}))
    return message


def proto_expected(row: dict[str, Any], *, new: bool) -> dict[str, Any]:
    """Every column: proto3 has no null but where a field has presence."""
    zeros = dict.fromkeys(("u32", "u64", "f32", "f64", "s64"), 0) | {"d": 0.0, "f": 0.0, "flag": False}
    nulls = dict.fromkeys(("maybe", "at", "text", "number", "wrapped", "took", "inner", "gone", "perhaps", "later"))
    empty = {"numbers": [], "by_name": {}, "many": [], "group": [], "words": []}
    expected = {"select": "", "raw": b"", "extra": 0, **zeros, **nulls, **empty, **row}
    added = {"added": 0, "also": None}
    if "inner" in row:
        expected["inner"] = {**row["inner"], **added}
    expected["group"] = [{**element, **added} for element in expected["group"]]
    expected["kind"] = {0: "ZERO", 1: "ONE", 7: "UNKNOWN_ENUM_VALUE_Kind_7"}[row.get("kind", 0)]
    if "at" in row:
        expected["at"] = local(row["at"])
    if "wrapped" in row:
        expected["wrapped"] = {"value": row["wrapped"]}
    if "took" in row:
        expected["took"] = {"seconds": row["took"][0], "nanos": row["took"][1]}
    if not new:
        expected["gone"] = row.get("gone", "")
    return expected
