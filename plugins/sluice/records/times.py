"""The meaning of a text or number as a date or time, shared by every converter, step, source and sink. Pure.

Spark's own parser, which it uses where no format is given, takes a time of day alone for one of today, and four digits
for a year. So every text is read by the formats here, and the same bytes are the same value on any day and any machine.
The functions of this module are SQL; `sluice.rows.times` has the same ones of columns.
https://spark.apache.org/docs/3.5.7/sql-ref-datetime-pattern.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Unit = Literal["days", "seconds", "milliseconds", "microseconds", "nanoseconds"]
"""The unit of a number since 1970."""

_CLOCK: Final = "['T'][' ']H[:m[:s[.SSSSSSSSS][,SSSSSSSSS]]]"
LOCAL: Final = f"yyyy-M[-d][{_CLOCK}]"
"""A day of ISO 8601, alone or with a time of day: at least the hour, at most nine digits behind the second."""
ZONED: Final = f"yyyy-M[-d][{_CLOCK}[' '][XXX][X][VV]]"
"""The same with an offset or the name of a zone at the end, or without."""
FORMATS: Final[Mapping[str, str]] = {"timestamp": ZONED, "timestamp_ntz": LOCAL, "date": ZONED}
"""By Spark's name of the type. A day is the text's own, regardless of a zone after it."""
_STRICT: Final = "enableDateTimeParsingFallback"
_OPTIONS: Final[Mapping[str, str]] = {
    "timestampFormat": FORMATS["timestamp"],
    "timestampNTZFormat": FORMATS["timestamp_ntz"],
    "dateFormat": FORMATS["date"],
}
_INFERRED: Final[Mapping[str, str]] = {**_OPTIONS, "dateFormat": "yyyy-MM-dd"}

FIRST: Final = "0001-01-01"
END: Final = "+10000-01-01"
"""A DATE or TIMESTAMP is from `FIRST`, and before `END`."""
_FIRST_DAY, _END_DAY = -719_162, 2_932_897
_LONGEST: Final = 9_000_000_000_000_000  # beyond it Spark can't count microseconds, and fails
_OF_A_DAY: Final[Mapping[Unit, int]] = {
    "days": 1,
    "seconds": 86_400,
    "milliseconds": 86_400_000,
    "microseconds": 86_400_000_000,
}


def reading(given: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's JSON and CSV parsers, with the formats here where the user gives none.

    Args:
        given: the user's options, whose names ignore case.
    """
    return _with(_OPTIONS, given)


def inferring(given: Mapping[str, str]) -> dict[str, str]:
    """The same for the types of a sample: a value with a time of day is no DATE there."""
    return _with(_INFERRED, given)


def _with(formats: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower() for name in given} | {_STRICT.lower()}
    own = {name: value for name, value in given.items() if name.lower() != _STRICT.lower()}
    return {**{name: value for name, value in formats.items() if name.lower() not in named}, **own, _STRICT: "false"}


def is_time(kind: str) -> bool:
    """Whether it is the name of a type that `of_text` makes."""
    return kind in FORMATS


def of_text(text: str, kind: str) -> str:
    """A text as a date or time; NULL where it is none, or outside of the years 1 to 9999.

    Args:
        text: SQL of a STRING.
        kind: one of `FORMATS`.
    """
    pattern = f"decode(X'{FORMATS[kind].encode().hex()}', 'UTF-8')"
    function = "try_to_timestamp" if kind == "timestamp" else "to_timestamp_ntz"
    made = f"{function}({text}, {pattern})"
    made = f"cast({made} AS DATE)" if kind == "date" else made
    return f"CASE WHEN {made} >= cast('{FIRST}' AS {kind}) AND {made} < cast('{END}' AS {kind}) THEN {made} END"


def of_milliseconds(number: str) -> str:
    """Milliseconds since 1970 as a TIMESTAMP of any year; NULL where Spark holds no such time.

    Args:
        number: SQL of a whole number.
    """
    value = f"cast({number} AS BIGINT)"
    return f"CASE WHEN {value} BETWEEN -{_LONGEST}L AND {_LONGEST}L THEN timestamp_millis({value}) END"


def limits(unit: Unit) -> tuple[int, int]:
    """The first and the last number of a unit that is in the years 1 to 9999; any number of nanoseconds is."""
    if unit == "nanoseconds":
        return -(2**63), 2**63 - 1
    return _FIRST_DAY * _OF_A_DAY[unit], _END_DAY * _OF_A_DAY[unit] - 1
