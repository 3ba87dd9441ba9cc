"""Notifiers: our words where a file has none, messages that go out once, and webhooks that keep their address."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tenacity import wait_none

from sluice.airflow import alerting
from sluice.airflow.alerting import AlertOperator, _from_control_topic, tell_all
from sluice.airflow.alerts import Alert
from sluice.airflow.dag import build_dag
from sluice.airflow.notifiers import with_our_words
from sluice.airflow.releases import HAS_DEADLINES
from sluice.airflow.webhook import WebhookNotifier
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.pipeline import Alerts, Hudi, Kafka, Notifier, Pipeline, Sink, Source

SECRET = "s3cr3t-path-of-the-webhook"
WEBHOOK = "sluice.airflow.webhook.WebhookNotifier"
MAIL = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
HTTP = "airflow.providers.http.notifications.http.HttpNotifier"
ALERT = Alert("failure", "on_failure", "error", "subject", "summary", True, (("Table", "t"),), {"pipeline": "orders"})


class Server:
    """Answers with the status that a test wants, and keeps what it was sent."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.statuses: dict[str, int] = {}
        self.failures: list[int] = []  # of the next requests, before `statuses` counts
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(outer.failures.pop(0) if outer.failures else outer.statuses.get(self.path, 200))
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever)
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


class Store(dict[str, Any]):
    """A task's state store."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default)

    def set(self, key: str, value: Any) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


def a_pipeline(*notifiers: Notifier, **more: Any) -> Pipeline:
    hudi = Hudi(path="/lake/orders", schema="id BIGINT")
    alerts = Alerts(on_failure=notifiers, **more)
    return Pipeline(name="orders", source=Source(kafka=Kafka(topics="orders")), sink=Sink(hudi=hudi), alerts=alerts)


def hook(url: str, **more: Any) -> Notifier:
    return Notifier(notifier=WEBHOOK, arguments={"url": url, **more})


def test_the_message_is_ours_where_the_file_does_not_say_what_to_send() -> None:
    assert with_our_words(Notifier(notifier=MAIL, arguments={"to": "a@b.c"})) == {
        "subject": "{{ sluice.subject }}",
        "html_content": "{{ sluice.html }}",
        "to": "a@b.c",
    }
    assert with_our_words(Notifier(notifier=MAIL, arguments={"subject": "mine", "template": "x"})) == {
        "subject": "mine",
        "template": "x",
    }
    assert with_our_words(Notifier(notifier=HTTP, arguments={"json": {"a": 1}})) == {"json": {"a": 1}}
    assert with_our_words(Notifier(notifier="any.Other", arguments={"a": 1})) == {"a": 1}


def test_a_webhook_gets_all_of_the_alert_or_what_the_file_says(server: Server) -> None:
    WebhookNotifier(url=server.url)({"sluice": ALERT.variables()})
    WebhookNotifier(url=server.url, body={"text": "{{ sluice.subject }}!"})({"sluice": ALERT.variables()})
    assert server.bodies == [ALERT.document(), {"text": "subject!"}]


@pytest.mark.parametrize(
    ("status", "error"), [(503, RetryableError), (429, RetryableError), (404, ActionRequiredError)]
)
def test_a_webhook_that_does_not_take_it_is_named_by_its_host_only(
    server: Server, status: int, error: type[SluiceError], caplog: pytest.LogCaptureFixture
) -> None:
    server.statuses[f"/{SECRET}"] = status
    with pytest.raises(error) as caught:
        WebhookNotifier(url=f"{server.url}/{SECRET}")({"sluice": ALERT.variables()})
    assert caught.value.where == {"host": "127.0.0.1", "status": status}
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__} {caplog.text}"


def test_a_webhook_that_is_not_there_is_named_by_its_host_only(server: Server) -> None:
    with pytest.raises(RetryableError, match=r"could not be reached: ConnectionError") as caught:
        WebhookNotifier(url=f"http://127.0.0.1:1/{SECRET}")({"sluice": ALERT.variables()})
    assert SECRET not in str(caught.value)


def test_one_notifier_that_fails_stops_no_other_and_only_it_is_called_again(server: Server) -> None:
    server.statuses["/down"] = 500
    pipeline = a_pipeline(hook(f"{server.url}/down", body={"to": "a"}), hook(f"{server.url}/up", body={"to": "b"}))
    task, context = AlertOperator(task_id="alert", pipeline=pipeline), {"task_state_store": Store()}
    with pytest.raises(RetryableError, match="1 message could not be sent"):
        task._tell([ALERT], context)
    assert server.bodies == [{"to": "a"}, {"to": "b"}]
    server.statuses.clear()
    task._tell([ALERT], context)
    assert server.bodies[2:] == [{"to": "a"}]
    assert context["task_state_store"] == {}


def test_what_an_alert_says_is_no_template_of_the_next_attempt(server: Server, monkeypatch: Any) -> None:
    """Not even where the first one was refused; with it the notifier's own address and headers would be told."""
    told = "{{ url }} {{ headers }} {{ 7 * 7 }} {% for x in range(3) %}x{% endfor %}"
    body = {"text": "{{ sluice.text }}", "json": "{{ sluice.json }}"}
    pipeline = a_pipeline(hook(server.url, body=body, headers={"X-Key": SECRET}))
    server.failures = [503, 503]
    monkeypatch.setattr(alerting, "wait_exponential", lambda _: wait_none())
    alert = Alert("failure", "on_failure", "error", told, told, True, (("Topic", told),), {"topic": told})
    tell_all(pipeline, alert, {})
    assert len(server.bodies) == 3
    assert server.bodies[2] == server.bodies[0]
    assert told in server.bodies[2]["text"]
    assert json.loads(server.bodies[2]["json"])["topic"] == told
    assert SECRET not in str(server.bodies)


