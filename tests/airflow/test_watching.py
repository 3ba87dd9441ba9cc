"""What people and programs who watch a pipeline are told by real runs: mail, webhook, metrics, asset, lineage.

One story: a good run, an empty one, two that fail, one that recovers, the commit of the first done again by hand, and
one more good run; beside it a run that hangs, one whose commit a person marks as successful, and a pipeline that warns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from sluice.airflow.releases import HAS_DEADLINES

from .live import PROJECT, SECRETS, Live, Run

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.spark]

EXAMPLE = "example_new_flights"
PIPELINE = """
name: flights
source: {{kafka: {{topics: {topic}, on_offset_loss: earliest}}}}
sink: {{hudi: {{path: {path}, schema: "carrier STRING, dep_delay DOUBLE"}}}}
write: {{ranges: 2}}
retry_delay: 1 second
alerts:
  on_failure:
    - notifier: airflow.providers.smtp.notifications.smtp.SmtpNotifier
      arguments: {{to: oncall@example.com}}
    - notifier: sluice.airflow.webhook.WebhookNotifier
      arguments: {{http_conn_id: hook}}
  escalate_after: 2
  on_escalation:
    - notifier: airflow.providers.smtp.notifications.smtp.SmtpNotifier
      arguments: {{to: boss@example.com}}
"""
# Bad records are set aside, and an interval leaves some for the next one.
LIMITS = """
name: limits
source: {{kafka: {{topics: {topic}, max_records: 4}}}}
sink: {{hudi: {{path: {path}, schema: "carrier STRING, dep_delay DOUBLE"}}}}
errors: {{tolerance: all}}
alerts:
  on_warning:
    - notifier: sluice.airflow.webhook.WebhookNotifier
      arguments: {{http_conn_id: hook}}
  max_lag_records: 1
  max_quarantine_rate: 0.1
"""
# Its start_commit stands still for as long as this Airflow lives.
HANGS = """
import os
from airflow.sdk import get_parsing_context
from sluice.airflow.dag import build_dag
from sluice.pipeline import Alerts, Hudi, Kafka, Notifier, Pipeline, Sink, Source

if get_parsing_context().task_id == "start_commit":
    os.environ["SLUICE_FAILPOINT"] = "coordinator.before_start_commit=pause:{never}"
hook = Notifier(notifier="sluice.airflow.webhook.WebhookNotifier", arguments={{"http_conn_id": "hook"}})
dag = build_dag(Pipeline(
    name="hangs", retries=0, alerts=Alerts(on_failure=(hook,), deadline={deadline!r}),
    source=Source(kafka=Kafka(topics="{topic}")), sink=Sink(hudi=Hudi(path="{path}", schema="carrier STRING")),
))
"""
# Its commit dies, and is tried again an hour later.
MARKED = """
import os
from airflow.sdk import get_parsing_context
from sluice.airflow.dag import build_dag
from sluice.pipeline import Alerts, Hudi, Kafka, Notifier, Pipeline, Sink, Source

if get_parsing_context().task_id == "commit":
    os.environ["SLUICE_FAILPOINT"] = "coordinator.before_end_commit=kill"
