"""Whether files of one schema can be read by another, as `schema_compatibility` asks for it. Pure.

The rules are those that Avro and Parquet have in common: a column that files lack is null, a type may be read as a
wider one. Connect's: https://docs.confluent.io/platform/current/schema-registry/fundamentals/schema-evolution.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from sluice.records.structs import Type, in_words, wider_atom

Compatibility = Literal["none", "backward", "forward", "full"]
_SMALL: Final = {"byte": "integer", "short": "integer"}  # in files they are INT


def incompatible(before: Type, now: Type, wanted: Compatibility) -> list[str]:
    """What of a struct's columns is not compatible with those before, in words; nothing where all are.

    Args:
        before: the columns of the files that are there.
        now: those of the next ones.
        wanted: backward: whoever reads by the new columns reads the old files; forward: whoever reads by the old
            ones reads the new files; full: both.
    """
    found: list[str] = []
    if wanted in ("backward", "full"):
        found += _unreadable(now, before, "", "new", "earlier files")
    if wanted in ("forward", "full"):
        found += _unreadable(before, now, "", "earlier", "new files")
    return list(dict.fromkeys(found))


def _unreadable(reader: Type, files: Type, path: str, which: str, where: str) -> Iterator[str]:
    """What a reader by one struct misses in files of another."""
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
    """Whether values of one type are read as those of another without any loss."""
    reader, files = _SMALL.get(reader, reader), _SMALL.get(files, files)
    return reader == files or (not reader.startswith("decimal") and wider_atom(reader, files) == reader)


def _cannot_hold(reader: Type, files: Type, name: str, which: str, where: str) -> str:
    return f"{which} column `{name}` is {in_words(reader)}, and in {where} it is {in_words(files)}"
