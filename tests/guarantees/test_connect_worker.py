"""Connect's REST API as Sluice answers it has the shapes of a real worker's, and a real worker's offsets are read.

A shape is keys with the types of their values: what a program finds that was written for Connect. Records that the
worker sends are those of the imported pipeline, and records that it reads are those of Kafka's converters in
`test_connect_converters.py`.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from types import NoneType
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.connect.transforms import ConnectTransforms
from tests.connect.worker import ConnectWorker, ensure_connect
from tests.unit.connectors_of_connect import KAFKAS, SMT, one

from sluice.connect.source_offsets import stored
from sluice.connectors.connections import VARIABLE
from sluice.kafka.transactional import read_whole
from sluice.local.process import free_port
from sluice.page.rest import answers
from sluice.page.rest.answers import Facts, RangeTask
from sluice.page.rest.plugins import keys_of, plugins
from sluice.page.rest.validate import validated
from sluice.protocol.offsets import TopicPartition

from .harness import kafka_settings, wait_for
from .harness.databases import SqliteFile
from .harness.topics import TARGET, Topics, consume, create, environment
from .test_connect_converters import SAME, sink

pytestmark = [pytest.mark.thorough, pytest.mark.kafka]
FILES = "org.apache.kafka.connect.file.FileStream"
EXTRACT = "org.apache.kafka.connect.transforms.ExtractField$Value"
FACTS = Facts(known=True, tasks=(RangeTask(0, "running", "worker-3"),), tasks_of="r", host="worker-3")
FAILS = Facts(known=True, tasks=(RangeTask(0, "failed", "worker-3", error="no space"),), tasks_of="r", host="worker-3")
JDBC = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "name": "rows",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://db/shop",
}


@pytest.fixture(scope="module")
def worker(home, bootstrap, topic_name, tmp_path_factory):
    group = topic_name("connect")
    jars, folder = ensure_connect(home), tmp_path_factory.mktemp("connect")
    (folder / "in.txt").write_text("one\ntwo\n")
    create(bootstrap, f"{group}-lines", 1)
    with ConnectWorker(jars, folder / "worker", bootstrap, group, free_port()) as running:
        wait_for(running.answers, "Connect's worker", timeout=180, pause=0.2)
        source = {
            "connector.class": f"{FILES}SourceConnector",
            "file": str(folder / "in.txt"),
            "topic": f"{group}-lines",
        }
        sink = {"connector.class": f"{FILES}SinkConnector", "file": str(folder / "out"), "topics": f"{group}-lines"}
        for name, config in (("lines", source), ("file", sink)):
            made, said = running.ask("PUT", f"/connectors/{name}/config", {**config, "tasks.max": "1"})
            assert made == 201, said
        for name in ("lines", "file"):
            wait_for(lambda name=name: _runs(running, name), f"{name} to run", timeout=120, pause=0.2)
            wait_for(lambda name=name: _offsets(running, name), f"the offsets of {name}", timeout=120, pause=0.2)
        yield running


def _runs(worker: ConnectWorker, name: str) -> bool:
    code, found = worker.ask("GET", f"/connectors/{name}/status")
    return code == 200 and [task["state"] for task in found["tasks"]] == ["RUNNING"]


def _offsets(worker: ConnectWorker, name: str) -> Any:
    code, found = worker.ask("GET", f"/connectors/{name}/offsets")
    return found["offsets"] if code == 200 else None


def get(worker: ConnectWorker, path: str, wanted: int = 200) -> Any:
    code, found = worker.ask("GET", path)
    assert code == wanted, (path, found)
    return found


def lacks(theirs: Any, ours: Any, at: str = "") -> list[str]:
    """Where a program that was written for Connect doesn't find what it looks for."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        missing = [f"{at}.{key}" for key in theirs if key not in ours]
        return missing + [x for key in theirs if key in ours for x in lacks(theirs[key], ours[key], f"{at}.{key}")]
    if isinstance(theirs, list) and isinstance(ours, list):
        return lacks(theirs[0], ours[0], f"{at}[]") if theirs and ours else []
    same = type(theirs) is type(ours) or NoneType in (type(theirs), type(ours))
    return [] if same else [f"{at}: {type(theirs).__name__} there, {type(ours).__name__} here"]


def test_connectors_and_their_states_have_connect_s_shapes(worker):
    config = {"connector.class": "x", "topics": "orders"}
    for name, kind in (("lines", "source"), ("file", "sink")):
        at = f"/connectors/{name}"
        ours = answers.status(name, FACTS, kind)
        assert lacks(get(worker, f"{at}/status"), ours) == []
        assert get(worker, f"{at}/status")["type"] == ours["type"]
        assert lacks(get(worker, f"{at}/tasks/0/status"), answers.task_status(FACTS, 0)) == []
        info = answers.info(name, get(worker, f"{at}/config"), FACTS, kind)
        assert lacks(get(worker, at), info) == []
        tasks = answers.tasks(name, config, FACTS)
        assert lacks([{**one, "config": {}} for one in get(worker, f"{at}/tasks")], tasks) == []
        expanded = {name: {"status": ours, "info": info}}
        theirs = get(worker, "/connectors?expand=status&expand=info")
        assert lacks({name: theirs[name]}, expanded) == []
    assert {"file", "lines"} <= set(get(worker, "/connectors"))
    assert get(worker, "/").keys() == {"version", "commit", "kafka_cluster_id"}
    assert list(get(worker, "/connectors/file/topics")["file"]) == ["topics"]


