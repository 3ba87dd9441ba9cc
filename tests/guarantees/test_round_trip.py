"""Rows of every type come out of the table as they went into the topic, whatever they hold."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sluice.errors import ActionRequiredError

from ..thorough import also

DDL = (
    "id BIGINT NOT NULL, `select` BOOLEAN, `from` TINYINT, Mixed SMALLINT, `größe` INT, `order` BIGINT, f FLOAT, "
    "d DOUBLE, exact DECIMAL(38,10), money DECIMAL(9,2), text STRING, bytes BINARY, day DATE, at TIMESTAMP, "
    "local_at TIMESTAMP_NTZ, list ARRAY<DECIMAL(20,5)>, map MAP<STRING, ARRAY<TIMESTAMP>>, "
    "deep STRUCT<`table`: STRING, `Group`: ARRAY<STRUCT<x: DATE, y: MAP<STRING, DOUBLE>>>>, p STRING"
)


def maybe(strategy: Any) -> Any:
    return st.none() | strategy


def whole(bits: int) -> Any:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> Any:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}E-{scale}"))


singles = st.floats(width=32, allow_nan=False, allow_infinity=False)
doubles = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
days = st.dates(date(1, 1, 1), date(9999, 12, 31))
zones = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=zones)  # in UTC these are years 1 to 9999
ROW = st.fixed_dictionaries(
    {},
    optional={
        "select": maybe(st.booleans()),
        "from": maybe(whole(8)),
        "Mixed": maybe(whole(16)),
        "größe": maybe(whole(32)),
        "order": maybe(whole(64)),
        "f": maybe(singles),
        "d": maybe(doubles),
        "exact": maybe(decimals(38, 10)),
        "money": maybe(decimals(9, 2)),
        "text": maybe(texts),
        "bytes": maybe(st.binary(max_size=20)),
        "day": maybe(days),
        "at": maybe(instants),
        "local_at": maybe(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))),
        "list": maybe(st.lists(maybe(decimals(20, 5)), max_size=3)),
        "map": maybe(st.dictionaries(texts, maybe(st.lists(maybe(instants), max_size=2)), max_size=3)),
        "deep": maybe(
            st.fixed_dictionaries(
                {},
                optional={
                    "table": maybe(texts),
                    "Group": maybe(
                        st.lists(
                            maybe(
                                st.fixed_dictionaries(
                                    {"x": maybe(days), "y": maybe(st.dictionaries(texts, maybe(doubles), max_size=2))}
                                )
                            ),
                            max_size=3,
                        )
                    ),
                },
            )
        ),
    },
)
UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
NAMES = [
    "select", "from", "Mixed", "größe", "order", "f", "d", "exact", "money", "text", "bytes", "day", "at", "local_at",
    "list", "map", "deep",
]  # fmt: skip


def as_json(value: Any) -> str:
    """JSON with numbers as they are: Python's own would write a Decimal as a float, or not at all."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {as_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_json, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, datetime | date):
        return json.dumps(value.isoformat())
    return json.dumps(value)


def comparable(value: Any) -> Any:
    """A value as it is compared: instants in UTC, numbers by their bits, so that nothing is nearly the same."""
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [comparable(v) for v in value]
    if isinstance(value, float):
        return struct.pack(">d", value) if not math.isnan(value) else "nan"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def expected(row: dict[str, Any]) -> dict[str, Any]:
    full = {name: row.get(name) for name in NAMES}
    if full["deep"] is not None:
        full["deep"] = {"table": full["deep"].get("table"), "Group": full["deep"].get("Group")}
    return {name: comparable(value) for name, value in full.items()}


def local(value: Any) -> Any:
    """Spark hands an instant to Python in the driver's own time zone, without saying so."""
    if isinstance(value, dict):
        return {k: local(v) for k, v in value.items()}
    if isinstance(value, list):
        return [local(v) for v in value]
    return value.astimezone(UTC) if isinstance(value, datetime) else value


EXTREMES = [
    {"from": -128, "Mixed": -32768, "größe": -(2**31), "order": -(2**63), "f": 1.401298464324817e-45, "d": 5e-324},
    {"from": 127, "Mixed": 32767, "größe": 2**31 - 1, "order": 2**63 - 1, "f": 3.4028234663852886e38},
    {"d": 1.7976931348623157e308, "exact": Decimal("9" * 28 + "." + "9" * 10), "money": Decimal("-9999999.99")},
    {"d": -0.0, "f": -0.0, "text": "", "bytes": b"", "list": [], "map": {}, "deep": {}},
    {"text": '\x00 "quoted" \\ \n\t 😀 \u2028', "map": {"": None, "a.b": [], "`": [None]}, "deep": {"Group": [None]}},
    {"day": date(1, 1, 1), "at": datetime(1, 1, 3, tzinfo=UTC), "local_at": datetime(1, 1, 3)},
    {"day": date(9999, 12, 31), "at": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)},
    {"list": [None, Decimal("0.00001")], "deep": {"table": None, "Group": [{"x": None, "y": {"": -1e-300}}]}},
]


def generated(number: int) -> list[dict[str, Any]]:
    """So many rows. Which ones depends on what else is imported: Hypothesis takes constants from there, too."""
    rows: list[dict[str, Any]] = []

    @settings(max_examples=number, database=None, derandomize=True, phases=[Phase.generate], deadline=None)
    @given(ROW)
    def collect(row: dict[str, Any]) -> None:
        rows.append(row)

    collect()
    return rows


@pytest.mark.parametrize("more", [*also({}), UPSERT], ids=["append", "upsert"])
def test_rows_of_every_type(make_flow, more):
    flow = make_flow(1, sink__hudi__schema=DDL, **more)
    rows = [*EXTREMES, *generated(600)]
    there = {name: sum(row.get(name) is not None for row in rows) for name in NAMES}
    assert min(there.values()) > 50, there
    flow.produce_values(as_json({"id": n, "p": f"p{n % 2}", **row}).encode() for n, row in enumerate(rows))
    flow.interval()
    found = {row["id"]: row for row in flow.all_columns()}
    assert len(found) == len(rows)
    for number, row in enumerate(rows):
        seen = {name: found[number][name] if name == "local_at" else local(found[number][name]) for name in NAMES}
        assert {name: comparable(value) for name, value in seen.items()} == expected(row)


WRONG = {
    "`a b` INT": "`a b`",
    "s STRUCT<`x.y`: INT>": "`s.x.y`",
    "`1st` INT": "`1st`",
    "m MAP<INT, STRING>": "keys that are INT",
    "i INTERVAL DAY": "INTERVAL",
    "a INT, A INT": "twice",
    "_hoodie_mine INT": "_hoodie_mine",
    "_kafka_offset BIGINT": "_kafka_offset",
    "n VOID": "VOID",
    "s STRUCT<>": "no field",
}


def test_what_a_table_can_not_hold_is_refused(make_flow):
    flow = make_flow(1)
    flow.produce(1, partitions=(0,))
    for ddl, reason in WRONG.items():
        flow.set(sink__hudi__schema=f"id BIGINT, v STRING, p STRING, {ddl}")
        with pytest.raises(ActionRequiredError) as caught:
            flow.start(flow.run())
        assert reason in str(caught.value), ddl
        assert "can't hold" in str(caught.value), ddl
