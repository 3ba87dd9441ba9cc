"""Transforms as Spark SQL, and what is refused before Spark sees it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sluice.identifiers import quoted
from sluice.protocol.messages import StartCommit
from sluice.records.plan import RecordPlan
from sluice.records.settings import Transform
from sluice.records.structs import field, struct
from sluice.records.transforms import StepError, compiled, text

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
    problem = step(route={**route, "otherwise": "fail"}).problem
    assert "'it belongs to no route: t is none of the values that routes name'" in problem
    assert "LEFT" not in problem  # the value itself stays in the quarantine


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
    ("expression", "made"),
    [
        ("struct(*) AS all", "struct(`a`, `b c`) AS all"),
        ("md5(concat_ws('*', *))", "md5(concat_ws('*', `a`, `b c`))"),
        ("a * 2 AS twice", "a * 2 AS twice"),
        ("(a)*(2)", "(a)*(2)"),
        ("hash( /* ( */ * )", "hash( /* ( */ `a`, `b c` )"),
        ("`*` || '(*' || \"(*\"", "`*` || '(*' || \"(*\""),
        ("s.*", "s.*"),
        ("(-- (*\n * )", "(-- (*\n `a`, `b c` )"),
    ],
)
def test_a_star_is_the_columns_of_the_row(expression, made):
    columns = {"type": "struct", "fields": [{"name": name, "type": "string"} for name in ("a", "b c")]}
    assert compiled(Transform(select=(expression,)), columns).select == (made,)
    assert compiled(Transform(set={"x": expression}), columns).select[-1] == f"({made}\n) AS `x`"
    assert compiled(Transform(filter=expression), columns).where == made
