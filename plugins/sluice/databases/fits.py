"""Spark SQL that converts values for a database, and that finds values which don't fit. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sluice.records.json_text import json_sql
from sluice.records.structs import Type

INTEGERS = ("byte", "short", "integer", "long")
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_FRACTION_DIGITS = 6
_LARGEST_DECIMAL = 38  # digits, of Spark's
_LARGEST_COUNTED = 1 << 29  # characters; no value of Spark's has as many
_DIGITS_BEFORE, _DIGITS_AFTER = 131_072, 16_383  # https://www.postgresql.org/docs/current/datatype-numeric.html
_MICROSECONDS = "HH:mm:ss.SSSSSS"
_FIRST_YEAR, _LAST_YEAR = 1, 9999
_NUL = "it has a character of code 0"
_ESCAPED_NUL = r"(?<!\\)(?:\\\\)*\\u0000"  # behind an even number of backslashes


@dataclass(frozen=True)
class Fit:
    """The conversion of a value for the database.

    Attributes:
        value: Spark SQL of the converted value.
        problem: Spark SQL of the reason why a value doesn't fit, null if it does; None if all values fit.
    """

    value: str
    problem: str | None = None


def as_is(value: str) -> Fit:
    """A value as Spark's JDBC writer sends it."""
    return Fit(value)


def checked(value: str, condition: str, words: str) -> Fit:
    """An unchanged value, which doesn't fit if a condition holds."""
    return Fit(value, f"CASE WHEN {condition} THEN '{words}' END")


def _and(fit: Fit, condition: str, words: str) -> Fit:
    problem = f"CASE WHEN {condition} THEN '{words}' END"
    return Fit(fit.value, problem if fit.problem is None else f"coalesce({fit.problem}, {problem})")


def decimal_of(kind: Type) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for any other."""
    found = DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return (int(found[1]), int(found[2])) if found else None


def as_json(value: str) -> Fit:
    """A struct, array or map as JSON."""
    return Fit(json_sql(value))


def as_array(value: str, element: Fit) -> Fit:
    """An array of single values as text, in PostgreSQL's syntax: each value in quotes, NULL without.

    Args:
        value: the array.
        element: the conversion of an element, which is `x` in its Spark SQL.
    """
    escaped = f"cast({element.value} AS STRING)"
    for character in ("\\", '"'):
        escaped = f"replace({escaped}, {literal(character)}, {literal(chr(92) + character)})"
    quoted = f"coalesce(concat({literal(chr(34))}, {escaped}, {literal(chr(34))}), 'NULL')"
    text = f"concat('{{', array_join(transform({value}, x -> {quoted}), ','), '}}')"
    if element.problem is None:
        return Fit(text)
    return Fit(text, f"get(filter(transform({value}, x -> {element.problem}), p -> p IS NOT NULL), 0)")


def as_text(value: str, kind: Type, zone: str) -> Fit | None:
    """Any single value except bytes as text."""
    if kind == "binary":
        return None
    if kind == "date":
        return fits_in_years(date_text(value), value)
    if kind in ("timestamp", "timestamp_ntz"):
        return fits_in_years(as_local_time(value, kind, zone), value)
    return Fit(value if kind == "string" else f"cast({value} AS STRING)")


def date_text(value: str) -> Fit:
    """A date in ISO 8601."""
    return Fit(f"date_format({value}, 'yyyy-MM-dd')")


def instant_text(value: str) -> Fit:
    """An instant as text in UTC with microseconds and offset."""
    return Fit(f"concat({_local(_in_zone(value, 'UTC'))}, '+00')")


def as_local_time(value: str, kind: Type, zone: str) -> Fit:
    """A local time in a time zone, with microseconds; a timestamp without a zone is unchanged."""
    return Fit(_local(_in_zone(value, zone) if kind == "timestamp" else value))


def _in_zone(value: str, zone: str) -> str:
    return f"convert_timezone('UTC', '{zone}', cast({value} AS TIMESTAMP_NTZ))"  # the session's zone is UTC


def _local(value: str) -> str:
    return f"date_format({value}, 'yyyy-MM-dd {_MICROSECONDS}')"


def fits_in_years(fit: Fit, value: str) -> Fit:
    """A date or time within the years that all databases write alike."""
    outside = f"year({value}) NOT BETWEEN {_FIRST_YEAR} AND {_LAST_YEAR}"
    return _and(fit, outside, f"its year is not from {_FIRST_YEAR} to {_LAST_YEAR}")


def without_nul(fit: Fit) -> Fit:
    """A text without a character of code 0, which PostgreSQL can't store."""
    return _and(fit, f"contains({fit.value}, decode(X'00', 'UTF-8'))", _NUL)


