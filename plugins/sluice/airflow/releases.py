"""What of Airflow differs between the releases that Sluice runs on, or may change in any, as it isn't public.

docs/production.md lists the releases. Airflow 3.2 lacks two of 3.3's means: retry policies, in whose place an error
that isn't to be retried is raised as AirflowFailException, and state stores of tasks and assets, in whose place
`state.py` uses Airflow's variables. The tables of Airflow's database are read in `listeners.py` and by the page alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import airflow.sdk
from airflow.sdk import DAG, Asset, Context
from airflow.sdk.observability import stats as _stats

if TYPE_CHECKING:
    from airflow.sdk.execution_time.comms import AssetEventResult
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

HAS_RETRY_POLICIES = hasattr(airflow.sdk, "RetryPolicy")
"""Whether a policy can decide by a task's error whether it is retried."""

HAS_DEADLINES = HAS_RETRY_POLICIES
"""Whether there can be an alert on a run that is late.

Airflow 3.2.2 calls the function without the DAGs' folder on Python's path. After that, with its database in SQLite, its
scheduler ends, since it looks for the callback by a text in the place of an id.
"""

BEGINS_IN_TRIGGERER = HAS_RETRY_POLICIES
"""Whether a task that says so begins in the triggerer; Airflow 3.2 doesn't look at it, and starts a process."""

stats: Any = _stats if hasattr(_stats, "incr") else _stats.Stats
"""Airflow's metrics, with `incr`, `gauge` and `timing`: functions of a module, before Airflow 3.3 of a class."""


def number_of_runs(dag_id: str, states: Sequence[str], run_ids: Sequence[str] | None = None) -> int:
    """How many runs a DAG has in one of these states, of all or of some; asked from a task.

    Raises:
        AirflowRuntimeError: Airflow doesn't answer.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return RuntimeTaskInstance.get_dr_count(
        dag_id=dag_id, states=list(states), run_ids=None if run_ids is None else list(run_ids)
    )


def ended_tasks(context: Context) -> list[dict[str, Any]]:
    """`task_id`, `map_index` and `state` of the task instances of a task's run that have ended, as it asks for them.

    A task that waits for its own retry is among them.

    Raises:
        AirflowRuntimeError: Airflow doesn't answer.
    """
    ti = cast("RuntimeTaskInstance", context["ti"])
    return list(ti.get_task_breadcrumbs(ti.dag_id, ti.run_id))


def latest_events(asset: Asset, number: int) -> Iterable[AssetEventResult]:
    """The latest events of an asset, whether or not it is one of the task's inlets.

    Raises:
        AirflowRuntimeError: Airflow doesn't answer.
    """
    from airflow.sdk.execution_time.context import InletEventsAccessors

    return InletEventsAccessors([asset])[asset].ascending(False).limit(number)


def redacted(value: Any) -> Any:
    """The value without the secrets that this process has masked, in texts at any depth."""
    from airflow.sdk._shared.secrets_masker import redact

    return redact(value)


def dags_of_file(file: Path) -> dict[str, DAG]:
    """The DAGs that a file makes, read as Airflow's DAG processor reads them."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=str(file), safe_mode=False, load_op_links=False).dags
