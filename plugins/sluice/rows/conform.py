"""Converts a value to a wider type: by field names, with wider numbers and missing fields filled in."""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sluice.records.structs import Type, as_struct, is_struct, same


def type_of(kind: Type) -> DataType:
    """Spark's type from its JSON."""
    found = StructType.fromJson(as_struct(kind))
    return found if is_struct(kind) else found.fields[0].dataType


def same_type(one: DataType, other: DataType) -> bool:
    """Whether values of one type are valid values of the other unchanged."""
    return same(json.loads(one.json()), json.loads(other.json()))


Path = tuple[str, ...]
"""The path of a field: names from the outside in, `[]` for an array's elements, `{}` for a map's values."""
Missing = Callable[[Path], tuple[Column, DataType] | None]
"""The value of a field that is missing, and its type; None for null."""


def conform(
    value: Column, has: DataType, wanted: DataType, missing: Missing = lambda _: None, path: Path = ()
) -> Column:
    """The value as the wanted type.

    A struct's fields are matched by name, whatever their order and case; a missing one gets its value from `missing`,
    or null; an unwanted one is dropped. `records.structs.merge` defines which types hold which: any other conversion
    is Spark's cast, and null if that fails.

    Args:
        value: the column.
        has: its type.
        wanted: the type to bring it to.
        missing: values for fields that it may lack.
        path: the value's path, for `missing`.
    """
    if same_type(has, wanted):
        return value
    if isinstance(has, StructType) and isinstance(wanted, StructType):
        return _struct(value, has, wanted, missing, path)
    if isinstance(has, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(value, lambda e: conform(e, has.elementType, wanted.elementType, missing, (*path, "[]")))
    if isinstance(has, MapType) and isinstance(wanted, MapType):
        keyed = F.transform_keys(value, lambda key, _: conform(key, has.keyType, wanted.keyType))
        inside = (*path, "{}")
        return F.transform_values(keyed, lambda _, e: conform(e, has.valueType, wanted.valueType, missing, inside))
    return value.cast(wanted)


def _struct(value: Column, has: StructType, wanted: StructType, missing: Missing, path: Path) -> Column:
    theirs: dict[str, StructField] = {f.name.lower(): f for f in has.fields}
    fields = []
    for field in wanted.fields:
        found = theirs.get(field.name.lower())
        inside = (*path, field.name)
        if found is not None:
            made = conform(value.getField(found.name), found.dataType, field.dataType, missing, inside)
        else:
            made = absent(field.dataType, missing, inside)
        fields.append(made.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def absent(wanted: DataType, missing: Missing, path: Path) -> Column:
    """The value of a missing field: from `missing`, as the wanted type, or null."""
    given = missing(path)
    if given is None:
        return F.lit(None).cast(wanted)
    value, has = given
    return conform(value, has, wanted, missing, path)
