"""Determines a row's folder, like Kafka Connect's partitioners. Pure.

Spark splits rows by columns: `columns` returns these, and `folders` turns their values into folders. Spark escapes a
field's value as Hive does; for a time it writes the start of its stretch as a number, which is formatted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from sluice.identifiers import quoted
from sluice.records.times import of_milliseconds, of_text
from sluice.records.transforms import text as literal
from sluice.sinks.files.options.path_format import DAY, Granularity, PathFormat, Texts, parse

Partitioner = Literal["default", "field", "time", "daily", "hourly"]
Extractor = Literal["wallclock", "record", "record_field"]
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder in which Hive and Spark put rows without a value."""
FIELD: Final = "_sluice_level_"
"""The prefix of the columns by which Spark splits rows; a number follows."""
TIME: Final = "_sluice_time"
PATH_FORMATS: Final = {
    "daily": "'year'=YYYY/'month'=MM/'day'=dd",
    "hourly": "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
}
DURATIONS: Final = {"daily": 86_400_000, "hourly": 3_600_000}
_NUMBER: Final = "too large a number of milliseconds since 1970"
_PARSED: Final = {"string": "no time of ISO 8601 in the years 1 to 9999", "bigint": _NUMBER, "int": _NUMBER}
_UNSAFE: Final = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(c) for c in range(32)}


def escaped(name: str, keep: str = "") -> str:
    """A name as one folder, with the characters that Hive escapes as `%` and their hexadecimal codes.

    Args:
        name: any text.
        keep: characters that are not escaped.
    """
    text = "".join(f"%{ord(c):02X}" if c in _UNSAFE and c not in keep else c for c in name)
    return text.replace(".", "%2E") if text in (".", "..") else text or NO_VALUE


