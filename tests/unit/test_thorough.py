"""What `make test` leaves to `make test-thorough`: the names in tests/thorough.py are those of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice import testing

from ..cores import beside_each_other, missed
from ..thorough import REPRESENTATIVES

TESTS = Path(__file__).parents[1]
# Tests that a file has from a class of the package.
SHARED = "".join(file.read_text() for file in Path(testing.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", REPRESENTATIVES)
def test_a_file_has_the_tests_that_represent_it(file: str) -> None:
    text = (TESTS / file).read_text()
    if "Conformance" in text:
        text += SHARED
    missing = [name for name in REPRESENTATIVES[file] if f"def {name.partition('[')[0]}(" not in text]
    assert not missing


@pytest.mark.parametrize(("lost", "tests"), [(0.0, 3), (0.3, 2), (0.7, 1)])
def test_the_less_there_is_of_the_cores_the_fewer_tests_are_beside_each_other(lost: float, tests: int) -> None:
    assert beside_each_other(lost) == tests


def test_what_a_loop_misses_is_a_part_of_its_time() -> None:
    assert 0 <= missed(0.05) <= 1


def test_a_look_that_comes_late_is_missed_time_and_others_are_not() -> None:
    looks = iter([0.0, 0.0001, 0.3001, 0.3002, 1.0002])
    assert missed(1.0, lambda: next(looks)) == pytest.approx(1.0 / 1.0002)
