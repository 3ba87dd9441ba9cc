"""Brings a value to another type that holds it: by field names, with wider numbers and missing fields filled in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sluice.records.structs import Type, same


def type_of(kind: Type) -> DataType:
    """Spark's type of its JSON."""
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        return StructType.fromJson(dict(kind))
    wrapped = {"type": "struct", "fields": [{"name": "value", "type": kind, "nullable": True, "metadata": {}}]}
    return StructType.fromJson(wrapped).fields[0].dataType


def conform(value: Column, has: DataType, wanted: DataType, defaults: Mapping[str, Any] | None = None) -> Column:
    """The value as the wanted type.

    A struct's fields go by name, whatever their order and case; one that isn't there is its default, or null; one that
    isn't wanted goes. `records.structs.merge` says which types hold which: any other is Spark's cast, and null where
    that fails.

    Args:
        value: the column.
        has: its type.
        wanted: the type to bring it to.
        defaults: values of fields of the struct that it may not have, as JSON has them.
    """
    if same(json.loads(has.json()), json.loads(wanted.json())):
        return value
    if isinstance(has, StructType) and isinstance(wanted, StructType):
        return _struct(value, has, wanted, defaults or {})
    if isinstance(has, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(value, lambda element: conform(element, has.elementType, wanted.elementType))
    if isinstance(has, MapType) and isinstance(wanted, MapType):
        keyed = F.transform_keys(value, lambda key, _: conform(key, has.keyType, wanted.keyType))
        return F.transform_values(keyed, lambda _, element: conform(element, has.valueType, wanted.valueType))
    return value.cast(wanted)


def _struct(value: Column, has: StructType, wanted: StructType, defaults: Mapping[str, Any]) -> Column:
    theirs: dict[str, StructField] = {f.name.lower(): f for f in has.fields}
    fields = []
    for field in wanted.fields:
        found = theirs.get(field.name.lower())
        if found is None:
            fields.append(_default(field, defaults).alias(field.name))
        else:
            inner = defaults.get(field.name)
            inner = inner if isinstance(inner, Mapping) else None
            made = conform(value.getField(found.name), found.dataType, field.dataType, inner)
            fields.append(made.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def _default(field: StructField, defaults: Mapping[str, Any]) -> Column:
    value = defaults.get(field.name)
    if value is None:
        return F.lit(None).cast(field.dataType)
    wrapped = StructType([StructField("value", field.dataType)])
    return F.from_json(F.lit(json.dumps({"value": value})), wrapped).getField("value")
