"""A table's columns follow the records: added, widened and reordered ones by themselves; others stop, and say why."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from sluice.errors import ActionRequiredError

from .harness import Flow
from .harness.readers import rust_rows

OLD = (
    "id BIGINT, i INT, f FLOAT, d DECIMAL(10,2), n INT, e SMALLINT, t TINYINT, s STRUCT<a: INT, b: STRING>, "
    "l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>, needed STRING NOT NULL, p STRING"
)
NEW = (
    "id BIGINT, between STRING, s STRUCT<b: STRING, c: STRING, a: INT>, i BIGINT, f DOUBLE, d DECIMAL(14,4), n DOUBLE, "
    "e DECIMAL(12,2), t BIGINT, l ARRAY<STRUCT<y: STRING, x: INT>>, m MAP<STRING, STRUCT<x: INT, y: STRING>>, "
    "needed STRING, p STRING, last STRING"
)
OF_OLD = {
    "i": 7,
    "f": 1.5,
    "d": 1.25,
    "n": 8,
    "e": 9,
    "t": 5,
    "s": {"a": 1, "b": "b"},
    "l": [{"x": 1}],
    "m": {"k": {"x": 1}},
}
OF_NEW = {
    "i": 2**40, "f": 0.1, "d": 1.2345, "n": 0.1, "e": 123456.25, "t": 2**50, "s": {"a": 2, "b": "b", "c": "c"},
    "l": [{"x": 2, "y": "y"}], "m": {"k": {"x": 2, "y": "y"}}, "between": "b", "last": "l",
}  # fmt: skip
OLD_ROW = {
    "i": 7, "f": 1.5, "d": Decimal("1.25"), "n": 8.0, "e": Decimal(9), "t": 5, "s": {"a": 1, "b": "b", "c": None},
    "l": [{"x": 1, "y": None}], "m": {"k": {"x": 1, "y": None}}, "between": None, "last": None, "needed": "n",
}  # fmt: skip
NEW_ROW = {**OF_NEW, "d": Decimal("1.2345"), "e": Decimal("123456.25"), "needed": None}


def send(flow: Flow, number: int, fields: dict[str, Any], p: str = "p0") -> None:
    needed = {} if "last" in fields else {"needed": "n"}
    flow.produce_raw(json.dumps({"id": number, "p": p, **needed, **fields}).encode(), key=str(number).encode())


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """hudi-rs has a map as a list of pairs."""
    m = row["m"]
    return {**row, "m": dict(m) if isinstance(m, list) else m}


def check(flow: Flow, expected: dict[int, dict[str, Any]], *, rust: bool = True) -> None:
    readers = {"metadata": flow.all_columns(metadata=True), "listing": flow.all_columns(metadata=False)}
    if rust:
        readers["hudi-rs"] = rust_rows(flow.path)
    for name, rows in readers.items():
        found = {row["id"]: {k: v for k, v in plain(row).items() if k not in ("id", "p")} for row in rows}
        assert found == expected, name
        assert len(rows) == len(expected), name


@pytest.mark.thorough
def test_an_append_table_follows(make_flow):
    flow = make_flow(1, sink__hudi__schema=OLD, table_services={"clustering": {"after_commits": 1}})
    send(flow, 1, OF_OLD)
    send(flow, 2, OF_OLD, "p1")
    first = flow.interval()
    flow.set(sink__hudi__schema=NEW)
    send(flow, 3, OF_NEW)
    flow.interval()
    expected = {1: OLD_ROW, 2: OLD_ROW, 3: NEW_ROW}
    check(flow, expected)
    flow.interval(kind="replay", instant=first.instant)
    check(flow, expected)
    send(flow, 4, OF_NEW)
    flow.interval()
    flow.serve("clustering")
    check(flow, {**expected, 4: NEW_ROW})


def test_an_upsert_table_follows(make_flow):
    upsert = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
    services = {"compaction": {"after_delta_commits": 1}}
    flow = make_flow(1, sink__hudi__schema=OLD, table_services=services, **upsert)
    for number in (1, 2):
        send(flow, number, OF_OLD)
    send(flow, 10, OF_OLD, "p1")
    first = flow.interval()
    flow.serve("compaction")
    flow.set(sink__hudi__schema=NEW)
    send(flow, 2, OF_NEW)
    send(flow, 3, OF_NEW)
    flow.interval()
    expected = {1: OLD_ROW, 2: NEW_ROW, 3: NEW_ROW, 10: OLD_ROW}
    check(flow, expected, rust=False)
    flow.serve("compaction")
    check(flow, expected)
    send(flow, 1, OF_NEW)
    flow.interval()
    flow.interval(kind="replay", instant=first.instant)
    expected[1] = NEW_ROW
    check(flow, expected, rust=False)


REFUSED = {
    "text where a number was": ("id BIGINT, i STRING, s STRUCT<a: INT>", "i: INT in the table, STRING in the pipeline"),
    "wider inside a struct": ("id BIGINT, i INT, s STRUCT<a: BIGINT>", "s.a: INT in the table, BIGINT in the pipeline"),
    "a number that a double can't hold": ("id DOUBLE, i INT, s STRUCT<a: INT>", "id: BIGINT in the table, DOUBLE"),
    "another kind": ("id BIGINT, i ARRAY<INT>, s STRUCT<a: INT>", "i: INT in the table, ARRAY<INT>"),
}


def test_a_change_that_readers_could_not_follow_stops_at_start(make_flow):
    flow = make_flow(1, sink__hudi__schema="id BIGINT, i INT, s STRUCT<a: INT>", sink__hudi__partition_fields=None)
    flow.produce_raw(b'{"id": 1, "i": 1, "s": {"a": 1}}')
    flow.interval()
    flow.produce_raw(b'{"id": 2, "i": 2, "s": {"a": 2}}')
    for name, (schema, reason) in REFUSED.items():
        flow.set(sink__hudi__schema=schema)
        with pytest.raises(ActionRequiredError) as caught:
            flow.start(flow.run())
        assert reason in str(caught.value), name
    flow.set(sink__hudi__schema="id BIGINT, i SMALLINT, s STRUCT<a: SMALLINT>")  # narrower: the table keeps its types
    flow.interval()
    assert sorted((r["id"], r["i"], r["s"]["a"]) for r in flow.all_columns()) == [(1, 1, 1), (2, 2, 2)]
