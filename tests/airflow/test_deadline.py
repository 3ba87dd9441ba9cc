"""Which late runs are told of by Airflow's deadline; that one is told at all is in `test_watching.py`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sluice.airflow import deadline
from sluice.airflow.deadline import deadline_alert, run_is_late
from sluice.errors import ActionRequiredError, PipelineFileError

RUN = {"dag_id": "orders", "dag_run_id": "r1", "state": "running", "run_type": "scheduled", "conf": None}


@pytest.mark.parametrize(
    "other",
    [{"state": "failed"}, {"state": "queued"}, {"run_type": "backfill"}, {"conf": {"mode": "replay", "instant": "7"}}],
    ids=str,
)
def test_runs_that_ended_or_wait_or_are_a_persons_own_are_left_out(other: dict[str, Any]) -> None:
    run_is_late({"dag_run": {**RUN, **other}}, 60, None)


def test_a_pipeline_that_cannot_be_read_any_more_fails_the_callback() -> None:
    with pytest.raises(ActionRequiredError, match="can't be read, so no alert is sent"):
        run_is_late({"dag_run": RUN}, 60, "gone.py")


def test_without_a_deadline_there_is_none() -> None:
    assert deadline_alert(None) is None


def test_where_airflow_cannot_call_for_a_late_run_the_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "HAS_DEADLINES", False)
    assert deadline_alert(None) is None
    with pytest.raises(PipelineFileError, match=r"needs Airflow 3\.3 .* take the key out") as refused:
        deadline_alert(timedelta(minutes=5))
    assert refused.value.where["key"] == "alerts.deadline"
