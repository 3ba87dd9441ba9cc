"""The alerts' texts: the failure, the table's state, whether a person must act, and where to look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sluice.airflow.alerts.report import Alert, Failure, History, Report, committed
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.messages import PlannedRange

_LONGEST = 1500  # characters of one error in a message; the rest is in the log
_PARTITIONS = 20  # partitions that a message lists one by one
_GRAVEST = ("act", None, "fail_run", "retry")

Fields = list[tuple[str, str]]


def failure(report: Report, in_a_row: int) -> Alert:
    """A run that failed."""
    worst = gravest(report.failures)
    stands = committed(report)
    where = f" in {worst.task}" if worst else ""
    if stands:
        summary = f"{report.pipeline}: the interval is committed, although its DAG run failed{where}."
    else:
        summary = f"{report.pipeline}: the interval was not committed; it failed{where}."
    act, action = _action(worst, stands, report.reads_on)
    fields: Fields = [("Action", action), *_place(report), *_failed(report.failures, worst)]
    if worst:
        fields.append(("Next step", worst.next_step))
    fields.append(("Table state", _stands(report)))
    if in_a_row > 1:
        fields.append(("Failed runs in a row", str(in_a_row)))
    is_audit = any(f.is_audit for f in report.failures)
    what = "the audit refused an interval" if is_audit else "an interval failed"
    return Alert(
        "audit" if is_audit else "failure",
        "on_failure",
        "critical" if is_audit else "error",
        f"[sluice] {report.pipeline}: {what}{where}{'; action required' if act else ''}",
        summary,
        act,
        (*fields, *_links(report, worst)),
        _data(report, failed_in_a_row=in_a_row, next_step=worst.next_step if worst else None),
    )


def escalation(report: Report, in_a_row: int) -> Alert:
    """Several runs in a row failed, so that more people are alerted."""
    told = failure(report, in_a_row)
    return Alert(
        "escalation",
        "on_escalation",
        "critical",
        f"[sluice] {report.pipeline}: {in_a_row} runs in a row failed",
        f"{report.pipeline}: {in_a_row} runs in a row failed. The last: {told.summary.partition(': ')[2]}",
        told.act,
        told.fields,
        told.data,
    )


def recovery(report: Report, history: History, without_commit: timedelta) -> Alert:
    """The first good run after failed or late ones."""
    runs = f"{history.failures} failed run{'s' if history.failures != 1 else ''}" if history.failures else "a late run"
    went_on = "committed" if report.outcome == "committed" else "found nothing new to read"
    fields: Fields = [
        ("Action", "None: the pipeline continues by itself."),
        *_place(report),
        ("Since the last good run", _span(without_commit)),
    ]
    if report.facts is not None:
        fields.append(("Table state", _stands(report)))
    return Alert(
        "recovery",
        "on_recovery",
        "info",
        f"[sluice] {report.pipeline}: recovered",
        f"{report.pipeline}: recovered after {runs}; this run {went_on}. Nothing was lost or doubled meanwhile.",
        False,
        (*fields, *_links(report)),
        _data(report, failed_in_a_row=0, failed_before=history.failures),
    )


def deadline_of_failures(report: Report, without_commit: timedelta, in_a_row: int) -> Alert:
    """Runs end, but none of them well."""
    how = f"{in_a_row} run{'s' if in_a_row > 1 else ''} failed since"
    return deadline(report, without_commit, how, gravest(report.failures))


def deadline(report: Report, without_commit: timedelta, how: str, worst: Failure | None = None) -> Alert:
    """Neither a commit nor a confirmed empty interval came in time.

    Args:
        report: the run that is late, or the last one that failed.
        without_commit: how long there was neither.
        how: what there was instead.
        worst: the error that counts, if there is one.
    """
    action = f"Look at it. {worst.next_step}" if worst else "Look at the run: its tasks may wait, hang or be retried."
    fields: Fields = [("Action", action), *_place(report), ("Table state", _stands(report))]
    return Alert(
        "deadline",
        "on_deadline",
        "critical",
        f"[sluice] {report.pipeline}: no commit for {_span(without_commit)}",
        f"{report.pipeline}: neither a commit nor an empty interval for {_span(without_commit)}; {how}.",
        True,
        (*fields, *_links(report, worst)),
        _data(report, seconds_without_commit=round(without_commit.total_seconds())),
    )


def offset_loss(report: Report, losses: Sequence[str]) -> Alert:
    """Offsets were given up under `on_offset_loss`."""
    return Alert(
        "offset_loss",
        "on_warning",
        "critical",
        f"[sluice] {report.pipeline}: offsets were lost, and the table continued without them",
        f"{report.pipeline}: committed offsets could not be read any more, and on_offset_loss allows to continue.",
        True,
        (
            ("Action", "Find the missing records, and set the source's `on_offset_loss` back to fail."),
            *_place(report),
            ("Lost", "\n".join(losses)),
            *_links(report),
        ),
        _data(report, losses=list(losses)),
    )


def lag_records(report: Report, lag: int, limit: int) -> Alert:
    """More offsets were left unread than the limit."""
    return _limit(
        report,
        "lag",
        f"{lag:,} offsets behind",
        f"The interval left {lag:,} offsets unread; max_lag_records is {limit:,}.",
        "If it keeps growing, raise the source's `max_records` or write.ranges, or run more often.",
        limit="max_lag_records",
        lag_records=lag,
    )


def lag(report: Report, behind: timedelta, limit: timedelta) -> Alert:
    """The table is complete up to a time that lies too far back."""
    return _limit(
        report,
        "lag",
        f"{_span(behind)} behind",
        f"The table is complete up to {_span(behind)} ago; max_lag is {_span(limit)}.",
        "If it keeps growing, raise the source's `max_records` or write.ranges, or run more often.",
        limit="max_lag",
        lag_seconds=round(behind.total_seconds()),
    )


def quarantine(report: Report, facts: IntervalFacts, limit: float) -> Alert:
    """Too many records were quarantined."""
    return _limit(
        report,
        "quarantine",
        f"{facts.quarantine_rate:.2%} of the records were quarantined",
        f"{facts.records_quarantined:,} of {facts.records_read:,} records were quarantined "
        f"({facts.quarantine_rate:.2%}); max_quarantine_rate is {limit:.2%}.",
        "Look at them with `sluice quarantine list`: the producers or the schema have changed.",
        limit="max_quarantine_rate",
        records_quarantined=facts.records_quarantined,
    )


def partitions(report: Report, remarks: Sequence[str]) -> Alert:
    """Records of some partitions wait, or are read otherwise than by their times."""
    told = _limit(
        report,
        "partitions",
        "some partitions need a look",
        "Records of some partitions wait, or are not read by their times; the others are read as usual.",
        "Bring back a partition's brokers, end a transaction that hangs, or correct the producer's clock.",
        remarks=list(remarks),
    )
    return replace(told, fields=(told.fields[0], ("Partitions", "\n".join(remarks)), *told.fields[1:]))


def gravest(failures: Sequence[Failure]) -> Failure | None:
    """The failure that decides the action: one that needs a person before one that passes by itself."""
    return min(failures, key=lambda f: _GRAVEST.index(f.recovery), default=None)


def _limit(report: Report, kind: Any, subject: str, summary: str, action: str, **data: Any) -> Alert:
    return Alert(
        kind,
        "on_warning",
        "warning",
        f"[sluice] {report.pipeline}: {subject}",
        f"{report.pipeline}: {summary[0].lower()}{summary[1:]}",
        False,
        (("Action", action), *_place(report), *_links(report)),
        _data(report, **data),
    )


def _action(worst: Failure | None, stands: bool, reads_on: bool) -> tuple[bool, str]:
    if stands:
        return False, "None for the table: rows and offsets are committed. Look why a task failed afterwards."
    if not reads_on:
        return True, "Start this run again when its cause is gone. The schedule continues by itself meanwhile."
    if worst is None:
        return False, "None yet: the next run starts from the same offsets. If that fails too, read the run's logs."
    if worst.recovery == "act":
        return True, "Fix the cause: every further interval fails in the same way until then."
    if worst.recovery is None:
        return True, "Look at it: no reason was recorded. The next run starts from the same offsets."
    return False, "None yet: the next run starts from the same offsets and may succeed. Act if it comes back."


def _failed(failures: Sequence[Failure], worst: Failure | None) -> Fields:
    """The failures, each cause once: the commit often repeats a write's error."""
    by_cause: dict[str, list[str]] = {}
    for one in sorted(failures, key=lambda f: f is not worst):
        by_cause.setdefault(one.what, []).append(one.task)
    causes = [f"{', '.join(tasks)}: {_short(what)}" for what, tasks in by_cause.items()]
    return [("What failed", "\n".join(causes) or "No task of the interval says why.")]


