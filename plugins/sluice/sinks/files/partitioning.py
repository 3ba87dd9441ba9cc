"""Which folder a row goes to: Kafka Connect's partitioners. Pure.

Spark splits rows by columns; `columns` says by which, and `folders` what their values come to. A field's value is
escaped by Spark as Hive does it, a time becomes the number of its stretch, which is written out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from sluice.sinks.files.path_format import DAY, Granularity, PathFormat, Texts, parse

Partitioner = Literal["default", "field", "time", "daily", "hourly"]
Extractor = Literal["wallclock", "record", "record_field"]
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's and Spark's folder of rows without a value."""
FIELD: Final = "_sluice_level_"
"""Columns by which Spark splits rows, each with its number."""
TIME: Final = "_sluice_time"
PATH_FORMATS: Final = {
    "daily": "'year'=YYYY/'month'=MM/'day'=dd",
    "hourly": "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
}
DURATIONS: Final = {"daily": 86_400_000, "hourly": 3_600_000}
_SEPARATOR: Final = "\n"  # of columns in one setting
_LONGEST_MILLIS: Final = 9_000_000_000_000_000  # beyond it Spark can't count microseconds, and fails
_UNSAFE: Final = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(c) for c in range(32)}


def escaped(name: str, keep: str = "") -> str:
    """A name as one folder: what Hive escapes is `%` and its number.

    Args:
        name: any text.
        keep: characters to leave as they are.
    """
    text = "".join(f"%{ord(c):02X}" if c in _UNSAFE and c not in keep else c for c in name)
    return text.replace(".", "%2E") if text in (".", "..") else text or NO_VALUE


@dataclass(frozen=True)
class Partitioning:
    """How one table's rows are split into folders.

    Attributes:
        partitioner: which of Connect's.
        fields: the columns of the partitioner `field`.
        path_format: the pattern of the ones by time.
        duration: how long a folder's stretch of time is, milliseconds.
        timezone: where local time is, by its IANA name.
        extractor: where a row's time is from.
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
        """Whether that time is the record's own."""
        return self.by_time and self.extractor == "record"

    @cached_property
    def format(self) -> PathFormat:
        """The pattern, understood.

        Raises:
            ValueError: it can't be.
        """
        return parse(self.path_format)

    def keys(self) -> list[str]:
        """The names of the folders' values.

        Raises:
            ValueError: a folder has none: `YYYY/MM` in place of `'year'=YYYY/'month'=MM`.
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
        """The columns by which Spark splits rows, as SQL; none where all rows of a Kafka partition have one folder.

        Args:
            types: Spark's names of the columns' types.
            record_time: the column with the record's own time.

        Raises:
            ValueError: a column has a type that makes no folder, or no time.
        """
        if self.partitioner == "field":
            return {f"{FIELD}{i}": _text(name, types[name]) for i, name in enumerate(self.fields)}
        if not self.by_time or self.extractor == "wallclock":
            return {}
        if self.extractor == "record":
            return {TIME: self._begin(f"`{record_time}`")}
        return {TIME: self._begin(_time(self.timestamp_field, types[self.timestamp_field]))}

    def folders(self, partition: int, values: Mapping[str, str], wallclock: datetime, texts: Texts) -> list[str]:
        """The folders below the topic's.

        Args:
            partition: Kafka's.
            values: of `columns`, as Spark has written them into folders' names.
            wallclock: the interval's own time.
            texts: the language of times' names.
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
        """The begin of a folder's stretch of time, given a time in it; both milliseconds of local time since 1970."""
        return self.format.granularity.begin(local - local % self.duration)

    def _of_time(self, local: int, texts: Texts) -> list[str]:
        return [escaped(folder, "=") for folder in self.format.folders(local, texts)]

    def _begin(self, time: str) -> str:
        """The same as `begin`, as SQL over a TIMESTAMP."""
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
    """A column as a folder's value; an empty text and none are the same."""
    if kind.startswith(("array", "map", "struct", "binary")):
        raise ValueError(f"partition_fields names {name}, and a value of {kind} makes no folder")
    return f"cast({_quoted(name)} AS STRING)"


def _time(name: str, kind: str) -> str:
    """A column as a TIMESTAMP, NULL where it is none."""
    column = _quoted(name)
    if kind in ("timestamp", "date", "timestamp_ntz"):
        return f"cast({column} AS TIMESTAMP)"
    if kind in ("bigint", "int"):
        millis = f"cast({column} AS BIGINT)"
        known = f"{millis} BETWEEN -{_LONGEST_MILLIS}L AND {_LONGEST_MILLIS}L"
        return f"CASE WHEN {known} THEN timestamp_millis({millis}) END"
    if kind == "string":
        return f"try_to_timestamp({column})"
    raise ValueError(f"timestamp_field names {name}, and {kind} is no time: a number is milliseconds, a text ISO 8601")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def partitioning_of(options: Mapping[str, str]) -> Partitioning:
    """The partitioning that START-COMMIT has pinned; see `as_options`."""
    known = {k: options[k] for k in ("partitioner", "path_format", "timezone", "extractor", "timestamp_field")}
    fields = tuple(filter(None, options["fields"].split(_SEPARATOR)))
    return Partitioning(**known, fields=fields, duration=int(options["duration"]))  # type: ignore[arg-type]


def as_options(made: Partitioning) -> dict[str, str]:
    """As settings that START-COMMIT pins."""
    return {
        "partitioner": made.partitioner,
        "fields": _SEPARATOR.join(made.fields),
        "path_format": made.path_format,
        "duration": str(made.duration),
        "timezone": made.timezone,
        "extractor": made.extractor,
        "timestamp_field": made.timestamp_field,
    }
