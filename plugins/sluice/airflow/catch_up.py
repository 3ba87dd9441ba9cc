"""The task `catch_up`: while limits leave records for the next interval, that one follows at once."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from sluice.airflow.notes import COMMIT
from sluice.airflow.releases import number_of_runs
from sluice.airflow.transactions import INTERVAL_KEY
from sluice.airflow.trigger_form import reads_on
from sluice.pipeline.model import Pipeline
from sluice.protocol.interval_facts import IntervalFacts

PREFIX = "catch_up__"
"""The prefix of the id of a run that follows; the instant of the interval that it follows comes after it."""


class CatchUpOperator(TriggerDagRunOperator):
    """Triggers the DAG's next run if this one's interval was cut short by a limit, and is skipped otherwise.

    The next run's id is made of this interval's instant, so that another attempt at the task triggers no other run. A
    DAG has one active run at a time (`max_active_runs`), so that the run waits for the end of this one.
    """

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(
            trigger_dag_id=pipeline.name,
            skip_when_already_exists=True,
            openlineage_inject_parent_info=False,
            **kwargs,
        )

    def execute(self, context: Context) -> None:
        """Trigger it.

        Raises:
            AirflowSkipException: there is nothing to follow for, or another run waits already.
            DagRunTriggerException: Airflow's way to trigger a run; the task succeeds.
        """
        ti = context["ti"]
        found = ti.xcom_pull(task_ids=COMMIT, key=INTERVAL_KEY)
        facts = IntervalFacts.model_validate(found) if found is not None else None
        if facts is None or not facts.behind or not reads_on(context):
            raise AirflowSkipException("no limit has left records for the next interval")
        if ti.get_dag(ti.dag_id).is_paused:
            raise AirflowSkipException("the DAG is paused")
        if number_of_runs(ti.dag_id, ["queued"]):
            raise AirflowSkipException("another run of the DAG waits already")
        self.trigger_run_id = f"{PREFIX}{facts.instant}"
        super().execute(context)
