"""Detects data that Spark's JSON parser silently ignores: nothing in a record may be lost unnoticed.

Spark's parser stops behind the first object, reads broken UTF-8 as U+FFFD, a number beyond a DOUBLE as infinity, and
any number as a time. Each of these makes a record a bad one here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from sluice.records.times import reading
from sluice.rows.converters import ConverterContext
from sluice.rows.converters.text import first_of, is_utf8
from sluice.rows.times import anywhere

SEAL: Final = StructField("_sluice_end", BooleanType())
"""A field that `sealed` adds at the end of an object: if it is missing, the parser has stopped before it."""
CORRUPT: Final = StructField("_sluice_corrupt", StringType())
_OPTIONS: Final = {
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


def options(given: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's JSON parser, the user's among them."""
    return {**_OPTIONS, **reading(given)}


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
        once: the result of `ends_at_only_brace` for it.
        parsed: Spark's result for `sealed(data, once)`, with the fields `SEAL` and `CORRUPT`.
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


def strange(text: Column, value: Column, names: Sequence[str], given: ConverterContext) -> Column:
    """Why an object isn't a row: it has fields, and none that is known; null for all others.

    Args:
        text: the object, as STRING.
        value: what was made of it, a struct.
        names: the fields that are known, as objects have them.
        given: whose name counts.
    """
    if not names:  # the table's columns come from elsewhere, so that none of the object's fields is wanted
        return F.lit(None).cast("string")
    nothing = reduce(lambda one, other: one & other, (value.getField(f.name).isNull() for f in _fields(given)))
    keys = F.json_object_keys(text)  # only of a record of nothing but nulls: the object is read once more for it
    unknown = (F.size(keys) > 0) & ~F.arrays_overlap(keys, F.array(*map(F.lit, names)))
    found = F.array_join(F.slice(keys, 1, 5), ", ")
    words = F.concat(F.lit(f"the {given.name} has none of the fields {', '.join(names[:5])}, but "), found)
    return F.when(nothing & unknown, F.concat(words, F.lit("; names of fields are the same in each letter")))


def _fields(given: ConverterContext) -> Sequence[StructField]:
    assert isinstance(given.type, StructType)
    return given.type.fields


def lost_text(data: Column, given: ConverterContext) -> Column:
    """Why a text would be read as a different one; null if it wouldn't."""
    what = f"the {given.name}"
    return F.when(~is_utf8(data), f"{what} is not UTF-8").when(_has_half(data), f"{what} {_HALF_WORDS}")


def _has_half(data: Column) -> Column:
    text = data.cast("string")
    return (first_of(data, "\\") >= 0) & (text.contains("\\ud") | text.contains("\\uD")) & text.rlike(_HALF)


def unsound(value: Column, kind: DataType, given: ConverterContext) -> Column:
    """Why a parsed value differs from the record; null if it doesn't."""
    numbers = given.options.get("allowNonNumericNumbers", "false") == "true"
    checks = [] if numbers else [("a number is beyond the range of its column's type", _infinite)]
    checks.append(("a map has a key twice", _doubled))
    problem = F.lit(None).cast("string")
    for words, check in checks:
        found = anywhere(value, kind, check)
        if found is not None:
            problem = F.coalesce(problem, F.when(found, words))
    return problem


def _infinite(value: Column, kind: DataType) -> Column | None:
    return F.abs(value) == float("inf") if isinstance(kind, DoubleType | FloatType) else None


def _doubled(value: Column, kind: DataType) -> Column | None:
    if not isinstance(kind, MapType):
        return None
    keys = F.map_keys(value)
    return F.size(keys) != F.size(F.array_distinct(keys))


def _trimmed(data: Column) -> Column:
    """Without the white space of JSON at either end, as BINARY."""
    return F.regexp_replace(data.cast("string"), r"^[ \t\n\r]+|[ \t\n\r]+$", "").cast("binary")