@dataclass(frozen=True)
class Partitioning:
    """How one table's rows are split into folders.

    Attributes:
        partitioner: the name of one of Connect's partitioners.
        fields: the columns of the partitioner `field`.
        path_format: the pattern of the partitioners by time.
        duration: the length of a folder's stretch of time, in milliseconds.
        timezone: the IANA name of the folders' time zone.
        extractor: the source of a row's time.
        timestamp_field: the column of the extractor `record_field`.
    """

    partitioner: Partitioner = "default"
    fields: tuple[str, ...] = ()
    path_format: str = ""
    duration: int = 0
    timezone: str = "UTC"
    extractor: Extractor = "wallclock"
    timestamp_field: str = ""

    @property
    def by_time(self) -> bool:
        """Whether a row's folder depends on a time."""
        return self.partitioner in ("time", "daily", "hourly")

    @property
    def reads_record_time(self) -> bool:
        """Whether that time is the Kafka record's timestamp."""
        return self.by_time and self.extractor == "record"

    @cached_property
    def format(self) -> PathFormat:
        """The parsed pattern.

        Raises:
            ValueError: the pattern is invalid.
        """
        return parse(self.path_format)

    def keys(self) -> list[str]:
        """The names of the folders' values.

        Raises:
            ValueError: a folder has no name, as in `YYYY/MM` instead of `'year'=YYYY/'month'=MM`.
        """
        if self.partitioner == "field":
            return list(self.fields)
        if not self.by_time:
            return ["partition"]
        parts = [part.partition("=") for part in self.path_format.split("/")]
        if not all(name.strip("'") and equals for name, equals, _ in parts):
            raise ValueError("path_format needs a name in each folder, such as 'year'=YYYY")
        return [name.strip("'") for name, _, _ in parts]

    def columns(self, types: Mapping[str, str], record_time: str) -> dict[str, str]:
        """The columns by which Spark splits rows, as SQL; empty if all rows of a Kafka partition share a folder.

        Args:
            types: Spark's names of the columns' types.
            record_time: the column with the Kafka record's timestamp.

        Raises:
            ValueError: a column has a type from which no folder, or no time, can be derived.
        """
        if self.partitioner == "field":
            return {f"{FIELD}{i}": _text(name, types[name]) for i, name in enumerate(self.fields)}
        if not self.by_time or self.extractor == "wallclock":
            return {}
        if self.extractor == "record":
            return {TIME: self._begin(quoted(record_time))}
        return {TIME: self._begin(_time(self.timestamp_field, types[self.timestamp_field]))}

    def misplaced(self, types: Mapping[str, str]) -> str | None:
        """SQL for the reason why a row has no folder: its field is neither null nor a time.

        Args:
            types: Spark's names of the columns' types.

        Returns:
            None if every row has a folder.
        """
        kind = types.get(self.timestamp_field, "")
        if not (self.by_time and self.extractor == "record_field") or kind not in _PARSED:
            return None
        name, time = quoted(self.timestamp_field), _time(self.timestamp_field, kind)
        words = literal(f"the field {self.timestamp_field}, by which the folder goes, is {_PARSED[kind]}")
        return f"CASE WHEN {name} IS NOT NULL AND {time} IS NULL THEN {words} END"

    def folders(self, partition: int, values: Mapping[str, str], wallclock: datetime, texts: Texts) -> list[str]:
        """The folders below the topic's.

        Args:
            partition: the Kafka partition.
            values: the values of `columns`, as Spark wrote them into the names of folders.
            wallclock: the interval's time.
            texts: the names of months and days.
        """
        if self.partitioner == "field":
            return [f"{escaped(name)}={values[f'{FIELD}{i}']}" for i, name in enumerate(self.fields)]
        if not self.by_time:
            return [f"partition={partition}"]
        if self.extractor == "wallclock":
            local = wallclock.astimezone(ZoneInfo(self.timezone)).replace(tzinfo=None) - datetime(1970, 1, 1)
            milliseconds = (local.days * DAY) + local.seconds * 1000 + local.microseconds // 1000
            return self._of_time(self.begin(milliseconds), texts)
        value = unquote(values[TIME])
        return [NO_VALUE] if value == NO_VALUE else self._of_time(int(value), texts)

    def begin(self, local: int) -> int:
        """The start of the folder's stretch that contains a time, both in milliseconds of local time since 1970."""
        return self.format.granularity.begin(local - local % self.duration)

    def _of_time(self, local: int, texts: Texts) -> list[str]:
        return [escaped(folder, "=") for folder in self.format.folders(local, texts)]

    def _begin(self, time: str) -> str:
        """As `begin`, as SQL over a TIMESTAMP."""
        local = time if self.timezone == "UTC" else f"from_utc_timestamp({time}, '{self.timezone}')"
        millis = f"unix_millis({local})"
        return _begin_of(self.format.granularity, f"({millis} - pmod({millis}, {self.duration}L))")


def _begin_of(granularity: Granularity, local: str) -> str:
    if not granularity.calendar:
        shifted = f"{local} + {3 * DAY}L" if granularity.monday else local
        return f"({local} - pmod({shifted}, {granularity.milliseconds}L))"
    date = f"date_from_unix_date(cast(({local} - pmod({local}, {DAY}L)) div {DAY}L AS INT))"
    return f"(unix_date(trunc({date}, '{granularity.calendar}')) * {DAY}L)"


def _text(name: str, kind: str) -> str:
    """A column as a folder's value; an empty text and null get the same folder."""
    if kind.startswith(("array", "map", "struct", "binary")):
        raise ValueError(f"partition_fields names {name}, but a value of {kind} can't be a folder")
    return f"cast({quoted(name)} AS STRING)"


def _time(name: str, kind: str) -> str:
    """A column as a TIMESTAMP; NULL for a value that is no time."""
    column = quoted(name)
    if kind in ("timestamp", "date", "timestamp_ntz"):
        return f"cast({column} AS TIMESTAMP)"
    if kind in ("bigint", "int"):
        return of_milliseconds(column)
    if kind == "string":
        return of_text(column, "timestamp")
    raise ValueError(
        f"timestamp_field names {name}, but {kind} is no time: use a number of milliseconds, or ISO 8601 text"
    )
