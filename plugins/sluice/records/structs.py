"""Spark's types in Spark's own JSON: which type is wider, and how a table's columns evolve with new records.

A type is a string (`long`, `decimal(10,2)`) or a mapping with `type` struct, array or map.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Type = Any
_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_EXACT_IN = {"float": 24, "double": 53}
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DECIMAL = re.compile(r"^decimal\((\d+),\s*(-?\d+)\)$")
_MOST_DIGITS = 38
_SHORT = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


@dataclass(frozen=True)
class Conflict:
    """A field whose two types have no common one.

    Attributes:
        field: its path, such as `a.b[].c`.
        known: the known type in words.
        new: the other one.
        why: why the wider of the two is none here, in words; empty where neither holds the other.
    """

    field: str
    known: str
    new: str
    why: str = ""

    @property
    def because(self) -> str:
        """`why` in brackets after a blank, as the end of a sentence; empty where there is none."""
        return f" ({self.why})" if self.why else ""

    def __str__(self) -> str:
        return f"{self.field} is {self.known} here and {self.new} there{self.because}"


@dataclass(frozen=True)
class Merged:
    """A struct that holds the records of both; the known struct unchanged where there are conflicts."""

    struct: Type
    conflicts: tuple[Conflict, ...] = ()


def field(name: str, kind: Type, *, nullable: bool = True) -> dict[str, Any]:
    """A field of a struct."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def struct(fields: Iterable[Mapping[str, Any]]) -> Type:
    """A struct of fields."""
    return {"type": "struct", "fields": [dict(f) for f in fields]}


def is_struct(kind: Type) -> bool:
    """Whether a type is a struct."""
    return isinstance(kind, Mapping) and kind["type"] == "struct"


ONE_VALUE = "value"
"""The field of the struct that represents a type which isn't a struct."""


def as_struct(kind: Type) -> Type:
    """A struct unchanged, and any other type as a struct's only field."""
    return kind if is_struct(kind) else struct([field(ONE_VALUE, kind)])


def names(kind: Type) -> list[str]:
    """The names of a struct's fields."""
    return [str(f["name"]) for f in kind["fields"]]


def same_but_for_case(kind: Type, path: str = "") -> str | None:
    """Two fields of a struct whose names differ in case only, which Spark takes for one; None where there are none."""
    if not isinstance(kind, Mapping):
        return None
    if kind["type"] != "struct":
        inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
        return next(filter(None, (same_but_for_case(part, path) for part in inner)), None)
    seen: dict[str, str] = {}
    for found in kind["fields"]:
        name = str(found["name"])
        other = seen.setdefault(name.lower(), name)
        if other != name:
            return f"{path}{other} and {path}{name}"
        deeper = same_but_for_case(found["type"], f"{path}{name}.")
        if deeper is not None:
            return deeper
    return None


def without(kind: Type, left_out: Collection[str]) -> Type:
    """A struct without some of its fields."""
    return struct(f for f in kind["fields"] if f["name"] not in left_out)


