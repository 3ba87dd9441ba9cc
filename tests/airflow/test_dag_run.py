"""Whole DAG runs in a real Airflow, with a real broker and Spark: what a person sees of a good and of a bad interval.

Pipelines that have nothing to do with each other run side by side, in the stages of `story`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice_lines.sink import read

from .live import KAFKA_PASSWORD, Live, Run

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.spark]

PAST = datetime(2026, 1, 10, 10, tzinfo=UTC)
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
# One whose start_commit stands still once its transaction is open, until somebody stops the connector.
HALTS = """
import os
from airflow.sdk import get_parsing_context
from sluice.airflow.dag import build_dag
from sluice.pipeline import load_pipeline

if get_parsing_context().task_id == "start_commit":
    os.environ["SLUICE_FAILPOINT"] = "coordinator.after_open_instant=pause:{flag}"
dag = build_dag(load_pipeline("{file}"))
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
# Files into files: neither end is one of Sluice's own. The control topic alone is Kafka's.
VISITS = """
name: visits
retries: 0
source:
  lines: {{folder: "{folder}", topics: [a.log, b.log], value: {{converter: string, as: line}}}}
sink:
  json_lines: {{path: "{path}", schema: line STRING}}
control: {{connection: kafka_default}}
"""
SERVICES = "table_services: {schedule: null, clustering: {after_commits: 1}}\n"


@dataclass(frozen=True)
class Halted:
    """A run that was stopped by Connect's API, the one after it, and the status before and after the verbs."""

    began: dict[str, Any]
    stopped: dict[str, Any]
    aborted: Run
    again: Run
    well: dict[str, Any]


@dataclass(frozen=True)
class Story:
    """All runs, ended, and what readers saw meanwhile. What came of each is for the tests."""

    topic: str
    visits: Run
    committed: Run
    empty: Run
    bad: Run
    rows_after_bad: int
    died: Run
    scheduled: Run
    backfilled: list[Run]
    rows_after_backfill: int
    dry: Run
    refused: Run


@dataclass(frozen=True)
class Mended:
    """A table of one interval that was replayed from the form, its table services, and a catalog that is down."""

    replayed: Run
    rows_after_replay: int
    served: Run
    unsynced: Run


def _shop(*ids: int) -> list[bytes]:
    return [json.dumps({"id": number, "shop": "a", "amount": 1.5}).encode() for number in ids]


def _rows(live: Live, table_name: str) -> int:
    """How many rows a reader of the lake sees, by Hudi's own reader; none where there is no table."""
    from hudi import HudiTableBuilder

    if not (live.lake / table_name / ".hoodie").exists():
        return 0
    table = HudiTableBuilder.from_base_uri(str(live.lake / table_name)).build()
    return sum(batch.num_rows for batch in table.read())


def _add(live: Live, pipeline_text: Callable[..., str]) -> str:
    """Topics with records, and the pipelines that read them: ten records from 10 o'clock in January, five from 11."""
    topic, past = live.create_topic("orders", 2), live.create_topic("past", 1, retention_ms="-1")
    for partition in (0, 1):
        live.send(topic, *_shop(*range(10)), partition=partition)
    minutes = [*range(10), *range(60, 65)]
    live.send(past, *_shop(*range(15)), times=[PAST + timedelta(minutes=minute) for minute in minutes])
    orders = pipeline_text("orders", topic, str(live.lake / "orders"))
    hourly = pipeline_text("past", past, str(live.lake / "past"))
    (live.lake / "in").mkdir(parents=True)
    # This one reads a stream, whose only cluster has a name and a connection that the file of the streams gives it.
    mapping = {"streams": {"past": {"clusters": {"archive": {"topics": past, "connection": "kafka_default"}}}}}
    streams = live.lake / "in" / "streams.yaml"
    streams.write_text(json.dumps(mapping))
    stream = f"streams: past, metadata: {{service: file, path: {streams}}}"
    hourly = hourly.replace(f"topics: {past}", f"starting_offsets: latest, {stream}")
    for name in ("a.log", "b.log"):
        (live.lake / "in" / name).write_text(f"first of {name}\nsecond of {name}\nnot ended yet")
    live.add(
        {
            "visits": VISITS.format(folder=live.lake / "in", path=live.lake / "visits"),
            "orders": orders + SERVICES,
            "wrong": orders.replace("topics:", "topcs:"),
            "past": f'{hourly}schedule: "0 * * * *"\nstart_date: 2026-01-10T00:00:00Z\n',
        },
        dies=DIES.format(topic=topic, path=live.lake / "dies"),
    )
    return topic