hook = Notifier(notifier="sluice.airflow.webhook.WebhookNotifier", arguments={{"http_conn_id": "hook"}})
dag = build_dag(Pipeline(
    name="marked", retry_delay="1 hour", alerts=Alerts(on_failure=(hook,)),
    source=Source(kafka=Kafka(topics="{topic}")), sink=Sink(hudi=Hudi(path="{path}", schema="carrier STRING")),
))
"""


@dataclass(frozen=True)
class Story:
    """All runs, ended but for the one that hangs. What came of each is for the tests."""

    topic: str
    hanging: str
    committed: Run
    empty: Run
    failed: list[Run]
    recovered: Run
    again: Run
    limits: Run
    marked: Run


def _to_both(live: Live, topic: str, *values: bytes) -> None:
    """Send the same records to each of the two partitions of a topic."""
    for partition in (0, 1):
        live.send(topic, *values, partition=partition)


@pytest.fixture(scope="module")
def story(live: Live) -> Iterator[Story]:
    topic, other = live.create_topic("flights", 2), live.create_topic("limits", 2)
    never = live.dags.parent / "never"
    good, bad = b'{"carrier": "AA", "dep_delay": 1.5}', b'{"carrier": "AA", "dep_delay": "late"}'
    _to_both(live, topic, good, b'{"carrier": "UA", "dep_delay": 2.0}')
    _to_both(live, other, good, bad, good, good)
    live.add(
        {
            "flights": PIPELINE.format(topic=topic, path=live.lake / "flights"),
            "limits": LIMITS.format(topic=other, path=live.lake / "limits"),
        },
        hangs=HANGS.format(
            topic=topic, path=live.lake / "hangs", never=never, deadline="8 seconds" if HAS_DEADLINES else None
        ),
        marked=MARKED.format(topic=topic, path=live.lake / "marked"),
        **{EXAMPLE: (PROJECT / "dags" / f"{EXAMPLE}.py").read_text()},
    )
    live.api.until("the example", lambda: live.api.call(f"/api/v2/dags/{EXAMPLE}"))
    live.api.call(f"/api/v2/dags/{EXAMPLE}", {"is_paused": False}, method="PATCH")
    try:
        hanging, limits, marked = live.start("hangs"), live.start("limits"), live.start("marked")
        two = [live.start("flights"), live.start("flights")]
        committed, empty = (live.ended("flights", run) for run in two)
        # Two runs that meet a record that is not of its column's type: in each of two partitions, and in one of them.
        _to_both(live, topic, bad)
        failed = [live.run("flights")]
        _delete(live, topic, partition=0, up_to=3)
        failed.append(live.run("flights"))
        # These records are deleted, and under on_offset_loss the table goes on after them.
        _delete(live, topic, partition=1, up_to=3)
        live.send(topic, b'{"carrier": "DL", "dep_delay": 0.0}')
        recovered = live.run("flights")
        _clear_commit(live, committed)
        live.send(topic, b'{"carrier": "B6", "dep_delay": 3.0}')
        again = live.run("flights")
        _mark_commit(live, marked)
        ended = [live.ended(dag_id, run) for dag_id, run in (("limits", limits), ("marked", marked))]
        yield Story(topic, hanging, committed, empty, failed, recovered, again, *ended)
    finally:
        never.touch()  # what hangs would hold up the stop


def _clear_commit(live: Live, run: Run) -> None:
    """Have the task `commit` of a run that has ended done again, as a person may; returns once the run has ended."""
    only = {"dag_run_id": run.run_id, "task_ids": ["commit"], "only_failed": False, "dry_run": False}
    live.api.call(f"/api/v2/dags/{run.dag_id}/clearTaskInstances", only)
    live.ended(run.dag_id, run.run_id)


def _mark_commit(live: Live, run_id: str) -> None:
    """Mark the task `commit` as successful while it waits for its next attempt."""
    task = f"/api/v2/dags/marked/dagRuns/{run_id}/taskInstances/commit"
    live.api.until("the retry", lambda: live.api.call(task)["state"] == "up_for_retry")
    live.api.call(task, {"new_state": "success"}, method="PATCH")


def _delete(live: Live, topic: str, partition: int, up_to: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": live.environment.bootstrap})  # its futures fail once it is collected
    for deleted in admin.delete_records([TopicPartition(topic, partition, up_to)]).values():
        deleted.result(30)


def _asset_events(live: Live) -> list[dict[str, Any]]:
    (asset,) = live.api.call("/api/v2/assets?name_pattern=lake/flights")["assets"]
    path = f"/api/v2/assets/events?asset_id={asset['id']}&order_by=timestamp"
    events: list[dict[str, Any]] = live.api.call(path)["asset_events"]
    return events


def _counted(live: Live, number: int) -> list[dict[str, int]]:
    """What the example DAG's first runs have returned, once so many have succeeded."""

    def succeeded() -> Any:
        runs = live.api.call(f"/api/v2/dags/{EXAMPLE}/dagRuns?order_by=id&state=success")["dag_runs"]
        return runs if len(runs) >= number else None

    runs = live.api.until(f"run {number} of the example", succeeded)
    value = "taskInstances/count_new_flights/xcomEntries/return_value?deserialize=true"
    return [live.api.call(f"/api/v2/dags/{EXAMPLE}/dagRuns/{run['dag_run_id']}/{value}")["value"] for run in runs]


