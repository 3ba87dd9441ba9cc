"""The columns that a record plan makes, as far as they are known without reading a record."""

from __future__ import annotations

from typing import Any

from sluice.records.changes import envelope_of
from sluice.records.plan import Format, RecordPlan
from sluice.records.settings import Part
from sluice.records.structs import Type, field, struct

_PARTS: dict[Part, Any] = {
    "cluster": "string",
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "timestamp_type": "integer",
    "headers": {
        "type": "array",
        "containsNull": True,
        "elementType": struct([field("key", "string"), field("value", "binary")]),
    },
    "key": "binary",
    "value": "binary",
}


def incoming(plan: RecordPlan) -> Type:
    """The columns of a record before changes and transforms: value, key, then parts of the record. As Spark's JSON.

    A name is not made twice: the value's field takes precedence over the key's.
    """
    fields: list[dict[str, Any]] = []
    row = _fields_of(plan.value)
    if plan.changes is not None and plan.changes.format == "debezium":
        row = envelope_of(plan.value.struct).row["fields"]
    for found in (
        *row,
        *(_fields_of(plan.key) if plan.key else ()),
        *(field(name, _PARTS[part]) for name, part in plan.columns.items()),
    ):
        if all(str(found["name"]).lower() != str(known["name"]).lower() for known in fields):
            fields.append(found)
    return struct(fields)


def _fields_of(given: Format) -> list[dict[str, Any]]:
    if given.as_ is not None:
        return [field(given.as_, given.struct)]
    return list(given.struct["fields"])