def without_escaped_nul(fit: Fit) -> Fit:
    """A text of JSON in which no text has a character of code 0, for PostgreSQL's `jsonb`: JSON writes it escaped."""
    there = f"contains({fit.value}, {literal(chr(92) + 'u0000')})"
    return _and(fit, f"{there} AND {fit.value} RLIKE {literal(_ESCAPED_NUL)}", _NUL)


def within_length(fit: Fit, characters: int | None) -> Fit:
    """A text of limited length, in characters."""
    if characters is None:
        return fit
    return _and(fit, f"char_length({fit.value}) > {characters}", f"it is longer than {characters} characters")


def within_octets(fit: Fit, octets: int) -> Fit:
    """A text in UTF-8, or bytes, of limited length in octets."""
    return _and(fit, f"octet_length({fit.value}) > {octets}", f"it is longer than {octets} bytes")


def within_units(fit: Fit, units: int) -> Fit:
    """A text of limited length where it isn't known what a database counts: no more than UTF-16 has, as Java counts.

    A database that counts more refuses the text; one that counts less would cut blanks off at its end.
    """
    if units >= _LARGEST_COUNTED:
        return fit
    return _and(fit, f"octet_length(encode({fit.value}, 'UTF-16BE')) > {2 * units}", f"it is longer than {units} units")


def of_length(fit: Fit, characters: int) -> Fit:
    """A text that has the length of a column, which would fill a shorter one up with blanks."""
    units = f"octet_length(encode({fit.value}, 'UTF-16BE'))"
    other = f"char_length({fit.value}) <> {characters} OR {units} <> {2 * characters}"
    return _and(fit, other, f"it does not have the {characters} characters that the database would fill it up to")


def of_octets(fit: Fit, octets: int) -> Fit:
    """Bytes that have the length of a column, which would fill shorter ones up."""
    words = f"it does not have the {octets} bytes that the database would fill it up to"
    return _and(fit, f"octet_length({fit.value}) <> {octets}", words)


def not_empty(fit: Fit) -> Fit:
    """A text with characters in it, for databases that take an empty one for null."""
    return _and(fit, f"{fit.value} = ''", "it is empty, which the database takes for null")


def not_null(fit: Fit) -> Fit:
    """Bytes for a driver that takes Spark's null of them for a BLOB alone."""
    return _and(fit, f"{fit.value} IS NULL", "it is null, which the driver takes for a BLOB alone")


def in_ascii(fit: Fit) -> Fit:
    """A text of ASCII alone, for columns that may replace other characters."""
    pattern = literal(r"[^\x00-\x7F]")
    return _and(fit, f"{fit.value} RLIKE {pattern}", "it has characters that only NVARCHAR is known to keep")


def without_blanks_at_end(fit: Fit) -> Fit:
    """A text that doesn't end with a blank, for columns that pad texts with blanks and strip these when read."""
    return _and(fit, f"endswith({fit.value}, ' ')", "it ends with a blank")


def one_of(value: str, members: Iterable[str]) -> Fit:
    """One of an enumeration's texts: MariaDB would take a text of digits for a member's number."""
    return checked(value, f"{value} NOT IN ({', '.join(map(literal, members))})", "it is none of its members")