def test_good_and_empty_runs_tell_nobody(live: Live, story: Story) -> None:
    assert (story.committed.state, story.empty.state) == ("success", "success")
    assert story.empty.tasks["alert"] == "success"
    runs = (story.committed.run_id, story.empty.run_id)
    assert [post for post in live.inbox.posted("flights") if post["run_id"] in runs] == []


def test_two_failed_tasks_are_one_mail_and_one_post(live: Live, story: Story) -> None:
    tasks = story.failed[0].tasks
    assert (tasks["write[0]"], tasks["write[1]"], tasks["alert"]) == ("failed", "failed", "success")
    assert [run.state for run in story.failed] == ["failed", "failed"]
    posts = [post for post in live.inbox.posted("flights") if post["kind"] == "failure"]
    assert [post["run_id"] for post in posts] == [run.run_id for run in story.failed]
    subjects = [mail["subject"] for mail in live.inbox.mailed("oncall@example.com")]
    assert subjects[:2] == ["[sluice] flights: an interval failed in write[0]; action required"] * 2


def test_a_failure_says_where_what_stands_and_what_to_do(live: Live, story: Story) -> None:
    post = next(post for post in live.inbox.posted("flights") if post["kind"] == "failure")
    assert (post["act"], post["table"]) == (True, f"file://{live.lake / 'flights'}")
    here = {"cluster": "kafka_default", "topic": story.topic}
    assert post["offsets"] == [{**here, "partition": p, "start": 2, "end": 3} for p in (0, 1)]
    assert [at["end"] for at in post["stands"]] == [2, 2]
    assert {one["task"] for one in post["failed"]} == {"write[0]", "write[1]"}
    run_id = quote(story.failed[0].run_id)
    assert post["links"]["run"] == f"{live.environment.url}/dags/flights/runs/{run_id}"
    mail = live.inbox.mailed("oncall@example.com")[0].get_body(("html",))
    assert mail is not None
    for part in ("offset=2", "Next step", "Fix the cause", "next offsets: ", post["links"]["log"]):
        assert part in mail.get_content().replace("=\n", "")


def test_the_second_failure_in_a_row_is_escalated_once(live: Live, story: Story) -> None:
    (mail,) = live.inbox.mailed("boss@example.com")
    assert mail["subject"] == "[sluice] flights: 2 runs in a row failed"


def test_recovery_and_the_offsets_that_were_given_up_are_told(live: Live, story: Story) -> None:
    assert story.recovered.state == "success"
    posts = [post for post in live.inbox.posted("flights") if post["run_id"] == story.recovered.run_id]
    assert [post["kind"] for post in posts] == ["recovery", "offset_loss"]
    assert posts[0]["failed_before"] == 2
    assert posts[1]["losses"][0].startswith(f"{story.topic}[0] committed 2, resumed at 3: ")
    assert len(live.inbox.mailed("oncall@example.com")) == 4


def test_a_committed_interval_over_its_limits_is_a_warning(live: Live, story: Story) -> None:
    assert story.limits.state == "success"
    assert "1 bad record is set aside in " in story.limits.note
    posts = {post["kind"]: post for post in live.inbox.posted("limits")}
    assert posts.keys() == {"lag", "quarantine"}
    assert (posts["lag"]["lag_records"], posts["lag"]["limit"]) == (4, "max_lag_records")
    assert (posts["quarantine"]["records_quarantined"], posts["quarantine"]["limit"]) == (1, "max_quarantine_rate")
    assert not any(post["act"] for post in posts.values())


