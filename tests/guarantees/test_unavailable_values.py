"""A value that the database didn't log stays what it was, as that of a TOAST column which an update doesn't change."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.jvm.catalyst import unseen
from sluice.records.settings import Transform
from sluice.records.structs import field, struct

from .debezium import Log, event, postgresql
from .harness import Flow
from .test_change_data import ORDERS, check, rows

PLACEHOLDER = "__debezium_unavailable_value"
IN_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="  # as the connector's JSON has it in a bytea


def row(number: int, v: str | None, p: str | None = "north") -> dict[str, Any]:
    return {"id": number, "v": v, "p": p}


def send(flow: Flow, *events: dict[str, Any]) -> None:
    log = Log()
    for e in events:
        log.send(e)
    flow.produce_keyed(log.take())


def test_an_unlogged_value_stays_what_it_was_late_twice_and_after_a_compaction(make_flow):
    flow = make_flow(partitions=1, **ORDERS, table_services={"compaction": {"after_delta_commits": 2}})
    created = [event("c", postgresql(100 + i), after=row(i, f"long text {i}")) for i in range(4)]
    update = event("u", postgresql(200), None, row(0, PLACEHOLDER, "in one interval"))
    send(flow, *created, update)
    flow.interval()
    expected = {i: row(i, f"long text {i}") for i in range(4)} | {0: row(0, "long text 0", "in one interval")}
    check(flow, expected)
    later = [
        event("u", postgresql(300), None, row(1, PLACEHOLDER, "in another")),
        event("u", postgresql(310), None, row(2, "new text 2", "older")),
        event("u", postgresql(320), None, row(2, PLACEHOLDER, "newer")),
        event("u", postgresql(330), None, row(3, "new text 3", "newest")),
        event("u", postgresql(305), None, row(3, PLACEHOLDER, "late")),
    ]
    send(flow, *later, *later[:1], update)
    flow.interval()
    expected |= {
        1: row(1, "long text 1", "in another"),
        2: row(2, "new text 2", "newer"),
        3: row(3, "new text 3", "newest"),
    }
    check(flow, expected)
    flow.serve("compaction")
    assert rows(flow) == expected
    send(flow, event("u", postgresql(400), None, row(1, PLACEHOLDER, "after the compaction")))
    flow.interval()
    check(flow, expected | {1: row(1, "long text 1", "after the compaction")})


def test_what_before_has_is_taken_and_what_nobody_has_is_a_bad_record(make_flow):
    """Values in columns of any type, of a pipeline that shapes its rows, and of a row that changes its partition."""
    columns = "id BIGINT NOT NULL, v STRING, p STRING, b BINARY, tags ARRAY<STRING>, numbers ARRAY<INT>"
    flow = make_flow(
        partitions=1, **{**ORDERS, "sink__hudi__schema": columns}, source__kafka__value={"schema": columns},
        transforms=[{"set": {"p": "upper(p)"}}, {"rename": {"b": "b"}}], errors={"tolerance": "all"},
    )  # fmt: skip
    codes = list(PLACEHOLDER.encode())

    def image(**values: Any) -> dict[str, Any]:
        return {"id": 1, "v": "v", "p": "p", "b": "AAE=", "tags": ["a"], "numbers": [1], **values}

    def update(at: int, before: dict[str, Any] | None, **values: Any) -> dict[str, Any]:
        return event("u", postgresql(at), before, image(**values))

    whole = {"v": PLACEHOLDER, "p": PLACEHOLDER, "b": IN_BASE64, "tags": [PLACEHOLDER], "numbers": codes}
    send(
        flow,
        event("c", postgresql(100), after=image()),
        update(200, image(), **whole),  # REPLICA IDENTITY FULL
        update(210, None, v=PLACEHOLDER, p="kept v"),
        update(220, None, tags=[PLACEHOLDER]),
        update(230, None, numbers=codes),
        update(240, None, p=PLACEHOLDER),
        update(250, image(p=PLACEHOLDER), p=PLACEHOLDER),
        event("c", postgresql(260), after={**image(v=PLACEHOLDER), "id": 2}),  # a text like any other
    )
    flow.interval()
    found = sorted(flow.read("id", "v", "p", "b", "tags", "numbers"))
    assert [(r[0], r[1], r[2], bytes(r[3]), list(r[4]), list(r[5])) for r in found] == [
        (1, "v", "KEPT V", b"\0\1", ["a"], [1]),
        (2, PLACEHOLDER, "P", b"\0\1", ["a"], [1]),
    ]
    assert flow.note()["records_quarantined"] == 4


def test_a_row_that_may_change_its_table_partition_needs_its_values(make_flow):
    flow = make_flow(partitions=1, **{**ORDERS, "sink__hudi__partition_fields": "p"})
    before = row(1, "text", "north")
    send(flow, event("c", postgresql(100), after=before), event("u", postgresql(110), before, row(1, PLACEHOLDER, "s")))
    flow.interval()
    check(flow, {1: row(1, "text", "s")})
    send(flow, event("u", postgresql(120), row(1, PLACEHOLDER, "s"), row(1, PLACEHOLDER, "north")))
    job = flow.write(flow.start())
    assert job.wait() == 1
    assert "the database did not log the value of v" in job.text()
    assert "REPLICA IDENTITY FULL" in job.text()


@pytest.mark.parametrize(
    ("steps", "becomes"),
    [
        ([], "kept"),
        ([{"select": ["*", "id + 1 AS next"]}, {"filter": "id > 3"}], "kept"),
        ([{"select": ["id", " `NOTE` "]}, {"set": {"doc": "concat('note', id)"}}], "kept"),
        ([{"filter": "id IN (SELECTED) -- note"}, {"mask": {"columns": "id", "with": "text", "text": "note"}}], "kept"),
        ([{"drop": ["note"]}, {"set": {"doc": "to_json(struct(*))"}}], "dropped"),
        ([{"select": ["id"]}, {"python": "any:function"}], "dropped"),
        ([{"select": ["id", "struct(*) AS doc"]}], "seen"),
        ([{"set": {"doc": "to_json(struct(*))"}}], "seen"),
        ([{"set": {"doc": "md5(concat_ws('|', *))"}}, {"drop": "note"}], "seen"),
        ([{"set": {"doc": "upper(IDENTIFIER('no' || 'te'))"}}], "seen"),
        ([{"set": {"first": "upper(`NOTE`)"}}, {"drop": ["note", "first"]}], "seen"),
        ([{"select": ["id", "selected", "note AS n", "n || id AS doc"]}], "seen"),
        ([{"rename": {"note": "n"}}], "seen"),
        ([{"filter": "length(note) > 3"}], "seen"),
        ([{"route": {"by": "note", "is": "a", "others": ["b"]}}], "seen"),
        ([{"python": "any:function"}], "seen"),
    ],
)
def test_what_a_step_looks_at_the_analyzed_plan_says(shared_jvm, steps, becomes):
    """A `*`, another spelling, a computed name: a text of the step doesn't say it."""
    columns = struct([field("id", "long"), field("note", "string"), field("selected", "long")])
    with shared_jvm() as jvm:
        found = unseen(jvm.jvm, columns, [Transform.model_validate(step) for step in steps])
    assert ("kept" if "note" in found.kept else "dropped" if "note" in found.dropped else "seen") == becomes


def test_a_step_that_takes_all_columns_gets_no_placeholder(make_flow):
    """A document of the whole row would have it, where no merge finds it; a column that is dropped keeps nothing up."""
    flow = make_flow(
        partitions=1, **{**ORDERS, "sink__hudi__schema": "id BIGINT NOT NULL, p STRING, doc STRING"},
        source__kafka__value={"schema": "id BIGINT, v STRING, p STRING, long STRING"},
        transforms=[{"drop": "long"}, {"set": {"doc": "to_json(struct(*))"}}, {"drop": "v"}],
        errors={"tolerance": "all"},
    )  # fmt: skip
    first = {**row(1, "text"), "long": "long"}
    send(
        flow,
        event("c", postgresql(100), after=first),
        event("u", postgresql(110), None, {**first, "p": "south", "long": PLACEHOLDER}),
        event("u", postgresql(120), None, {**first, "p": "west", "v": PLACEHOLDER}),
    )
    flow.interval()
    assert flow.read("id", "p", "doc") == [(1, "south", '{"id":1,"v":"text","p":"south"}')]
    assert flow.note()["records_quarantined"] == 1
