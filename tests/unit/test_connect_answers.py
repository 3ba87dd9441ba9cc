"""Connect's answers, made of what Airflow knows: each state has one name, and no secret is in a configuration."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request

from sluice.errors import ActionRequiredError
from sluice.page.rest import answers
from sluice.page.rest.answers import Facts, RangeTask
from sluice.page.rest.plugins import keys_of, plugins
from sluice.page.rest.validate import validated
from sluice.page.rest.verbs import AirflowApi, RefusedByAirflowError
from sluice.pipeline.load import load_pipelines
from sluice.protocol.offsets import TopicPartition

FILE = """
name: orders
schedule: 5 minutes
source:
  kafka: {topics: [orders, returns], starting_offsets: {orders: {0: 7}}, value: {converter: json}}
sink:
  hudi: {path: /lake/orders, schema: "id BIGINT, amount DOUBLE", options: {hoodie.parquet.max.file.size: 1000}}
write: {ranges: 2}
"""


@dataclass(frozen=True)
class Run:
    run_id: str
    state: str
    note: str | None = None
    started: Any = None


FAILED, WENT_WELL, RUNNING = (
    Run("f", "failed", "Failed in write[1]: no space."),
    Run("s", "success"),
    Run("r", "running"),
)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (Facts(), "UNASSIGNED"),
        (Facts(known=True), "RUNNING"),
        (Facts(known=True, runs=[WENT_WELL, FAILED]), "RUNNING"),
        (Facts(known=True, runs=[FAILED, WENT_WELL]), "FAILED"),
        (Facts(known=True, runs=[RUNNING, FAILED]), "FAILED"),
        (Facts(known=True, paused=True, runs=[FAILED]), "STOPPED"),
        (Facts(known=True, paused=True, runs=[RUNNING]), "STOPPED"),
        (Facts(known=True, paused=True, runs=[RUNNING], goes_on=True), "PAUSED"),
    ],
)
def test_a_connector_s_state(facts, state):
    assert answers.status("orders", facts, "sink")["connector"]["state"] == state


def test_a_failed_connector_has_the_run_s_note_without_secrets():
    told = Run("f", "failed", "Failed in write[0]: jdbc:postgresql://u:hunter2@db/x password=hunter2")
    trace = answers.status("orders", Facts(known=True, runs=[told]), "sink")["connector"]["trace"]
    assert "Failed in write[0]" in trace
    assert "hunter2" not in trace
    assert "trace" not in answers.status("orders", Facts(known=True), "sink")["connector"]


def _states(**facts: Any) -> list[str]:
    tasks = tuple(
        RangeTask(number, state)
        for number, state in enumerate(
            ("running", "success", "failed", "up_for_retry", "queued", None, "skipped", "upstream_failed")
        )
    )
    return [
        t["state"]
        for t in answers.status("orders", Facts(known=True, tasks=tasks, tasks_of="r", **facts), "sink")["tasks"]
    ]


def test_tasks_have_connect_s_states():
    assert _states(runs=[RUNNING]) == [
        "RUNNING", "RUNNING", "FAILED", "RESTARTING", "UNASSIGNED", "UNASSIGNED", "UNASSIGNED", "UNASSIGNED",
    ]  # fmt: skip
    # Paused, what runs runs to its end, and nothing else begins.
    assert _states(runs=[RUNNING], paused=True, goes_on=True)[:4] == ["RUNNING", "PAUSED", "FAILED", "PAUSED"]
    assert _states(runs=[RUNNING], paused=True) == []
    # A run that failed before it had any ranges: those of an earlier interval aren't its.
    assert set(_states(runs=[FAILED, Run("r", "success")])) == {"UNASSIGNED"}


def test_a_notifiers_arguments_are_not_shown(tmp_path):
    """An address of a webhook is a right to post there."""
    file = tmp_path / "orders.yaml"
    alerts = {
        "on_failure": [
            {"notifier": "a.Webhook", "arguments": {"url": "https://h.example/T0/SECRET", "headers": {"X": "K"}}}
        ],
        "on_deadline": [{"notifier": "b.Mail", "arguments": {"to": "SECRET@example.com"}}],
        "deadline": "15 minutes",
    }
    file.write_text(f"{FILE}\nalerts: {json.dumps(alerts)}\n")
    (pipeline,) = load_pipelines(file)
    config = answers.config_of(pipeline)
    assert config["alerts.on_failure"] == "a.Webhook"
    assert config["alerts.deadline"] == "900 seconds"
    assert "SECRET" not in json.dumps(config)


def test_a_configuration_is_the_file_s_keys_as_text(tmp_path):
    file = tmp_path / "orders.yaml"
    file.write_text(FILE)
    (pipeline,) = load_pipelines(file)
    assert answers.config_of(pipeline) == {
        "name": "orders",
        "connector.class": "sluice.sinks.hudi.options.Hudi",
        "topics": "orders,returns",
        "schedule": "300 seconds",
        "source.kafka.topics": "orders,returns",
        "source.kafka.starting_offsets.orders.0": "7",
        "source.kafka.value.converter": "json",
        "sink.hudi.path": "file:///lake/orders",
        "sink.hudi.schema": "id BIGINT, amount DOUBLE",
        "sink.hudi.options.hoodie.parquet.max.file.size": "1000",
        "write.ranges": "2",
    }


TO_KAFKA = """
name: shop
source: {jdbc: {connection: shop, tables: public.orders, mode: incrementing}}
sink: {kafka: {connection: there, topic: orders, staging: /staging}}
control: {connection: here}
"""


@pytest.mark.parametrize(
    ("text", "is_a", "by"),
    [
        (TO_KAFKA, "source", "sluice.sources.jdbc.options.JdbcTables"),
        (FILE, "sink", "sluice.sinks.hudi.options.Hudi"),
        (TO_KAFKA[: TO_KAFKA.index("sink:")] + "sink: {hudi: {path: /lake/o}}\ncontrol: {connection: here}\n", "sink",
         "sluice.sinks.hudi.options.Hudi"),
    ],
)  # fmt: skip
def test_only_what_loads_a_database_into_kafka_is_a_source(tmp_path, text, is_a, by):
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    (pipeline,) = load_pipelines(file)
    kind, config = answers.type_of(pipeline), answers.config_of(pipeline)
    assert (kind, config["connector.class"]) == (is_a, by)
    assert answers.status("orders", Facts(known=True), kind)["type"] == is_a
    assert answers.info("orders", config, Facts(known=True), kind)["type"] == is_a
    assert answers.type_of(None) == "sink"


def test_offsets_name_the_cluster_only_where_there_are_several():
    one = answers.offsets({TopicPartition("k", "b", 1): 5, TopicPartition("k", "a", 0): 0})
    assert one == {
        "offsets": [
            {"partition": {"kafka_topic": "a", "kafka_partition": 0}, "offset": {"kafka_offset": 0}},
            {"partition": {"kafka_topic": "b", "kafka_partition": 1}, "offset": {"kafka_offset": 5}},
        ]
    }
    two = answers.offsets({TopicPartition("k", "a", 0): 5, TopicPartition("l", "a", 0): 6})
    assert [row["partition"]["kafka_cluster"] for row in two["offsets"]] == ["k", "l"]


@pytest.mark.parametrize(
    ("positions", "offset"),
    [
        ("times", {"timestamp": 5_000, "timestamp_nanos": 250_000}),
        ("numbers", {"incrementing": 5_000_250}),
        ("snapshots", {"snapshots": 5_000_250}),
    ],
)
def test_positions_of_tables_have_the_names_of_connects_own_source(positions, offset):
    (found,) = answers.offsets({TopicPartition("shop", "public.orders", 1): 5_000_250}, positions)["offsets"]
    assert found == {"partition": {"table": "public.orders", "split": 1}, "offset": offset}


@pytest.mark.parametrize(
    ("source", "sink", "topics"),
    [
        ("tables: [a, b]", "kafka: {connection: k, topic: t, staging: /s}", ["t"]),
        ("tables: [a, b]", "kafka: {connection: k, topic: 'db.${topic}', log_topic: l, staging: /s}", ["db.a", "db.b"]),
        ("table_include: a.*", "kafka: {connection: k, topic: t, staging: /s}", ["t"]),
        ("table_include: a.*", "kafka: {connection: k, topic: 'db.${topic}', log_topic: l, staging: /s}", ["db.a"]),
        ("tables: [a, b]", "files: {path: /lake/a}", []),
    ],
)
def test_the_topics_of_a_database_s_tables_are_those_that_are_written(tmp_path, source, sink, topics):
    file = tmp_path / "p.yaml"
    jdbc = f"{{connection: shop, mode: bulk, {source}}}"
    file.write_text(f"name: p\nsource: {{jdbc: {jdbc}}}\nsink: {{{sink}}}\ncontrol: {{connection: k}}\n")
    (pipeline,) = load_pipelines(file)
    assert answers.topics_of(pipeline, lambda: [TopicPartition("shop", "a", 0)]) == topics
    assert not {"topics", "topics.regex", "source.jdbc.topics"} & answers.config_of(pipeline).keys()


def test_every_plugin_has_keys_each_with_a_name_of_its_own():
    for plugin in plugins():
        names = [key["name"] for key in keys_of(plugin["class"]) or []]
        assert len(names) == len(set(names)) > 5
    assert keys_of("Hudi") == keys_of("hudi") == keys_of("sluice.sinks.hudi.options.Hudi")
    assert keys_of("no") is None


def test_a_connector_that_nothing_is_made_of_is_an_error_at_its_class():
    config = {"connector.class": "com.example.OtherSink", "topics": "a", "password": "hunter2", "tasks.max": 1}
    found = validated("OtherSink", config)
    at = {one["value"]["name"]: one["value"]["errors"] for one in found["configs"]}
    assert "isn't known here" in at["connector.class"][0]
    assert found["error_count"] == sum(map(len, at.values())) == 5
    assert "hunter2" not in json.dumps(found)


@pytest.mark.parametrize("config", [{}, {"connector.class": "a.B"}, {"connector.class": "a.C", "x": {"y": 1}}])
def test_what_is_no_configuration_of_that_connector_is_refused(config):
    with pytest.raises(ActionRequiredError):
        validated("C", config)


def test_a_class_of_sluice_s_own_is_checked_as_a_file():
    with pytest.raises(ActionRequiredError, match="sluice validate"):
        validated("Hudi", {"connector.class": "sluice.sinks.hudi.options.Hudi"})


def test_a_verb_is_a_call_of_airflow_s_api_with_the_caller_s_own_token():
    asked: list[Any] = []
    airflow = FastAPI()

    @airflow.api_route("/{path:path}", methods=["PATCH", "POST"])
    async def api(request: Request) -> dict[str, str]:
        asked.append((request.method, request.url.path, request.headers["authorization"], await request.json()))
        if request.url.path.endswith("/refused"):
            raise HTTPException(403, "Forbidden")
        return {}

    api_of_caller = AirflowApi(airflow, "Bearer mine", ("10.0.0.1", 1234))

    async def verbs() -> None:
        await api_of_caller.pause("orders", True)
        await api_of_caller.fail("orders", "manual__2026-11-24T00:00:00+00:00")
        await api_of_caller.clear_task("orders", "r", "write", 3)
        with pytest.raises(RefusedByAirflowError, match="Forbidden") as refused:
            await api_of_caller.pause("refused", True)
        assert refused.value.status == 403

    asyncio.run(verbs())
    at = "/api/v2/dags/orders"
    assert asked[:2] == [
        ("PATCH", at, "Bearer mine", {"is_paused": True}),
        ("PATCH", f"{at}/dagRuns/manual__2026-11-24T00:00:00+00:00", "Bearer mine", {"state": "failed"}),
    ]
    assert asked[2][3]["task_ids"] == [["write", 3]]
