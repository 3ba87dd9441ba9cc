"""Detects what Spark's JSON parser silently ignores: nothing in a record may be lost unnoticed.

Spark's parser stops behind the first object, reads broken UTF-8 as U+FFFD, a number beyond a DOUBLE as infinity, and
any number as a time. Each of these makes a record a bad one here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sluice.rows.converters import ConverterContext
from sluice.rows.converters.text import first_of, is_utf8

SEAL: Final = StructField("_sluice_end", BooleanType())
"""A field that `sealed` adds at the end of an object: if it is missing, the parser has stopped before it."""
CORRUPT: Final = StructField("_sluice_corrupt", StringType())
OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT.name,
    "allowNonNumericNumbers": "false",  # NaN and Infinity are no JSON
}
_SHORT: Final = 64  # bytes up to which an empty object is looked for
# An escaped half of a surrogate pair without the other: Java would write it as a question mark.
_HALF: Final = (
    r"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)(?:\\\\)*\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_HALF_WORDS: Final = "has an escaped half of a surrogate pair, which is no character"


def ends_at_only_brace(data: Column) -> Column:
    """Whether BINARY data's only closing brace is at its end: then nothing can follow the object."""
    return first_of(data, "}") == F.length(data) - 1


def sealed(data: Column, once: Column | None = None) -> Column:
    """The text of a JSON object with `SEAL` added as its last field; other texts unchanged.

    Args:
        data: BINARY.
        once: the result of `ends_at_only_brace`; if given, texts for which it is true get no seal, as they need none.
    """
    seal = f'"{SEAL.name}":true}}'.encode()
    is_long = data.cast("string").endswith("}") & (F.length(data) > _SHORT)
    every = F.when(is_long, _all_but_last(data, b"," + seal)).otherwise(_sealed_short(data, seal)).cast("string")
    return every if once is None else F.when(once, data.cast("string")).otherwise(every)


def _sealed_short(data: Column, seal: bytes) -> Column:
    """The same for a short text, which may be an object without fields, or one with white space at its ends."""
    body = F.regexp_replace(data.cast("string"), r"^[ \t\n\r]+|[ \t\n\r]+$", "")
    is_empty = (F.length(body) <= _SHORT) & body.rlike(r"^\{\s*\}$")
    raw = body.cast("binary")
    closed = F.when(is_empty, _all_but_last(raw, seal)).otherwise(_all_but_last(raw, b"," + seal))
    return F.when(body.endswith("}"), closed).otherwise(raw)


def _all_but_last(data: Column, end: bytes) -> Column:
    return F.concat(data.substr(F.lit(1), F.length(data) - 1), F.lit(end))


def problem_of(data: Column, once: Column, parsed: Column, given: ConverterContext) -> Column:
    """Why the record's text isn't a JSON object that fits its type; null if it is.

    Args:
        data: BINARY.
        once: what `ends_at_only_brace` says of it.
        parsed: what Spark made of `sealed(data, once)`, with the fields `SEAL` and `CORRUPT`.
        given: whose name and options count.
    """
    utf8 = is_utf8(data)
    corrupt, whole = parsed.getField(CORRUPT.name), once | parsed.getField(SEAL.name).isNotNull()
    fine = utf8 & parsed.isNotNull() & corrupt.isNull() & whole
    trimmed = _trimmed(data).cast("string")
    what = f"the {given.name}"
    words = (
        F.when(F.length(data) == 0, f"{what} is empty")
        .when(~utf8, f"{what} is not UTF-8")
        .when(~(trimmed.startswith("{") & trimmed.endswith("}")), f"{what} is not one JSON object")
        .when(parsed.isNotNull() & corrupt.isNull() & ~whole, f"{what} has more after its JSON object")
        .otherwise(f"{what} is not JSON, or a field is not of its column's type")
    )
    return F.when(~fine, words).when(_has_half(data), f"{what} {_HALF_WORDS}")


def lost_text(data: Column, given: ConverterContext) -> Column:
    """Why a text would be read as a different one; null if it wouldn't."""
    what = f"the {given.name}"
    return F.when(~is_utf8(data), f"{what} is not UTF-8").when(_has_half(data), f"{what} {_HALF_WORDS}")


def _has_half(data: Column) -> Column:
    text = data.cast("string")
    return (first_of(data, "\\") >= 0) & (text.contains("\\ud") | text.contains("\\uD")) & text.rlike(_HALF)


def unsound(value: Column, kind: DataType, given: ConverterContext) -> Column:
    """Why a parsed value is not what the record says; null if it is."""
    numbers = given.options.get("allowNonNumericNumbers", "false") == "true"
    checks = [] if numbers else [("a number is beyond the range of its column's type", _infinite)]
    checks += [
        ("a date or time is not between the years 1 and 9999; numbers are read as seconds", _out_of_time),
        ("a map has a key twice", _doubled),
    ]
    problem = F.lit(None).cast("string")
    for words, check in checks:
        found = _anywhere(value, kind, check)
        if found is not None:
            problem = F.coalesce(problem, F.when(found, words))
    return problem


Check = Callable[[Column, DataType], Column | None]


def _anywhere(value: Column, kind: DataType, check: Check) -> Column | None:
    """Whether the check finds something in the value or inside it; None if it doesn't apply to its type."""
    found = [check(value, kind)]
    if isinstance(kind, StructType):
        found += [_anywhere(value.getField(f.name), f.dataType, check) for f in kind.fields]
    elif isinstance(kind, ArrayType):
        found.append(_in_elements(value, kind.elementType, check))
    elif isinstance(kind, MapType):
        found.append(_in_elements(F.map_values(value), kind.valueType, check))
    there = [F.coalesce(column, F.lit(False)) for column in found if column is not None]
    return reduce(lambda one, other: one | other, there) if there else None


def _in_elements(value: Column, kind: DataType, check: Check) -> Column | None:
    if _anywhere(F.lit(None).cast(kind), kind, check) is None:
        return None
    return F.exists(value, lambda element: _never_none(_anywhere(element, kind, check)))


def _never_none(column: Column | None) -> Column:
    assert column is not None
    return column


def _infinite(value: Column, kind: DataType) -> Column | None:
    return F.abs(value) == float("inf") if isinstance(kind, DoubleType | FloatType) else None


def _out_of_time(value: Column, kind: DataType) -> Column | None:
    if not isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return None
    first, end = (F.lit(text).cast(kind) for text in ("0001-01-01", "+10000-01-01"))
    return (value < first) | (value >= end)


def _doubled(value: Column, kind: DataType) -> Column | None:
    if not isinstance(kind, MapType):
        return None
    keys = F.map_keys(value)
    return F.size(keys) != F.size(F.array_distinct(keys))


def _trimmed(data: Column) -> Column:
    """Without the white space of JSON at either end, as BINARY."""
    return F.regexp_replace(data.cast("string"), r"^[ \t\n\r]+|[ \t\n\r]+$", "").cast("binary")