def _place(report: Report) -> Fields:
    facts = report.facts
    fields = [("Table", report.table), ("DAG run", report.run_id)]
    if facts is not None:
        fields += [("Instant", facts.instant), ("Offsets", ranges(facts.planned) or "none")]
    return fields


def _stands(report: Report) -> str:
    facts = report.facts
    if report.unknown is not None:
        return f"Nothing of a run that didn't commit is in the table. Its offsets are unknown now: {report.unknown}"
    stands = facts.stands if facts is not None else report.stands
    next_offsets = _positions(stands) if facts is None or facts.kind == "continue" else ""
    table = f" The table's next offsets: {next_offsets}." if next_offsets else ""
    if facts is not None and committed(report):
        return f"Rows and offsets of instant {facts.instant} are committed together.{table}"
    if not report.reads_on:
        return "Nothing of this run is in the table, and nothing else is changed."
    return f"Nothing of this interval is in the table, and nothing is lost: the next run starts where it did.{table}"


def _positions(stands: Iterable[PlannedRange]) -> str:
    stands = tuple(stands)
    named = ", ".join(f"{r.named_topic}[{r.partition}] {r.end}" for r in stands[:_PARTITIONS])
    return f"{named} and {len(stands) - _PARTITIONS} more partitions" if len(stands) > _PARTITIONS else named


