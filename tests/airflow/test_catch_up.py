"""When a run is followed by the next at once: after a limit, and where nothing else will read on anyway."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DagRunTriggerException
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from sluice.airflow.catch_up import CatchUpOperator
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.transaction import State

from .test_dag_shape import a_pipeline

CUT_SHORT = {"behind": True}


def _follow(
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any] | None,
    *,
    paused: bool = False,
    queued: int = 0,
    run_type: str = "scheduled",
    **params: Any,
) -> str:
    """The id of the run that follows one with these facts."""
    found = IntervalFacts(instant="7", run_id="r", state=State.COMMITTED, **facts) if facts is not None else None
    ti = SimpleNamespace(
        dag_id="orders",
        xcom_pull=lambda **_: found.model_dump(mode="json") if found is not None else None,
        xcom_push=lambda **_: None,
        get_dag=lambda _: SimpleNamespace(is_paused=paused),
    )
    monkeypatch.setattr(RuntimeTaskInstance, "get_dr_count", staticmethod(lambda **_: queued))
    task = CatchUpOperator(task_id="catch_up", pipeline=a_pipeline())
    context: Any = {"ti": ti, "params": params, "dag_run": SimpleNamespace(run_type=run_type)}
    with pytest.raises(DagRunTriggerException) as caught:
        task.execute(context)
    triggered = caught.value
    assert (triggered.trigger_dag_id, triggered.skip_when_already_exists) == ("orders", True)
    assert not triggered.conf
    return str(triggered.dag_run_id)


def test_an_interval_that_a_limit_cut_short_is_followed_by_a_run_that_is_named_after_it(monkeypatch):
    assert _follow(monkeypatch, CUT_SHORT) == _follow(monkeypatch, CUT_SHORT) == "catch_up__7"
    assert _follow(monkeypatch, CUT_SHORT, run_type="operator_triggered") == "catch_up__7"


@pytest.mark.parametrize(
    ("facts", "more"),
    [
        (None, {}),
        ({"behind": False, "lag_records": 100}, {}),
        (CUT_SHORT, {"paused": True}),
        (CUT_SHORT, {"queued": 1}),
        (CUT_SHORT, {"run_type": "backfill"}),
        (CUT_SHORT, {"mode": "replay"}),
        (CUT_SHORT, {"mode": "range by offsets"}),
        (CUT_SHORT, {"dry_run": True}),
    ],
    ids=["empty", "level", "paused", "queued", "backfill", "replay", "range", "dry run"],
)
def test_no_run_follows(monkeypatch, facts, more):
    with pytest.raises(AirflowSkipException):
        _follow(monkeypatch, facts, **more)
