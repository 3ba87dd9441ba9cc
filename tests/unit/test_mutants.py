"""`make mutants`: which tests call a function, so that they are run when it is changed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.mutants.__main__ import Known, Runner

from sluice.protocol import coverage

TOP = Path(__file__).parents[2]
FILE = "tests/unit/test_coverage.py"


def test_the_tests_that_call_a_function_are_noted_and_run():
    runner = Runner(TOP)
    noted = runner.answer("note_tests", [FILE])
    known = Known(files={FILE: {"tests": noted}})
    place = SimpleNamespace(module="protocol/coverage.py", first=coverage.missing.__code__.co_firstlineno)
    changed: Any = SimpleNamespace(place=place)
    tests, histories = known.calling(changed)
    assert len(noted) > len(tests) > 0
    assert histories == []
    assert runner.answer("run_tests", tests[:1]) is None
    assert "ended with" in runner.answer("run_tests", [f"{FILE}::none"])
    runner.end()
