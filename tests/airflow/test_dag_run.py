"""Whole DAG runs in a real Airflow, with a real broker and Spark: what a person sees of a good and of a bad interval.

One Airflow for all of them, since starting it takes longest. Its Kafka connection has a password, which must not show
anywhere afterwards.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.local.airflow import AirflowEnvironment, LocalAirflow
from sluice.local.broker import LocalBroker
from sluice.local.credentials import ADMIN
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

from .calm import CALM, PATIENCE

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.spark]

PAST = datetime(2026, 1, 10, 10, tzinfo=UTC)
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

    def run(self, dag_id: str, **conf: Any) -> Run:
        """Start a run, with these fields of its form, and wait for its end."""
        return self.ended(dag_id, self.api.trigger(dag_id, **conf))

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

    def rows(self, table_name: str = "orders") -> int:
        """How many rows a reader of the lake sees, by Hudi's own reader."""
        from hudi import HudiTableBuilder

        table = HudiTableBuilder.from_base_uri(str(self.lake / table_name)).build()
        return sum(batch.num_rows for batch in table.read())


def _records_of_the_past(bootstrap: str, topic: str) -> None:
    """Ten records from 10 o'clock on a January day, and five from 11 o'clock."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(15):
        at = PAST + timedelta(minutes=number if number < 10 else 50 + number)
        value = json.dumps({"id": number, "shop": "a", "amount": 1.5}).encode()
        producer.produce(topic, value, partition=0, timestamp=int(at.timestamp() * 1000))
    assert producer.flush(30) == 0


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
    past = f"past-{base.name}"
    admin.create_topics([NewTopic(past, 1, config={"retention.ms": "-1"})])[past].result(30)
    _records_of_the_past(broker.bootstrap, past)
    hourly = pipeline_text("past", past, str(base / "lake" / "past")).replace(
        "{topics:", "{starting_offsets: latest, topics:"
    )
    (dags / "pipelines" / "past.yaml").write_text(f'{hourly}schedule: "0 * * * *"\nstart_date: 2026-01-10T00:00:00Z\n')
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
        port=free_port(),
        extra={**CALM, "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": kafka})},
    )
    airflow = LocalAirflow(environment)
    try:
        airflow.start(PATIENCE)
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


@pytest.fixture(scope="module")
def backfilled(place: Place, committed: Run) -> list[Run]:
    """The schedule starts at the end of a topic; then Airflow's own backfill makes up two hours of January."""
    first = place.api.until("the schedule's run", lambda: place.api.runs("past", "scheduled"))
    assert place.ended("past", first[0]["dag_run_id"]).state == "success"
    window = {"from_date": PAST.isoformat(), "to_date": (PAST + timedelta(hours=1)).isoformat()}
    place.api.call("/api/v2/backfills", {"dag_id": "past", "max_active_runs": 2, "run_backwards": False, **window})
    runs = place.api.until("the backfill's runs", lambda: _two(place.api.runs("past", "backfill")))
    return [place.ended("past", run["dag_run_id"]) for run in runs]


def _two(runs: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return runs if len(runs) == 2 else None


def test_each_run_of_a_backfill_reads_its_own_hour(place: Place, backfilled: list[Run]) -> None:
    assert [run.state for run in backfilled] == ["success", "success"]
    assert ": 10 rows from" in backfilled[0].note
    assert ": 5 rows from" in backfilled[1].note
    assert place.rows("past") == 15


def test_a_dry_run_is_told_in_the_note(place: Place, backfilled: list[Run]) -> None:
    instant = re.search(r"instant (\d+)", backfilled[0].note)[1]
    run = place.run("past", mode="replay", instant=instant, dry_run=True)
    assert run.state == "success"
    assert run.note.startswith("Dry run, nothing opened: replay reads past-")
    assert "replaces 1 file groups" in run.note


def test_an_interval_is_replayed_from_the_form(place: Place, backfilled: list[Run]) -> None:
    instant = re.search(r"instant (\d+)", backfilled[0].note)[1]
    run = place.run("past", mode="replay", instant=instant, reason="to see it work")
    assert run.state == "success"
    assert ": 10 rows from" in run.note
    assert place.rows("past") == 15


def test_a_form_that_does_not_add_up_is_refused_with_its_field(place: Place, backfilled: list[Run]) -> None:
    run = place.run("past", mode="range by times")
    assert run.state == "failed"
    assert "a range is given either by offsets or by times" in run.note