def test_offsets_of_a_sink_errors_and_traces_have_connect_s_shapes(worker):
    ours = answers.offsets({TopicPartition("k", "orders", 0): 2})
    theirs = get(worker, "/connectors/file/offsets")
    assert lacks(theirs, ours) == lacks(ours, theirs) == []
    assert theirs["offsets"][0]["offset"] == {"kafka_offset": 2}  # the next one, as here
    assert lacks(get(worker, "/connectors/nobody", 404), answers.error(404, "x")) == []
    assert get(worker, "/connectors/nobody", 404)["error_code"] == 404
    field = {"transforms": "x", "transforms.x.field": "nothing", "transforms.x.type": EXTRACT}
    broken = {**get(worker, "/connectors/file/config"), **field, "name": "broken"}
    assert worker.ask("PUT", "/connectors/broken/config", broken)[0] == 201
    failed = wait_for(lambda: _failed(worker, "broken"), "a task to fail", timeout=60, pause=0.2)
    assert lacks(failed, answers.status("broken", FAILS, "source")) == []


def _failed(worker: ConnectWorker, name: str) -> Any:
    code, found = worker.ask("GET", f"/connectors/{name}/status")
    return found if code == 200 and any(task["state"] == "FAILED" for task in found["tasks"]) else None


def test_plugins_their_keys_and_what_is_said_of_a_configuration_have_connect_s_shapes(worker):
    assert lacks(get(worker, "/connector-plugins"), plugins()) == []
    assert lacks(get(worker, f"/connector-plugins/{FILES}SinkConnector/config"), keys_of("hudi")) == []
    config = {"connector.class": f"{FILES}SinkConnector", "name": "x", "topics": "a", "file": "/tmp/x"}
    path = f"/connector-plugins/{FILES}SinkConnector/config/validate"
    code, theirs = worker.ask("PUT", path, config)
    assert code == 200, theirs
    assert lacks(theirs, validated("JdbcSinkConnector", JDBC)) == []


