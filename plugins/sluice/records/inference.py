"""What columns a sample of records would need: the types of all records put together. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.records.structs import Conflict, Type, in_words, struct, wider_atom
from sluice.records.structs import field as struct_field

_EXAMPLES = 3
_LONGEST = 40  # characters of an example


@dataclass
class FieldStatistics:
    """One field of the records, by a sample.

    Attributes:
        records: how many of them had the field; `nulls`: how many had null there.
        conflicts: types without a common one, in words with the first place of each.
        examples: some different values, as JSON.
    """

    records: int = 0
    nulls: int = 0
    conflicts: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)


@dataclass
class Sample:
    """The types of records, put together one by one.

    Types without a common one come to STRING, which holds the text of either; whole numbers and numbers with a fraction
    to DOUBLE. Each is said.
    """

    records: int = 0
    unreadable: list[str] = field(default_factory=list)
    columns: Type = field(default_factory=lambda: struct([]))
    seen: dict[str, FieldStatistics] = field(default_factory=dict)
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, place: str, kind: Type, values: Mapping[str, Any]) -> None:
        """Add a record: its position, its type as Spark infers it, and its values."""
        self.records += 1
        self.columns = self._common(self.columns, kind, "", place)
        for name, value in values.items():
            seen = self.seen.setdefault(name, FieldStatistics())
            seen.records += 1
            seen.nulls += value is None
            example = json.dumps(value, ensure_ascii=False, default=str)
            example = example if len(example) <= _LONGEST else example[: _LONGEST - 1] + "…"
            if value is not None and example not in seen.examples and len(seen.examples) < _EXAMPLES:
                seen.examples.append(example)

    def add_unreadable(self, place: str, reason: str) -> None:
        """Add a record that can't be read."""
        self.records += 1
        self.unreadable.append(f"{place}: {reason}")

    def result(self) -> Type:
        """The columns: STRING for a field that was always null, and all nullable."""
        made: Type = _without_void(self.columns)
        return made

    def _common(self, known: Type, new: Type, path: str, place: str) -> Type:
        if isinstance(known, Mapping) and isinstance(new, Mapping) and known["type"] == new["type"]:
            if known["type"] == "array":
                element = self._common(known["elementType"], new["elementType"], f"{path}[]", place)
                return {**known, "elementType": element, "containsNull": True}
            return self._common_struct(known, new, path, place)
        if not isinstance(new, Mapping) and new == "void":
            return known
        self._places.setdefault(path, (in_words(new), place))
        if not isinstance(known, Mapping) and known == "void":
            return self._first(new, path, place)
        both_single = not isinstance(known, Mapping) and not isinstance(new, Mapping)
        wider = wider_atom(str(known), str(new)) if both_single else None
        if wider is None and both_single and {known, new} <= {"long", "integer", "double", "float"}:
            wider = "double"
        if wider is None:
            self._note(path, known, new, place)
        return wider or "string"

    def _first(self, new: Type, path: str, place: str) -> Type:
        """The first type at a path; the positions of nested types are noted too."""
        if not isinstance(new, Mapping):
            return new
        if new["type"] == "array":
            return {**new, "elementType": self._common("void", new["elementType"], f"{path}[]", place)}
        return self._common_struct(struct([]), new, path, place)

    def _common_struct(self, known: Type, new: Type, path: str, place: str) -> Type:
        theirs = {f["name"]: f["type"] for f in new["fields"]}
        fields = []
        for ours in known["fields"]:
            kind = theirs.pop(ours["name"], "void")
            fields.append(
                struct_field(ours["name"], self._common(ours["type"], kind, _inner(path, ours["name"]), place))
            )
        for name, kind in theirs.items():
            fields.append(struct_field(name, self._common("void", kind, _inner(path, name), place)))
        return struct(fields)

    def _note(self, path: str, known: Type, new: Type, place: str) -> None:
        if known == "string" and any(path in said for s in self.seen.values() for said in s.conflicts):
            return
        first, where = self._places.get(path, (in_words(known), "before"))
        top = path.partition(".")[0].partition("[")[0]
        said = f"{path} is {first} at {where}, and {in_words(new)} at {place}"
        self.seen.setdefault(top, FieldStatistics()).conflicts.append(said)


def _inner(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_HOLDS = {
    "boolean": ("boolean",),
    "long": ("byte", "short", "integer", "long", "float", "double", "decimal"),
    "integer": ("byte", "short", "integer", "long", "float", "double", "decimal"),
    "double": ("float", "double", "decimal"),
    "decimal": ("double", "decimal"),
    "string": ("timestamp", "timestamp_ntz", "date", "binary", "decimal"),
}
"""The types, beside STRING and Spark's inferred one, as which a value may be read; each record shows if it fits."""


def completed(known: Type, found: Type, path: str = "") -> tuple[Type, list[Conflict]]:
    """The fields that a person has named, as they are, with those behind them that a sample has beside these.

    Args:
        known: the struct that was given.
        found: the sample's.
        path: of the struct in the record, with a dot at its end.
    """
    conflicts: list[Conflict] = []
    theirs = {str(f["name"]).lower(): f for f in found["fields"]}
    fields = []
    for ours in known["fields"]:
        other = theirs.pop(str(ours["name"]).lower(), None)
        kind = ours["type"]
        if other is not None:
            kind, inner = _completed(kind, other["type"], f"{path}{ours['name']}")
            conflicts += inner
        fields.append({**ours, "type": kind})
    return struct([*fields, *theirs.values()]), conflicts


def _completed(known: Type, found: Type, path: str) -> tuple[Type, list[Conflict]]:
    if isinstance(known, Mapping) and isinstance(found, Mapping):
        if known["type"] == found["type"] == "struct":
            return completed(known, found, f"{path}.")
        if known["type"] == found["type"] == "array":
            element, conflicts = _completed(known["elementType"], found["elementType"], f"{path}[]")
            return {**known, "elementType": element}, conflicts
        if known["type"] == "map" and found["type"] == "struct":
            inner = [_completed(known["valueType"], f["type"], f"{path}{{}}")[1] for f in found["fields"]]
            return known, [conflict for conflicts in inner for conflict in conflicts[:1]][:1]
    single = not isinstance(known, Mapping) and not isinstance(found, Mapping)
    fits = single and str(known).partition("(")[0] in _HOLDS.get(str(found).partition("(")[0], (found,))
    return known, [] if fits or known == "string" or found in ("void", known) else [
        Conflict(path, in_words(known), in_words(found))
    ]


def _without_void(kind: Type) -> Type:
    if not isinstance(kind, Mapping):
        return "string" if kind == "void" else kind
    if kind["type"] == "struct":
        return struct(struct_field(f["name"], _without_void(f["type"])) for f in kind["fields"])
    return {**kind, "elementType": _without_void(kind["elementType"])}