def literal(text: str) -> str:
    """A text as a Spark SQL literal, with any characters."""
    return "decode(X'" + text.encode().hex() + "', 'UTF-8')"


def finite(value: str, kind: Type) -> Fit:
    """A number that is neither NaN nor infinite."""
    if kind not in ("float", "double"):
        return Fit(value)
    infinite = f"abs({value}) = double('infinity')"
    return checked(value, f"isnan({value}) OR {infinite}", "it is NaN or infinite")


def until_2038(fit: Fit, value: str) -> Fit:
    """An instant that fits into 32 bits of seconds; 0 is not allowed."""
    outside = f"unix_micros(cast({value} AS TIMESTAMP)) NOT BETWEEN 1000000 AND 2147483647999999"
    return _and(fit, outside, "it is before 1970-01-01 00:00:01 or after 2038-01-19 03:14:07")


def within_microseconds(fit: Fit, value: str, digits: int) -> Fit:
    """A time for a column with a number of fractional digits of the second."""
    if digits >= _FRACTION_DIGITS:
        return fit
    finer = f"cast(date_format({value}, 'SSSSSS') AS INT) % {10 ** (_FRACTION_DIGITS - digits)} <> 0"
    return _and(fit, finer, f"its second has more than {digits} digits after the point")


def integer_in(value: str, kind: Type, bits: int, *, signed: bool = True) -> Fit | None:
    """A whole number for a column with a number of bits."""
    if kind not in INTEGERS:
        return None
    if not signed:
        last = (1 << bits) - 1
        return checked(value, f"cast({value} AS DECIMAL(20)) NOT BETWEEN 0 AND {last}", f"it is not from 0 to {last}")
    if _BITS[str(kind)] <= bits:
        return Fit(value)
    last = (1 << (bits - 1)) - 1
    return checked(value, f"{value} NOT BETWEEN {-last - 1} AND {last}", f"it is not from {-last - 1} to {last}")


def decimal_text(value: str, numbers: list[int], others: tuple[str, ...] = ()) -> Fit | None:
    """A text of digits for a column, which may have a precision and a scale; digits are never rounded.

    A source's decimals that don't fit into Spark's types come as such texts.

    Args:
        value: a STRING.
        numbers: precision and scale; empty if the column has none.
        others: other texts that the column can hold, such as NaN.
    """
    whole, fraction, words = f"0*[0-9]{{0,{_DIGITS_BEFORE}}}", f"[0-9]{{0,{_DIGITS_AFTER}}}", "it is no decimal number"
    if numbers:
        precision, scale = numbers[0], (numbers[1] if len(numbers) > 1 else 0)
        if not 0 <= scale <= precision:
            return None
        whole, fraction = f"0*[0-9]{{0,{precision - scale}}}", f"[0-9]{{0,{scale}}}0*"
        words = f"it is no decimal number, or more than {precision} digits with {scale} after the point hold"
    digits = rf"(?=[+-]?[.]?[0-9])[+-]?{whole}([.]{fraction})?"
    pattern = literal(rf"^({'|'.join([digits, *others])})\z")
    return checked(value, f"NOT {value} RLIKE {pattern}", words)


def within_decimal(value: str, kind: Type, numbers: list[int]) -> Fit | None:
    """A decimal or whole number for a column, which may have a precision and a scale; it is never rounded."""
    if decimal_of(kind) is None and kind not in INTEGERS:
        return None
    if not numbers:
        return Fit(value)
    precision, scale = numbers[0], (numbers[1] if len(numbers) > 1 else 0)
    words = f"it is more than {precision} digits with {scale} after the point hold"
    if precision > _LARGEST_DECIMAL:  # the database refuses too many digits before the point, and rounds those after it
        sent = decimal_of(kind)
        finer = sent is not None and sent[1] > scale
        return checked(value, f"round({value}, {scale}) <> {value}", words) if finer else Fit(value)
    held = f"try_cast({value} AS DECIMAL({precision},{scale}))"
    return checked(value, f"{value} IS NOT NULL AND NOT {held} <=> {value}", words)
