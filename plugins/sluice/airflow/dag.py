"""A pipeline as a DAG: start_commit, one write task for each range, commit, and abort, which always runs last.

From Python, without a pipeline file, in any file of the DAGs folder::

    from sluice.airflow.dag import build_dag
    from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source

    dag = build_dag(
        Pipeline(
            name="orders",
            schedule="5 minutes",
            source=Source(kafka=Kafka(topics="orders")),
            sink=Sink(hudi=Hudi(path="s3a://lake/orders", schema="id BIGINT, amount DOUBLE")),
        )
    )
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, BaseOperator, TriggerRule

from sluice.airflow.alerting import AlertOperator
from sluice.airflow.deadline import deadline_alert
from sluice.airflow.failures import task_defaults
from sluice.airflow.notes import ABORT, ALERT, CATALOG_SYNC, CATCH_UP, COMMIT, START_COMMIT, WRITE
from sluice.airflow.notifiers import check_notifiers
from sluice.airflow.operators import OnePipeline, SluiceWriteOperator, WaitingWriteOperator
from sluice.airflow.releases import BEGINS_IN_TRIGGERER
from sluice.airflow.tasks import AbortOperator, CatalogSyncOperator, CommitOperator, StartCommitOperator
from sluice.airflow.timetables import timetable
from sluice.airflow.trigger_form import trigger_form
from sluice.errors import PipelineFileError
from sluice.pipeline.catalog import CatalogSync
from sluice.pipeline.model import Pipeline

TAG = "sluice"
_ALERT_RETRIES = 3
_ALERT_TIMEOUT = timedelta(minutes=5)
_TO_START = timedelta(minutes=30)
_OF_THE_LEASE = 0.8  # a commit must have ended, either way, before another coordinator may take it over


def build_dag(pipeline: Pipeline, *, auto_register: bool = True) -> DAG:
    """The pipeline's DAG; each of its runs is one transaction interval.

    Args:
        pipeline: what to load, and how.
        auto_register: whether Airflow picks the DAG up even if no name in the module refers to it.

    Raises:
        PipelineFileError: schedule, time zone, deadline, workers or a notifier can't be used; `where` names the key.
    """
    check_notifiers(pipeline)
    with DAG(
        dag_id=pipeline.name,
        description=pipeline.description or f"{pipeline.source.options.topics_in_words} to {pipeline.table_id}",
        doc_md=_in_words(pipeline),
        schedule=timetable(pipeline),
        start_date=pipeline.start_date,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=pipeline.paused,
        tags={TAG, *pipeline.tags},
        deadline=deadline_alert(pipeline.alerts.deadline),
        auto_register=auto_register,
        default_args=task_defaults(pipeline),
    ) as dag:
        # It may wait for another run's interval or a table service, and then has its own work to do.
        held = max(pipeline.write.timeout, pipeline.table_services.timeout if pipeline.table_services else timedelta())
        longest_wait = held + pipeline.control.commit_timeout + _TO_START
        start = StartCommitOperator(task_id=START_COMMIT, pipeline=pipeline, execution_timeout=longest_wait)
        writes = SluiceWriteOperator if pipeline.write.workers is None else _waiting()
        write = writes.partial(
            task_id=WRITE,
            pipeline=OnePipeline(pipeline),
            map_index_template="{{ task.reads }}",
            execution_timeout=pipeline.write.timeout,
        ).expand_kwargs(start.output)
        # An interval with nothing to write skips `write`, but `commit` still commits it or reports it as empty: no
        # rule that counts skipped tasks would work. With ALL_DONE, commit itself fails if start_commit has failed.
        tolerant = pipeline.on_missing_range == "commit"
        commit = CommitOperator(
            task_id=COMMIT,
            pipeline=pipeline,
            execution_timeout=pipeline.control.commit_timeout * _OF_THE_LEASE,
            trigger_rule=TriggerRule.ALL_DONE if tolerant else TriggerRule.NONE_FAILED,
        )
        # A teardown, so that a failed run stays red when it succeeds, and that it runs if a person marks the run
        # failed. Below all three, since commit fails as soon as one write has, while the others still write.
        abort = AbortOperator(task_id=ABORT, pipeline=pipeline).as_teardown()
        start >> write >> commit >> abort
        start >> commit
        [start, write] >> abort
        last: list[BaseOperator] = [abort]
        if pipeline.catalog_sync is not None:
            # Beside abort: a failed sync makes the run red, but the commit before it remains. Retried only once,
            # since the next interval waits for it, and catches up.
            sync = _catalog_sync(pipeline, pipeline.catalog_sync)
            commit >> sync
            last.append(sync)
        if pipeline.catch_up:
            from sluice.airflow.catch_up import CatchUpOperator  # imports Airflow's database, for Airflow 2

            follow = CatchUpOperator(task_id=CATCH_UP, pipeline=pipeline)
            commit >> follow
            last.append(follow)
        if pipeline.alerts.tells_anybody:
            last >> _alert(pipeline)
    # Airflow copies the parameters that a DAG has into each task made in it, and each copy takes six validations of its
    # schemas when the DAG is serialized. A run's parameters are the DAG's all the same.
    dag.params.update(trigger_form(pipeline))
    return dag


def _waiting() -> type[WaitingWriteOperator]:
    if not BEGINS_IN_TRIGGERER:  # the task would submit a Spark job for what a worker writes as well
        raise PipelineFileError(
            "`write.workers` needs Airflow 3.3 or newer: in an older one no task can wait for a worker.",
            next_step="take the key out, so that each range is a Spark job, or upgrade Airflow.",
            key="write.workers",
        )
    return WaitingWriteOperator


def _catalog_sync(pipeline: Pipeline, catalogs: CatalogSync) -> CatalogSyncOperator:
    return CatalogSyncOperator(
        task_id=CATALOG_SYNC,
        pipeline=pipeline,
        execution_timeout=catalogs.timeout,
        retries=min(1, pipeline.retries),
    )


def _alert(pipeline: Pipeline) -> AlertOperator:
    """A teardown like `abort`, and below it: it runs however the run went, and doesn't change the run's state."""
    alert = AlertOperator(
        task_id=ALERT,
        pipeline=pipeline,
        retries=max(_ALERT_RETRIES, pipeline.retries),
        execution_timeout=_ALERT_TIMEOUT,
    )
    alert.as_teardown()
    return alert


def _in_words(pipeline: Pipeline) -> str:
    source, sink = pipeline.source.options, pipeline.sink.options
    how = "Every record becomes a row."
    if sink.capabilities.upsert:
        how = f"The last version of each `{', '.join(sink.record_key)}` is the row."
    until = {
        "latest": "the records present when the run starts",
        "data_interval_end": "the records of its data interval",
    }
    connection = f", connection `{source.connection}`" if source.connection else ""
    partitioned = f", partitioned by `{', '.join(sink.partition_fields)}`" if sink.partition_fields else ""
    return (
        f"{pipeline.description or ''}\n\n"
        f"Loads `{source.topics_in_words}` (`{pipeline.source.place}`{connection}) into the table "
        f"`{pipeline.table_name}` (`{pipeline.sink.place}`) at `{sink.table_id}`{partitioned}. {how}\n\n"
        f"Each run is one transaction: it reads {until[source.until]}, at most {source.max_records} records, and "
        f"commits rows and offsets together, or neither. When a run fails, the next one starts from the same offsets.\n"
    ).lstrip()