def test_a_pipeline_that_tells_somebody_has_one_more_task_that_changes_nothing_of_the_outcome() -> None:
    assert "alert" not in build_dag(a_pipeline(), auto_register=False).task_dict
    alert = build_dag(a_pipeline(hook("http://a/b")), auto_register=False).get_task("alert")
    assert alert.is_teardown
    assert not alert.on_failure_fail_dagrun
    assert alert.upstream_task_ids == {"abort"}
    assert alert.retries >= 3


@pytest.mark.skipif(not HAS_DEADLINES, reason="before Airflow 3.3 the deadline is refused")
def test_what_the_notifiers_are_told_with_stays_out_of_the_database() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    dag = build_dag(a_pipeline(hook(f"http://a/{SECRET}"), deadline="5 minutes"), auto_register=False)
    assert SECRET not in json.dumps(DagSerialization.to_dict(dag))
    assert dag.deadline[0].interval.total_seconds() == 300


def test_a_message_goes_out_without_offsets_where_the_control_topic_cannot_be_read() -> None:
    class Ti:
        dag_id, run_id = "orders", "r1"

        def xcom_pull(self, **_: Any) -> None:
            return None

    pipeline = a_pipeline().model_copy(update={"source": Source(kafka=Kafka(topics="orders", connection="missing"))})
    known = _from_control_topic(pipeline, {"ti": Ti()})
    assert "missing" in known["unknown"] or "connection" in known["unknown"]


def test_a_message_names_keys_as_the_pipeline_s_file_has_them(server: Server) -> None:
    body = {name: f"{{{{ sluice.{name} }}}}" for name in ("summary", "text", "html", "next_step")}
    task = AlertOperator(task_id="alert", pipeline=a_pipeline(hook(server.url, body=body)))
    generic = "raise the source's `max_records`, or see the sink's `schema`"
    alert = Alert("failure", "on_failure", "error", "s", generic, True, (("Do", generic),), {"next_step": generic})
    task._tell([alert], {"task_state_store": Store()})
    (told,) = server.bodies
    assert sorted(told) == sorted(body)
    for text in told.values():
        assert "raise `source.kafka.max_records`, or see `sink.hudi.schema`" in text
        assert "the source" not in text


def test_two_limits_of_one_kind_are_two_messages(server: Server) -> None:
    task, context = AlertOperator(task_id="alert", pipeline=a_pipeline(hook(server.url))), {"task_state_store": Store()}
    limits = [
        Alert("lag", "on_warning", "warning", s, s, False, (), {"limit": s}) for s in ("max_lag", "max_lag_records")
    ]
    task._tell(limits, context)
    assert [body["limit"] for body in server.bodies] == ["max_lag", "max_lag_records"]


def test_the_dag_shows_the_table_but_no_task_waits_for_it_to_be_active() -> None:
    from sluice.airflow.assets import table_asset

    pipeline = a_pipeline(hook("http://a/b"))
    dag = build_dag(pipeline, auto_register=False)
    commit, alert = dag.get_task("commit"), dag.get_task("alert")
    assert (commit.outlets, alert.inlets) == ([table_asset(pipeline)], [table_asset(pipeline)])
    assert (commit.prepare_for_execution().outlets, alert.prepare_for_execution().inlets) == ([], [])
    assert commit.outlets == [table_asset(pipeline)]


def test_an_asset_is_its_path() -> None:
    from airflow.sdk import Asset

    from sluice.airflow.assets import table_asset

    pipeline = a_pipeline()
    assert table_asset(pipeline) == Asset("file:///lake/orders")
    accented = pipeline.model_copy(update={"sink": Sink(hudi=Hudi(path="/lake/zürich", schema="id BIGINT"))})
    assert table_asset(accented).uri == "file:///lake/z%C3%BCrich"
