"""Transactions and offsets as the page's JSON. Pure; times are ISO 8601 in UTC, offsets half open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from heapq import nsmallest
from typing import Any

from sluice.connectors.views import Instant, Timeline
from sluice.page.runs import RunFacts
from sluice.protocol.history import Attempt, PlannedPartition, RangeSummary, TableHistory, TransactionSummary
from sluice.protocol.messages import COUNTS
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.summary import FIGURES
from sluice.redact import redact

Json = dict[str, Any]
_LAG_LINES = 6  # partitions that have a line each; the others are summed
_ROWS = 200  # at most so many partitions are listed
LOGS_SAY_WHY = "The task's log in Airflow says why."
"""Instead of an error that the caller may not read."""


def transaction(found: TransactionSummary, history: TableHistory, timeline: Timeline | None) -> Json:
    """A transaction as a row of the list: its outcome, its times and its sums."""
    return {
        "instant": found.instant,
        "kind": found.kind,
        "state": found.state.value,
        "epoch": found.epoch,
        "dag_id": found.dag_id,
        "run_id": found.run_id,
        "reason": redact(found.reason),
        "replays": found.replays,
        "replayed_by": history.replayed_by.get(found.instant, []),
        "superseded_by": found.superseded_by,
        "service": found.service,
        "started": _time(found.started),
        "decided": _time(found.decided),
        "ended": _time(found.ended),
        "valid_through": _time(found.valid_through),
        "abort_reason": redact(found.abort_reason),
        "missing": list(found.missing),
        "losses": list(found.losses),
        "remarks": list(found.remarks),
        "replaced_file_groups": found.replaced_file_groups,
        "takeovers": found.takeovers,
        "offsets_planned": found.offsets_planned,
        "lag_left": found.lag_left,
        "timeline": timeline.standing(found.instant) if timeline is not None else None,
        "ranges": [[_bar(attempt) for attempt in r.attempts] for r in found.ranges],
        **{name: found.total(name) for name in FIGURES},
    }


def whole_transaction(
    found: TransactionSummary, history: TableHistory, timeline: Timeline | None, detail: TransactionSummary
) -> Json:
    """A transaction with its plan, its ranges and all attempts, taken from `detail` if they were dropped."""
    ranges = [_range(i, r, detail) for i, r in enumerate(detail.ranges)]
    return {
        **transaction(found, history, timeline),
        "whole_ranges": ranges,
        "idle": [_planned(p, detail) for p in detail.idle[:_ROWS]],
        "passed_over": [_planned(p, detail) for p in detail.passed_over[:_ROWS]],
        "others_total": len(detail.idle) + len(detail.passed_over),
        "committed": [{**tp._asdict(), "offset": offset} for tp, offset in detail.committed[:_ROWS]],
        "control_offsets": list(found.offsets),
        "audit": _audit(found),
    }


def without_errors(whole: Json) -> Json:
    """A transaction as `whole_transaction` gives it, without its attempts' errors: a task's log has the same texts."""
    ranges = [
        {
            **one,
            "attempts": [{**a, "error": LOGS_SAY_WHY} if a["error"] is not None else a for a in one["attempts"]],
        }
        for one in whole["whole_ranges"]
    ]
    return {**whole, "whole_ranges": ranges}


def run_without_transaction(run: RunFacts) -> Json:
    """A DAG run that opened no transaction: its window was empty, it failed before that, or it has just begun."""
    state = {"success": "empty", "failed": "failed"}.get(run.state, "running")
    return {
        "run_id": run.run_id,
        "state": state,
        "started": _time(run.started or run.after),
        "ended": _time(run.ended),
        "note": redact(run.note),
    }


def run(facts: RunFacts) -> Json:
    """A DAG run."""
    return {
        "run_id": facts.run_id,
        "state": facts.state,
        "run_type": facts.run_type,
        "started": _time(facts.started),
        "ended": _time(facts.ended),
        "note": redact(facts.note),
    }


def partitions(
    history: TableHistory,
    ends: Mapping[TopicPartition, int],
    last_times: Mapping[TopicPartition, datetime],
    most: int | None = _ROWS,
) -> list[Json]:
    """The partitions that lag most, or with `most` None all: committed offset, the log's end, the lag between them."""
    lags: dict[TopicPartition, int | None] = {}
    for tp in {*history.committed, *ends}:
        end, committed = ends.get(tp), history.committed.get(tp, (None, None))[0]
        lags[tp] = max(end - committed, 0) if end is not None and committed is not None else end
    rows = []
    for tp in nsmallest(len(lags) if most is None else most, lags, key=lambda tp: (-(lags[tp] or 0), tp)):
        committed, instant = history.committed.get(tp, (None, None))
        rows.append(
            {
                **tp._asdict(),
                "committed": committed,
                "instant": instant,
                "log_end": ends.get(tp),
                "lag": lags[tp],
                "last_record": _time(last_times.get(tp)),
            }
        )
    return rows


