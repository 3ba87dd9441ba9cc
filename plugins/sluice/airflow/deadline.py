"""The alert of a run that neither ends nor fails: Airflow's DeadlineAlert, which the scheduler watches.

It calls a function in a process of the executor, with connections and variables but without a task's other means, and
names the run. Runs that have ended are left to the task `alert`, which knows more about them.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, cast

from airflow.sdk import Context
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from sluice.airflow.alerting import AlertOperator, of_run_or_last, tell_all
from sluice.airflow.alerts import Links, Report
from sluice.airflow.alerts.words import deadline
from sluice.airflow.connections import source_and_control
from sluice.airflow.links import page_url, run_url
from sluice.airflow.notes import ALERT
from sluice.airflow.releases import HAS_DEADLINES, dags_of_file
from sluice.airflow.trigger_form import CONTINUE, MODE
from sluice.errors import ActionRequiredError, PipelineFileError, SluiceError
from sluice.logs import log
from sluice.pipeline.model import Pipeline

_LOADED_BY_AIRFLOW = "unusual_prefix_"  # with which Airflow names the modules that it makes of files with DAGs


def deadline_alert(limit: timedelta | None) -> DeadlineAlert | None:
    """The DAG's deadline: a run must have ended this long after it was queued.

    Raises:
        PipelineFileError: this Airflow can't call a function for a late run.
    """
    if limit is None:
        return None
    if not HAS_DEADLINES:
        raise PipelineFileError(
            "`alerts.deadline` needs Airflow 3.3 or newer: an older scheduler may end when a run is late.",
            next_step="take the key out, or upgrade Airflow.",
            key="alerts.deadline",
        )
    where = {"limit_seconds": limit.total_seconds(), "dag_file": _dag_file()}
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=limit,
        callback=SyncCallback(run_is_late, kwargs=where),
    )


def run_is_late(context: dict[str, Any], limit_seconds: float, dag_file: str | None) -> None:
    """Send the alert that a run has exceeded the deadline.

    Args:
        context: `dag_run` as Airflow's API shows it.
        limit_seconds: the pipeline's deadline.
        dag_file: the DAG's file, relative to a folder of Python's path. The pipeline itself is not an argument, since
            Airflow stores arguments in its database, and a notifier's may be secret.

    Raises:
        ExceptionGroup: notifiers failed repeatedly; the callback's log shows it.
        ActionRequiredError: the DAG is no longer in its file.
    """
    run = context["dag_run"]
    if run["state"] != "running":
        log.info("this run has ended, or waits for one that makes progress", run=run["dag_run_id"], state=run["state"])
        return
    if run["run_type"] == "backfill" or (run["conf"] or {}).get(MODE, CONTINUE) != CONTINUE:
        log.info(
            "a window or a replay may take longer; runs of the schedule that wait for it alert on it",
            run=run["dag_run_id"],
        )
        return
    pipeline = _pipeline(run["dag_id"], dag_file)
    report = _report(pipeline, run)
    if report.ended - report.began < timedelta(seconds=limit_seconds) / 2:
        log.info("this run has waited in the queue, and starts only now", run=run["dag_run_id"])
        return
    alert = deadline(report, report.ended - report.began, "its run has not ended")
    links = {"dag_run": run, "run_id": run["dag_run_id"]}
    tell_all(pipeline, alert, cast("Context", links))


def _report(pipeline: Pipeline, run: dict[str, Any]) -> Report:
    known: dict[str, Any] = {}
    try:
        _, control = source_and_control(pipeline)
        known = of_run_or_last(pipeline, control, run["dag_id"], run["dag_run_id"])
    except SluiceError as error:
        log.warning("the control topic can't be read; the message goes out without offsets", reason=str(error))
        known = {"unknown": error.what}
    return Report(
        pipeline=pipeline.name,
        table=pipeline.table_id,
        run_id=run["dag_run_id"],
        outcome="failed",
        began=datetime.fromisoformat(run["start_date"] or run["queued_at"]),
        ended=datetime.now(UTC),
        links=Links(run_url(run["dag_id"], run["dag_run_id"]), page_url(run["dag_id"], run["dag_run_id"])),
        **known,
    )


def _dag_file() -> str | None:
    """The file that Airflow is reading now, relative to a folder of Python's path if it is in one."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith(_LOADED_BY_AIRFLOW):
        frame = frame.f_back
    if frame is None:
        return None
    file = Path(frame.f_globals["__file__"])
    folders = [Path(entry) for entry in sys.path if entry and file.is_relative_to(entry)]
    return str(file.relative_to(max(folders, key=lambda folder: len(folder.parts)))) if folders else str(file)


def _pipeline(dag_id: str, dag_file: str | None) -> Pipeline:
    # Airflow puts the DAGs' folder at the end of the path, in the version that the run has.
    found = next((f for f in (Path(e, dag_file or "") for e in reversed(sys.path)) if f.is_file()), None)
    dags = dags_of_file(found) if found else {}
    if dag_id not in dags:
        raise ActionRequiredError(
            "A run is late, but its pipeline can't be read, so no alert is sent.",
            next_step="look at the DAG's import errors.",
            dag=dag_id,
            file=dag_file,
        )
    return cast("AlertOperator", dags[dag_id].get_task(ALERT)).pipeline
