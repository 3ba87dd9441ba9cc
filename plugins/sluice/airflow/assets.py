"""The table as an Airflow asset, updated by each commit, so that other DAGs can be scheduled on it.

An event says which rows are new: those whose `_hoodie_commit_time` is after `previous_instant` and not after `instant`.
`previous_instant` is the previous event's instant, so that a table's events leave no gap even if one of them could not
be sent. `path` is the table's path in the pipeline file: Airflow removes slashes from some URIs.
"""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowRuntimeError

from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.protocol.interval_facts import IntervalFacts

Task = TypeVar("Task", bound=BaseOperator)


def table_asset(pipeline: Pipeline) -> Asset:
    """The pipeline's table, named only by its path: the same asset in every pipeline and DAG."""
    path = pipeline.table_id
    return Asset(path if path.isascii() else quote(path, safe=":/"))  # Airflow takes no other characters


def without_assets(task: Task) -> Task:
    """The copy of a task that is about to run, without the assets that its DAG shows.

    Airflow refuses to start a task whose asset isn't active, which happens if any other DAG gives the same URI another
    name. No commit and no alert may depend on that.
    """
    task.inlets, task.outlets = [], []
    return task


def tell_of_commit(pipeline: Pipeline, context: Context, facts: IntervalFacts) -> None:
    """Set the extra of the asset event that Airflow creates when the task has succeeded."""
    asset = table_asset(pipeline)
    context["outlet_events"][asset].extra = {
        "instant": facts.instant,
        "previous_instant": _previous(asset, facts.instant),
        "kind": facts.kind,
        "path": pipeline.table_id,
        "offsets": [r.model_dump(include={"cluster", "topic", "partition", "start", "end"}) for r in facts.stands],
        "rows": facts.records_written,
        "valid_through": facts.valid_through.isoformat() if facts.valid_through else None,
    }


def _previous(asset: Asset, instant: str) -> str | None:
    """The instant up to which earlier events announced rows; None before the first event."""
    from airflow.sdk.execution_time.context import InletEventsAccessors

    try:
        latest = list(InletEventsAccessors([asset])[asset].ascending(False).limit(2))
    except AirflowRuntimeError as error:  # the event then announces the whole table again, which loses nothing
        log.warning("the table's earlier asset events can't be read", asset=asset.name, reason=str(error))
        return None
    known: list[dict[str, Any]] = [dict(event.extra or {}) for event in latest]
    # This task may have succeeded before and be running again now.
    before = [extra for extra in known if extra.get("instant") not in (None, instant)]
    return str(before[0]["instant"]) if before else None