LINES = ["one", "", 'it\'s "q" \\ ü', "🦀 beyond U+FFFF", "null", "1", "\u2028"]
STEPS = {
    "transforms": "hoist,key,more,origin",
    "transforms.hoist.type": f"{SMT}.HoistField$Value",
    "transforms.hoist.field": "line",
    "transforms.key.type": f"{SMT}.ValueToKey",
    "transforms.key.fields": "line",
    "transforms.more.type": f"{SMT}.InsertField$Value",
    "transforms.more.static.field": "site",
    "transforms.more.static.value": "it's \\ here",
    "transforms.origin.type": f"{SMT}.InsertHeader",
    "transforms.origin.header": "origin",
    "transforms.origin.value.literal": "shop eu",
}
COLUMNS = "line STRING, site STRING, connect_header_0_origin STRING"
"""What a person writes into the pipeline file: the table's columns, and those of the transforms."""
JSON = f"{KAFKAS}.json.JsonConverter"
WRITES = {
    "plain": {"key.converter": JSON, "key.converter.schemas.enable": "false", "value.converter": JSON,
              "value.converter.schemas.enable": "false"},
    "envelopes": {"key.converter": JSON, "value.converter": JSON},
    "a text as the key": {"key.converter": f"{KAFKAS}.storage.StringConverter", "value.converter": JSON,
                          "value.converter.schemas.enable": "false", "transforms": "hoist,key,alone,more,origin",
                          "transforms.alone.type": f"{SMT}.ExtractField$Key", "transforms.alone.field": "line"},
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_a_pipeline_sends_the_records_that_the_worker_sends(name, worker, make_flow, bootstrap, topic_name, tmp_path,
                                                            monkeypatch):  # fmt: skip
    """Of the same lines, in a file there and in a table here: key, value, headers, time, and partition by the key."""
    config, theirs, ours = {**STEPS, **WRITES[name]}, topic_name("theirs"), topic_name("ours")
    start = int(time.time() * 1000)
    for topic in (theirs, ours):
        create(bootstrap, topic, 3)
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    connector = {"connector.class": f"{FILES}SourceConnector", "file": str(tmp_path / "in.txt"), "topic": theirs}
    made, answer = worker.ask("PUT", f"/connectors/{theirs}/config", {**connector, "tasks.max": "1", **config})
    assert made == 201, answer
    sent = wait_for(lambda: _all_of(bootstrap, theirs), "the worker's records", timeout=60, pause=0.2)

    database = SqliteFile(tmp_path / "shop.db")
    database.run("CREATE TABLE lines (line TEXT)")
    for line in LINES:
        database.run("INSERT INTO lines VALUES ('" + line.replace("'", "''") + "')")
    # The table's rows have the field already: what hoists it is the connector of files' alone.
    steps = ",".join(step for step in config["transforms"].split(",") if step != "hoist")
    table = {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector", "connection.url": "jdbc:sqlite:x",
             "mode": "bulk", "table.whitelist": "lines", "topic.prefix": "x-"}  # fmt: skip
    own = {key: value for key, value in config.items() if not key.startswith("transforms.hoist.")}
    imported = one({**table, **own, "transforms": steps}, path=str(tmp_path / "staging"))
    pipeline = imported.pipeline
    assert (pipeline is None, imported.missing) == (False, (("sink", "kafka", "schema"),))
    known = json.dumps([*json.loads(environment(bootstrap)[VARIABLE]), {**asdict(database.connection), "id": "shop"}])
    monkeypatch.setenv(VARIABLE, known)
    flow = make_flow(0)
    flow.secret_environment[VARIABLE] = known
    source = {"jdbc": {**pipeline["source"]["jdbc"], "connection": "shop"}}
    kafka = {**pipeline["sink"]["kafka"], "connection": TARGET, "topic": ours, "schema": COLUMNS}
    flow.set(source=source, transforms=pipeline["transforms"], sink__hudi=None, sink__kafka=kafka)
    flow.set(control__connection="kafka_default")
    flow.interval()
    found = Topics(flow, bootstrap).found()

    def shown(record: Any) -> tuple[Any, ...]:
        key, value = record.key, record.value
        if name == "envelopes":  # whose schemas differ as the report says
            key, value = (json.loads(data)["payload"] for data in (key, value))
            return (str(key), str(value), record.headers)
        return (str(key), str(value), record.headers, record.partition)

    assert sorted(map(shown, found)) == sorted(map(shown, sent))
    end = int(time.time() * 1000)
    assert all(start <= record.timestamp <= end for record in (*sent, *found))


def _all_of(bootstrap: str, topic: str) -> Any:
    found = consume(bootstrap, topic)
    return found if len(found) == len(LINES) else None


def test_the_worker_reads_records_as_kafkas_converters_alone_do(worker, home, bootstrap, topic_name, tmp_path):
    """Which `test_connect_converters.py` judges by; a record without a value is null there."""
    config, topic = sink(), topic_name("read")
    create(bootstrap, topic, 1)
    data = [one for name, one in SAME.items() if b'"default": "AP8="' not in one]  # a text of bytes is no text of them
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (*data, None):
        producer.produce(topic, value, b"k")
    assert producer.flush(30) == 0
    own = {key: value for key, value in config.items() if key.startswith("value.")}
    own["key.converter"] = f"{KAFKAS}.storage.StringConverter"
    connector = {"connector.class": f"{FILES}SinkConnector", "file": str(tmp_path / "out"), "topics": topic, **own}
    made, answer = worker.ask("PUT", f"/connectors/{topic}/config", {**connector, "tasks.max": "1"})
    assert made == 201, answer
    with ConnectTransforms(ensure_connect(home)) as kafkas:
        wanted = [kafkas.read(config, "value", value)[0] for value in (*data, None)]

    def written() -> Any:
        text = (tmp_path / "out").read_text() if (tmp_path / "out").exists() else ""
        return text if text.count("\n") >= sum(line.count("\n") + 1 for line in wanted) else None

    assert wait_for(written, "the lines", timeout=60, pause=0.2) == "".join(f"{line}\n" for line in wanted)


def test_a_source_s_offsets_are_read_from_connect_s_own_topic_until_they_are_deleted(worker, bootstrap):
    """The last test of the worker's: it stops the connector."""

    def ours():
        records = read_whole(kafka_settings(bootstrap), worker.offsets_topic)
        return list(stored("lines", ((r.key(), r.value()) for r in records)).values())

    said = wait_for(lambda: _offsets(worker, "lines"), "the offsets", timeout=60, pause=0.2)
    assert ours() == [one["offset"] for one in said]
    assert said[0]["offset"]["position"] == len("one\ntwo\n")
    assert (
        stored("line", ((r.key(), r.value()) for r in read_whole(kafka_settings(bootstrap), worker.offsets_topic)))
        == {}
    )
    assert worker.ask("PUT", "/connectors/lines/stop")[0] == 204
    deleted = wait_for(lambda: _deleted(worker), "the connector to stop", timeout=60, pause=0.2)
    assert deleted
    assert ours() == []


def _deleted(worker: ConnectWorker) -> bool:
    return worker.ask("DELETE", "/connectors/lines/offsets")[0] == 200
