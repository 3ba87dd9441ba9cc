"""Small worlds, exhausted: a few processes that end one interval, in every order, with every death in each place.

Here one process at a time meets with one fault, or is interrupted by others once. More of both together takes minutes:
`python -m tests.simulation --small`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from .mutants import MUTANTS
from .small import WORLDS, explore


@pytest.mark.parametrize("name", WORLDS)
def test_one_fault_in_each_place(name):
    found = explore(replace(WORLDS[name], faults=1, switches=0))
    assert not found.violated
    assert found.ends > 1


@pytest.mark.parametrize("name", WORLDS)
def test_every_order_with_one_interruption(name):
    found = explore(replace(WORLDS[name], faults=0, switches=1))
    assert not found.violated
    assert found.ends > 0


def test_what_is_violated_is_told_with_the_choices_that_lead_there():
    with MUTANTS["nothing is taken off the timeline again"]():
        found = explore(replace(WORLDS["commit and abort"], switches=0))
    ((error, choices),) = found.violated
    assert "records of committed offsets" in error
    assert [choice for choice in choices if choice.startswith("!")] == ["!commit/0 freezes"]
