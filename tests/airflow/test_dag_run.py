"""Whole DAG runs in a real Airflow, with a real broker and Spark: what a person sees of a good and of a bad interval.

One Airflow for all of them, since starting it takes longest. Its Kafka connection has a password, which must not show
anywhere afterwards.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice.local.airflow import AirflowEnvironment, LocalAirflow
from sluice.local.broker import LocalBroker
from sluice.local.credentials import ADMIN
from sluice.local.home import SluiceHome

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(420)]

PASSWORD = "hunter2-of-the-broker"
# A DAG from Python whose start_commit is killed as `kill -9` would, once its transaction is open.
DIES = """
import os
from airflow.sdk import get_parsing_context
from sluice.airflow.dag import build_dag
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source

if get_parsing_context().task_id == "start_commit":
    os.environ["SLUICE_FAILPOINT"] = "coordinator.after_open_instant=kill"
dag = build_dag(Pipeline(
    name="dies", retries=0,
    source=Source(kafka=Kafka(topics="{topic}")), sink=Sink(hudi=Hudi(path="{path}", schema="id BIGINT")),
))
"""
# One whose catalog nobody can reach.
UNSYNCED = """
from sluice.airflow.dag import build_dag
from sluice.pipeline import CatalogSync, HiveMetastore, Hudi, Kafka, Pipeline, Sink, Source

dag = build_dag(Pipeline(
    name="unsynced", retries=0, catalog_sync=CatalogSync(hive=HiveMetastore(uris="thrift://127.0.0.1:9")),
    source=Source(kafka=Kafka(topics="{topic}", starting_offsets="latest")),
    sink=Sink(hudi=Hudi(path="{path}", schema="id BIGINT")),
))
"""
SERVICES = "table_services: {schedule: null, clustering: {after_commits: 1}}\n"


@dataclass(frozen=True)
class Run:
    """A DAG run that has ended, as Airflow's API shows it."""

    dag_id: str
    run_id: str
    state: str
    note: str
    tasks: dict[str, str]


@dataclass(frozen=True)
class Place:
    """A running Airflow and where its things are."""

    api: Any
    topic: str
    lake: Path
    environment: AirflowEnvironment

    def run(self, dag_id: str) -> Run:
        """Start a run and wait for its end."""
        return self.ended(dag_id, self.api.trigger(dag_id))

    def ended(self, dag_id: str, run_id: str) -> Run:
        """The run, once it has ended."""
        run = self.api.ended(dag_id, run_id)
        tasks = {f"{t['task_id']}[{t['map_index']}]": t["state"] for t in self.api.tasks(dag_id, run_id)}
        return Run(dag_id, run_id, run["state"], run["note"], {k.removesuffix("[-1]"): v for k, v in tasks.items()})

    def send(self, *values: bytes, partition: int) -> None:
        """Send records to one partition of the topic."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.environment.bootstrap})
        for value in values:
            producer.produce(self.topic, value, partition=partition)
        assert producer.flush(30) == 0

    def rows(self) -> int:
        """How many rows a reader of the lake sees, by Hudi's own reader."""
        from hudi import HudiTableBuilder

        table = HudiTableBuilder.from_base_uri(str(self.lake / "orders")).build()
        return sum(batch.num_rows for batch in table.read())


@pytest.fixture(scope="module")
def place(
    home: SluiceHome,
    broker: LocalBroker,
    project: Path,
    pipeline_text: Callable[..., str],
    api: Callable[[str, str, str], Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    from confluent_kafka.admin import AdminClient, NewTopic

    base, topic = tmp_path_factory.mktemp("dag-run"), f"orders-{tmp_path_factory.getbasetemp().name}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
    dags = base / "dags"
    (dags / "pipelines").mkdir(parents=True)
    for module in ("sluice_pipelines.py", "sluice_pipeline_errors.py"):
        shutil.copy(project / "dags" / module, dags)
    orders = pipeline_text("orders", topic, str(base / "lake" / "orders"))
    (dags / "pipelines" / "orders.yaml").write_text(orders + SERVICES)
    (dags / "pipelines" / "wrong.yaml").write_text(orders.replace("topics:", "topcs:"))
    (dags / "dies.py").write_text(DIES.format(topic=topic, path=base / "lake" / "dies"))
    (dags / "unsynced.py").write_text(UNSYNCED.format(topic=topic, path=base / "lake" / "unsynced"))
    login = {"sasl.username": "svc", "sasl.password": PASSWORD, "sasl.mechanisms": "PLAIN"}
    kafka = {"bootstrap.servers": broker.bootstrap, "security.protocol": "PLAINTEXT", **login}
    environment = AirflowEnvironment(
        home,
        broker.bootstrap,
        folder=base / "airflow",
        dags_folder=dags,
        paused=False,
        spark_master="local[1]",
        extra={"AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": kafka})},
    )
    airflow = LocalAirflow(environment)
    try:
        airflow.start()
        client = api(airflow.environment.url, ADMIN, environment.credentials().password)
        yield Place(client, topic, base / "lake", airflow.environment)
    finally:
        airflow.stop()


@pytest.fixture(scope="module")
def dying(place: Place) -> str:
    """A start_commit that is killed after it has opened its transaction; goes on beside the first good interval."""
    for partition in (0, 1):
        values = (json.dumps({"id": i, "shop": "a", "amount": 1.5}).encode() for i in range(10))
        place.send(*values, partition=partition)
    return str(place.api.trigger("dies"))


