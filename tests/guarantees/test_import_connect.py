"""A connector of Kafka Connect's goes on as a pipeline: from where its consumer group stood, on a real broker."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from sluice.cli import app
from sluice.errors import ActionRequiredError
from sluice.pipeline import load_pipeline
from sluice.pipeline.edit import with_value

from .harness import CLUSTER, environment, kafka_settings
from .harness.databases import CONNECTION, SqliteFile

SMT = "org.apache.kafka.connect.transforms"
JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture
def cluster(bootstrap, monkeypatch):
    for variable, value in kafka_settings(bootstrap).to_environment("source").items():
        monkeypatch.setenv(variable, value)
    return bootstrap


def produce(bootstrap, topic, partition, ids):
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in ids:
        value = {"schema": None, "payload": {"id": number, "v": f"v{number}"}}
        producer.produce(topic, json.dumps(value).encode(), partition=partition)
    assert producer.flush(30) == 0


def commit(bootstrap, group, topic, offsets):
    """The group's commits, as a sink's worker leaves them when its connector is deleted."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def connector(tmp_path, name, topic, **more):
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": topic,
        "connection.url": f"jdbc:sqlite:{tmp_path}/warehouse.db",
        "table.name.format": "orders",
        "auto.create": "true",
        "value.converter": JSON,
        **more,
    }
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"name": name, "config": config}))
    return file


def imported(tmp_path, file):
    return CliRunner().invoke(
        app, ["import-connect", str(file), "--offsets", "--out", str(tmp_path), "--connection", CLUSTER]
    )


def test_rows_go_on_where_the_connectors_group_stood(tmp_path, cluster, create_topic):
    topic = create_topic("orders", partitions=2)
    produce(cluster, topic, 0, range(10))
    produce(cluster, topic, 1, range(100, 105))
    commit(cluster, f"connect-{CONNECTION}", topic, {0: 7})
    done = imported(tmp_path, connector(tmp_path, CONNECTION, topic))
    assert done.exit_code == 0, done.output
    assert f"{topic}: the group has no commit of partition 1" in done.output
    file = tmp_path / f"{CONNECTION}.yaml"
    file.write_text(with_value(file.read_text(), ("sink", "jdbc", "schema"), "id BIGINT, v STRING"))
    assert load_pipeline(file).source.options.starting_offsets == {topic: {0: 7}}
    database = SqliteFile(tmp_path / "warehouse.db")
    ran = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "interval", "run", str(file), "--master", "local[1]"],
        env=environment(cluster, **database.environment()),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert sorted(database.query("SELECT id, v FROM orders")) == [(n, f"v{n}") for n in (7, 8, 9, *range(100, 105))]


STEPS = {
    "skip": {"type": f"{SMT}.Filter", "predicate": "header"},
    "ours": {"type": f"{SMT}.Filter", "predicate": "topic", "negate": "true"},
    "name": {"type": f"{SMT}.ReplaceField$Value", "exclude": "junk", "renames": "old:new"},
    "cast": {"type": f"{SMT}.Cast$Value", "spec": "new:int32,other:string"},
    "mask": {"type": f"{SMT}.MaskField$Value", "fields": "card", "replacement": "it's"},
    "hide": {"type": f"{SMT}.MaskField$Value", "fields": "pin"},
    "ms": {"type": f"{SMT}.TimestampConverter$Value", "field": "ms", "target.type": "Timestamp"},
    "text": {
        "type": f"{SMT}.TimestampConverter$Value",
        "field": "at",
        "target.type": "string",
        "format": "yyyy-MM-dd'T'HH:mm:ss.SSS",
    },
    "unix": {
        "type": f"{SMT}.TimestampConverter$Value",
        "field": "since",
        "target.type": "unix",
        "unix.precision": "seconds",
    },
    "some": {"type": f"{SMT}.ReplaceField$Value", "include": "s,ms,at,since,new,card,pin"},
    "place": {"type": f"{SMT}.InsertField$Value", "partition.field": "part", "timestamp.field": "sent"},
    "from": {"type": f"{SMT}.InsertField$Value", "static.field": "src", "static.value": "it's \\ x"},
    "flat": {"type": f"{SMT}.Flatten$Value", "delimiter": "_"},
}
FIELDS = (
    "junk INT, old STRING, other INT, card STRING, pin INT, ms BIGINT, at TIMESTAMP, since TIMESTAMP, "
    "s STRUCT<x: INT, y: STRUCT<z: STRING>>"
)
COLUMNS = (
    "new INT, card STRING, pin INT, ms TIMESTAMP, at STRING, since BIGINT, s_x INT, s_y_z STRING, part INT, "
    "sent TIMESTAMP, src STRING"
)


def test_sparks_analyzer_takes_every_step_that_a_transform_becomes(tmp_path, home):
    settings = {f"transforms.{alias}.{name}": value for alias, of in STEPS.items() for name, value in of.items()}
    predicates = {
        "predicates": "header,topic",
        "predicates.header.type": f"{SMT}.predicates.HasHeaderKey",
        "predicates.header.name": "skip",
        "predicates.topic.type": f"{SMT}.predicates.TopicNameMatches",
        "predicates.topic.pattern": "ord\\w+",
    }
    file = connector(tmp_path, "steps", "orders", transforms=",".join(STEPS), **settings, **predicates)
    done = CliRunner().invoke(app, ["import-connect", str(file), "--out", str(tmp_path)])
    assert done.exit_code == 2, done.output  # `hide` has null in place of 0
    made = tmp_path / "steps.yaml"
    text = with_value(made.read_text(), ("source", "kafka", "value", "schema"), FIELDS)
    made.write_text(with_value(text, ("sink", "jdbc", "schema"), COLUMNS))
    checked = CliRunner().invoke(app, ["validate", str(made)])
    assert checked.exit_code == 0, checked.output


def test_a_group_that_has_members_is_refused(tmp_path, cluster, create_topic, topic_name):
    topic, name = create_topic("orders"), topic_name("sink")
    produce(cluster, topic, 0, range(3))
    commit(cluster, f"connect-{name}", topic, {0: 2})
    file = connector(tmp_path, name, topic)
    consumer = Consumer({"bootstrap.servers": cluster, "group.id": f"connect-{name}"})
    consumer.subscribe([topic])
    try:
        assert consumer.poll(30) is not None  # it is a member, with the partition
        done = imported(tmp_path, file)
        assert isinstance(done.exception, ActionRequiredError)
        assert "has 1 members still" in str(done.exception)
        assert not (tmp_path / f"{name}.yaml").exists()
    finally:
        consumer.close()
    assert imported(tmp_path, file).exit_code == 0


def test_a_group_of_its_own_is_read_and_one_without_commits_is_refused(tmp_path, cluster, create_topic, topic_name):
    topic, group, name = create_topic("orders", partitions=2), topic_name("group"), topic_name("sink")
    file = connector(tmp_path, name, topic, **{"consumer.override.group.id": group})
    unknown = imported(tmp_path, file)
    assert isinstance(unknown.exception, ActionRequiredError)
    assert "no committed offsets" in str(unknown.exception)
    commit(cluster, group, topic, {0: 0, 1: 5})
    assert imported(tmp_path, file).exit_code == 0
    written = (tmp_path / f"{name}.yaml").read_text()
    assert f"{topic}:\n        0: 0\n        1: 5\n" in written
