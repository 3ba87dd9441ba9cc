"""The write task around its Spark job: what it hands over, how it ends it, and what it says when the job has failed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowFailException

from sluice.airflow import failures
from sluice.airflow.failures import report_errors, task_defaults
from sluice.airflow.operators import DriverHook, OnePipeline, SluiceWriteOperator
from sluice.airflow.releases import HAS_RETRY_POLICIES
from sluice.connectors.connections import VARIABLE as CONNECTIONS
from sluice.connectors.connections import connection
from sluice.errors import IntervalError, RetryableError, SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import driver_environment
from sluice.pipeline import Hudi, Jdbc, Kafka, Pipeline, Sink, Source
from sluice.private import VARIABLE
from sluice.protocol.messages import PlannedRange, StartCommit, TableSpec, WriteStatus
from sluice.protocol.transaction import State, Transaction

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = "file:///lake/orders"


def a_pipeline() -> Pipeline:
    columns = {"schema": "id BIGINT"}
    return Pipeline(
        name="orders", source=Source(kafka=Kafka(topics="orders")), sink=Sink(hudi=Hudi(path=TABLE, **columns))
    )


def a_task() -> SluiceWriteOperator:
    return SluiceWriteOperator(
        task_id="write",
        pipeline=OnePipeline(a_pipeline()),
        range_number=0,
        control_offset=4,
        instant="7",
        reads="orders[0] 0-9",
    )


def a_transaction(state: State = State.OPEN) -> Transaction:
    planned = PlannedRange(cluster="kafka_default", topic="orders", partition=0, start=0, end=10)
    pipeline_writer: dict[str, Any] = {
        "table_type": "COPY_ON_WRITE",
        "operation": "append",
        "schema_ddl": "",
        "schema_avro": "",
    }
    writer = TableSpec(
        path=TABLE, name="orders", record_key=(), partition_fields=(), ordering_fields=(), options={}, **pipeline_writer
    )
    return Transaction(StartCommit(**envelope(), read_position=4, ranges=((planned,),), writer=writer), 4, state)


def envelope() -> dict[str, Any]:
    names = {"table": TABLE, "transaction": "7", "dag_id": "orders", "run_id": "r", "sender": "test"}
    return {**names, "epoch": 1, "time": NOW}


def failure(text: str, at: datetime, recovery: Any = "act") -> WriteStatus:
    return WriteStatus(**{**envelope(), "time": at}, range=0, attempt=str(at), error=text, recovery=recovery)


def reason(transaction: Transaction | None, begun: datetime = NOW) -> SluiceError:
    return a_task()._reason(transaction, begun, "Cannot execute: spark-submit ... Error code is: 1.")


def test_the_participants_words_and_recovery_are_kept() -> None:
    transaction = a_transaction()
    said = "A record is bad. [topic=orders, partition=0, offset=3] Next step: mend it."
    transaction.statuses.append(failure(said, NOW + timedelta(seconds=1)))
    error = reason(transaction)
    assert (str(error), error.recovery) == (said, "act")


def test_an_earlier_attempts_failure_is_not_this_ones() -> None:
    transaction = a_transaction()
    transaction.statuses.append(failure("The broker was away.", NOW - timedelta(seconds=1)))
    error = reason(transaction)
    assert isinstance(error, RetryableError)
    assert error.where["exit"] == "1"


def test_a_transaction_that_is_over_is_not_retried() -> None:
    assert isinstance(reason(a_transaction(State.SUPERSEDED)), IntervalError)


def test_no_report_at_all_is_retried() -> None:
    assert isinstance(reason(a_transaction()), RetryableError)
    assert isinstance(reason(None), RetryableError)


@pytest.mark.skipif(not HAS_RETRY_POLICIES, reason="before Airflow 3.3 no policy decides on retries")
def test_retries_follow_the_recovery_class() -> None:
    from airflow.sdk.definitions.retry_policy import RetryAction

    from sluice.airflow.failures import RecoveryPolicy

    def action(error: BaseException) -> RetryAction:
        return RecoveryPolicy().evaluate(error, 1, 3).action

    assert action(RetryableError("x", next_step="y")) is RetryAction.DEFAULT
    assert action(IntervalError("x", next_step="y")) is RetryAction.FAIL
    assert action(OSError("disk full")) is RetryAction.DEFAULT


def test_without_retry_policies_the_recovery_class_decides_by_the_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "HAS_RETRY_POLICIES", False)
    pushed: dict[str, Any] = {}
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))}

    def failing_with(error: Exception) -> None:
        with report_errors(context, a_pipeline()):
            raise error

    assert "retry_policy" not in task_defaults(a_pipeline())
    for error in (RetryableError("x", next_step="y"), OSError("disk full")):
        with pytest.raises(type(error)):
            failing_with(error)
    with pytest.raises(AirflowFailException, match=r"^x Next step: y") as failed:
        failing_with(IntervalError("x", next_step="y"))
    assert failed.value.__suppress_context__
    assert pushed["sluice_error"]["recovery"] == "fail_run"


def test_kafka_settings_travel_in_the_environment_only() -> None:
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": "k:9092", "sasl.password": "s3cr3t-of-kafka"})
    environment = driver_environment(settings, settings, "local")
    assert json.loads(environment["SLUICE_KAFKA_SOURCE"])["librdkafka"]["sasl.password"] == "s3cr3t-of-kafka"
    assert "SLUICE_KAFKA_CONTROL" in environment
    package = Path(environment["PYTHONPATH"].split(os.pathsep)[0]) / "sluice"
    assert (package / "errors.py").exists()


def test_the_connections_secrets_reach_the_driver_and_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "s3cr3t-of-the-lake"
    extra = {"conf": {"spark.hadoop.fs.s3a.secret.key": secret}, "hudi": {"hoodie.a.password": secret}}
    spark = {"conn_type": "spark", "host": "local[2]", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    monkeypatch.setenv(VARIABLE, "")  # put back at the end: the task gives it to its own process
    task = a_task()
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": "k:9092", "sasl.password": secret})
    task._prepare(settings, settings)
    command = task._hook._build_spark_submit_command(task.application)
    assert "spark.authenticate=true" in command
    assert secret not in " ".join(command)
    assert task._hook.environment is not None
    assert json.loads(task._hook.environment[VARIABLE]) == extra
    assert task._hook.environment["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_source_s_own_connections_reach_the_driver_and_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Crm(Kafka):
        @property
        def connections(self) -> tuple[str, ...]:
            return ("crm_login",)

    secret = "s3cr3t-of-the-crm"
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("AIRFLOW_CONN_CRM_LOGIN", json.dumps({"conn_type": "http", "password": secret}))
    monkeypatch.setenv(CONNECTIONS, "")  # put back at the end: the task gives it to its own process
    task = a_task()
    task.pipeline.source.model_extra["kafka"] = Crm(topics="orders")
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": "k:9092"})
    task._prepare(settings, settings)
    command = task._hook._build_spark_submit_command(task.application)
    assert secret not in " ".join(command)
    assert task._hook.environment is not None
    monkeypatch.setenv(CONNECTIONS, task._hook.environment[CONNECTIONS])
    assert connection("crm_login").password == secret


def test_a_database_s_login_reaches_the_driver_and_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "s3cr3t-of-the-warehouse"
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    login = {"conn_type": "postgres", "host": "db", "login": "sluice", "password": secret}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(login))
    monkeypatch.setenv(CONNECTIONS, "")  # put back at the end: the task gives it to its own process
    task = a_task()
    sink = task.pipeline.sink.model_extra
    sink.clear()
    sink["jdbc"] = Jdbc(connection="warehouse", table="flights", schema_="id BIGINT")
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": "k:9092"})
    task._prepare(settings, settings)
    assert secret not in " ".join(task._hook._build_spark_submit_command(task.application))
    monkeypatch.setenv(CONNECTIONS, task._hook.environment[CONNECTIONS])
    assert connection("warehouse").password == secret


@pytest.fixture
def stubborn_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[psutil.Process]]:
    """A `spark-submit` that has a child and won't go when it is asked; tells which of the two still live."""
    script = tmp_path / "spark-submit"
    script.write_text('#!/bin/sh\ntrap "" TERM\nsleep 300 &\necho $$ $! > "$PIDS"\nwait\nsleep 300\n')
    script.chmod(0o755)
    pids = tmp_path / "pids"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIDS", str(pids))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local"}))

    def living() -> list[psutil.Process]:
        while not (pids.exists() and pids.read_text().endswith("\n")):
            time.sleep(0.01)
        known = [int(pid) for pid in pids.read_text().split()]
        alive = [psutil.Process(pid) for pid in known if psutil.pid_exists(pid)]
        return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]

    return living


