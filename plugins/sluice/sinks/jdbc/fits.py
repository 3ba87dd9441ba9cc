"""How values of Spark's types are sent to a database, and which of them don't fit: as Spark SQL. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sluice.records.structs import Type

INTEGERS = ("byte", "short", "integer", "long")
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_FRACTION_DIGITS = 6
_MICROSECONDS = "HH:mm:ss.SSSSSS"
_FIRST_YEAR, _LAST_YEAR = 1, 9999


@dataclass(frozen=True)
class Fit:
    """How a value is sent.

    Attributes:
        value: Spark SQL of what is sent.
        problem: Spark SQL of what is wrong with a value, in words, null where nothing is; None if all values fit.
    """

    value: str
    problem: str | None = None


def as_is(value: str) -> Fit:
    """As Spark's own JDBC writer sends it."""
    return Fit(value)


def checked(value: str, condition: str, words: str) -> Fit:
    """As it is, unless a condition holds."""
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
    return Fit(f"to_json({value})")


def as_text(value: str, kind: Type, zone: str) -> Fit | None:
    """Any single value but bytes as text."""
    if kind == "binary":
        return None
    if kind == "date":
        return fits_in_years(date_text(value), value)
    if kind in ("timestamp", "timestamp_ntz"):
        return fits_in_years(as_local_time(value, kind, zone), value)
    return Fit(value if kind == "string" else f"cast({value} AS STRING)")


def date_text(value: str) -> Fit:
    """A date as ISO 8601 has it."""
    return Fit(f"date_format({value}, 'yyyy-MM-dd')")


def instant_text(value: str) -> Fit:
    """A moment as text in UTC with microseconds, and with its offset."""
    return Fit(f"concat({_local(_in_zone(value, 'UTC'))}, '+00')")


def as_local_time(value: str, kind: Type, zone: str) -> Fit:
    """A time as the clocks of a zone show it, with microseconds; one that has no zone stays as it is."""
    return Fit(_local(_in_zone(value, zone) if kind == "timestamp" else value))


def _in_zone(value: str, zone: str) -> str:
    return f"convert_timezone('UTC', '{zone}', cast({value} AS TIMESTAMP_NTZ))"  # the session's zone is UTC


def _local(value: str) -> str:
    return f"date_format({value}, 'yyyy-MM-dd {_MICROSECONDS}')"


def fits_in_years(fit: Fit, value: str) -> Fit:
    """Years that all databases write alike."""
    outside = f"year({value}) NOT BETWEEN {_FIRST_YEAR} AND {_LAST_YEAR}"
    return _and(fit, outside, f"its year is not from {_FIRST_YEAR} to {_LAST_YEAR}")


def without_nul(fit: Fit) -> Fit:
    """PostgreSQL keeps no character of code 0 in a text, nor does its JSON."""
    return _and(fit, f"contains({fit.value}, decode(X'00', 'UTF-8'))", "it has a character of code 0")


def within_length(fit: Fit, characters: int | None) -> Fit:
    """A text of so many characters at most."""
    if characters is None:
        return fit
    return _and(fit, f"char_length({fit.value}) > {characters}", f"it is longer than {characters} characters")


def within_octets(fit: Fit, octets: int) -> Fit:
    """A text, in UTF-8, or bytes of so many octets at most."""
    return _and(fit, f"octet_length({fit.value}) > {octets}", f"it is longer than {octets} bytes")


def without_blanks_at_end(fit: Fit) -> Fit:
    """A column that fills texts up with blanks, and shows none of those at the end."""
    return _and(fit, f"endswith({fit.value}, ' ')", "it ends with a blank")


def one_of(value: str, members: Iterable[str]) -> Fit:
    """One of an enumeration's texts: MariaDB takes another one for a member's number, if it is one."""
    return checked(value, f"{value} NOT IN ({', '.join(map(literal, members))})", "it is none of its members")


def literal(text: str) -> str:
    """A text as Spark SQL, whatever is in it."""
    return "decode(X'" + text.encode().hex() + "', 'UTF-8')"


def finite(value: str, kind: Type) -> Fit:
    """A number that isn't NaN and not infinite."""
    if kind not in ("float", "double"):
        return Fit(value)
    infinite = f"abs({value}) = double('infinity')"
    return checked(value, f"isnan({value}) OR {infinite}", "it is NaN or infinite")


def until_2038(fit: Fit, value: str) -> Fit:
    """A moment in 32 bits of seconds; 0 is none."""
    outside = f"unix_micros(cast({value} AS TIMESTAMP)) NOT BETWEEN 1000000 AND 2147483647999999"
    return _and(fit, outside, "it is before 1970-01-01 00:00:01 or after 2038-01-19 03:14:07")


def within_microseconds(fit: Fit, value: str, digits: int) -> Fit:
    """A time in a column that has so many digits of the second's fraction."""
    if digits >= _FRACTION_DIGITS:
        return fit
    finer = f"cast(date_format({value}, 'SSSSSS') AS INT) % {10 ** (_FRACTION_DIGITS - digits)} <> 0"
    return _and(fit, finer, f"its second has more than {digits} digits after the point")


def integer_in(value: str, kind: Type, bits: int, *, signed: bool = True) -> Fit | None:
    """A whole number in a column of so many bits."""
    if kind not in INTEGERS:
        return None
    if not signed:
        last = (1 << bits) - 1
        return checked(value, f"cast({value} AS DECIMAL(20)) NOT BETWEEN 0 AND {last}", f"it is not from 0 to {last}")
    if _BITS[str(kind)] <= bits:
        return Fit(value)
    last = (1 << (bits - 1)) - 1
    return checked(value, f"{value} NOT BETWEEN {-last - 1} AND {last}", f"it is not from {-last - 1} to {last}")


def within_decimal(value: str, kind: Type, numbers: list[int]) -> Fit | None:
    """A decimal or whole number in a column of a precision and a scale, if it has these; it is never rounded."""
    if decimal_of(kind) is None and kind not in INTEGERS:
        return None
    if not numbers:
        return Fit(value)
    precision, scale = numbers[0], (numbers[1] if len(numbers) > 1 else 0)
    if precision > 38:  # Spark's largest, so anything fits
        return Fit(value)
    held = f"try_cast({value} AS DECIMAL({precision},{scale}))"
    words = f"it is more than {precision} digits with {scale} after the point hold"
    return checked(value, f"{value} IS NOT NULL AND NOT {held} <=> {value}", words)
