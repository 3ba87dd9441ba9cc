"""Sources and sinks as Connect lists its plugins, and their sections as its configuration keys. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points, version
from typing import Any

from sluice import __version__
from sluice.connectors import registry
from sluice.page.rest.answers import Json, class_of

_KINDS: tuple[registry.Kind, ...] = ("sink", "source")
_TYPES = {"string": "STRING", "integer": "LONG", "number": "DOUBLE", "boolean": "BOOLEAN", "array": "LIST"}
_DEEPEST = 3  # sections within a source's or a sink's own


def plugins() -> list[Json]:
    """All sources and sinks that are installed, one of another package with that package's version."""
    return [
        {"class": class_of(kind, name), "type": kind, "version": _version(kind, name)}
        for kind in _KINDS
        for name in registry.names(kind)
    ]


def keys_of(plugin: str) -> list[Json] | None:
    """The keys of a source's or a sink's section; None if there is none of that class or name."""
    for kind in _KINDS:
        for name in registry.names(kind):
            if plugin in (class_of(kind, name), class_of(kind, name).rpartition(".")[2], name):
                return list(_keys(kind, name))
    return None


def definition(name: str, order: int, **known: Any) -> Json:
    """A key's definition, as Connect's `ConfigKeyInfo` has it."""
    given = {"type": "STRING", "required": False, "default_value": None, "documentation": "", "group": "", **known}
    given.setdefault("importance", "HIGH" if given["required"] else "MEDIUM")
    return {"name": name, **given, "width": "NONE", "display_name": name, "dependents": [], "order": order}


def _version(kind: registry.Kind, name: str) -> str:
    if name in registry.BUILT_IN[kind]:
        return __version__
    point = next(iter(entry_points(group=registry.GROUPS[kind], name=name)), None)
    return version(point.dist.name) if point is not None and point.dist is not None else "unknown"


@cache
def _keys(kind: registry.Kind, name: str) -> tuple[Json, ...]:
    section = registry.section(kind, name)
    schema = section.model_json_schema(by_alias=True) if section is not None else {}
    found = _flat(f"{kind}.{name}", schema, schema.get("$defs", {}), _DEEPEST)
    return tuple(definition(key, order, group=kind, **known) for order, (key, known) in enumerate(found, 1))


def _flat(prefix: str, schema: Mapping[str, Any], defs: Mapping[str, Any], deep: int) -> Iterator[tuple[str, Json]]:
    required = schema.get("required", ())
    for name, given in schema.get("properties", {}).items():
        key, shape = f"{prefix}.{name}", _shape(given, defs)
        if shape.get("properties") and deep:
            yield from _flat(key, shape, defs, deep - 1)
            continue
        yield (
            key,
            {
                "type": _TYPES.get(str(shape.get("type")), "STRING"),
                "required": name in required,
                "default_value": _default(given.get("default", shape.get("default"))),
                "documentation": " ".join(str(given.get("description", shape.get("description", ""))).split()),
            },
        )


def _shape(given: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a key's value is, behind references and `or null`."""
    if "$ref" in given:
        return _shape(defs.get(given["$ref"].rpartition("/")[2], {}), defs)
    for several in ("anyOf", "oneOf", "allOf"):
        for one in given.get(several, ()):
            if one.get("type") != "null":
                return _shape(one, defs)
    return given


def _default(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
