"""What people and programs who watch a pipeline are told by real runs: mail, webhook, metrics, asset, lineage.

One Airflow, and one story: a good run, an empty one, two that fail, and one that recovers; beside it a run that hangs.
"""

from __future__ import annotations

import email
import email.policy
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sluice.local.airflow import AirflowEnvironment, LocalAirflow
from sluice.local.broker import LocalBroker
from sluice.local.credentials import ADMIN
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

from .calm import CALM, PATIENCE

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.spark]

KAFKA_PASSWORD = "hunter2-of-the-broker"
HOOK_PASSWORD = "hunter2-of-the-webhook"
HOOK_PATH = "services/T0001/s3cr3t-path-of-the-webhook"
SECRETS = (KAFKA_PASSWORD, HOOK_PASSWORD, HOOK_PATH.rpartition("/")[2])
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
    name="hangs", retries=0, alerts=Alerts(on_failure=(hook,), deadline="8 seconds"),
    source=Source(kafka=Kafka(topics="{topic}")), sink=Sink(hudi=Hudi(path="{path}", schema="carrier STRING")),
))
"""


@dataclass
class Inbox:
    """What a mail server, a webhook and a StatsD socket have received."""

    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    posts: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802  # aiosmtpd's name
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.rcpt_tos, message))
        return "250 OK"

    def posted(self, pipeline: str) -> list[dict[str, Any]]:
        return [post for post in self.posts if post["pipeline"] == pipeline]

    def mailed(self, to: str) -> list[EmailMessage]:
        return [message for recipients, message in self.mails if recipients == [to]]


@pytest.fixture(scope="module")
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture(scope="module")
def mail_port(inbox: Inbox) -> Iterator[int]:
    from aiosmtpd.controller import Controller

    controller = Controller(inbox, hostname="127.0.0.1", port=free_port(2525))
    controller.start()
    yield controller.port
    controller.stop()


@pytest.fixture(scope="module")
def hook_url(inbox: Inbox) -> Iterator[str]:
    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            right = self.path == f"/{HOOK_PATH}" and self.headers["Authorization"].startswith("Basic ")
            if right:
                inbox.posts.append(json.loads(body))
            self.send_response(200 if right else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{HOOK_PATH}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def statsd_port(inbox: Inbox) -> Iterator[int]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))

    def receive() -> None:
        while packet := listener.recv(65536):
            inbox.metrics.append(packet.decode())

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    yield port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
        last.sendto(b"", ("127.0.0.1", port))  # an empty packet ends the thread
    thread.join(5)
    listener.close()


@dataclass(frozen=True)
class Place:
    """A running Airflow and where its things are."""

    api: Any
    topic: str
    other_topic: str
    lake: Path
    lineage: Path
    environment: AirflowEnvironment
    inbox: Inbox

    def run(self, dag_id: str = "flights") -> dict[str, Any]:
        """Start a run and wait for its end."""
        ended: dict[str, Any] = self.api.ended(dag_id, self.api.trigger(dag_id))
        return ended

    def send(self, *values: bytes, topic: str | None = None) -> None:
        """Send the same records to each of the two partitions of a topic."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.environment.bootstrap})
        for partition in (0, 1):
            for value in values:
                producer.produce(topic or self.topic, value, partition=partition)
        assert producer.flush(30) == 0

    def asset_events(self) -> list[dict[str, Any]]:
        (asset,) = self.api.call("/api/v2/assets?name_pattern=lake/flights")["assets"]
        events: list[dict[str, Any]] = self.api.call(
            f"/api/v2/assets/events?asset_id={asset['id']}&order_by=timestamp"
        )["asset_events"]
        return events

    def counted(self, number: int) -> list[dict[str, int]]:
        """What the example DAG's first runs have returned, once so many have succeeded."""
        dag_id, task_id = "example_new_flights", "count_new_flights"

        def succeeded() -> Any:
            runs = self.api.call(f"/api/v2/dags/{dag_id}/dagRuns?order_by=id&state=success")["dag_runs"]
            return runs if len(runs) >= number else None

        runs = self.api.until(f"run {number} of the example", succeeded)
        path = f"/api/v2/dags/{dag_id}/dagRuns/{{}}/taskInstances/{task_id}/xcomEntries/return_value?deserialize=true"
        return [self.api.call(path.format(run["dag_run_id"]))["value"] for run in runs]


