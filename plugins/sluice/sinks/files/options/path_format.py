"""Folders for times, by a pattern with Joda-Time's letters, like Kafka Connect's `path.format`. Pure.

`Y` and `y` are the calendar year, `x` and `w` the year and number of an ISO week. In patterns of Java's standard
library `Y` is the week-based year, which puts the last days of December into the wrong year; in Joda-Time, and here, it
isn't.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
HALF_DAY: Final = 12 * HOUR
"""Milliseconds."""
_MONDAY: Final = 3 * DAY  # 1970-01-01 was a Thursday, three days after one
_TOKEN = re.compile(r"''|'(?P<quoted>(?:[^']|'')+)'|(?P<field>([A-Za-z])\3*)|(?P<plain>[^A-Za-z']+)")
_LETTERS: Final = "YyxwMdDeEaKhHkmsS"
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FULL: Final = 4  # with at least so many letters, a name is written in full
_TEXT: Final = 3  # with at least so many letters, a month is written as a name


@dataclass(frozen=True)
class Texts:
    """A language's names of months and days, beginning with January and Monday; English by default."""

    months: tuple[str, ...] = _MONTHS
    short_months: tuple[str, ...] = tuple(name[:3] for name in _MONTHS)
    days: tuple[str, ...] = _DAYS
    short_days: tuple[str, ...] = tuple(name[:3] for name in _DAYS)
    halves: tuple[str, ...] = ("AM", "PM")


