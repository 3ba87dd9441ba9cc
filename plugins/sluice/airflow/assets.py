"""The table as an Airflow asset, updated by each commit, so that other DAGs can be scheduled on it.

An event announces new rows: their `_hoodie_commit_time` is after `previous_instant` and not after `instant`.
`previous_instant` is the newest instant of the events before, so that a table's events leave no gap even if one of them
could not be sent. A commit that is not after that instant has no event: the rows are announced already. `path` is the
table's path in the pipeline file: Airflow removes slashes from some URIs.
"""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

from airflow.sdk import Asset, BaseOperator, Context

from sluice.airflow.releases import latest_events
from sluice.pipeline.model import Pipeline
from sluice.protocol.interval_facts import IntervalFacts

Task = TypeVar("Task", bound=BaseOperator)
_LATEST = 20  # events among which the newest instant is looked for


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


def told_up_to(asset: Asset) -> str | None:
    """The instant up to which earlier events announced rows; None before the first event.

    The newest instant, not the latest event's: earlier releases announced a commit again when its task ran again.

    Raises:
        AirflowRuntimeError: Airflow doesn't answer.
    """
    latest = latest_events(asset, _LATEST)
    return max((str(e.extra["instant"]) for e in latest if e.extra and e.extra.get("instant")), default=None)


def tell_of_commit(pipeline: Pipeline, context: Context, facts: IntervalFacts, previous: str | None) -> None:
    """Set the extra of the asset event that Airflow creates when the task has succeeded.

    Args:
        pipeline: whose table it is.
        context: the task's.
        facts: the commit's facts.
        previous: the instant up to which rows are announced already, before that of `facts`.
    """
    context["outlet_events"][table_asset(pipeline)].extra = {
        "instant": facts.instant,
        "previous_instant": previous,
        "kind": facts.kind,
        "path": pipeline.table_id,
        "offsets": [r.model_dump(include={"cluster", "topic", "partition", "start", "end"}) for r in facts.stands],
        "rows": facts.records_written,
        "valid_through": facts.valid_through.isoformat() if facts.valid_through else None,
    }
