"""`sluice.records.times` over columns: texts and numbers as dates and times, and whether one is in range."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from sluice.records.times import END, FIRST, FORMATS, Unit, limits

OUTSIDE: Final = "a date or time is not between the years 1 and 9999; a number in JSON is read as seconds"
Check = Callable[[Column, DataType], Column | None]


def of_text(text: Column, kind: DataType) -> Column:
    """A text as a DATE, TIMESTAMP or TIMESTAMP_NTZ; null where it is none, or outside of the years 1 to 9999."""
    name = kind.typeName()
    pattern = F.lit(FORMATS[name])
    made = F.try_to_timestamp(text, pattern) if name == "timestamp" else F.to_timestamp_ntz(text, pattern)
    made = made.cast("date") if name == "date" else made
    return F.when(~_outside(made, kind), made)


def of_number(number: Column, unit: Unit) -> Column:
    """A whole number of a unit since 1970 as a DATE, of days, or as a TIMESTAMP of any other unit.

    One outside of the years 1 to 9999 is brought to the nearest day or moment outside of them: no arithmetic of Spark's
    fails there, and `outside` finds it.
    """
    first, last = limits(unit)
    value = number.cast("long")
    if unit == "nanoseconds":  # rounded down, as a time before 1970 has to be
        down = F.when(value % 1000 < 0, 1).otherwise(0)
        return F.timestamp_micros(F.call_function("div", value, F.lit(1000)) - down)
    held = (
        F.when(value > last, F.lit(last + 1)).when(value < first, F.lit(first - 1)).otherwise(value)
    )  # null stays null
    if unit == "days":
        return F.date_add(F.lit("1970-01-01").cast("date"), held.cast("int"))
    make = {"seconds": F.timestamp_seconds, "milliseconds": F.timestamp_millis, "microseconds": F.timestamp_micros}
    return make[unit](held)


def outside(value: Column, kind: DataType) -> Column | None:
    """Why tables can't hold a value, as STRING: a time in it is outside of the years 1 to 9999.

    Returns:
        Null where all are inside; None if there is no date or time in its type.
    """
    found = anywhere(value, kind, _is_outside)
    return None if found is None else F.when(found, OUTSIDE)


def anywhere(value: Column, kind: DataType, check: Check) -> Column | None:
    """Whether a check finds something in the value or inside it; None if it doesn't apply to its type."""
    found = [check(value, kind)]
    if isinstance(kind, StructType):
        found += [anywhere(value.getField(f.name), f.dataType, check) for f in kind.fields]
    elif isinstance(kind, ArrayType):
        found.append(_in_elements(value, kind.elementType, check))
    elif isinstance(kind, MapType):
        found.append(_in_elements(F.map_values(value), kind.valueType, check))
    there = [F.coalesce(column, F.lit(False)) for column in found if column is not None]
    return reduce(lambda one, other: one | other, there) if there else None


def _in_elements(value: Column, kind: DataType, check: Check) -> Column | None:
    if anywhere(F.lit(None).cast(kind), kind, check) is None:
        return None
    return F.exists(value, lambda element: _never_none(anywhere(element, kind, check)))


def _never_none(column: Column | None) -> Column:
    assert column is not None
    return column


def _is_outside(value: Column, kind: DataType) -> Column | None:
    return _outside(value, kind) if isinstance(kind, DateType | TimestampType | TimestampNTZType) else None


def _outside(value: Column, kind: DataType) -> Column:
    first, end = (F.lit(text).cast(kind) for text in (FIRST, END))
    return (value < first) | (value >= end)
