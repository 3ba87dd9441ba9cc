"""Transforms shape records into rows; none is lost unseen on the way, and a step that is wrong is found at START."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice.cli import app
from sluice.errors import ActionRequiredError

from .harness import Flow
from .quarantined import TOLERANT, places, quarantine

RECORD = (
    "id BIGINT, `order id` STRING, `select` STRING, `a.b` STRING, amount STRING, at TIMESTAMP, secret STRING, "
    "token BINARY, note STRING, tags ARRAY<STRING>, customer STRUCT<name: STRING, address: STRUCT<city: STRING>>"
)
STEPS = [
    {"filter": "`select` <> 'no' -- what else"},
    {"flatten": {"columns": "customer"}},
    {"rename": {"order id": "order_id", "a.b": "ab", "select": "chosen"}},
    {"cast": {"amount": "decimal(10,2)"}},
    {"mask": {"columns": ["secret", "token"]}},
    {"mask": {"columns": ["customer_name"], "with": "text", "text": "it's hidden"}},
    {"mask": {"columns": ["tags"], "with": "null"}},
    {"set": {"day": "date_format(at, 'yyyy-MM-dd')", "NOTE": "upper(note)", "p": "'p0'"}},
    {"python": "shaping_functions:add_length"},
    {"drop": "at"},
    {"select": ["*", "length + 1 AS longer", "from_topic AS came_from"]},
]
TABLE = (
    "id BIGINT NOT NULL, order_id STRING, chosen STRING, ab STRING, amount DECIMAL(10,2), secret STRING, "
    "token STRING, note STRING, tags ARRAY<STRING>, customer_name STRING, customer_address_city STRING, "
    "length INT, longer BIGINT, came_from STRING, day STRING NOT NULL"
)


def shaped(make_flow, steps=STEPS, table=TABLE, **more) -> Flow:
    """The functions' module is beside the warm driver's application, which is a place on its Python path."""
    settings = {
        "source__kafka__value": {"schema": RECORD},
        "source__kafka__columns": {"from_topic": "topic"},
        "transforms": steps,
        "sink__hudi__schema": table,
        "sink__hudi__partition_fields": "day",
        **more,
    }
    return make_flow(**settings)


def record(number: int, **more) -> bytes:
    row = {
        "id": number,
        "order id": f"o{number}",
        "select": "yes",
        "a.b": "ab",
        "amount": "12.5",
        "at": "2026-01-02T23:30:00Z",
        "secret": "s3cret",
        "token": "AQID",
        "note": "n" * number,
        "tags": ["a"],
        "customer": {"name": "Ann", "address": {"city": "Ulm"}},
    }
    return json.dumps({**row, **more}).encode()


def test_every_kind_of_step(make_flow):
    flow = shaped(make_flow)
    flow.produce_raw(record(1))
    flow.produce_raw(record(2, select="no"))
    flow.produce_raw(record(3, amount=None, customer=None, secret=None, tags=None), partition=1)
    flow.produce_raw(record(4))
    flow.produce_raw(record(5, select=None), partition=1)
    outcome = flow.interval()
    first, third = sorted(flow.all_columns(), key=lambda row: row["id"])
    assert (first["id"], first["order_id"], first["chosen"], first["ab"]) == (1, "o1", "yes", "ab")
    assert (str(first["amount"]), first["day"], first["note"], first["length"], first["longer"]) == (
        "12.50", "2026-01-02", "N", 1, 2,
    )  # fmt: skip
    assert first["secret"] == hashlib.sha256(b"s3cret").hexdigest()
    assert first["token"] == hashlib.sha256(bytes([1, 2, 3])).hexdigest()
    assert (first["customer_name"], first["customer_address_city"], first["tags"]) == ("it's hidden", "Ulm", None)
    assert first["came_from"] == flow.topic
    nothing = ("amount", "secret", "tags", "customer_name", "customer_address_city")
    assert third["id"] == 3
    assert [third[name] for name in nothing] == [None] * len(nothing)
    status = next(m for m in flow.messages() if m.type == "WRITE-STATUS")
    assert (status.records_read, status.records_written, status.records_filtered) == (5, 2, 3)
    assert "3 records were filtered out" in outcome.summary
    flow.interval_is_empty()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"amount": "a lot"}, "the column amount (string) has a value that is no decimal(10,2)"),
        ({"amount": "123456789.00"}, "the column amount (string) has a value that is no decimal(10,2)"),
    ],
)
def test_a_value_that_a_cast_would_lose_is_a_bad_record_and_no_filter_hides_it(make_flow, bad, reason):
    steps = [{"cast": {"amount": "decimal(10,2)"}}, {"filter": "amount > 0"}, {"set": {"day": "'d'"}}]
    flow = shaped(make_flow, steps, "id BIGINT, amount DECIMAL(10,2), day STRING")
    flow.produce_raw(record(1))
    offset = flow.produce_raw(record(2, **bad))
    run = flow.run()
    started = flow.start(run)
    assert flow.write(started).wait() == 1
    with pytest.raises(ActionRequiredError) as caught:
        flow.commit(started)
    assert reason in str(caught.value)
    assert f"offset={offset}" in str(caught.value)
    flow.abort(run)


def test_bad_records_are_set_aside_between_the_steps(make_flow):
    steps = [
        {"cast": {"amount": "decimal(10,2)"}},
        {"filter": "amount > 0"},  # not true of a value that the cast has lost
        {"python": "shaping_functions:with_amount_only"},
        {"set": {"day": "date_format(at, 'yyyy')"}},
    ]
    flow = shaped(make_flow, steps, "id BIGINT, note STRING NOT NULL, day STRING", **TOLERANT)
    flow.produce_raw(record(1))
    flow.produce_raw(b"not JSON")
    flow.produce_raw(record(2, amount="a lot"), partition=1)
    flow.produce_raw(record(3, amount="-1"))
    flow.produce_raw(record(4, note=None), partition=1)
    outcome = flow.interval()
    assert [(row["id"], row["day"]) for row in flow.all_columns()] == [(1, "2026")]
    found = quarantine(flow)
    assert places(found) == [(0, 1), (1, 0), (1, 1)]
    reasons = " | ".join(row["reason"] for row in found)
    for words in ("not one JSON object", "has a value that is no decimal(10,2)", "the field note is missing or null"):
        assert words in reasons
    assert (outcome.records, "1 records were filtered out" in outcome.summary) == (1, True)


WRONG = {
    "unknown column": ([{"filter": "nope = 1"}], "Step 1 of `transforms` (`filter`)", "`nope` cannot be resolved"),
    "syntax": ([{"drop": "tags"}, {"set": {"x": "id +* 1"}}], "Step 2 of `transforms` (`set`)", "not Spark SQL"),
    "not the same twice": ([{"set": {"x": "uuid()"}}], "Step 1", "another value each time"),
    "the clock": ([{"set": {"x": "current_timestamp()"}}], "Step 1", "another value each time"),
    "a query": ([{"filter": "id IN (SELECT 1)"}], "Step 1", "a query inside an expression"),
    "several rows": ([{"select": ["explode(tags) AS tag"]}], "Step 1", "one row of one record"),
    "an aggregate": ([{"select": ["count(1) AS n"]}], "Step 1", "one row of one record"),
    "no function": ([{"set": {"x": "no_such(id)"}}], "Step 1", "a function that Spark doesn't have"),
    "twice": ([{"rename": {"note": "secret"}}], "Step 1", "the column secret would be there twice"),
    "collision by flatten": (
        [{"rename": {"note": "customer_name"}}, {"flatten": {}}], "Step 2", "customer_name would be there twice",
    ),
    "a name of ours": ([{"rename": {"note": "_kafka_offset"}}], "Step 1", "kept for Sluice"),
    "nothing to drop": ([{"drop": "nope"}], "Step 1", "there is no column nope"),
    "what a row needs": ([{"cast": {"amount": "decimal(10,2)"}}], "must have: day", "note"),
    "another type": ([{"set": {"amount": "id * 1.5D"}}], "don't fit the table's", "amount: DOUBLE in the records"),
}  # fmt: skip


def test_a_wrong_step_is_found_at_start(make_flow):
    flow = shaped(make_flow, [{"set": {"day": "'d'"}}], "id BIGINT, amount DECIMAL(10,2), day STRING")
    flow.produce_raw(record(1))
    for name, (steps, where, reason) in WRONG.items():
        flow.set(transforms=[*steps])
        with pytest.raises(ActionRequiredError) as caught:
            flow.start(flow.run())
        assert where in str(caught.value), name
        assert reason in str(caught.value), name
    assert flow.messages() == []


def test_sluice_validate_finds_wrong_steps_without_kafka(tmp_path, home):
    page = (Path(__file__).parents[2] / "docs" / "shaping.md").read_text()
    good = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    wrong = [
        good[0].replace("distance / air_time", "distanc / air_time"),
        good[0].replace("speed: distance / air_time * 60", "speed: note"),
        good[1].replace("by: type", "by: kind"),
    ]
    for number, text in enumerate([*good, *wrong]):
        (tmp_path / f"{number}.yaml").write_text(text)
    result = CliRunner().invoke(app, ["validate", *map(str, sorted(tmp_path.glob("*.yaml")))])
    said = " ".join(result.output.split())
    assert (result.exit_code, said.count(": ok: ")) == (1, 4)
    assert "Step 6 of `transforms` (`set`) is wrong" in said
    assert "`distanc` cannot be resolved" in said
    assert "speed: STRING in the records, DOUBLE in the table" in said
    assert "Step 1 of `transforms` (`route`) is wrong" in said
    assert "`kind` cannot be resolved" in said


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("doubled", "makes several rows of one"),
        ("of_other_columns", "lost the columns _kafka_topic"),
        ("not_there", "can't be imported"),
    ],
)
def test_a_function_that_breaks_the_rules(make_flow, function, reason):
    steps = [{"python": f"shaping_functions:{function}"}, {"set": {"day": "'d'"}}]
    flow = shaped(make_flow, steps, "id BIGINT, note STRING, day STRING")
    flow.produce_raw(record(1))
    run = flow.run()
    started = flow.start(run)
    assert flow.write(started).wait() == 1
    with pytest.raises(ActionRequiredError, match=reason):
        flow.commit(started)
    flow.abort(run)


@pytest.mark.thorough
def test_an_upsert_by_a_key_and_a_table_partition_that_are_made(make_flow):
    steps = [{"set": {"key": "concat(`order id`, '/', id)", "day": "date_format(at, 'yyyy-MM')"}}]
    more = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "key"}
    flow = shaped(make_flow, steps, "key STRING, id BIGINT, note STRING, day STRING", **more)
    for number in (1, 2):
        flow.produce_raw(record(number))
    flow.interval()
    flow.produce_raw(record(2, note="new"))
    flow.interval()
    found = {row["key"]: (row["note"], row["day"]) for row in flow.all_columns()}
    assert found == {"o1/1": ("n", "2026-01"), "o2/2": ("new", "2026-01")}
