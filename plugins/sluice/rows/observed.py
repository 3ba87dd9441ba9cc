"""The metrics that a DataFrame observed while it ran."""

from __future__ import annotations

from typing import Any


def observed(frame: Any, name: str) -> dict[str, Any]:
    """The counts of the run that wrote `frame` (a Java Dataset whose own query execution was run)."""
    row = metric(frame.queryExecution().observedMetrics(), name)
    return {field: row.getAs(field) for field in list(row.schema().fieldNames())}


def metric(metrics: Any, name: str) -> Any:
    """One of a run's observed metrics, as Spark's row.

    Raises:
        RuntimeError: the run has none of that name.
    """
    if not metrics.contains(name):
        raise RuntimeError(f"Spark delivered no counts for the range ({name})")
    return metrics.apply(name)
