"""A pipeline's state in one word."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from sluice.page.health import Schedule, health

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EVERY_MINUTE = Schedule(paused=False, due=NOW + MINUTE, period=MINUTE)


@dataclass(frozen=True)
class Run:
    state: str
    started: datetime | None = NOW - MINUTE


def runs(*states: str) -> list[Run]:
    """Newest first."""
    return [Run(state) for state in states]


@pytest.mark.parametrize(
    ("schedule", "found", "word", "failures"),
    [
        (EVERY_MINUTE, runs("success"), "ok", 0),
        (EVERY_MINUTE, runs("running", "success"), "running", 0),
        (EVERY_MINUTE, runs("failed", "failed", "success", "failed"), "failing", 2),
        (EVERY_MINUTE, runs("running", "failed", "success"), "failing", 1),
        (EVERY_MINUTE, [], "never ran", 0),
        (Schedule(True, None, MINUTE), runs("failed"), "paused", 1),
        (Schedule(False, NOW - timedelta(minutes=9), MINUTE), runs("success"), "late", 0),
        (Schedule(False, NOW - timedelta(minutes=4), MINUTE), runs("success"), "ok", 0),
        (Schedule(False, None, None), runs("success"), "ok", 0),
        (EVERY_MINUTE, [Run("running", NOW - timedelta(minutes=30))], "late", 0),
        (None, [], "never ran", 0),
    ],
)
def test_the_word(schedule, found, word, failures):
    verdict = health(schedule, found, NOW)
    assert (verdict.word, verdict.failures) == (word, failures)


def test_records_that_wait_make_it_late_only_after_some_intervals():
    assert health(EVERY_MINUTE, runs("success"), NOW, behind_since=NOW - 2 * MINUTE).word == "ok"
    assert health(EVERY_MINUTE, runs("success"), NOW, behind_since=NOW - 20 * MINUTE).word == "late"


def test_a_table_without_a_dag_is_unknown():
    assert health(None, [], NOW, has_history=True).word == "unknown"