@pytest.fixture(scope="module")
def place(
    home: SluiceHome,
    broker: LocalBroker,
    project: Path,
    api: Callable[[str, str, str], Any],
    inbox: Inbox,
    mail_port: int,
    hook_url: str,
    statsd_port: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    from confluent_kafka.admin import AdminClient, NewTopic

    base, topic = tmp_path_factory.mktemp("watching"), f"flights-{tmp_path_factory.getbasetemp().name}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    other_topic = f"{topic}-other"
    for created in admin.create_topics([NewTopic(topic, 2), NewTopic(other_topic, 2)]).values():
        created.result(30)
    dags = base / "dags"
    (dags / "pipelines").mkdir(parents=True)
    for module in ("sluice_pipelines.py", "example_new_flights.py"):
        shutil.copy(project / "dags" / module, dags)
    (dags / "pipelines" / "flights.yaml").write_text(PIPELINE.format(topic=topic, path=base / "lake" / "flights"))
    (dags / "pipelines" / "limits.yaml").write_text(LIMITS.format(topic=other_topic, path=base / "lake" / "limits"))
    (dags / "hangs.py").write_text(HANGS.format(topic=topic, path=base / "lake" / "hangs", never=base / "never"))
    login = {"sasl.username": "svc", "sasl.password": KAFKA_PASSWORD, "sasl.mechanisms": "PLAIN"}
    connections = {
        "kafka_default": {
            "conn_type": "kafka",
            "extra": {"bootstrap.servers": broker.bootstrap, "security.protocol": "PLAINTEXT", **login},
        },
        "smtp_default": {
            "conn_type": "smtp",
            "host": "127.0.0.1",
            "port": mail_port,
            "extra": {"disable_ssl": True, "disable_tls": True, "from_email": "sluice@example.com"},
        },
        "hook": {"conn_type": "http", "host": hook_url, "login": "svc", "password": HOOK_PASSWORD},
    }
    lineage = base / "lineage.jsonl"
    settings = {
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_PORT": str(statsd_port),
        "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "sluice",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(lineage), "append": True}),
    }
    environment = AirflowEnvironment(
        home,
        broker.bootstrap,
        folder=base / "airflow",
        dags_folder=dags,
        paused=False,
        spark_master="local[1]",
        port=free_port(),
        extra={
            **CALM,
            **settings,
            **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(c) for name, c in connections.items()},
        },
    )
    airflow = LocalAirflow(environment)
    try:
        airflow.start(PATIENCE)
        client = api(airflow.environment.url, ADMIN, environment.credentials().password)
        client.until("the example", lambda: client.call("/api/v2/dags/example_new_flights"))
        client.call("/api/v2/dags/example_new_flights", {"is_paused": False}, method="PATCH")
        yield Place(client, topic, other_topic, base / "lake", lineage, airflow.environment, inbox)
    finally:
        (base / "never").touch()  # what hangs would hold up the stop
        airflow.stop()


@pytest.fixture(scope="module")
def hanging(place: Place) -> str:
    """A run that goes on while all others end."""
    return str(place.api.trigger("hangs"))


@pytest.fixture(scope="module")
def committed(place: Place, hanging: str) -> dict[str, Any]:
    place.send(b'{"carrier": "AA", "dep_delay": 1.5}', b'{"carrier": "UA", "dep_delay": 2.0}')
    return place.run()


@pytest.fixture(scope="module")
def empty(place: Place, committed: dict[str, Any]) -> dict[str, Any]:
    return place.run()


@pytest.fixture(scope="module")
def failed(place: Place, empty: dict[str, Any]) -> list[dict[str, Any]]:
    """Two runs, each of whose two write tasks meets a record that is not of its column's type."""
    place.send(b'{"carrier": "AA", "dep_delay": "late"}')
    return [place.run(), place.run()]