@pytest.mark.skipif(not HAS_DEADLINES, reason="before Airflow 3.3 the deadline is refused")
def test_a_run_that_hangs_is_told_by_the_deadline(live: Live, story: Story) -> None:
    (post,) = live.api.until("the deadline", lambda: live.inbox.posted("hangs"))
    assert (post["kind"], post["run_id"]) == ("deadline", story.hanging)
    assert post["seconds_without_commit"] >= 4
    assert live.api.call(f"/api/v2/dags/hangs/dagRuns/{story.hanging}")["state"] == "running"


def test_a_commit_that_a_person_marks_as_successful_is_told_as_failed(live: Live, story: Story) -> None:
    assert (story.marked.state, story.marked.tasks["alert"]) == ("success", "success")
    (post,) = live.inbox.posted("marked")
    assert (post["kind"], [one["task"] for one in post["failed"]]) == ("failure", ["commit"])
    assert "marked as successful by hand" in post["failed"][0]["what"]


def test_commits_and_nothing_else_update_the_asset(live: Live, story: Story) -> None:
    first, second, third = _asset_events(live)  # the commit that was done again has none
    runs = [story.committed.run_id, story.recovered.run_id, story.again.run_id]
    assert [event["source_run_id"] for event in (first, second, third)][1:] == runs[1:]
    assert (first["extra"]["previous_instant"], first["extra"]["rows"]) == (None, 4)
    assert second["extra"]["previous_instant"] == first["extra"]["instant"]
    assert third["extra"]["previous_instant"] == second["extra"]["instant"]
    assert [at["end"] for at in second["extra"]["offsets"]] == [4, 3]
    assert second["extra"]["valid_through"]


def test_a_dag_that_the_asset_starts_reads_just_the_new_rows(live: Live, story: Story) -> None:
    assert _counted(live, 3) == [{"AA": 2, "UA": 2}, {"DL": 1}, {"B6": 1}]


def test_metrics_are_counted_with_their_tags(live: Live, story: Story) -> None:
    tags = "pipeline=flights,table=flights"

    def values(name: str, more: str = "") -> list[str]:
        metric = f"airflow.sluice.{name},{tags}{more}:"
        return [line.removeprefix(metric) for line in live.inbox.metrics if line.startswith(metric)]

    assert values("commits") == ["1|c"] * 3
    assert values("records_written") == ["4|c", "1|c", "1|c"]
    assert values("empty_intervals") == ["1|c"]
    assert values("aborts") == ["1|c", "1|c"]
    assert all(int(value.removesuffix("|c")) > 0 for value in values("bytes_written"))
    for phase in ("start", "write", "commit"):
        times = values("phase_duration", f",phase={phase}")
        assert len(times) >= 2
        assert all(float(value.removesuffix("|ms")) > 0 for value in times)


def test_lineage_names_topic_and_table(live: Live, story: Story) -> None:
    events = [json.loads(line) for line in live.lineage.read_text().splitlines()]
    commits = [e for e in events if e["job"]["name"] == "flights.commit" and e["eventType"] == "COMPLETE"]
    first = next(e for e in commits if e["run"]["facets"]["airflow"]["dagRun"]["run_id"] != story.recovered.run_id)
    (read,), (written,) = first["inputs"], first["outputs"]
    assert (read["namespace"], read["name"]) == (f"kafka://{live.environment.bootstrap}", story.topic)
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 4
    assert (written["namespace"], written["name"]) == ("file", str(live.lake / "flights"))
    assert [f["name"] for f in written["facets"]["schema"]["fields"]] == ["carrier", "dep_delay"]
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 4


def test_no_secret_is_in_a_log_a_database_or_a_message(live: Live, story: Story) -> None:
    files = live.written_down()
    told = [*map(str, live.inbox.posts), *(str(mail) for _, mail in live.inbox.mails), live.lineage.read_text()]
    for secret in SECRETS:
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
        assert [text for text in told if secret in text] == []