def nullable(kind: Type) -> Type:
    """The same type with null allowed everywhere."""
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return struct({**f, "type": nullable(f["type"]), "nullable": True} for f in kind["fields"])
    if kind["type"] == "array":
        return {**kind, "elementType": nullable(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        return {
            **kind,
            "keyType": nullable(kind["keyType"]),
            "valueType": nullable(kind["valueType"]),
            "valueContainsNull": True,
        }
    return kind


def stored(kind: Type) -> Type:
    """The type as which a table stores another: TINYINT and SMALLINT are INT there.

    Hudi's own schema has no smaller one. Its row writer fails on TINYINT; files with SMALLINT can't be read as anything
    wider than INT by Spark's vectorized reader (Hudi 1.2.0).
    """
    if not isinstance(kind, Mapping):
        return "integer" if kind in ("byte", "short") else kind
    if kind["type"] == "struct":
        return struct({**f, "type": stored(f["type"])} for f in kind["fields"])
    parts = {part: stored(kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind}
    return {**kind, **parts}


def merge(known: Type, new: Type, *, of_rows: bool = False) -> Merged:
    """A struct that holds the records of both, in the order of the known one, with new fields after it.

    A field that only one of them has becomes nullable; one that is wider in one of them takes the wider type; one that
    differs in case only is the same field under its known name, as Spark has it.

    Args:
        known: the one whose names and order stay.
        new: the other.
        of_rows: `known` is that of a Hudi table's rows. Types nested in its structs, arrays and maps can't become wider
            then: Spark's vectorized reader of Parquet, its default, fails on each base file that has the narrower type
            there, in tables of both kinds (Hudi 1.2.0, "Nested types with type changes cannot be read in vectorized
            mode"; https://github.com/apache/hudi/pull/19165 has it as intended).
    """
    conflicts: list[Conflict] = []
    merged = _merge_structs(known, new, "", conflicts)
    if of_rows and not conflicts:
        conflicts += _widened(known, merged)
    return Merged(known, tuple(conflicts)) if conflicts else Merged(merged)


_INSIDE = "inside of a column nothing becomes wider"


def _widened(known: Type, merged: Type, path: str = "", depth: int = 0) -> Iterator[Conflict]:
    """The fields inside of a struct's fields that have become wider."""
    if not isinstance(known, Mapping) or not isinstance(merged, Mapping):
        if depth > 1 and known != merged:
            yield Conflict(path, in_words(known), in_words(merged), _INSIDE)
    elif known["type"] == "struct":
        now = {f["name"]: f["type"] for f in merged["fields"]}
        for ours in known["fields"]:
            inner = f"{path}.{ours['name']}" if path else str(ours["name"])
            yield from _widened(ours["type"], now[ours["name"]], inner, depth + 1)
    else:
        for part, mark in (("elementType", "[]"), ("keyType", "{key}"), ("valueType", "{}")):
            if part in known:
                yield from _widened(known[part], merged[part], f"{path}{mark}", depth + 1)


def _merge_structs(known: Type, new: Type, path: str, conflicts: list[Conflict]) -> Type:
    theirs = {str(f["name"]).lower(): f for f in new["fields"]}
    fields = []
    for ours in known["fields"]:
        other = theirs.pop(str(ours["name"]).lower(), None)
        if other is None:
            fields.append({**ours, "nullable": True})
            continue
        kind = _merge_types(ours["type"], other["type"], f"{path}{ours['name']}", conflicts)
        fields.append({**ours, "type": kind, "nullable": ours["nullable"] or other["nullable"]})
    added = [f for f in new["fields"] if str(f["name"]).lower() in theirs]
    return struct([*fields, *({**f, "type": nullable(f["type"]), "nullable": True} for f in added)])


def _merge_types(known: Type, new: Type, path: str, conflicts: list[Conflict]) -> Type:
    if isinstance(known, Mapping) and isinstance(new, Mapping) and known["type"] == new["type"]:
        if known["type"] == "struct":
            return _merge_structs(known, new, f"{path}.", conflicts)
        if known["type"] == "array":
            element = _merge_types(known["elementType"], new["elementType"], f"{path}[]", conflicts)
            return {**known, "elementType": element, "containsNull": known["containsNull"] or new["containsNull"]}
        if known["type"] == "map":
            key = _merge_types(known["keyType"], new["keyType"], f"{path}{{key}}", conflicts)
            value = _merge_types(known["valueType"], new["valueType"], f"{path}{{}}", conflicts)
            holds_null = known["valueContainsNull"] or new["valueContainsNull"]
            return {**known, "keyType": key, "valueType": value, "valueContainsNull": holds_null}
    wider = None if isinstance(known, Mapping) or isinstance(new, Mapping) else wider_atom(str(known), str(new))
    if wider is None:
        conflicts.append(Conflict(path, in_words(known), in_words(new)))
        return known
    return wider


def wider_atom(one: str, other: str) -> str | None:
    """The narrowest type that holds every value of both exactly; None where there is none.

    BIGINT and DOUBLE have none: a DOUBLE holds whole numbers exactly only up to 2^53.
    """
    if one == other:
        return one
    if one in ("void", "null"):
        return other
    if other in ("void", "null"):
        return one
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    if {one, other} == {"float", "double"}:
        return "double"
    for whole, real in ((one, other), (other, one)):
        if whole in _BITS and real in _EXACT_IN:
            return next((r for r in (real, "double") if _BITS[whole] <= _EXACT_IN[r]), None)
    return _wider_decimal(one, other)


def _wider_decimal(one: str, other: str) -> str | None:
    sizes = [_decimal(kind) for kind in (one, other)]
    if any(size is None for size in sizes) or not any(_DECIMAL.match(kind) for kind in (one, other)):
        return None
    whole = max(size[0] - size[1] for size in sizes if size)
    scale = max(size[1] for size in sizes if size)
    return f"decimal({whole + scale},{scale})" if whole + scale <= _MOST_DIGITS else None


def _decimal(kind: str) -> tuple[int, int] | None:
    found = _DECIMAL.match(kind)
    if found:
        return int(found.group(1)), int(found.group(2))
    return (_DIGITS[kind], 0) if kind in _DIGITS else None


def same(one: Type, other: Type) -> bool:
    """Whether two types are the same but for nullability and metadata."""
    return bool(_shape(one) == _shape(other))


def _shape(kind: Type) -> Any:
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return [(f["name"], _shape(f["type"])) for f in kind["fields"]]
    if kind["type"] == "array":
        return ("array", _shape(kind["elementType"]))
    if kind["type"] == "map":
        return ("map", _shape(kind["keyType"]), _shape(kind["valueType"]))
    return kind


def in_words(kind: Type) -> str:
    """A type as people write it in DDL."""
    if not isinstance(kind, Mapping):
        return _SHORT.get(str(kind), str(kind)).upper()
    if kind["type"] == "struct":
        fields = ", ".join(f"{f['name']}: {in_words(f['type'])}" for f in kind["fields"])
        return f"STRUCT<{fields}>"
    if kind["type"] == "array":
        return f"ARRAY<{in_words(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"MAP<{in_words(kind['keyType'])}, {in_words(kind['valueType'])}>"
    return str(kind["type"])