@dataclass(frozen=True)
class Granularity:
    """The length of the stretches of local time that share a folder.

    Attributes:
        milliseconds: a fixed length; 0 for months and years.
        calendar: `month` or `year`, whose lengths vary; empty for a fixed length.
        monday: whether the stretches are weeks, which begin on Monday.
    """

    milliseconds: int = 0
    calendar: str = ""
    monday: bool = False

    def begin(self, local: int) -> int:
        """The start of the stretch that contains a time, both in milliseconds of local time since 1970."""
        if self.calendar:
            year, month, _ = civil(local // DAY)
            return _days(year, month if self.calendar == "month" else 1, 1) * DAY
        shift = _MONDAY if self.monday else 0
        return local - (local + shift) % self.milliseconds


class _Field(NamedTuple):
    letter: str
    length: int
    text: str  # literal text, if the letter is empty


@dataclass(frozen=True)
class PathFormat:
    """A parsed pattern."""

    pattern: str
    fields: tuple[_Field, ...] = field(repr=False)
    granularity: Granularity

    @property
    def has_words(self) -> bool:
        """Whether folders depend on the language: names of months or days, or AM and PM."""
        return any(f.letter in ("E", "a") or (f.letter == "M" and f.length >= _TEXT) for f in self.fields)

    def folders(self, local: int, texts: Texts) -> list[str]:
        """The folders of a time, outermost first.

        Args:
            local: milliseconds of local time since 1970, as if local time were UTC.
            texts: the language's names.
        """
        return "".join(f.text or _written(f, local, texts) for f in self.fields).split("/")


def parse(pattern: str) -> PathFormat:
    """Parse a pattern.

    Raises:
        ValueError: it has an unknown letter, or would give one folder to times far apart.
    """
    fields = tuple(_fields(pattern))
    literal = "".join(f.text or "0" for f in fields)
    if any(part in ("", ".", "..") for part in literal.split("/")):
        raise ValueError(f"path_format {pattern!r} has an empty folder, or one that leads elsewhere")
    return PathFormat(pattern, fields, _granularity(pattern, {f.letter: f.length for f in fields if f.letter}))


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01, for any year (Hinnant's algorithm).

    Python's dates end with the year 9999; the times of a producer that writes microseconds as milliseconds are far
    later.
    """
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    march = (5 * of_year + 2) // 153
    month = march + 3 if march < 10 else march - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * march + 2) // 5 + 1


def iso_week(days: int) -> tuple[int, int]:
    """Year and number of the ISO week that contains a day, given as days since 1970-01-01."""
    thursday = days - (days + 3) % 7 + 3
    year, _, _ = civil(thursday)
    return year, (thursday - _days(year, 1, 1)) // 7 + 1


def _days(year: int, month: int, day: int) -> int:
    """The inverse of `civil`."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _fields(pattern: str) -> Iterator[_Field]:
    at = 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            raise ValueError(f"path_format {pattern!r} has a quote that nothing closes")
        at = found.end()
        if found["field"]:
            letter = found["field"][0]
            if letter not in _LETTERS:
                raise ValueError(
                    f"path_format {pattern!r} has the letter {letter}, which is no part of a time: these are "
                    f"{', '.join(_LETTERS)}; put other letters in quotes, such as 'year'=YYYY"
                )
            yield _Field(letter, len(found["field"]), "")
        else:
            yield _Field("", 0, (found["quoted"] or found["plain"] or "'").replace("''", "'"))


def _granularity(pattern: str, letters: dict[str, int]) -> Granularity:
    """The longest stretch of time that shares a folder.

    Times of two stretches must have two folders: in an interval, a folder gets one file per stretch of offsets.
    """

    def refuse(why: str) -> ValueError:
        return ValueError(f"path_format {pattern!r} would give one folder to times far from each other: {why}")

    if any(letters.get(year) == 2 for year in "Yyx"):
        raise refuse("a year of two digits doesn't name its century; write YYYY")
    day, unit = _date(letters, refuse)
    clock = _clock(letters, refuse)
    if clock is None:
        return unit
    if not day:
        raise refuse("it names a time of day without its day")
    return clock


def _date(letters: dict[str, int], refuse: Callable[[str], ValueError]) -> tuple[bool, Granularity]:
    """Whether a pattern's date is precise to the day, and the stretch of time that it covers."""
    if "x" in letters and "w" in letters:
        whole = "e" in letters or "E" in letters
        return whole, Granularity(DAY) if whole else Granularity(WEEK, monday=True)
    if "x" in letters or "w" in letters:
        raise refuse("x, the year of a week, and w, its number, belong together")
    if "y" not in letters and "Y" not in letters:
        raise refuse("it has no year: YYYY")
    if "D" in letters or ("M" in letters and "d" in letters):
        return True, Granularity(DAY)
    if letters.keys() & {"d", "e", "E"}:
        raise refuse("it names a day without its month: MM and dd")
    return False, Granularity(calendar="month" if "M" in letters else "year")


def _clock(letters: dict[str, int], refuse: Callable[[str], ValueError]) -> Granularity | None:
    """The stretch of time that a pattern's time of day covers; None if it has none."""
    if letters.keys() & {"K", "h"} and "a" not in letters and not letters.keys() & {"H", "k"}:
        raise refuse("an hour of 1 to 12 doesn't say AM or PM; write HH, or add a")
    hour = bool(letters.keys() & {"H", "k", "K", "h"})
    units = [("hour", hour, HOUR), ("minute", "m" in letters, MINUTE), ("second", "s" in letters, SECOND)]
    units.append(("fraction of a second", "S" in letters, max(1, 10 ** (3 - letters.get("S", 0))) if letters else 1))
    found = Granularity(HALF_DAY) if "a" in letters else None
    for i, (name, there, milliseconds) in enumerate(units):
        if there and not all(before for _, before, _ in units[:i]):
            raise refuse(f"it names a {name} without the larger units")
        if there:
            found = Granularity(int(milliseconds))
    return found


def _written(one: _Field, local: int, texts: Texts) -> str:
    """One field of a pattern, formatted for a time."""
    days, of_day = divmod(local, DAY)
    letter, length = one.letter, one.length
    year, month, day = civil(days)
    full = length >= _FULL
    if letter == "M" and length >= _TEXT:
        return (texts.months if full else texts.short_months)[month - 1]
    if letter == "E":
        return (texts.days if full else texts.short_days)[(days + 3) % 7]
    if letter == "a":
        return texts.halves[of_day >= HALF_DAY]
    if letter == "S":
        return f"{of_day % SECOND:03d}".ljust(length, "0")[:length]
    hour = of_day // HOUR
    numbers = {
        **dict.fromkeys("Yy", year),
        **dict(zip("xw", iso_week(days), strict=True)),
        "M": month,
        "d": day,
        "D": days - _days(year, 1, 1) + 1,
        "e": (days + 3) % 7 + 1,
        "H": hour,
        "k": hour or 24,
        "K": hour % 12,
        "h": hour % 12 or 12,
        "m": of_day // MINUTE % 60,
        "s": of_day // SECOND % 60,
    }
    number = numbers[letter]
    return f"{'-' if number < 0 else ''}{abs(number):0{length}d}"
