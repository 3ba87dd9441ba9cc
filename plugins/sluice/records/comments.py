"""Comments on a table's columns and on the fields inside of them: the doc strings of schemas. Pure.

A type as Spark's JSON has them as `comment` in a field's metadata, an Avro schema as a field's `doc`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluice.records.structs import Type

Path = tuple[str, ...]
"""Names from the outside in, in lower case; `[]` means an array's elements, `{}` a map's values."""
Comments = Mapping[Path, str]
"""Comments by the paths of their fields."""

LONGEST: Final = 255
"""Characters of a comment: a Hive metastore's column takes 256, and Glue's catalog one less."""
_COMMENT: Final = "comment"
_PARTS: Final = {"elementType": "[]", "valueType": "{}"}
_AVRO_PARTS: Final = {"items": "[]", "values": "{}"}


def one_line(text: Any) -> str:
    """A doc string as a comment: one line, cut to `LONGEST` characters; empty if it is no text."""
    given = text[: 10 * LONGEST] if isinstance(text, str) else ""
    line = " ".join("".join(c if c.isprintable() else " " for c in given).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def comments_of(kind: Type) -> dict[Path, str]:
    """The comments of a type."""
    return dict(_of_type(kind, ()))


def _of_type(kind: Type, path: Path) -> Iterator[tuple[Path, str]]:
    if not isinstance(kind, Mapping):
        return
    for one in kind["fields"] if kind["type"] == "struct" else ():
        inside = (*path, str(one["name"]).lower())
        text = one_line((one.get("metadata") or {}).get(_COMMENT))
        if text:
            yield inside, text
        yield from _of_type(one["type"], inside)
    for part, mark in _PARTS.items():
        if part in kind:
            yield from _of_type(kind[part], (*path, mark))


def comments_of_pinned(schema_avro: str) -> dict[Path, str]:
    """The comments of the columns that a START-COMMIT has pinned; an earlier release pinned no Avro schema of files."""
    return comments_of_avro(json.loads(schema_avro)) if schema_avro else {}


def comments_of_avro(schema: Any) -> dict[Path, str]:
    """The docs of an Avro schema's fields.

    Args:
        schema: the schema as JSON, as Avro's own parser writes it: each name is defined where it is first used. It has
            a type in Spark, so no record contains itself.
    """
    return dict(_of_avro(schema, (), "", {}))


def _of_avro(schema: Any, path: Path, namespace: str, named: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    if isinstance(schema, list):
        yield from _of_union(schema, path, namespace, named)
    elif isinstance(schema, str):
        known = named.get(schema) or named.get(f"{namespace}.{schema}")
        if known is not None:
            yield from _of_avro(known, path, namespace, named)
    elif schema["type"] == "record":
        yield from _of_record(schema, path, namespace, named)
    else:
        for part, mark in _AVRO_PARTS.items():
            if part in schema:
                yield from _of_avro(schema[part], (*path, mark), namespace, named)


def _of_union(branches: list[Any], path: Path, namespace: str, named: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """A nullable type's docs. Of several branches Spark makes a field each; they only define names here."""
    types = [branch for branch in branches if branch != "null"]
    for one in types:
        found = list(_of_avro(one, path, namespace, named))
        yield from found if len(types) == 1 else ()


def _of_record(
    record: Mapping[str, Any], path: Path, enclosing: str, named: dict[str, Any]
) -> Iterator[tuple[Path, str]]:
    namespace, full = _named(record, enclosing)
    named[full] = {**record, "name": full}
    for one in record["fields"]:
        inside = (*path, str(one["name"]).lower())
        text = one_line(one.get("doc"))
        if text:
            yield inside, text
        yield from _of_avro(one["type"], inside, namespace, named)


def _named(record: Mapping[str, Any], enclosing: str) -> tuple[str, str]:
    """A record's namespace and full name."""
    name = str(record["name"])
    namespace = name.rpartition(".")[0] or str(record.get("namespace", enclosing))
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    return namespace, full


def described(kind: Type, comments: Comments) -> Type:
    """A type with comments; a field that none is for keeps its own."""
    return _described(kind, comments, ()) if comments else kind


def _described(kind: Type, comments: Comments, path: Path) -> Type:
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [_field(one, comments, path) for one in kind["fields"]]}
    return {**kind, **{p: _described(kind[p], comments, (*path, mark)) for p, mark in _PARTS.items() if p in kind}}


def _field(one: Mapping[str, Any], comments: Comments, path: Path) -> dict[str, Any]:
    inside = (*path, str(one["name"]).lower())
    text = comments.get(inside)
    metadata = {**(one.get("metadata") or {}), **({_COMMENT: text} if text else {})}
    return {**one, "type": _described(one["type"], comments, inside), "metadata": metadata}


def undescribed(kind: Type) -> Type:
    """A type without comments."""
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [_bare(one) for one in kind["fields"]]}
    return {**kind, **{part: undescribed(kind[part]) for part in _PARTS if part in kind}}


def _bare(one: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in (one.get("metadata") or {}).items() if name != _COMMENT}
    return {**one, "type": undescribed(one["type"]), "metadata": metadata}


def documented(schema: Any, comments: Comments, path: Path = ()) -> Any:
    """An Avro schema, as Spark makes it of a type, with comments as the docs of its fields."""
    if isinstance(schema, list):
        return [documented(branch, comments, path) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    made = {**schema, **{p: documented(schema[p], comments, (*path, m)) for p, m in _AVRO_PARTS.items() if p in schema}}
    if isinstance(schema.get("type"), dict | list):
        made["type"] = documented(schema["type"], comments, path)
    if schema.get("type") == "record":
        made["fields"] = [_documented_field(one, comments, path) for one in schema["fields"]]
    return made


def _documented_field(one: Mapping[str, Any], comments: Comments, path: Path) -> dict[str, Any]:
    inside = (*path, str(one["name"]).lower())
    text = comments.get(inside)
    return {**one, "type": documented(one["type"], comments, inside), **({"doc": text} if text else {})}