def last_record_times(newest_first: Iterable[TransactionSummary]) -> dict[TopicPartition, datetime]:
    """The latest record time of each partition, in the newest of the given transactions that read it."""
    times: dict[TopicPartition, datetime] = {}
    for found in newest_first:
        for attempt in found.counting():
            for p in attempt.partitions:
                if p.max_timestamp is not None:
                    times.setdefault(TopicPartition(p.cluster, p.topic, p.partition), p.max_timestamp)
    return times


def lag_lines(oldest_first: Sequence[TransactionSummary]) -> list[Json]:
    """The lag that each transaction left: a line for each of the partitions that lag most, and one for all others."""
    most: Counter[TopicPartition] = Counter()
    for found in oldest_first:
        for p in found.planned:
            most[p.topic_partition] = max(most[p.topic_partition], found.lag_left_in(p) or 0)
    drawn = nsmallest(_LAG_LINES, most, key=lambda tp: (-most[tp], tp))
    place = {tp: i for i, tp in enumerate(drawn)}
    others = len(most) - len(drawn)
    several = len({tp.cluster for tp in most}) > 1
    names = [f"{tp.cluster}/{tp}" if several else str(tp) for tp in drawn] + ([f"{others} others"] if others else [])
    lags = [_lags(found, place, len(names)) for found in oldest_first]
    lines: list[Json] = [{"name": name, "lags": [of[i] for of in lags]} for i, name in enumerate(names)]
    return lines if any(lag is not None for line in lines for lag in line["lags"]) else []


def _lags(found: TransactionSummary, place: Mapping[TopicPartition, int], number: int) -> list[int | None]:
    """The lag of each line: first the partitions' own, last the sum of all others."""
    sums: list[int | None] = [None] * number
    for p in found.planned:
        lag = found.lag_left_in(p)
        if lag is not None:
            line = place.get(p.topic_partition, number - 1)
            sums[line] = (sums[line] or 0) + lag
    return sums


def other_commit(instant: Instant) -> Json:
    """A completed instant of another writer or of a table service."""
    return {"instant": instant.requested, "action": instant.action, "at": _time(instant.modified)}


def _audit(found: TransactionSummary) -> Json:
    read, *accounted = (found.total(name) for name in COUNTS)
    return {"read": read, "accounted": sum(accounted), "holds": read == sum(accounted)}


def _bar(attempt: Attempt) -> Json:
    return {
        "began": _time(attempt.began),
        "ended": _time(attempt.ended),
        "failed": attempt.error is not None,
        "counts": attempt.counts,
    }


def _attempt(attempt: Attempt, shown: set[tuple[str, str, int]]) -> Json:
    return {
        **_bar(attempt),
        "attempt": attempt.attempt,
        "parts": attempt.parts,
        "parts_seen": attempt.parts_seen,
        "error": redact(attempt.error),
        "recovery": attempt.recovery,
        **{name: getattr(attempt, name) for name in FIGURES},
        "partitions": [
            {**p._asdict(), "max_timestamp": _time(p.max_timestamp)}
            for p in attempt.partitions
            if (p.cluster, p.topic, p.partition) in shown
        ],
    }


def _range(number: int, r: RangeSummary, found: TransactionSummary) -> Json:
    return {
        "number": number,
        "planned": [_planned(p, found) for p in r.planned[:_ROWS]],
        "planned_total": len(r.planned),
        "attempts": [_attempt(a, {(p.cluster, p.topic, p.partition) for p in r.planned[:_ROWS]}) for a in r.attempts],
    }


def _planned(p: PlannedPartition, found: TransactionSummary) -> Json:
    return {**p._asdict(), "lag_left": found.lag_left_in(p)}


def _time(time: datetime | None) -> str | None:
    return time.isoformat() if time is not None else None


def facts(of: Any) -> Json:
    """A summary of a commit's metadata."""
    return asdict(of)
