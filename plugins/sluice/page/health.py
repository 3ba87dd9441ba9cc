"""A pipeline's state in one word, derived from Airflow and the control topic. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol

Word = Literal["ok", "running", "failing", "late", "paused", "never ran", "unknown"]
_ENDED = ("success", "failed")
_PERIODS = 3  # how many intervals may pass before a pipeline is called late
_AT_LEAST = timedelta(minutes=5)


class Run(Protocol):
    """What `health` needs to know of a DAG run."""

    @property
    def state(self) -> str: ...  # noqa: D102

    @property
    def started(self) -> datetime | None: ...  # noqa: D102


@dataclass(frozen=True)
class Health:
    """The state, a sentence of explanation if it needs one, and how many runs in a row have failed."""

    word: Word
    why: str | None
    failures: int


@dataclass(frozen=True)
class Schedule:
    """A DAG's schedule in Airflow: `due` is when its next run is to be created."""

    paused: bool
    due: datetime | None
    period: timedelta | None


def health(
    schedule: Schedule | None,
    runs: Sequence[Run],
    now: datetime,
    *,
    behind_since: datetime | None = None,
    has_history: bool = False,
) -> Health:
    """The state of a pipeline.

    A failed run counts even while the next one is running: a reader wants to know of the failure.

    Args:
        schedule: its DAG's schedule; None if Airflow doesn't know the DAG.
        runs: its latest runs, newest first.
        now: the present time.
        behind_since: the time up to which the table is complete, if records wait to be loaded; None otherwise.
        has_history: whether the control topic has any transaction.
    """
    failures = failures_in_a_row(runs)
    if schedule is None:
        return Health("unknown" if has_history else "never ran", "Airflow doesn't know a DAG of it.", failures)
    if schedule.paused:
        return Health("paused", None, failures)
    if failures:
        return Health("failing", f"{failures} run{'s' * (failures > 1)} in a row failed.", failures)
    late = _late(schedule, runs, now, behind_since)
    if late is not None:
        return Health("late", late, 0)
    if any(run.state not in _ENDED for run in runs):
        return Health("running", None, 0)
    return Health("ok" if runs or has_history else "never ran", None, 0)


def failures_in_a_row(runs: Sequence[Run]) -> int:
    """How many of the latest ended runs failed in a row; `runs` has the newest first."""
    failures = 0
    for run in runs:
        if run.state == "success":
            break
        failures += run.state == "failed"
    return failures


def _late(schedule: Schedule, runs: Sequence[Run], now: datetime, behind_since: datetime | None) -> str | None:
    if schedule.period is None:
        return None
    patience = max(_PERIODS * schedule.period, _AT_LEAST)
    active = [run for run in runs if run.state not in _ENDED]
    if not active and schedule.due is not None and now - schedule.due > patience:
        return "A run was due and hasn't started: is the scheduler up?"
    if any(run.started is not None and now - run.started > patience for run in active):
        return "A run takes longer than its schedule allows."
    if behind_since is not None and now - behind_since > patience:
        return "Records wait, and the table is older than its schedule allows."
    return None
