"""Pipeline files that say nothing of where they run, on a Spark cluster and with Airflow on PostgreSQL.

What differs from a laptop are two settings of Airflow: the connection `spark_default` and the database's address. One
append and one upsert pipeline run one scheduled interval each; all that is looked at afterwards comes of these two.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice.local.airflow import AirflowEnvironment, LocalAirflow
from sluice.local.airflow_api import AirflowApi, DagRun
from sluice.local.broker import LocalBroker
from sluice.local.demo.fingerprint import columns_of, fingerprint, last_versions
from sluice.local.demo.tables import append_table, upsert_table
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

from ..airflow.calm import PATIENCE, calm
from .servers import LOOPBACK, CommandLines, PostgreSql, SparkCluster

pytestmark = [pytest.mark.kafka, pytest.mark.thorough]

PROJECT = Path(__file__).parents[2]
# Scheduled, so that Airflow starts the one run by itself; without retries, so that nothing is made good in silence.
PIPELINE = """
name: {name}
schedule: 1 day
start_date: 2020-01-01T00:00:00Z
source: {{kafka: {{topics: {topic}}}}}
sink: {{hudi: {{path: "${{SLUICE_LAKE}}/{name}", operation: {name}, {keys} schema: "{schema}"}}}}
write: {{driver_memory: 512m}}
control: {{topic: {control}}}
retries: 0
"""
SCHEMA = "id BIGINT, shop STRING, amount DOUBLE, version BIGINT"
# The records have no key in Kafka: each id is in the partition that the test chooses.
KEYS = {
    "append": "partition_fields: shop,",
    "upsert": "record_key: id, ordering_field: version, key_placement: trusted,",
}
PARTITIONS, RECORDS, IDS = 2, 400, 150
VALUES: list[dict[str, Any]] = [
    {"id": i % IDS, "shop": "ab"[i % IDS % 2], "amount": i / 4, "version": i} for i in range(RECORDS)
]


@dataclass(frozen=True)
class Place:
    """Where everything was, when both intervals had ended."""

    topics: dict[str, str]
    lake: Path
    environment: AirflowEnvironment
    kafka_password: str
    runs: dict[str, DagRun]
    spark: dict[str, Any]


@pytest.fixture(scope="module")
def place(
    home: SluiceHome,
    broker: LocalBroker,
    postgresql: PostgreSql,
    spark_cluster: SparkCluster,
    command_lines: CommandLines,
    tmp_path_factory: pytest.TempPathFactory,
) -> Place:
    base = tmp_path_factory.mktemp("cluster")
    topics = {name: f"{name}-{base.parent.name}" for name in KEYS}
    _send(broker.bootstrap, topics)
    dags = _dags(base / "dags", topics, f"control-{base.parent.name}")
    password = secrets.token_urlsafe(16)
    login = {"sasl.username": "svc", "sasl.password": password, "sasl.mechanisms": "PLAIN"}
    kafka = {"bootstrap.servers": broker.bootstrap, "security.protocol": "PLAINTEXT", **login}
    environment = AirflowEnvironment(
        home,
        broker.bootstrap,
        folder=base / "airflow",
        dags_folder=dags,
        spark_master=spark_cluster.url,
        port=free_port(),
        extra={
            **calm(),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgresql.url,
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": kafka}),
            "SLUICE_LAKE": str(base / "lake"),
            "SPARK_EXECUTOR_MEMORY": "512m",
            # The executors call the driver back, at an address that this machine may not route to itself.
            "SPARK_LOCAL_IP": LOOPBACK,
        },
    )
    airflow = LocalAirflow(environment)
    try:
        airflow.start(PATIENCE)
        spark_cluster.await_worker()
        api = AirflowApi(airflow.environment)
        for name in KEYS:  # only now: a scheduler that is up before the API server is fails its first tasks
            api.await_dag(name)
            api.unpause(name)
        runs = {name: _ended(api, name) for name in KEYS}
    finally:
        airflow.stop()
    return Place(topics, base / "lake", airflow.environment, password, runs, spark_cluster.state())


def _send(bootstrap: str, topics: dict[str, str]) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics.values()]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in topics.values():
        for value in VALUES:
            producer.produce(topic, json.dumps(value).encode(), partition=value["id"] % PARTITIONS)
    assert producer.flush(30) == 0


def _dags(folder: Path, topics: dict[str, str], control: str) -> Path:
    (folder / "pipelines").mkdir(parents=True)
    for module in ("sluice_pipelines.py", "sluice_pipeline_errors.py"):
        shutil.copy(PROJECT / "dags" / module, folder)
    for name, topic in topics.items():
        text = PIPELINE.format(name=name, topic=topic, keys=KEYS[name], schema=SCHEMA, control=control)
        (folder / "pipelines" / f"{name}.yaml").write_text(text)
    return folder


def _ended(api: AirflowApi, dag_id: str, timeout: float = 900) -> DagRun:
    """The DAG's first run, once it has ended."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        runs = api.runs(dag_id)
        if runs and runs[-1].state in ("success", "failed"):
            return runs[-1]
        time.sleep(0.5)
    raise AssertionError(f"the run of {dag_id} has not ended within {timeout:.0f} s")


