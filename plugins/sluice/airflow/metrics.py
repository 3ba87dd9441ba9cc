"""Figures of each interval through Airflow's own metrics: StatsD, Datadog or OpenTelemetry, as `[metrics]` says.

All names begin with `sluice.` (after Airflow's own prefix) and carry the tags `pipeline` and `table`; those of one
cluster of streams carry `cluster`, too. docs/observe.md lists them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from sluice.airflow.releases import stats
from sluice.pipeline.model import Pipeline
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.messages import COUNTS
from sluice.protocol.standing import ClusterStanding, Standing

PHASES = {"start_commit": "start", "commit": "commit", "abort": "abort"}
_COUNTERS = (*COUNTS, "bytes_read", "bytes_written")


def tags(pipeline: Pipeline) -> dict[str, str]:
    """The tags of all of a pipeline's metrics."""
    return _tags(pipeline.name, pipeline.table_name)


def _tags(pipeline: str, table: str) -> dict[str, str]:
    return {"pipeline": pipeline, "table": table}


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
        of_cluster = {**own, "cluster": cluster}
        stats.incr("sluice.cluster_records_read", records, tags=of_cluster)
        stats.incr("sluice.cluster_bytes_read", facts.cluster_bytes.get(cluster, 0), tags=of_cluster)
    if facts.write_seconds is not None:
        _phase(pipeline, "write", facts.write_seconds)


def stands(pipeline: Pipeline, facts: IntervalFacts) -> None:
    """Say how far behind the table is after its newest commit."""
    own = tags(pipeline)
    if facts.lag_records is not None:
        stats.gauge("sluice.lag_records", facts.lag_records, tags=own)
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


def clusters(pipeline: Pipeline, standing: Standing, left: Iterable[str]) -> None:
    """Set the gauges of the clusters as an interval leaves them.

    A gauge keeps its value until it is set again, and no system that Airflow sends metrics to can withdraw one. So
    those of a cluster that is read no longer are set to 0.

    Args:
        pipeline: the pipeline.
        standing: the clusters' figures.
        left: clusters with gauges that are read no longer.
    """
    own = tags(pipeline)
    _gauges(own, "sluice.", standing.partitions, held_back_records=standing.held_back_records)
    if standing.metadata_failures is None:
        return
    stats.gauge("sluice.clusters", len(standing.clusters), tags=own)
    stats.gauge("sluice.metadata_failures", standing.metadata_failures, tags=own)
    gone = ClusterStanding(partitions=0, lag_records=0, held_back_records=0)
    for cluster, one in {**dict.fromkeys(left, gone), **standing.clusters}.items():
        of_cluster = {**own, "cluster": cluster}
        _gauges(
            of_cluster,
            "sluice.cluster_",
            one.partitions,
            lag_records=one.lag_records,
            held_back_records=one.held_back_records,
        )
        stats.gauge("sluice.cluster_unreachable", int(cluster in standing.unreachable), tags=of_cluster)


def mapping_changed(pipeline: str, table: str) -> None:
    """Count a change of where a pipeline's streams are, seen between its runs.

    Args:
        pipeline: the pipeline's name.
        table: the table's name.
    """
    stats.incr("sluice.metadata_changes", tags=_tags(pipeline, table))


def aborted(pipeline: Pipeline) -> None:
    """Count an interval that was aborted."""
    stats.incr("sluice.aborts", tags=tags(pipeline))


def _phase(pipeline: Pipeline, phase: str, seconds: float) -> None:
    stats.timing("sluice.phase_duration", seconds * 1000, tags={**tags(pipeline), "phase": phase})


def _gauges(of: dict[str, str], prefix: str, partitions: int, **known: int | None) -> None:
    for name, value in {"partitions": partitions, **known}.items():
        if value is not None:
            stats.gauge(f"{prefix}{name}", value, tags=of)


def _seconds_since(moment: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())