def test_on_kill_ends_the_driver_and_its_children(
    stubborn_spark: Callable[[], list[psutil.Process]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowException

    monkeypatch.setattr("sluice.airflow.operators._GRACE", 0.2)
    hook = DriverHook(conn_id="spark_default")
    hook.environment = dict(os.environ)
    outcome: list[BaseException] = []

    def submit() -> None:
        try:
            hook.submit("application.py")
        except AirflowException as error:
            outcome.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    assert len(stubborn_spark()) == 2
    hook.on_kill()
    thread.join()
    ended_by = time.monotonic() + 30
    while stubborn_spark() and time.monotonic() < ended_by:  # SIGKILL is carried out when the kernel comes to it
        time.sleep(0.01)
    assert stubborn_spark() == []
    hook._submit_sp.stdout.close()  # the provider's hook leaves it to the garbage collector
    assert f"Error code is: {-signal.SIGKILL}" in str(outcome[0])


def test_the_clusters_of_streams_reach_the_driver_and_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    extra = {"bootstrap.servers": "west:9092", "sasl.password": "s3cr3t-of-the-west"}
    monkeypatch.setenv("AIRFLOW_CONN_WEST", json.dumps({"conn_type": "kafka", "extra": extra}))
    task = a_task()
    task.connections = ["west"]
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": "k:9092"})
    task._prepare(settings, settings)
    assert task._hook.environment is not None
    known = json.loads(task._hook.environment["SLUICE_KAFKA_CLUSTERS"])
    assert known["west"]["librdkafka"]["sasl.password"] == "s3cr3t-of-the-west"
    assert "s3cr3t" not in " ".join(task._hook._build_spark_submit_command(task.application))
