"""Histories of the real coordinator and participants over parts that break: nothing is lost, nothing doubled."""

from __future__ import annotations

import pytest
import structlog

from .campaign import play, quiet
from .mutants import MUTANTS

HISTORIES = 600
_BLOCKS = 6
_MOST = 1000  # histories until a rule that was taken out has to be missed
_SOON_MISSED = (
    "an older open transaction isn't superseded",
    "what is superseded isn't rolled back",
    "nothing is swept up",
    "roll-backs that were begun aren't finished",
    "a decided commit that was left isn't finished",
    "nobody waits for a clock",
    "the audit is left out",
    "a replay may read fewer records",
    "another log is read on as the old one",
    "every kind moves the position to its planned ends",
    "every kind claims completeness",
    "START-COMMIT comes after the instant",
    "the position forgets what was passed over",
)
"""Rules whose loss shows within some dozen histories; docs/simulation.md has them all."""


@pytest.fixture(autouse=True)
def no_log_lines():
    before = structlog.get_config()
    quiet()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_no_history_loses_or_doubles_a_row(block):
    size = HISTORIES // _BLOCKS
    violated = {seed: error for seed in range(block * size, (block + 1) * size) for error in [play(seed)[0]] if error}
    assert not violated, f"tell one with: python -m tests.simulation {next(iter(violated))}"


@pytest.mark.parametrize("name", _SOON_MISSED)
def test_a_rule_that_is_taken_out_is_missed(name):
    with MUTANTS[name]():
        assert any(play(seed)[0] for seed in range(_MOST)), "the histories say nothing of this rule"


def test_a_history_is_told_and_made_again_by_its_seed():
    error, story = play(7, tell=True)
    assert error is None
    assert any("sends START-COMMIT" in line for line in story)
    assert play(7, tell=True) == (error, story)