@pytest.fixture(scope="module")
def story(live: Live, pipeline_text: Callable[..., str]) -> Story:
    topic = _add(live, pipeline_text)
    # A start_commit that is killed after it has opened its transaction; ten records in each of two partitions, and then
    # nothing new.
    dying = live.start("dies")
    committed, empty = live.start("orders"), live.start("orders")
    visits = live.start("visits")
    # The schedule starts at the end of its topic; then Airflow's own backfill makes up two hours of January.
    (first,) = live.api.until("the schedule's run", lambda: live.api.runs("past", "scheduled"))
    ended = {"scheduled": live.ended("past", first["dag_run_id"])}
    ended |= {"visits": live.ended("visits", visits), "died": live.ended("dies", dying)}
    ended |= {"committed": live.ended("orders", committed), "empty": live.ended("orders", empty)}
    # While nothing else writes to Airflow's SQLite: where that is locked, Airflow takes the backfill's first run back,
    # and a scheduler that has seen the run ends for good (3.3.2).
    window = {"from_date": PAST.isoformat(), "to_date": (PAST + timedelta(hours=1)).isoformat()}
    backfill = {"dag_id": "past", "max_active_runs": 2, "run_backwards": False, **window}
    live.api.until("the backfill is made", lambda: live.api.call("/api/v2/backfills", backfill))
    # One record that is not of its column's type.
    live.send(topic, b'{"id": "not a number", "shop": "a"}', partition=1)
    ended["bad"] = live.run("orders")
    rows_after_bad = _rows(live, "orders")
    # What the form asks for of the hours made up.
    runs = live.api.until("the backfill's runs", lambda: _two(live.api.runs("past", "backfill")))
    backfilled = [live.ended("past", run["dag_run_id"]) for run in runs]
    rows_after_backfill = _rows(live, "past")
    dry = live.start("past", mode="replay", instant=_instant(backfilled[0]), dry_run=True)
    refused = live.start("past", mode="range by times")
    ended |= {"dry": live.ended("past", dry), "refused": live.ended("past", refused)}
    return Story(topic=topic, backfilled=backfilled, rows_after_bad=rows_after_bad,
                 rows_after_backfill=rows_after_backfill, **ended)  # fmt: skip


