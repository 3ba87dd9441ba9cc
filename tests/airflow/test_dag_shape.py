"""What Airflow makes of a pipeline: tasks, edges, rules and timetable; nothing here needs a broker or a database."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pendulum
import pytest

from sluice.airflow import dag as dags
from sluice.airflow import listeners
from sluice.airflow.dag import build_dag
from sluice.airflow.releases import BEGINS_IN_TRIGGERER
from sluice.airflow.workers_dag import build_workers_dags
from sluice.errors import PipelineFileError
from sluice.local.workers import GROUP
from sluice.pipeline import Alerts, Hudi, Kafka, Notifier, Pipeline, Sink, Source, load_pipeline
from sluice.pipeline.model import Control, Write
from sluice.pipeline.workers import dag_of_workers, pipelines_of
from sluice.protocol.messages import PlannedRange


def a_pipeline(**more: Any) -> Pipeline:
    columns = {"schema": "id BIGINT, shop STRING"}
    kafka = Kafka(**{"topics": "orders", **more.pop("kafka", {})})
    return Pipeline(
        name="orders", source=Source(kafka=kafka), sink=Sink(hudi=Hudi(path="/lake/orders", **columns)), **more
    )


def serialized(pipeline: Pipeline) -> Any:
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.to_dict(build_dag(pipeline, auto_register=False))


def test_tasks_are_the_protocol() -> None:
    dag = build_dag(a_pipeline(), auto_register=False)
    assert {t.task_id: set(t.downstream_task_ids) for t in dag.tasks} == {
        "start_commit": {"write", "commit", "abort"},
        "write": {"commit", "abort"},
        "commit": {"abort"},
        "abort": set(),
    }
    assert dag.get_task("write").is_mapped
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert "sluice" in dag.tags


def test_the_trigger_form_is_the_dags_and_not_copied_into_each_task() -> None:
    """Each copy is validated six times whenever the DAG is serialized: four fifths of what that took."""
    of_dag = serialized(a_pipeline())["dag"]
    assert next(iter(dict(of_dag["params"]))) == "mode"
    assert [task["__var"].get("params", []) for task in of_dag["tasks"]] == [[]] * 4


def test_a_pipeline_that_catches_up_has_a_task_after_its_commit() -> None:
    dag = build_dag(a_pipeline(catch_up=True), auto_register=False)
    assert dag.get_task("catch_up").upstream_task_ids == {"commit"}
    assert dag.get_task("abort").upstream_task_ids == {"start_commit", "write", "commit"}


@pytest.mark.skipif(not BEGINS_IN_TRIGGERER, reason="before Airflow 3.3 workers are refused")
def test_a_cluster_policy_sets_queue_and_pool_of_every_task() -> None:
    """As docs/production.md has it: Airflow calls `task_policy` with each task of a DAG that it has read."""
    from airflow.serialization.serialized_objects import DagSerialization

    dag = build_dag(a_pipeline(write=Write(workers="default")), auto_register=False)
    for task in dag.tasks:
        task.queue, task.pool, task.owner, task.priority_weight = "lake", "lake", "lake-team", 10
    read = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert {task.task_id for task in read.tasks} == {"start_commit", "write", "commit", "abort"}
    assert {(t.queue, t.pool, t.owner, t.priority_weight) for t in read.tasks} == {("lake", "lake", "lake-team", 10)}


def test_abort_always_runs_and_leaves_the_run_red() -> None:
    abort = build_dag(a_pipeline(), auto_register=False).get_task("abort")
    assert abort.is_teardown
    assert not abort.on_failure_fail_dagrun


@pytest.mark.parametrize(("on_missing_range", "rule"), [("abort", "none_failed"), ("commit", "all_done")])
def test_commit_runs_though_nothing_was_mapped(on_missing_range: str, rule: str) -> None:
    dag = build_dag(a_pipeline(on_missing_range=on_missing_range), auto_register=False)
    assert dag.get_task("commit").trigger_rule == rule


@pytest.mark.parametrize(
    ("schedule", "length"),
    [
        ("1 minute", timedelta(minutes=1)),
        (timedelta(hours=2), timedelta(hours=2)),
        ("*/5 * * * *", timedelta(minutes=5)),
        ("@hourly", timedelta(hours=1)),
    ],
)
def test_intervals_have_a_length(schedule: Any, length: timedelta) -> None:
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import TimeRestriction

    dag = DagSerialization.from_dict(serialized(a_pipeline(schedule=schedule, timezone="Europe/Berlin")))
    restriction = TimeRestriction(pendulum.datetime(2026, 1, 1), None, catchup=False)
    run = dag.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    assert run is not None
    assert run.data_interval.end - run.data_interval.start == length


def test_no_schedule_means_by_hand() -> None:
    assert build_dag(a_pipeline(), auto_register=False).timetable.can_be_scheduled is False


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"schedule": "every minute"}, "schedule"),
        ({"schedule": timedelta(0)}, "schedule"),
        ({"schedule": "@hourly", "timezone": "Mars/Olympus"}, "timezone"),
        ({"alerts": Alerts(on_failure=(Notifier(notifier="no.such.Notifier"),))}, "alerts.on_failure.0.notifier"),
        (
            {"alerts": Alerts(on_failure=(Notifier(notifier="airflow.sdk.BaseNotifier", arguments={"x": 1}),))},
            "alerts.on_failure.0.arguments",
        ),
    ],
)
def test_what_airflow_would_choke_on_is_an_error_of_the_pipeline_file(wrong: dict[str, Any], key: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        build_dag(a_pipeline(**wrong), auto_register=False)
    assert caught.value.where["key"] == key


def test_the_database_gets_neither_options_nor_arguments() -> None:
    secret = "s3cr3t-of-the-notifier"
    path = "airflow.providers.standard.operators.empty.EmptyOperator"  # any class that takes keywords
    alerts = Alerts(on_failure=(Notifier(notifier=path, arguments={"task_id": "x", "doc": secret}),))
    text = json.dumps(serialized(a_pipeline(alerts=alerts)))
    assert secret not in text
    assert '"pipeline": "pipeline orders"' in text


@pytest.mark.skipif(not BEGINS_IN_TRIGGERER, reason="the examples have workers")
def test_example_pipelines_are_right(project: Path) -> None:
    for name in ("flights", "flight_status"):
        pipeline = load_pipeline(project / "dags" / "pipelines" / f"{name}.yaml")
        assert build_dag(pipeline, auto_register=False).dag_id == name


def test_the_worker_of_the_embedded_runtime_serves_the_example_pipelines(project: Path) -> None:
    pipelines = project / "dags" / "pipelines"
    (dag,) = build_workers_dags(project / "dags" / "workers", pipelines, auto_register=False)
    assert dag.dag_id == dag_of_workers(GROUP)
    assert {p.name for p in pipelines_of([pipelines], GROUP)} == {"flights", "flight_status"}


def test_names_of_mapped_tasks_fit_airflows_column() -> None:
    from sluice.airflow.tasks import in_words

    def planned(partition: int) -> PlannedRange:
        return PlannedRange(cluster="c", topic="orders", partition=partition, start=0, end=100)

    assert in_words([planned(0), planned(3)]) == "orders[0] 0-99, orders[3] 0-99"
    assert in_words([planned(i) for i in range(900)]) == "orders (900 partitions) 90000 offsets"


@pytest.mark.skipif(not BEGINS_IN_TRIGGERER, reason="the examples have workers")
def test_reading_the_files_starts_neither_spark_nor_kafka(project: Path) -> None:
    """In a process of its own, since these tests have imported half of it already."""
    program = (
        "import sys, time, airflow.sdk, pydantic, yaml\n"
        "from airflow.providers.apache.spark.operators import spark_submit\n"
        "begun = time.process_time()\n"
        "from pathlib import Path\n"
        "from sluice.airflow.dagbag import build_dags\n"
        f"dags = build_dags(Path({str(project / 'dags' / 'pipelines')!r}))\n"
        "print(len(dags), time.process_time() - begun)\n"
        "print([m for m in ('pyspark', 'confluent_kafka', 'py4j') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    counted, heavy = done.stdout.splitlines()[-2:]
    number, seconds = counted.split()
    assert int(number) >= 2
    assert float(seconds) < 3.0  # of CPU; some tenths where nothing else runs
    assert heavy == "[]"


def test_no_step_holds_the_table_for_ever() -> None:
    hours = {"write": Write(timeout="3 hours"), "control": Control(commit_timeout="20 minutes")}
    dag = build_dag(a_pipeline(**hours), auto_register=False)
    limits = {name: dag.get_task(name).execution_timeout for name in ("start_commit", "write", "commit")}
    assert limits["write"] == timedelta(hours=3)
    assert limits["commit"] == timedelta(minutes=16)
    assert limits["start_commit"] == timedelta(hours=3, minutes=50)  # it may wait for an interval beside this one


@pytest.mark.parametrize(
    ("command", "executor", "forks"),
    [
        (["airflow", "dag-processor"], "CeleryExecutor", True),
        (["airflow", "scheduler"], "LocalExecutor", True),
        (["airflow", "scheduler"], "CeleryExecutor,LocalExecutor", True),
        (["airflow", "scheduler"], "CeleryExecutor", False),
        (["airflow", "triggerer"], "LocalExecutor", False),
        (["gunicorn"], "LocalExecutor", False),
    ],
)
def test_what_every_task_imports_is_imported_once_where_airflow_forks(
    command: list[str], executor: str, forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    monkeypatch.setattr("sys.argv", command)
    monkeypatch.setattr(listeners, "import_module", lambda name: imported.append(import_module(name).__name__))
    listeners.on_starting()
    assert bool(imported) == forks
    assert not forks or "sluice.airflow.dag" in imported


@pytest.mark.skipif(not BEGINS_IN_TRIGGERER, reason="before Airflow 3.3 workers are refused")
def test_write_begins_in_the_triggerer_where_a_pipeline_has_workers() -> None:
    (write,) = [t["__var"] for t in serialized(a_pipeline(write=Write(workers="default")))["dag"]["tasks"]
                if t["__var"]["task_id"] == "write"]  # fmt: skip
    assert write["start_from_trigger"] is True
    assert write["start_trigger_args"]["trigger_cls"] == "sluice.airflow.waiting.RangeTrigger"
    assert not write["start_trigger_args"]["trigger_kwargs"]


def test_without_workers_write_begins_in_a_process() -> None:
    (write,) = [t["__var"] for t in serialized(a_pipeline())["dag"]["tasks"] if t["__var"]["task_id"] == "write"]
    assert not write.get("start_from_trigger")


def test_a_group_of_workers_is_a_dag_of_as_many_tasks(tmp_path: Path) -> None:
    from sluice.airflow.workers_dag import build_workers_dag

    file = tmp_path / "nightly.yaml"
    file.write_text("workers: 3\nmemory: 4g\nlongest_stay: 6 hours\nport: 9464\n")
    dag = build_workers_dag(file, tmp_path, auto_register=False)
    task = dag.get_task("worker")
    assert (dag.dag_id, dag.max_active_runs, task.is_mapped) == ("sluice_workers_nightly", 1, True)
    assert task.expand_input.value == {"number": [0, 1, 2]}
    options = task.partial_kwargs["options"].options
    assert (options.memory, options.longest_stay) == ("4g", timedelta(hours=6))
    assert (options.port, options.host) == (9464, "127.0.0.1")
    file.write_text("")  # a file without a word keeps one
    assert build_workers_dag(file, tmp_path, auto_register=False).get_task("worker").is_mapped


@pytest.mark.parametrize(
    ("text", "said"),
    [("worker: 3", "did you mean `workers`?"), ("workers: 0", "workers"), ("lease: 1 second", "lease")],
)
def test_a_wrong_file_of_workers_is_explained(tmp_path: Path, text: str, said: str) -> None:
    from sluice.airflow.workers_dag import build_workers_dags, raise_worker_errors

    (tmp_path / "nightly.yaml").write_text(f"{text}\n")
    assert build_workers_dags(tmp_path, tmp_path, auto_register=False) == []
    with pytest.raises(PipelineFileError, match=r"nightly\.yaml:1") as caught:
        raise_worker_errors(tmp_path, tmp_path)
    assert said in str(caught.value)


def test_where_no_task_begins_in_the_triggerer_workers_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dags, "BEGINS_IN_TRIGGERER", False)
    build_dag(a_pipeline(), auto_register=False)
    with pytest.raises(PipelineFileError, match=r"`write\.workers` needs Airflow 3\.3 .* take the key out") as refused:
        build_dag(a_pipeline(write=Write(workers="default")), auto_register=False)
    assert refused.value.where["key"] == "write.workers"
