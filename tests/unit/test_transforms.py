"""Transforms as Spark SQL, and what is refused before Spark sees it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sluice.protocol.messages import StartCommit
from sluice.records.plan import RecordPlan
from sluice.records.settings import Transform
from sluice.records.structs import field, struct
from sluice.records.transforms import StepError, compiled, quoted, text, works_on

COLUMNS = struct(
    [
        field("id", "long"),
        field("a`b", "string"),
        field("s", struct([field("x", "integer"), field("y z", struct([field("w", "string")]))])),
        field("raw", "binary"),
    ]
)


def step(**given):
    return compiled(Transform.model_validate(given), COLUMNS)


def test_names_and_text_are_quoted():
    assert quoted("a`b") == "`a``b`"
    assert text("it's a \\ b") == "'it\\'s a \\\\ b'"


@pytest.mark.parametrize(
    ("given", "select"),
    [
        ({"drop": ["ID", "s"]}, ("`a``b`", "`raw`")),
        ({"rename": {"a`b": "c"}}, ("`id`", "`a``b` AS `c`", "`s`", "`raw`")),
        ({"select": ["*", "id + 1 AS n"]}, ("`id`", "`a``b`", "`s`", "`raw`", "id + 1 AS n")),
        ({"set": {"ID": "id + 1", "n": "2"}}, ("(id + 1\n) AS `ID`", "`a``b`", "`s`", "`raw`", "(2\n) AS `n`")),
        (
            {"flatten": {"separator": "."}},
            ("`id`", "`a``b`", "`s`.`x` AS `s.x`", "`s`.`y z`.`w` AS `s.y z.w`", "`raw`"),
        ),
    ],
)
def test_columns(given, select):
    assert step(**given).select == select


def test_masks():
    assert step(mask={"columns": ["raw"]}).select[-1] == "(SHA2(`raw`, 256)\n) AS `raw`"
    assert step(mask={"columns": "id"}).select[0] == "(SHA2(CAST(`id` AS STRING), 256)\n) AS `id`"
    assert step(mask={"columns": "s"}).select[2] == "(SHA2(TO_JSON(`s`), 256)\n) AS `s`"
    assert step(mask={"columns": "id", "with": "null"}).select[0] == "(IF(FALSE, `id`, NULL)\n) AS `id`"


def test_routes():
    route = {"by": "t", "is": "a", "others": ["b"]}
    assert step(route=route).where == "(CAST((t\n) AS STRING) <=> 'a')"
    assert step(route=route).problem is None
    assert step(route={**route, "otherwise": "take"}).where.endswith("IN ('a', 'b'), FALSE)")
    assert "it belongs to no route: t is " in step(route={**route, "otherwise": "fail"}).problem


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"drop": "nope"}, "there is no column nope"),
        ({"drop": ["id", "a`b", "s", "raw"]}, "it leaves no column"),
        ({"rename": {"nope": "x"}}, "there is no column nope"),
        ({"cast": {"s": "string"}}, "s is no single value"),
        ({"flatten": {"columns": "id"}}, "id is no struct"),
        ({"mask": {"columns": "nope"}}, "there is no column nope"),
    ],
)
def test_refused(given, says):
    with pytest.raises(StepError, match=says):
        step(**given)


@pytest.mark.parametrize("given", [{}, {"filter": "a", "drop": "b"}, {"python": "no_colon"}, {"select": []}])
def test_a_step_has_one_key(given):
    with pytest.raises(ValidationError):
        Transform.model_validate(given)


def test_a_step_is_the_same_after_it_has_travelled():
    steps = [
        {"filter": "a"}, {"set": {"x": "1"}}, {"mask": {"columns": "a", "with": "null"}}, {"drop": "b"},
        {"route": {"by": "t", "is": "a", "others": ["b"], "otherwise": "fail"}}, {"python": "m:f"},
    ]  # fmt: skip
    plan = RecordPlan(transforms=[Transform.model_validate(s) for s in steps])
    again = RecordPlan.model_validate_json(plan.model_dump_json(exclude_none=True))
    assert again == plan
    assert [t.kind for t in again.transforms] == ["filter", "set_", "mask", "drop", "route", "python"]
    assert RecordPlan.model_validate_json(plan.model_dump_json()) == plan
    assert StartCommit.model_fields["records"].annotation is RecordPlan


@pytest.mark.parametrize(
    ("given", "does"),
    [
        ({"filter": "length(note) > 3"}, True),
        ({"filter": "notes > 3 OR a_note = 1"}, False),
        ({"set": {"other": "upper(`NOTE`)"}}, True),
        ({"set": {"note": "1"}}, True),
        ({"select": ["id", "note", " `note` "]}, False),
        ({"select": ["note AS n"]}, True),
        ({"rename": {"note": "n"}}, True),
        ({"drop": ["note"]}, False),
        ({"flatten": {"columns": ["note"]}}, False),
        ({"mask": {"columns": ["note"]}}, True),
        ({"mask": {"columns": ["id"], "with": "text", "text": "note"}}, False),
        ({"python": "mine:function"}, True),
    ],
)
def test_a_step_works_on_a_column_if_it_may_see_or_change_its_value(given, does):
    assert works_on(Transform.model_validate(given), "note") is does
