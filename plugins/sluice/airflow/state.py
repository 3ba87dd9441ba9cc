"""What Sluice remembers of a table between runs, and of a task between its attempts.

Airflow 3.3 has state stores for both. For 3.2, Airflow's variables take their place: one for each key of each table or
task, named after the key, whose description names table or task. Two runs of a backfill that write the same variable at
once may lose what one of them has written: something is counted or sent once more, and nothing else depends on it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Protocol, cast

from airflow.sdk import Asset, Context, Variable

_RUNS = 20  # of a DAG, whose tasks' state is kept


class Store(Protocol):
    """A state store as Airflow 3.3 has it. All methods raise AirflowRuntimeError where Airflow doesn't answer."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""

    def set(self, key: str, value: Any) -> None:
        """Keep JSON as the value of a key."""

    def delete(self, key: str) -> None:
        """Forget a key; nothing happens if it isn't there."""


def of_asset(stores: Any | None, asset: Asset) -> Store:
    """The state of an asset.

    Args:
        stores: `asset_state_store` of the task's context; None where Airflow has none.
        asset: which one.
    """
    return cast("Store", stores[asset]) if stores is not None else _Variables(asset.uri)


def of_task(context: Context) -> Store:
    """The state of a task instance, which its next attempt finds."""
    store = context.get("task_state_store")
    return cast("Store", store) if store is not None else _TaskVariables(context)


class _Variables:
    """Airflow's variables as a store: one for each key of a table or task."""

    def __init__(self, of: str) -> None:
        self._of = of
        self._id = sha256(of.encode()).hexdigest()[:16]

    def get(self, key: str, default: Any = None) -> Any:
        return Variable.get(self._name(key), default=default, deserialize_json=True)

    def set(self, key: str, value: Any) -> None:
        about = f"What Sluice remembers of {self._of}; made by its tasks"
        Variable.set(self._name(key), value, description=about, serialize_json=True)

    def delete(self, key: str) -> None:
        Variable.delete(self._name(key))

    def _name(self, key: str) -> str:
        return f"{key if key.startswith('sluice_') else f'sluice_{key}'}.{self._id}"


class _TaskVariables:
    """A task's values by its runs, since no variable may be left behind by each run."""

    def __init__(self, context: Context) -> None:
        ti = context["ti"]
        self._variables = _Variables(f"the task {ti.task_id} of {ti.dag_id}")
        self._run = str(ti.run_id)

    def get(self, key: str, default: Any = None) -> Any:
        return self._runs(key).get(self._run, default)

    def set(self, key: str, value: Any) -> None:
        others = {run: kept for run, kept in self._runs(key).items() if run != self._run}
        newest = dict(list(others.items())[1 - _RUNS :])
        self._variables.set(key, {**newest, self._run: value})

    def delete(self, key: str) -> None:
        runs = self._runs(key)
        if runs.pop(self._run, None) is not None:
            self._variables.set(key, runs)

    def _runs(self, key: str) -> dict[str, Any]:
        return dict(self._variables.get(key, {}))
