"""Connect's REST API as Sluice answers it has the shapes of a real worker's, and a real worker's offsets are read.

A shape is keys with the types of their values: what a program finds that was written for Connect.
"""

from __future__ import annotations

from types import NoneType
from typing import Any

import pytest
from tests.connect.worker import ConnectWorker, ensure_connect

from sluice.connect.source_offsets import stored
from sluice.kafka.transactional import read_whole
from sluice.local.process import free_port
from sluice.page.rest import answers
from sluice.page.rest.answers import Facts, RangeTask
from sluice.page.rest.plugins import keys_of, plugins
from sluice.page.rest.validate import validated
from sluice.protocol.offsets import TopicPartition

from .harness import kafka_settings, wait_for
from .harness.topics import create

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
