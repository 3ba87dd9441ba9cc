"""What is remembered between runs where Airflow has no state stores: in its variables, of which no run leaves one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset

from sluice.airflow import state

ORDERS, FLIGHTS = Asset("file:///lake/orders"), Asset("file:///lake/flights")


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    kept: dict[str, str] = {}

    class Variable:
        @staticmethod
        def get(name: str, default: Any, deserialize_json: bool) -> Any:
            assert deserialize_json
            return json.loads(kept[name]) if name in kept else default

        @staticmethod
        def set(name: str, value: Any, description: str, serialize_json: bool) -> None:
            assert serialize_json
            assert description
            kept[name] = json.dumps(value)

        @staticmethod
        def delete(name: str) -> None:
            kept.pop(name, None)

    monkeypatch.setattr(state, "Variable", Variable)
    return kept


def of_task(run: str, task: str = "commit") -> state.Store:
    context: Any = {"ti": SimpleNamespace(dag_id="orders", task_id=task, run_id=run)}
    return state.of_task(context)


def test_airflows_own_stores_are_used_where_there_are_some(variables: dict[str, str]) -> None:
    own = object()
    assert state.of_asset({ORDERS: own}, ORDERS) is own
    assert state.of_task({"task_state_store": own}) is own  # type: ignore[typeddict-item]
    assert variables == {}


def test_each_table_has_its_own_values(variables: dict[str, str]) -> None:
    orders, flights = state.of_asset(None, ORDERS), state.of_asset(None, FLIGHTS)
    assert orders.get("sluice_alerts", default={}) == {}
    orders.set("sluice_alerts", {"failures": 2})
    orders.set("read_up_to", "7")
    assert flights.get("sluice_alerts", default={}) == {}
    assert state.of_asset(None, ORDERS).get("sluice_alerts") == {"failures": 2}
    orders.delete("read_up_to")
    assert [name.partition(".")[0] for name in variables] == ["sluice_alerts"]


def test_a_retry_finds_what_its_run_has_left_and_other_runs_and_tasks_do_not(variables: dict[str, str]) -> None:
    of_task("a").set("counted", "7")
    assert of_task("a").get("counted") == "7"
    assert of_task("b").get("counted") is None
    assert of_task("a", "alert").get("counted") is None
    of_task("b").set("counted", "8")
    of_task("a").delete("counted")
    assert (of_task("a").get("counted"), of_task("b").get("counted")) == (None, "8")


def test_a_task_has_one_variable_however_many_runs_it_has(variables: dict[str, str]) -> None:
    for run in range(50):
        of_task(f"run {run}").set("counted", str(run))
    (kept,) = variables.values()
    assert list(json.loads(kept)) == [f"run {run}" for run in range(30, 50)]