@pytest.mark.parametrize("name", KEYS)
def test_the_interval_is_committed_and_noted_in_postgresql(place: Place, postgresql: PostgreSql, name: str) -> None:
    run = place.runs[name]
    assert (run.state, run.scheduled) == ("success", True), run.note
    # Written by the listener in the scheduler's own transaction, which a failed statement would have broken.
    noted = postgresql.query(
        "SELECT r.state, n.user_id, n.content FROM dag_run r JOIN dag_run_note n ON n.dag_run_id = r.id"
        f" WHERE r.dag_id = '{name}' AND r.run_id = '{run.run_id}'"
    )
    assert noted == [("success", "sluice", run.note)]
    assert run.note.startswith("Committed instant ")
    for partition in range(PARTITIONS):
        sent = sum(value["id"] % PARTITIONS == partition for value in VALUES)
        assert f"{place.topics[name]}[{partition}] [0, {sent})" in run.note
    assert not list(place.environment.airflow_home.glob("*.db"))


def test_the_append_table_holds_every_record(place: Place) -> None:
    columns = columns_of(SCHEMA)
    assert append_table(str(place.lake / "append"), columns) == fingerprint(VALUES, columns)


def test_the_upsert_table_holds_the_last_version_of_each_key(place: Place) -> None:
    expected = fingerprint(last_versions(VALUES, "id", "version"), columns_of(SCHEMA))
    assert expected.rows == IDS
    assert upsert_table(str(place.lake / "upsert"), SCHEMA) == expected


@pytest.mark.parametrize("name", KEYS)
def test_the_records_were_read_by_an_executor_on_the_worker(
    place: Place, spark_cluster: SparkCluster, name: str
) -> None:
    (application,) = [a for a in place.spark["completedapps"] if a["name"].startswith(f"sluice {name} ")]
    assert (application["state"], application["memoryperexecutor"]) == ("FINISHED", 512)
    log = spark_cluster.executor_log(application["id"])
    assert "Finished task" in log
    for partition in range(PARTITIONS):
        assert f"{place.topics[name]}-{partition}" in log


def test_the_drivers_have_no_executors_of_their_own(
    place: Place, spark_cluster: SparkCluster, command_lines: CommandLines
) -> None:
    for name in KEYS:
        drivers = [
            line
            for line in command_lines.seen
            if "SparkSubmit" in line and f"--table file://{place.lake}/{name} " in line
        ]
        assert drivers
        assert [line for line in drivers if f"--master {spark_cluster.url} " not in line] == []


def test_no_password_shows(place: Place, postgresql: PostgreSql, command_lines: CommandLines) -> None:
    for program in ("write_range.py", "CoarseGrainedExecutorBackend", "airflow"):  # they were looked at
        assert any(program in line for line in command_lines.seen)
    passwords = [place.kafka_password, postgresql.password]
    assert [line for line in command_lines.seen if any(p in line for p in passwords)] == []


def test_no_password_is_written_down(place: Place, postgresql: PostgreSql, spark_cluster: SparkCluster) -> None:
    kept = [
        f
        for folder in (postgresql.data, spark_cluster.work, place.environment.airflow_home, place.lake)
        for f in folder.rglob("*")
        if f.is_file() and f.suffix != ".jar"
    ]
    assert any(f.name == "stderr" for f in kept)
    assert any(f.suffix == ".log" for f in kept)
    passwords = [place.kafka_password.encode(), postgresql.password.encode()]
    found = [f for f in kept if any(p in f.read_bytes() for p in passwords)]
    assert found == []
