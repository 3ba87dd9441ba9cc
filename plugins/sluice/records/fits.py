"""What fits where: values of one type into another, and types into a Hudi table. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sluice.records.structs import Conflict, Type, in_words, wider_atom

_AVRO_NAME = re.compile(r"^[^\W\d]\w*$")
RESERVED = ("_kafka_", "_sluice_", "_hoodie_")
"""What names of columns must not begin with: they are Sluice's and Hudi's own."""


def unassignable(wanted: Type, has: Type) -> tuple[Conflict, ...]:
    """The fields of a struct whose values don't all fit the same fields of another, by name.

    A value fits a type that is wider, and any single value fits a STRING.
    """
    conflicts: list[Conflict] = []
    _compare_structs(wanted, has, "", conflicts)
    return tuple(conflicts)


def _compare_structs(wanted: Type, has: Type, path: str, conflicts: list[Conflict]) -> None:
    theirs = {str(f["name"]).lower(): f for f in has["fields"]}
    for ours in wanted["fields"]:
        other = theirs.get(str(ours["name"]).lower())
        if other is not None:
            _compare(ours["type"], other["type"], f"{path}{ours['name']}", conflicts)


def _compare(wanted: Type, has: Type, path: str, conflicts: list[Conflict]) -> None:
    if isinstance(wanted, Mapping) and isinstance(has, Mapping) and wanted["type"] == has["type"]:
        if wanted["type"] == "struct":
            _compare_structs(wanted, has, f"{path}.", conflicts)
        elif wanted["type"] == "array":
            _compare(wanted["elementType"], has["elementType"], f"{path}[]", conflicts)
        elif wanted["type"] == "map":
            _compare(wanted["keyType"], has["keyType"], f"{path}{{key}}", conflicts)
            _compare(wanted["valueType"], has["valueType"], f"{path}{{}}", conflicts)
        return
    single = not isinstance(wanted, Mapping) and not isinstance(has, Mapping)
    if not single or not _holds(str(wanted), str(has)):
        conflicts.append(Conflict(path, in_words(wanted), in_words(has)))


def _holds(wanted: str, has: str) -> bool:
    if wanted == "string":
        return has != "binary"
    return (wanted, has) == ("timestamp", "date") or wider_atom(wanted, has) == wanted


def unholdable(kind: Type, path: str = "") -> list[str]:
    """The parts of a struct that a Hudi table can't hold, in words: names that Avro doesn't allow, and some types."""
    found = []
    seen: set[str] = set()
    if not kind["fields"]:
        found.append(f"`{path.rstrip('.')}` has no field")
    for one in kind["fields"]:
        name = f"{path}{one['name']}"
        if str(one["name"]).lower() in seen:
            found.append(f"`{name}` is there twice: upper and lower case are the same")
        seen.add(str(one["name"]).lower())
        if not _AVRO_NAME.match(one["name"]):
            found.append(f"`{name}` is no name there: that is letters, digits and _, and begins with no digit")
        if not path and str(one["name"]).lower().startswith(RESERVED):
            found.append(f"`{name}` begins like a column of Sluice's or Hudi's own ({', '.join(RESERVED)})")
        found += _unholdable(one["type"], name)
    return found


def _unholdable(kind: Type, path: str) -> list[str]:
    if not isinstance(kind, Mapping):
        wrong = str(kind).startswith("interval") or kind in ("void", "null")
        return [f"`{path}` is of the type {str(kind).upper()}"] if wrong else []
    if kind["type"] == "struct":
        return unholdable(kind, f"{path}.")
    if kind["type"] == "array":
        return _unholdable(kind["elementType"], f"{path}[]")
    if kind["type"] != "map":
        return [f"`{path}` is of the type {in_words(kind)}"]
    keys = [] if kind["keyType"] == "string" else [f"the map `{path}` has keys that are {in_words(kind['keyType'])}"]
    return keys + _unholdable(kind["valueType"], f"{path}{{}}")
