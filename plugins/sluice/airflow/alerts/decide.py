"""The alerts of a run, and the state for the next run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from sluice.airflow.alerts import words
from sluice.airflow.alerts.report import Alert, History, Report, committed
from sluice.pipeline.alerts import Alerts

_LAG_RECORDS, _LAG, _QUARANTINE = "max_lag_records", "max_lag", "max_quarantine_rate"
_PARTITIONS = "partitions"


def decide(report: Report, history: History, rules: Alerts) -> list[Alert]:
    """The alerts of a run that has ended, the gravest first."""
    if not report.reads_on:
        return [words.failure(report, 1)] if report.outcome == "failed" else []
    if report.outcome != "failed":
        return [*_recovery(report, history, rules), *_warnings(report, history, rules)]
    in_a_row = history.failures + 1
    alerts = [words.failure(report, in_a_row)]
    if in_a_row == rules.escalate_after:
        alerts.insert(0, words.escalation(report, in_a_row))
    if _deadline_passed(report, history, rules) and not history.late and not _told_while_running(report, rules):
        alerts.append(words.deadline_of_failures(report, _without_commit(report, history), in_a_row))
    return alerts


def after(report: Report, history: History, rules: Alerts) -> History:
    """The state for the next run."""
    if not report.reads_on:
        return history.model_copy(update={"run_id": report.run_id})
    if report.outcome == "failed":
        return history.model_copy(
            update={
                "run_id": report.run_id,
                "failures": history.failures + 1,
                "good": report.ended if committed(report) else history.good or report.began,
                "late": history.late or _deadline_passed(report, history, rules),
            }
        )
    over = tuple(key for key, _ in _over(report, history, rules))
    return History(run_id=report.run_id, good=report.ended, over=over, valid_through=_valid_through(report, history))


def _recovery(report: Report, history: History, rules: Alerts) -> Iterator[Alert]:
    if history.failures or history.late or _told_while_running(report, rules):
        yield words.recovery(report, history, _without_commit(report, history))


def _warnings(report: Report, history: History, rules: Alerts) -> Iterator[Alert]:
    if report.facts is not None and report.facts.losses:
        yield words.offset_loss(report, report.facts.losses)
    for key, alert in _over(report, history, rules):
        if key not in history.over:
            yield alert


def _valid_through(report: Report, history: History) -> datetime | None:
    """The time up to which the table is known to be complete: of this run, or else the last known one."""
    now = report.facts.valid_through if report.facts is not None else report.valid_through
    return now or history.valid_through


def _over(report: Report, history: History, rules: Alerts) -> Iterator[tuple[str, Alert]]:
    """The limits that the interval has exceeded, and other conditions that are alerted once while they last."""
    facts = report.facts
    remarks = facts.remarks if facts is not None else report.remarks
    if remarks:
        yield _PARTITIONS, words.partitions(report, remarks)
    lag = facts.lag_records if facts is not None else report.lag_records
    if rules.max_lag_records is not None and lag is not None and lag > rules.max_lag_records:
        yield _LAG_RECORDS, words.lag_records(report, lag, rules.max_lag_records)
    through = _valid_through(report, history)
    if rules.max_lag is not None and through is not None:
        behind = report.ended - through
        if behind > rules.max_lag:
            yield _LAG, words.lag(report, behind, rules.max_lag)
    if facts is None:
        return
    if rules.max_quarantine_rate is not None and facts.quarantine_rate > rules.max_quarantine_rate:
        yield _QUARANTINE, words.quarantine(report, facts, rules.max_quarantine_rate)


def _without_commit(report: Report, history: History) -> timedelta:
    return report.ended - (history.good or report.began)


def _deadline_passed(report: Report, history: History, rules: Alerts) -> bool:
    return rules.deadline is not None and _without_commit(report, history) >= rules.deadline


def _told_while_running(report: Report, rules: Alerts) -> bool:
    """Whether the run itself took longer than the deadline: Airflow has then alerted while it was running."""
    return rules.deadline is not None and report.ended - report.began >= rules.deadline