@pytest.fixture(scope="module")
def committed(place: Place, dying: str) -> Run:
    """Ten records in each of two partitions."""
    return place.run("orders")


@pytest.fixture(scope="module")
def empty(place: Place, committed: Run) -> Run:
    """Nothing new since."""
    return place.run("orders")


@pytest.fixture(scope="module")
def bad(place: Place, empty: Run) -> Run:
    """One record that is not of its column's type."""
    place.send(b'{"id": "not a number", "shop": "a"}', partition=1)
    return place.run("orders")


@pytest.fixture(scope="module")
def died(place: Place, dying: str, bad: Run) -> Run:
    """What came of it."""
    return place.ended("dies", dying)


@pytest.fixture(scope="module")
def served(place: Place, died: Run) -> Run:
    """The table services of the table that holds one interval."""
    return place.run("orders.table_services")


@pytest.fixture(scope="module")
def unsynced(place: Place, died: Run) -> Run:
    """An empty window, and a catalog that is down."""
    return place.run("unsynced")


def test_an_interval_is_committed(place: Place, committed: Run) -> None:
    tasks = {"start_commit": "success", "write[0]": "success", "write[1]": "success"}
    assert committed.tasks == {**tasks, "commit": "success", "abort": "success"}
    assert committed.state == "success"
    assert committed.note.startswith("Committed instant ")
    assert f"20 rows from {place.topic}[0] [0, 10), {place.topic}[1] [0, 10)" in committed.note


def test_mapped_tasks_are_named_by_what_they_read(place: Place, committed: Run) -> None:
    names = {t["rendered_map_index"] for t in place.api.tasks("orders", committed.run_id) if t["task_id"] == "write"}
    assert names == {f"{place.topic}[0] 0-9", f"{place.topic}[1] 0-9"}


def test_an_empty_window_is_green_and_starts_no_spark(empty: Run) -> None:
    assert empty.tasks == {"start_commit": "success", "write": "skipped", "commit": "success", "abort": "success"}
    assert empty.state == "success"
    assert empty.note.startswith("Empty window")


def test_a_bad_record_fails_the_run_without_a_retry(place: Place, bad: Run) -> None:
    tasks = {"start_commit": "success", "write[0]": "failed", "commit": "upstream_failed", "abort": "success"}
    assert bad.tasks == tasks
    assert bad.state == "failed"
    (write,) = [t for t in place.api.tasks("orders", bad.run_id) if t["task_id"] == "write"]
    assert write["try_number"] == 1
    assert place.rows() == 20


def test_the_log_and_the_note_of_a_bad_record_name_its_place(place: Place, bad: Run) -> None:
    place_of_record = f"topic={place.topic}, partition=1, offset=10"
    failed = [
        e for e in place.api.log("orders", bad.run_id, "write", 0) if e.get("event") == "Task failed with exception"
    ]
    (reason,) = [detail["exc_value"] for event in failed for detail in event["error_detail"]]
    assert place_of_record in reason
    assert reason.count("Next step:") == 1
    assert bad.note.startswith("Failed in write[0]: ")
    assert place_of_record in bad.note
    assert "Aborted instant" in bad.note


def test_what_a_killed_start_commit_left_open_is_aborted(place: Place, died: Run) -> None:
    assert died.state == "failed"
    assert (died.tasks["start_commit"], died.tasks["abort"]) == ("failed", "success")
    assert died.note.startswith("Failed in start_commit: no reason was recorded; read its log. Aborted instant ")
    assert list((place.lake / "dies" / ".hoodie" / "timeline").glob("*.commit.requested")) == []


def test_table_services_are_a_dag_of_their_own(place: Place, served: Run) -> None:
    assert set(served.tasks) == {"clustering", "cleaning", "metadata_compaction", "archiving"}
    assert set(served.tasks.values()) == {"success"}
    assert served.state == "success"
    assert "clustering" in served.note
    assert place.rows() == 20
    assert list((place.lake / "orders" / ".hoodie" / "timeline").glob("*.replacecommit"))


def test_a_catalog_that_is_down_makes_the_run_red_and_undoes_nothing(unsynced: Run) -> None:
    assert unsynced.state == "failed"
    assert unsynced.tasks["commit"] == unsynced.tasks["abort"] == "success"
    assert unsynced.tasks["catalog_sync"] == "failed"
    assert "Failed in catalog_sync: The catalog did not take what the table holds now." in unsynced.note


def test_a_wrong_file_shows_among_the_import_errors(place: Place, committed: Run) -> None:
    (error,) = place.api.call("/api/v2/importErrors")["import_errors"]
    assert error["filename"] == "sluice_pipeline_errors.py"
    for part in ("wrong.yaml:3", "source.kafka.topcs", "did you mean `topics`?", "Next step:"):
        assert part in error["stack_trace"]


def test_the_password_shows_nowhere(place: Place, bad: Run, died: Run) -> None:
    looked_at = [path for path in place.environment.airflow_home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in looked_at)
    assert any(path.suffix == ".db" for path in looked_at)
    assert [path for path in looked_at if PASSWORD.encode() in path.read_bytes()] == []
    rendered = [t["rendered_fields"] for t in place.api.tasks("orders", bad.run_id)]
    assert PASSWORD not in json.dumps(rendered)
