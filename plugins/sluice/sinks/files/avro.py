"""The schema of Avro files: Spark's own, with what Avro's readers need besides. Pure."""

from __future__ import annotations

from typing import Any, Final

_PARTS: Final = ("items", "values")


def with_defaults(schema: Any) -> Any:
    """The schema with null as the default of each field that may be null, as Kafka Connect writes it.

    Avro's readers fill in fields that an earlier file doesn't have by their defaults, and refuse the file where there
    is none. A default's type comes first in its union.

    Args:
        schema: an Avro schema as JSON.
    """
    if isinstance(schema, list):
        return [with_defaults(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    made = {**schema, **{part: with_defaults(schema[part]) for part in _PARTS if part in schema}}
    if "fields" in schema:
        made["fields"] = [_field(one) for one in schema["fields"]]
    return made


def _field(one: dict[str, Any]) -> dict[str, Any]:
    kind = with_defaults(one["type"])
    if not isinstance(kind, list) or "null" not in kind:
        return {**one, "type": kind}
    return {**one, "type": ["null", *(branch for branch in kind if branch != "null")], "default": None}
