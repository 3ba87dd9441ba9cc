"""Whether files of one schema can be read with another, as `schema_compatibility` demands. Pure.

The rules are common to Avro and Parquet: a column missing from the files is read as null, and a type may be read as a
wider one. Connect's rules:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/schema-evolution.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from sluice.records.structs import Type, in_words, wider_atom

Compatibility = Literal["none", "backward", "forward", "full"]
_SMALL: Final = {"byte": "integer", "short": "integer"}  # files store both as INT


def incompatible(before: Type, now: Type, wanted: Compatibility) -> list[str]:
    """The changes of a struct's columns that break compatibility, in words; empty if all are compatible.

    Args:
        before: the columns of the existing files.
        now: the columns of the next files.
        wanted: backward: a reader with the new columns can read the old files; forward: a reader with the old columns
            can read the new files; full: both.
    """
    found: list[str] = []
    if wanted in ("backward", "full"):
        found += _unreadable(now, before, "", "new", "earlier files")
    if wanted in ("forward", "full"):
        found += _unreadable(before, now, "", "earlier", "new files")
    return list(dict.fromkeys(found))


def _unreadable(reader: Type, files: Type, path: str, which: str, where: str) -> Iterator[str]:
    """Why a reader with one struct can't read files of another."""
    theirs = {str(f["name"]).lower(): f for f in files["fields"]}
    for ours in reader["fields"]:
        name = f"{path}{ours['name']}"
        other = theirs.get(str(ours["name"]).lower())
        if other is None:
            if not ours["nullable"]:
                yield f"{which} column `{name}` may not be null, and {where} don't have it"
            continue
        if other["nullable"] and not ours["nullable"]:
            yield f"{which} column `{name}` may not be null, and in {where} it may be"
        yield from _other_type(ours["type"], other["type"], name, which, where)


def _other_type(reader: Type, files: Type, name: str, which: str, where: str) -> Iterator[str]:
    if isinstance(reader, Mapping) and isinstance(files, Mapping) and reader["type"] == files["type"]:
        if reader["type"] == "struct":
            yield from _unreadable(reader, files, f"{name}.", which, where)
        elif reader["type"] == "array":
            yield from _other_type(reader["elementType"], files["elementType"], f"{name}[]", which, where)
        elif reader["type"] == "map":
            yield from _other_type(reader["keyType"], files["keyType"], f"{name}{{key}}", which, where)
            yield from _other_type(reader["valueType"], files["valueType"], f"{name}{{}}", which, where)
        elif reader != files:
            yield _cannot_hold(reader, files, name, which, where)
    elif isinstance(reader, Mapping) or isinstance(files, Mapping) or not _reads(str(reader), str(files)):
        yield _cannot_hold(reader, files, name, which, where)


def _reads(reader: str, files: str) -> bool:
    """Whether values of the files' type can be read as the reader's type without loss."""
    reader, files = _SMALL.get(reader, reader), _SMALL.get(files, files)
    return reader == files or (not reader.startswith("decimal") and wider_atom(reader, files) == reader)


def _cannot_hold(reader: Type, files: Type, name: str, which: str, where: str) -> str:
    return f"{which} column `{name}` is {in_words(reader)}, and in {where} it is {in_words(files)}"
