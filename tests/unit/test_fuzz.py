"""A small part of the campaign of hostile inputs, the same examples each time; `make fuzz` tries others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from ..fuzz.campaign import play, try_seed
from ..fuzz.subject import Subject
from ..fuzz.subjects import SUBJECTS

_SLOW_MACHINE = 10  # three tests at a time, on two cores


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=lambda subject: subject.name)
def test_a_hostile_input_is_refused_by_an_error_of_sluice(subject: Subject) -> None:
    tried, finding = try_seed(replace(subject, seconds=subject.seconds * _SLOW_MACHINE), 0, examples=10)
    assert finding is None, f"{finding.error}\n{finding.example}\n{finding.command}"
    assert tried


def test_a_finding_is_made_small_and_can_be_played_again() -> None:
    subject = Subject("numbers", st.integers(0, 10_000), _refuse_large)
    tried, finding = try_seed(subject, 0)
    assert finding is not None
    assert (finding.example, finding.error) == ("1000", "KeyError: 1000")
    assert tried > 1
    assert isinstance(play(subject, finding.blob), KeyError)
    assert play(replace(subject, check=lambda _: None), finding.blob) is None


def test_what_takes_too_long_is_a_finding() -> None:
    _, finding = try_seed(Subject("loops", st.just(0), _loop, seconds=0.2), 0, examples=1)
    assert finding is not None
    assert "far from an end" in finding.error


def _refuse_large(number: int) -> None:
    if number >= 1000:
        raise KeyError(number)


def _loop(_: int) -> None:
    while True:
        pass