def _two(runs: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return runs if len(runs) == 2 else None


def _instant(run: Run) -> str:
    """The instant that a run has committed, if it has."""
    found = re.search(r"instant (\d+)", run.note)
    return found[1] if found else "0"


def test_an_interval_is_committed(live: Live, story: Story) -> None:
    tasks = {"start_commit": "success", "write[0]": "success", "write[1]": "success"}
    assert story.committed.tasks == {**tasks, "commit": "success", "abort": "skipped"}
    assert story.committed.state == "success"
    assert story.committed.note.startswith("Committed instant ")
    assert f"20 rows from {story.topic}[0] [0, 10), {story.topic}[1] [0, 10)" in story.committed.note


def test_connectors_of_a_users_package_are_run_like_our_own(live: Live, story: Story) -> None:
    tasks = {"start_commit": "success", "write[0]": "success"}
    assert story.visits.tasks == {**tasks, "commit": "success", "abort": "skipped"}
    assert "4 rows from a.log[0] [0, 2), b.log[0] [0, 2)" in story.visits.note
    rows = sorted(row["line"] for row in read(str(live.lake / "visits")))
    assert rows == ["first of a.log", "first of b.log", "second of a.log", "second of b.log"]


def test_mapped_tasks_are_named_by_what_they_read(live: Live, story: Story) -> None:
    tasks = live.api.tasks("orders", story.committed.run_id)
    names = {t["rendered_map_index"] for t in tasks if t["task_id"] == "write"}
    assert names == {f"{story.topic}[0] 0-9", f"{story.topic}[1] 0-9"}


def test_an_empty_window_is_green_and_starts_no_spark(story: Story) -> None:
    assert story.empty.tasks == {"start_commit": "success", "write": "skipped", "commit": "success", "abort": "skipped"}
    assert story.empty.state == "success"
    assert story.empty.note.startswith("Empty window")


def test_a_bad_record_fails_the_run_without_a_retry(live: Live, story: Story) -> None:
    tasks = {"start_commit": "success", "write[0]": "failed", "commit": "upstream_failed", "abort": "success"}
    assert story.bad.tasks == tasks
    assert story.bad.state == "failed"
    (write,) = [t for t in live.api.tasks("orders", story.bad.run_id) if t["task_id"] == "write"]
    assert write["try_number"] == 1
    assert story.rows_after_bad == 20


def test_the_log_and_the_note_of_a_bad_record_name_its_place(live: Live, story: Story) -> None:
    place_of_record = f"topic={story.topic}, partition=1, offset=10"
    log = live.api.log("orders", story.bad.run_id, "write", 0)
    failed = [e for e in log if e.get("event") == "Task failed with exception"]
    (reason,) = [detail["exc_value"] for event in failed for detail in event["error_detail"]]
    assert place_of_record in reason
    assert reason.count("Next step:") == 1
    assert story.bad.note.startswith("Failed in write[0]: ")
    assert place_of_record in story.bad.note
    assert "Aborted instant" in story.bad.note


def test_what_a_killed_start_commit_left_open_is_aborted(live: Live, story: Story) -> None:
    assert story.died.state == "failed"
    assert (story.died.tasks["start_commit"], story.died.tasks["abort"]) == ("failed", "success")
    assert story.died.note.startswith("Failed in start_commit: no reason was recorded; read its log. Aborted instant ")
    assert list((live.lake / "dies" / ".hoodie" / "timeline").glob("*.commit.requested")) == []


def test_a_dag_of_table_services_is_no_connector(live: Live, story: Story) -> None:
    listed = live.api.call("/sluice/connect/connectors")
    assert live.api.call("/api/v2/dags/orders.table_services")["dag_id"] not in listed
    assert {"orders", "visits", "dies"} <= set(listed)


def test_a_wrong_file_shows_among_the_import_errors(live: Live, story: Story) -> None:
    (error,) = live.api.call("/api/v2/importErrors")["import_errors"]
    assert error["filename"] == "sluice_pipeline_errors.py"
    for part in ("wrong.yaml:3", "source.kafka.topcs", "did you mean `topics`?", "Next step:"):
        assert part in error["stack_trace"]


def test_the_password_shows_nowhere(live: Live, story: Story) -> None:
    assert [path for path in live.written_down() if KAFKA_PASSWORD.encode() in path.read_bytes()] == []
    rendered = [t["rendered_fields"] for t in live.api.tasks("orders", story.bad.run_id)]
    assert KAFKA_PASSWORD not in json.dumps(rendered)


def test_each_run_of_a_backfill_reads_its_own_hour(story: Story) -> None:
    assert story.scheduled.state == "success"
    assert [run.state for run in story.backfilled] == ["success", "success"]
    assert ": 10 rows from archive/past-" in story.backfilled[0].note  # a stream's cluster and topic
    assert ": 5 rows from" in story.backfilled[1].note
    assert story.rows_after_backfill == 15


def test_a_dry_run_is_told_in_the_note(story: Story) -> None:
    assert story.dry.state == "success"
    assert story.dry.note.startswith("Dry run, nothing opened: replay reads archive/past-")
    assert "replaces 1 file groups" in story.dry.note


def test_a_form_that_does_not_add_up_is_refused_with_its_field(story: Story) -> None:
    assert story.refused.state == "failed"
    assert "a range is given either by offsets or by times" in story.refused.note


@pytest.fixture(scope="module")
def mended(live: Live, pipeline_text: Callable[..., str]) -> Mended:
    topic = live.create_topic("mended", 1)
    live.send(topic, *_shop(*range(10)))
    live.add(
        {"mended": pipeline_text("mended", topic, str(live.lake / "mended")) + SERVICES},
        unsynced=UNSYNCED.format(topic=topic, path=live.lake / "unsynced"),
    )
    unsynced = live.start("unsynced")
    instant = _instant(live.run("mended"))
    replayed = live.run("mended", mode="replay", instant=instant, reason="to see it work")
    rows = _rows(live, "mended")
    served = live.run("mended.table_services")
    return Mended(replayed, rows, served, live.ended("unsynced", unsynced))


@pytest.mark.thorough
def test_an_interval_is_replayed_from_the_form(mended: Mended) -> None:
    assert mended.replayed.state == "success"
    assert ": 10 rows from" in mended.replayed.note
    assert mended.rows_after_replay == 10


@pytest.mark.thorough
def test_table_services_are_a_dag_of_their_own(live: Live, mended: Mended) -> None:
    assert set(mended.served.tasks) == {"clustering", "cleaning", "metadata_compaction", "archiving"}
    assert set(mended.served.tasks.values()) == {"success"}
    assert mended.served.state == "success"
    assert "clustering" in mended.served.note
    assert _rows(live, "mended") == 10
    assert list((live.lake / "mended" / ".hoodie" / "timeline").glob("*.replacecommit"))


@pytest.mark.thorough
def test_a_catalog_that_is_down_makes_the_run_red_and_undoes_nothing(mended: Mended) -> None:
    assert mended.unsynced.state == "failed"
    assert (mended.unsynced.tasks["commit"], mended.unsynced.tasks["abort"]) == ("success", "skipped")
    assert mended.unsynced.tasks["catalog_sync"] == "failed"
    assert "Failed in catalog_sync: The catalog did not take what the table holds now." in mended.unsynced.note


@pytest.fixture(scope="module")
def halted(live: Live) -> Halted:
    """A connector that is stopped in the middle of an interval, resumed, and started again."""
    folder, at = live.lake / "halted", "/sluice/connect/connectors/halts"
    folder.mkdir(parents=True)
    for name in ("a.log", "b.log"):
        (folder / name).write_text(f"first of {name}\nsecond of {name}\n")
    text = VISITS.format(folder=folder, path=live.lake / "halts").replace("name: visits", "name: halts")
    (folder / "halts.yaml").write_text(text.replace("ranges: 2", "ranges: 1"))
    live.add({}, halts=HALTS.format(file=folder / "halts.yaml", flag=live.lake / "go"))
    run_id = live.start("halts")

    def status() -> dict[str, Any]:
        return dict(live.api.call(f"{at}/status"))

    live.api.until("its transaction is open", (live.lake / "go.reached").exists)
    began = status()
    live.api.call(f"{at}/stop", method="PUT")
    stopped = status()
    live.api.call(f"{at}/resume", method="PUT")
    aborted = live.ended("halts", run_id)
    (live.lake / "go").touch()
    # It starts a run, which an Airflow on SQLite may refuse after a minute (see `Api.trigger`).
    live.api.until("a new run", lambda: live.api.call(f"{at}/restart", method="POST") is None, also=500)
    (newest,) = live.api.call("/api/v2/dags/halts/dagRuns?order_by=-id&limit=1")["dag_runs"]
    return Halted(began, stopped, aborted, live.ended("halts", newest["dag_run_id"]), status())


@pytest.mark.thorough
def test_what_connect_s_api_has_stopped_is_aborted_and_read_by_the_next_run(live: Live, halted: Halted) -> None:
    assert halted.began["connector"]["state"] == "RUNNING"
    assert (halted.stopped["connector"]["state"], halted.stopped["tasks"]) == ("STOPPED", [])
    # Airflow calls the run successful: the last of its steps that is no teardown was skipped.
    assert halted.aborted.tasks == {
        "start_commit": "failed", "write": "skipped", "commit": "skipped", "abort": "success",
    }  # fmt: skip
    assert halted.again.run_id != halted.aborted.run_id
    assert halted.again.state == "success"
    (task,) = halted.well["tasks"]
    assert (halted.well["connector"]["state"], task["id"], task["state"]) == ("RUNNING", 0, "RUNNING")
    assert task["worker_id"] == halted.well["connector"]["worker_id"] != ""
    assert "halts" in live.api.call("/sluice/connect/connectors")
    lines = [row["line"] for row in read(str(live.lake / "halts"))]
    assert sorted(lines) == ["first of a.log", "first of b.log", "second of a.log", "second of b.log"]


def test_a_run_that_a_limit_cut_short_is_followed_until_the_table_is_level(
    live: Live, pipeline_text: Callable[..., str]
) -> None:
    """By two runs, each for one interval, and by no third, however often the tasks that trigger them run."""
    topic = live.create_topic("catching", 1)
    live.send(topic, *_shop(*range(25)))
    text = pipeline_text("catching", topic, str(live.lake / "catching"))
    limited = text.replace(f"topics: {topic}", f"topics: {topic}, max_records: 10")
    live.add({"catching": f"{limited}catch_up: true\n"})
    runs = [live.run("catching")]
    while runs[-1].tasks["catch_up"] == "success":
        instant = _instant(runs[-1])
        assert instant != "0"
        runs.append(live.ended("catching", f"catch_up__{instant}"))
    assert [run.state for run in runs] == ["success"] * 3
    assert [re.findall(r": (\d+) rows from", run.note) for run in runs] == [["10"], ["10"], ["5"]]
    assert runs[-1].tasks["catch_up"] == "skipped"
    again = {"dag_run_id": runs[0].run_id, "task_ids": ["catch_up"], "dry_run": False, "only_failed": False}
    live.api.call("/api/v2/dags/catching/clearTaskInstances", again)
    assert live.ended("catching", runs[0].run_id).tasks["catch_up"] == "skipped"
    there = [run["dag_run_id"] for run in live.api.call("/api/v2/dags/catching/dagRuns")["dag_runs"]]
    assert sum(run.startswith("catch_up__") for run in there) == 2
    assert _rows(live, "catching") == 25