@pytest.fixture(scope="module")
def recovered(place: Place, failed: list[dict[str, Any]]) -> dict[str, Any]:
    """The bad records are deleted, and under on_offset_loss the table goes on after them."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    gone = [TopicPartition(place.topic, partition, 3) for partition in (0, 1)]
    admin = AdminClient({"bootstrap.servers": place.environment.bootstrap})  # its futures fail once it is collected
    for deleted in admin.delete_records(gone).values():
        deleted.result(30)
    place.send(b'{"carrier": "DL", "dep_delay": 0.0}')
    return place.run()


def test_good_and_empty_runs_tell_nobody(committed: dict[str, Any], empty: dict[str, Any], place: Place) -> None:
    assert (committed["state"], empty["state"]) == ("success", "success")
    tasks = {t["task_id"]: t["state"] for t in place.api.tasks("flights", empty["dag_run_id"])}
    assert tasks["alert"] == "success"
    runs = (committed["dag_run_id"], empty["dag_run_id"])
    assert [post for post in place.inbox.posted("flights") if post["run_id"] in runs] == []


def test_two_failed_tasks_are_one_mail_and_one_post(place: Place, failed: list[dict[str, Any]]) -> None:
    tasks = {(t["task_id"], t["map_index"]): t["state"] for t in place.api.tasks("flights", failed[0]["dag_run_id"])}
    assert (tasks["write", 0], tasks["write", 1], tasks["alert", -1]) == ("failed", "failed", "success")
    assert [run["state"] for run in failed] == ["failed", "failed"]
    posts = [post for post in place.inbox.posted("flights") if post["kind"] == "failure"]
    assert [post["run_id"] for post in posts] == [run["dag_run_id"] for run in failed]
    subjects = [mail["subject"] for mail in place.inbox.mailed("oncall@example.com")]
    assert subjects[:2] == ["[sluice] flights: an interval failed in write[0]; somebody must act"] * 2


def test_a_failure_says_where_what_stands_and_what_to_do(place: Place, failed: list[dict[str, Any]]) -> None:
    post = next(post for post in place.inbox.posted("flights") if post["kind"] == "failure")
    assert (post["act"], post["table"]) == (True, f"file://{place.lake / 'flights'}")
    assert post["offsets"] == [{"topic": place.topic, "partition": p, "start": 2, "end": 3} for p in (0, 1)]
    assert [at["end"] for at in post["stands"]] == [2, 2]
    assert {one["task"] for one in post["failed"]} == {"write[0]", "write[1]"}
    run_id = quote(failed[0]["dag_run_id"])
    assert post["links"]["run"] == f"{place.environment.url}/dags/flights/runs/{run_id}"
    mail = place.inbox.mailed("oncall@example.com")[0].get_body(("html",))
    assert mail is not None
    for part in ("offset=2", "Next step", "Somebody must act", "next offsets: ", post["links"]["log"]):
        assert part in mail.get_content().replace("=\n", "")


def test_the_second_failure_in_a_row_is_escalated_once(
    place: Place, failed: list[dict[str, Any]], recovered: dict[str, Any]
) -> None:
    (mail,) = place.inbox.mailed("boss@example.com")
    assert mail["subject"] == "[sluice] flights: 2 runs in a row failed"


def test_recovery_and_the_offsets_that_were_given_up_are_told(place: Place, recovered: dict[str, Any]) -> None:
    assert recovered["state"] == "success"
    posts = [post for post in place.inbox.posted("flights") if post["run_id"] == recovered["dag_run_id"]]
    assert [post["kind"] for post in posts] == ["recovery", "offset_loss"]
    assert posts[0]["failed_before"] == 2
    assert posts[1]["losses"][0].startswith(f"{place.topic}[0] committed 2, resumed at 3: ")
    assert len(place.inbox.mailed("oncall@example.com")) == 4


def test_a_committed_interval_over_its_limits_is_a_warning(place: Place, hanging: str) -> None:
    good, bad = b'{"carrier": "AA", "dep_delay": 1.5}', b'{"carrier": "AA", "dep_delay": "late"}'
    place.send(good, bad, good, good, topic=place.other_topic)
    run = place.run("limits")
    assert run["state"] == "success"
    assert "1 bad record is set aside in " in run["note"]
    posts = {post["kind"]: post for post in place.inbox.posted("limits")}
    assert posts.keys() == {"lag", "quarantine"}
    assert (posts["lag"]["lag_records"], posts["lag"]["limit"]) == (4, "max_lag_records")
    assert (posts["quarantine"]["records_quarantined"], posts["quarantine"]["limit"]) == (1, "max_quarantine_rate")
    assert not any(post["act"] for post in posts.values())


def test_a_run_that_hangs_is_told_by_the_deadline(place: Place, hanging: str, recovered: dict[str, Any]) -> None:
    (post,) = place.api.until("the deadline", lambda: place.inbox.posted("hangs"))
    assert (post["kind"], post["run_id"]) == ("deadline", hanging)
    assert post["seconds_without_commit"] >= 4
    assert place.api.call(f"/api/v2/dags/hangs/dagRuns/{hanging}")["state"] == "running"


def test_commits_and_nothing_else_update_the_asset(place: Place, recovered: dict[str, Any]) -> None:
    first, second = place.asset_events()
    assert [first["source_run_id"], second["source_run_id"]][1] == recovered["dag_run_id"]
    assert (first["extra"]["previous_instant"], first["extra"]["rows"]) == (None, 4)
    assert second["extra"]["previous_instant"] == first["extra"]["instant"]
    assert [at["end"] for at in second["extra"]["offsets"]] == [4, 4]
    assert second["extra"]["valid_through"]


def test_a_dag_that_the_asset_starts_reads_just_the_new_rows(place: Place, recovered: dict[str, Any]) -> None:
    assert place.counted(2) == [{"AA": 2, "UA": 2}, {"DL": 2}]


def test_metrics_are_counted_with_their_tags(place: Place, recovered: dict[str, Any]) -> None:
    tags = "pipeline=flights,table=flights"

    def values(name: str, more: str = "") -> list[str]:
        metric = f"airflow.sluice.{name},{tags}{more}:"
        return [line.removeprefix(metric) for line in place.inbox.metrics if line.startswith(metric)]

    assert values("commits") == ["1|c", "1|c"]
    assert values("records_written") == ["4|c", "2|c"]
    assert values("empty_intervals") == ["1|c"]
    assert values("aborts") == ["1|c", "1|c"]
    assert all(int(value.removesuffix("|c")) > 0 for value in values("bytes_written"))
    for phase in ("start", "write", "commit"):
        times = values("phase_duration", f",phase={phase}")
        assert len(times) >= 2
        assert all(float(value.removesuffix("|ms")) > 0 for value in times)


def test_lineage_names_topic_and_table(place: Place, recovered: dict[str, Any]) -> None:
    events = [json.loads(line) for line in place.lineage.read_text().splitlines()]
    commits = [e for e in events if e["job"]["name"] == "flights.commit" and e["eventType"] == "COMPLETE"]
    first = next(e for e in commits if e["run"]["facets"]["airflow"]["dagRun"]["run_id"] != recovered["dag_run_id"])
    (read,), (written,) = first["inputs"], first["outputs"]
    assert (read["namespace"], read["name"]) == (f"kafka://{place.environment.bootstrap}", place.topic)
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 4
    assert (written["namespace"], written["name"]) == ("file", str(place.lake / "flights"))
    assert [f["name"] for f in written["facets"]["schema"]["fields"]] == ["carrier", "dep_delay"]
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 4


def test_no_secret_is_in_a_log_a_database_or_a_message(place: Place, recovered: dict[str, Any]) -> None:
    files = [path for path in place.environment.airflow_home.rglob("*") if path.is_file()]
    assert {".log", ".db"} <= {path.suffix for path in files}
    told = [*map(str, place.inbox.posts), *(str(mail) for _, mail in place.inbox.mails), place.lineage.read_text()]
    for secret in SECRETS:
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
        assert [text for text in told if secret in text] == []