def ranges(planned: Sequence[PlannedRange]) -> str:
    """Offsets as people read them: both ends included."""
    named = ", ".join(f"{r.named_topic}[{r.partition}] {r.start}-{r.end - 1}" for r in planned[:_PARTITIONS])
    return f"{named} and {len(planned) - _PARTITIONS} more partitions" if len(planned) > _PARTITIONS else named


def _links(report: Report, worst: Failure | None = None) -> Fields:
    links = [("Task log", worst.log if worst else None), ("Run", report.links.run), ("Page", report.links.page)]
    return [(label, address) for label, address in links if address]


def _data(report: Report, **more: Any) -> dict[str, Any]:
    facts = report.facts
    worst = gravest(report.failures)
    told = {
        "pipeline": report.pipeline,
        "table": report.table,
        "run_id": report.run_id,
        "time": _iso(report.ended),
        "instant": facts.instant if facts else None,
        "offsets": [_offsets(r) for r in facts.planned] if facts else [],
        "stands": [_offsets(r) for r in (facts.stands if facts else report.stands)],
        "failed": [
            {"task": f.task, "what": _short(f.what), "recovery": f.recovery, "log": f.log} for f in report.failures
        ],
        "links": {"run": report.links.run, "page": report.links.page, "log": worst.log if worst else None},
    }
    return {**told, **more}


def _offsets(r: PlannedRange) -> dict[str, Any]:
    return r.model_dump(include={"cluster", "topic", "partition", "start", "end"})


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


def _span(time: timedelta) -> str:
    """A duration in its two largest units: `2 h 5 min`."""
    seconds = max(0, round(time.total_seconds()))
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    named = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(named[:2]) or "0 s"
