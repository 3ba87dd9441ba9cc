"""A pipeline's second DAG: its table services, one task each, on their own schedule or by hand.

No task depends on another's success: each is useful by itself, and each failure shows in the run. They run one at a
time, in the order of their weights, because each holds the table.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from sluice.airflow.failures import task_defaults
from sluice.airflow.services import (
    CHANGE_VERSION,
    SparkServiceOperator,
    TableServiceOperator,
    TableVersionOperator,
)
from sluice.airflow.timetables import timetable_of
from sluice.pipeline.model import Pipeline
from sluice.pipeline.services import TableServices
from sluice.protocol.services import IN_ONE_STEP, SERVICES

_TO_START = timedelta(minutes=10)  # a JVM, and a Spark application until it is under way
_FIRST = len(SERVICES)
_LAST = 0  # a change of the version comes after the compaction, which it would do itself else


def build_table_services_dag(pipeline: Pipeline, *, auto_register: bool = True) -> DAG | None:
    """The DAG of the pipeline's table services; None if the pipeline has no such section.

    Args:
        pipeline: whose table it is.
        auto_register: whether Airflow picks the DAG up even if no name in the module refers to it.

    Raises:
        PipelineFileError: schedule or time zone can't be used; `where` names the key.
    """
    services = pipeline.table_services
    if services is None:
        return None
    names_version = pipeline.sink.options.names_version
    with DAG(
        dag_id=pipeline.services_dag_id,
        description=f"Table services of {pipeline.table_id}",
        doc_md=_in_words(pipeline, services),
        schedule=timetable_of(services.schedule, pipeline.timezone, "table_services.schedule"),
        start_date=pipeline.start_date,
        catchup=False,
        max_active_runs=1,
        max_active_tasks=1,
        is_paused_upon_creation=pipeline.paused,
        tags={"sluice", "table services", *pipeline.tags},
        auto_register=auto_register,
        # By then an interval has taken the table over, so what hangs has nothing more to do.
        default_args={**task_defaults(pipeline), "execution_timeout": services.wait + services.timeout + _TO_START},
    ) as dag:
        if "compaction" in pipeline.sink.capabilities.services:
            SparkServiceOperator(task_id="compaction", pipeline=pipeline, service="compaction", priority_weight=_FIRST)
        if services.clustering is not None:
            SparkServiceOperator(task_id="clustering", pipeline=pipeline, service="clustering", priority_weight=_FIRST)
        for weight, service in enumerate(reversed(IN_ONE_STEP), 1):
            TableServiceOperator(
                task_id=service,
                pipeline=pipeline,
                service=service,
                priority_weight=weight,
            )
        if names_version:
            TableVersionOperator(
                task_id="table_version", pipeline=pipeline, service="table_version", priority_weight=_LAST
            )
    if names_version:  # after the tasks, into each of which Airflow would copy it: see `build_dag`
        dag.params[CHANGE_VERSION] = _change_version()
    return dag


def _change_version() -> Param:
    """The field of the trigger form; a run of the schedule has its default."""
    return Param(
        False,
        type="boolean",
        title="Change the table's version",
        description_md="Bring the table to the `table_version` of the pipeline's file. Otherwise the task of that name "
        "is skipped.",
    )


def _in_words(pipeline: Pipeline, services: TableServices) -> str:
    return (
        f"Keeps the Hudi table `{pipeline.table_name}` at `{pipeline.table_id}` small and quick.\n\n"
        f"Each task is a transaction that holds the table, as an interval of `{pipeline.name}` does: one waits for the "
        f"other. It is safe to run this by hand, to stop it, and to run it twice.\n\n"
        f"- Files that only commits older than the last {services.keep_commits} read are deleted (cleaning).\n"
        f"- Of the timeline, the last {services.keep_timeline} commits stay active (archiving).\n"
        f"- The metadata table's log files are merged after {services.metadata_after_delta_commits} of its commits.\n"
    )
