"""Defaults of Avro schemas that Spark makes of columns. Pure."""

from __future__ import annotations

from typing import Any, Final

_PARTS: Final = ("type", "items", "values")


def with_defaults(schema: Any) -> Any:
    """A schema with null as the default of each field that may be null, as Kafka Connect writes it.

    Avro's readers fill in fields that earlier records don't have by their defaults, and refuse the records where there
    is none. A default's type comes first in its union.

    Args:
        schema: an Avro schema as JSON.
    """
    if isinstance(schema, list):
        return [with_defaults(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: with_defaults(part) if name in _PARTS else part for name, part in schema.items()}
    if "fields" in made:
        made["fields"] = [_field(one) for one in schema["fields"]]
    return made


def _field(one: dict[str, Any]) -> dict[str, Any]:
    kind = with_defaults(one["type"])
    if not isinstance(kind, list) or "null" not in kind:
        return {**one, "type": kind}
    return {**one, "type": ["null", *(branch for branch in kind if branch != "null")], "default": None}
