"""What Airflow makes of `table_services` and `catalog_sync`: a second DAG and one more task; no broker is needed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from sluice.airflow.dag import build_dag
from sluice.airflow.dagbag import build_dags
from sluice.airflow.notes import TaskNote, compose
from sluice.airflow.services import TableServiceOperator
from sluice.airflow.table_services_dag import build_table_services_dag
from sluice.errors import PipelineFileError
from sluice.pipeline import (
    Alerts,
    CatalogSync,
    Clustering,
    HiveMetastore,
    Hudi,
    Kafka,
    Notifier,
    Pipeline,
    Sink,
    Source,
    TableServices,
)


def a_pipeline(services: TableServices | None, operation: str = "append", **more: Any) -> Pipeline:
    hudi = Hudi(path="/lake/orders", schema="id BIGINT, shop STRING", operation=operation, record_key="id")
    return Pipeline(
        name="orders",
        source=Source(kafka=Kafka(topics="orders")),
        sink=Sink(hudi=hudi),
        table_services=services,
        **more,
    )


@pytest.mark.parametrize(
    ("services", "operation", "tasks"),
    [
        (TableServices(), "append", {"cleaning", "metadata_compaction", "archiving"}),
        (
            TableServices(clustering=Clustering()),
            "append",
            {"clustering", "cleaning", "metadata_compaction", "archiving"},
        ),
        (TableServices(), "upsert", {"compaction", "cleaning", "metadata_compaction", "archiving"}),
    ],
)
def test_each_service_is_one_task(services: TableServices, operation: str, tasks: set[str]) -> None:
    dag = build_table_services_dag(a_pipeline(services, operation), auto_register=False)
    assert dag is not None
    assert dag.dag_id == "orders.table_services"
    assert {t.task_id for t in dag.tasks} == tasks
    assert not any(t.downstream_task_ids for t in dag.tasks), "one that fails must stop no other, and must show"
    assert {t.execution_timeout for t in dag.tasks} == {timedelta(hours=6, minutes=40)}, "what hangs is ended"
    assert (dag.max_active_runs, dag.max_active_tasks, dag.catchup) == (1, 1, False)
    by_weight = sorted(dag.tasks, key=lambda t: -t.priority_weight)
    assert [t.task_id for t in by_weight][-3:] == ["cleaning", "metadata_compaction", "archiving"]


def test_a_pipeline_that_names_a_version_has_a_task_for_it_which_runs_when_a_person_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hudi = Hudi(path="/lake/orders", schema="id BIGINT", table_version=6)
    given = {"source": Source(kafka=Kafka(topics="orders")), "sink": Sink(hudi=hudi)}
    dag = build_table_services_dag(
        Pipeline(name="orders", table_services=TableServices(), **given), auto_register=False
    )
    assert dag is not None
    assert dag.params.dump() == {"table_version": False}, "a run of the schedule doesn't ask for it"
    task = dag.get_task("table_version")
    assert task.priority_weight < min(t.priority_weight for t in dag.tasks if t is not task)
    asked: list[Any] = []
    monkeypatch.setattr(TableServiceOperator, "execute", lambda _self, context: asked.append(context))
    with pytest.raises(AirflowSkipException):
        task.execute({"params": {"table_version": False}})
    task.execute({"params": {"table_version": True}})
    assert len(asked) == 1


def test_without_the_section_there_is_no_second_dag() -> None:
    assert build_table_services_dag(a_pipeline(None), auto_register=False) is None


def test_services_can_run_by_hand_alone() -> None:
    dag = build_table_services_dag(a_pipeline(TableServices(schedule=None)), auto_register=False)
    assert dag is not None
    assert dag.timetable.can_be_scheduled is False


def test_a_wrong_schedule_is_named_by_its_key() -> None:
    with pytest.raises(PipelineFileError) as caught:
        build_table_services_dag(a_pipeline(TableServices(schedule=timedelta(0))), auto_register=False)
    assert caught.value.where["key"] == "table_services.schedule"


def test_the_database_gets_the_pipelines_name_alone() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    services = TableServices(
        options={"hoodie.clean.parallelism": "7"}, conf={"spark.hadoop.fs.s3a.endpoint": "of-nobodys-concern"}
    )
    dag = build_table_services_dag(a_pipeline(services, "upsert"), auto_register=False)
    assert dag is not None
    assert "of-nobodys-concern" not in json.dumps(DagSerialization.to_dict(dag))


def test_both_dags_come_from_the_file_and_either_is_found_alone(tmp_path: Path, pipeline_text: Any) -> None:
    (tmp_path / "orders.yaml").write_text(pipeline_text("orders") + "table_services: {schedule: 10 minutes}\n")
    assert {d.dag_id for d in build_dags(tmp_path)} == {"orders", "orders.table_services"}
    assert "orders.table_services" in {d.dag_id for d in build_dags(tmp_path, only="orders.table_services")}
    assert build_dags(tmp_path, only="other.table_services") == []


def test_catalog_sync_comes_after_commit_and_leaves_abort_as_it_was() -> None:
    sync = CatalogSync(hive=HiveMetastore(uris="thrift://hive:9083"))
    dag = build_dag(a_pipeline(None, catalog_sync=sync), auto_register=False)
    task = dag.get_task("catalog_sync")
    assert task.upstream_task_ids == {"commit"}
    assert not task.downstream_task_ids
    assert task.execution_timeout == timedelta(minutes=5)
    assert dag.get_task("abort").is_teardown
    assert dag.get_task("abort").upstream_task_ids == {"start_commit", "write", "commit"}


def test_a_failed_sync_is_told_as_other_failures_are() -> None:
    sync = CatalogSync(hive=HiveMetastore(uris="thrift://hive:9083"))
    notifier = Notifier(notifier="airflow.sdk.BaseNotifier")
    more = {"catalog_sync": sync, "alerts": Alerts(on_failure=(notifier,))}
    dag = build_dag(a_pipeline(None, **more), auto_register=False)
    assert dag.get_task("alert").upstream_task_ids == {"abort", "catalog_sync"}


def test_the_note_of_a_failed_sync_says_that_the_data_stand() -> None:
    tasks = [
        TaskNote("start_commit", -1, "success"),
        TaskNote("commit", -1, "success", "Committed instant 1: 20 rows."),
        TaskNote("catalog_sync", -1, "failed", "The catalog did not take what the table holds now."),
        TaskNote("abort", -1, "success"),
    ]
    note = compose(tasks, succeeded=False)
    assert note.startswith("Committed instant 1: 20 rows. Its data is in. Failed in catalog_sync: The catalog")


def test_the_note_of_a_services_run_tells_what_each_has_done() -> None:
    tasks = [
        TaskNote("archiving", -1, "success", "Archived: 12 instants."),
        TaskNote("cleaning", -1, "failed", "Hudi failed (cleaning)."),
        TaskNote("compaction", -1, "skipped", "No compaction is due yet."),
    ]
    note = compose(tasks, succeeded=False)
    assert note == "Failed in cleaning: Hudi failed (cleaning). Archived: 12 instants. No compaction is due yet."
