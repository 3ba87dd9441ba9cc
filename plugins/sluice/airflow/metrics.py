"""Figures of each interval through Airflow's own metrics: StatsD, Datadog or OpenTelemetry, as `[metrics]` says.

All names begin with `sluice.` (after Airflow's own prefix) and carry the tags `pipeline` and `table`; those of one
cluster of streams carry `cluster`, too. docs/observe.md lists them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from airflow.sdk.observability import stats

from sluice.pipeline.model import Pipeline
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.messages import COUNTS

PHASES = {"start_commit": "start", "commit": "commit", "abort": "abort"}
_COUNTERS = (*COUNTS, "bytes_read", "bytes_written")


def tags(pipeline: Pipeline) -> dict[str, str]:
    """The tags of all of a pipeline's metrics."""
    return {"pipeline": pipeline.name, "table": pipeline.table_name}


@contextmanager
def timed_step(pipeline: Pipeline, task_id: str) -> Iterator[None]:
    """Measure a coordinator's step; failed steps are not measured."""
    begun = time.monotonic()
    yield
    if task_id in PHASES:
        _phase(pipeline, PHASES[task_id], time.monotonic() - begun)


def committed(pipeline: Pipeline, facts: IntervalFacts) -> None:
    """Count a commit and its records; to be called once for each."""
    own = tags(pipeline)
    stats.incr("sluice.commits", tags=own)
    for name in _COUNTERS:
        stats.incr(f"sluice.{name}", int(getattr(facts, name)), tags=own)
    for cluster, records in facts.cluster_records.items():
        stats.incr("sluice.cluster_records_read", records, tags={**own, "cluster": cluster})
    if facts.write_seconds is not None:
        _phase(pipeline, "write", facts.write_seconds)


def stands(pipeline: Pipeline, facts: IntervalFacts) -> None:
    """Say how far behind the table is after its newest commit."""
    own = tags(pipeline)
    if facts.lag_records is not None:
        stats.gauge("sluice.lag_records", facts.lag_records, tags=own)
    for cluster, lag in facts.cluster_lag.items():
        stats.gauge("sluice.cluster_lag_records", lag, tags={**own, "cluster": cluster})
    if facts.valid_through is not None:
        stats.gauge("sluice.lag_seconds", _seconds_since(facts.valid_through), tags=own)


def empty(pipeline: Pipeline, lag_records: int | None, valid_through: datetime | None) -> None:
    """Count an empty interval. There was nothing that could be read; records may be held back all the same.

    Args:
        pipeline: the pipeline.
        lag_records: offsets up to the high watermark that were left unread; None if unknown.
        valid_through: the time up to which the table is complete; None if unknown.
    """
    own = tags(pipeline)
    stats.incr("sluice.empty_intervals", tags=own)
    if lag_records is not None:
        stats.gauge("sluice.lag_records", lag_records, tags=own)
    if valid_through is not None:
        stats.gauge("sluice.lag_seconds", _seconds_since(valid_through), tags=own)


def aborted(pipeline: Pipeline) -> None:
    """Count an interval that was aborted."""
    stats.incr("sluice.aborts", tags=tags(pipeline))


def _phase(pipeline: Pipeline, phase: str, seconds: float) -> None:
    stats.timing("sluice.phase_duration", seconds * 1000, tags={**tags(pipeline), "phase": phase})


def _seconds_since(moment: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())
