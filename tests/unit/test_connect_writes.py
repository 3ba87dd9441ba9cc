"""Connect's verbs that write: a connector has one whole file, without secrets, and no person's file is touched."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from light_page import light_page

from sluice.errors import ActionRequiredError
from sluice.page.rest import files, writes
from sluice.page.rest.files import ConnectorFiles, Written
from sluice.page.rest.sent import sent, shown
from sluice.page.runs import DagFacts
from sluice.pipeline.load import files_in, load_pipeline

from .connectors_of_connect import AVRO, DEBEZIUM, FOLDER, TABLE

SECRET = "hunter2-and-more"
SINK = {key: value for key, value in TABLE.items() if key != "connection.password"}
COLUMNS = {"sluice.sink.files.schema": "id BIGINT, token STRUCT<password: STRING>"}
BEARER = {"Authorization": "Bearer mine"}
Ask = Callable[..., httpx.Response]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pipelines"


@pytest.fixture
def may() -> set[str]:
    """The methods that the user may use on all DAGs."""
    return {"GET", "PUT"}


@pytest.fixture
def ask(tmp_path: Path, folder: Path, may: set[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Sends a request to Connect's API, whose folder is that of the DAGs."""
    monkeypatch.setenv(writes.FOLDER_VARIABLE, str(folder))
    with light_page(tmp_path, monkeypatch, lambda method, *_: method in may) as client:

        def send(method: str, path: str, body: Any = None, headers: dict[str, str] = BEARER) -> httpx.Response:
            return client.request(method, f"/connect{path}", json=body, headers=headers)

        yield send


def _put(ask: Ask, name: str = "orders", **more: Any) -> httpx.Response:
    return ask("PUT", f"/connectors/{name}/config", {**SINK, **more})


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".sluice-connect.lock"}


# Made, changed, deleted ----------------------------------------------------------------------------------------------


def test_a_connector_is_made_changed_and_deleted(ask, folder):
    made = ask("POST", "/connectors", {"name": "orders", "config": SINK})
    config = {**SINK, "name": "orders"}
    assert (made.status_code, made.headers["Location"]) == (201, "/connect/connectors/orders")
    assert made.json() == {"name": "orders", "config": config, "tasks": [], "type": "sink"}
    assert _names(folder) == {"orders.yaml"}
    pipeline = load_pipeline(folder / "orders.yaml")
    assert (pipeline.name, pipeline.source.options.topics, pipeline.paused) == ("orders", ("orders",), False)
    assert ask("GET", "/connectors").json() == ["orders"]
    assert ask("GET", "/connectors/orders/config").json() == config
    assert ask("GET", "/connectors/orders/status").json()["connector"]["state"] == "UNASSIGNED"

    changed = _put(ask, topics="orders,returns", **{"table.name.format": "all"})
    assert (changed.status_code, changed.json()["config"]["topics"]) == (200, "orders,returns")
    assert load_pipeline(folder / "orders.yaml").source.options.topics == ("orders", "returns")

    patched = ask("PATCH", "/connectors/orders/config", {"tasks.max": 3, "topics": "b", "table.name.format": None})
    assert (patched.status_code, patched.json()["config"]) == (200, {**config, "topics": "b", "tasks.max": "3"})
    assert ask("GET", "/connectors/orders").json()["config"] == patched.json()["config"]
    assert load_pipeline(folder / "orders.yaml").write.ranges == 3

    assert ask("DELETE", "/connectors/orders").status_code == 204
    assert _names(folder) == set()
    assert ask("GET", "/connectors/orders/config").status_code == 404


@pytest.mark.parametrize("given", [None, "", 5, False])
def test_a_class_that_is_none_is_refused(ask, folder, given):
    answer = ask("POST", "/connectors", {"name": "orders", "config": {**SINK, "connector.class": given}})
    assert (answer.status_code, _names(folder)) == (400, set())


def test_put_makes_what_is_not_there_and_patch_and_delete_don_t(ask, folder):
    for method, path in (("PATCH", "/connectors/orders/config"), ("DELETE", "/connectors/orders")):
        answer = ask(method, path, {})
        assert (answer.status_code, answer.json()["message"]) == (404, "Connector orders not found")
    assert _put(ask).status_code == 201
    assert _names(folder) == {"orders.yaml"}


@pytest.mark.parametrize(("state", "paused"), [("RUNNING", False), ("PAUSED", True), ("STOPPED", True)])
def test_a_first_state_is_kept_by_later_changes(ask, folder, state, paused):
    assert ask("POST", "/connectors", {"name": "o", "config": SINK, "initial_state": state}).status_code == 201
    assert _put(ask, "o", topics="b").status_code == 200
    assert load_pipeline(folder / "o.yaml").paused is paused


def test_a_first_state_that_airflow_would_not_come_to_is_refused(ask, folder, monkeypatch):
    def gone(_: Any, names: list[str]) -> dict[str, DagFacts]:
        return {name: DagFacts(name, False, True, None, None, None) for name in names}

    monkeypatch.setattr(writes, "dags", gone)
    body = {"name": "o", "config": SINK, "initial_state": "STOPPED"}
    answer = ask("POST", "/connectors", body)
    assert answer.status_code == 409
    assert "not paused" in answer.json()["message"]
    assert ask("POST", "/connectors", {**body, "initial_state": "ASLEEP"}).status_code == 400
    assert _names(folder) == set()
    assert ask("POST", "/connectors", {"name": "o", "config": SINK}).status_code == 201


def test_columns_that_connect_s_keys_don_t_say_are_a_key_of_sluice_s(ask, folder):
    body = {"name": "o", "config": FOLDER}
    answer = ask("POST", "/connectors", body)
    assert answer.status_code == 400
    assert "[sluice.sink.files.schema]" in answer.json()["message"]
    assert ask("POST", "/connectors", {**body, "config": {**FOLDER, **COLUMNS}}).status_code == 201
    schema = load_pipeline(folder / "o.yaml").sink.options.schema_
    assert schema == COLUMNS["sluice.sink.files.schema"]
    assert ask("GET", "/connectors/o/config").json().items() >= COLUMNS.items()
    # Such a key is honoured where something is missing, and nowhere else.
    assert "sluice.sink.jdbc.schema" in _put(ask, **{"sluice.sink.jdbc.schema": "id BIGINT"}).json()["message"]


def test_a_delete_ends_the_run_that_is_under_way(ask, monkeypatch):
    ended: list[Any] = []

    async def fail(_: Any, *run: str) -> None:
        ended.append(run)

    _put(ask)
    monkeypatch.setattr(
        writes, "facts_of", lambda *_: {"orders": SimpleNamespace(under_way=SimpleNamespace(run_id="r"))}
    )
    monkeypatch.setattr(writes.AirflowApi, "fail", fail)
    assert ask("DELETE", "/connectors/orders").status_code == 204
    assert ended == [("orders", "r")]


# Who may, and where --------------------------------------------------------------------------------------------------

CHANGES = (
    ("POST", "/connectors"), ("PUT", "/connectors/orders/config"), ("PATCH", "/connectors/orders/config"),
    ("DELETE", "/connectors/orders"),
)  # fmt: skip


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_without_a_folder_it_is_refused_with_how_else(ask, monkeypatch, method, path):
    monkeypatch.delenv(writes.FOLDER_VARIABLE)
    answer = ask(method, path, {"name": "orders", "config": SINK})
    assert (answer.status_code, answer.json()["error_code"], answer.headers["Allow"]) == (405, 405, "GET")
    assert writes.FOLDER_VARIABLE in answer.json()["message"]


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_it_takes_a_token_of_who_may_edit_all_dags(ask, may, folder, method, path):
    _put(ask)
    before = (folder / "orders.yaml").read_text()
    body = {"name": "more", "config": SINK} if method == "POST" else SINK
    assert ask(method, path, body, headers={}).status_code == 401
    may.remove("PUT")
    assert ask(method, path, body).status_code == 403
    assert (_names(folder), (folder / "orders.yaml").read_text()) == ({"orders.yaml"}, before)


def test_a_folder_that_makes_no_dags_is_refused(ask, tmp_path, folder, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    for named in (other, tmp_path / "no"):
        monkeypatch.setenv(writes.FOLDER_VARIABLE, str(named))
        answer = _put(ask)
        assert (answer.status_code, answer.json()["error_code"]) == (500, 500)
        assert "SLUICE_PIPELINE_FOLDERS" in answer.json()["message"]
    monkeypatch.setenv("SLUICE_PIPELINE_FOLDERS", str(other))
    monkeypatch.setenv(writes.FOLDER_VARIABLE, str(other))
    assert _put(ask).status_code == 201
    assert (_names(other), _names(folder)) == ({"orders.yaml"}, set())


def test_a_folder_that_can_t_be_written_is_said(ask, folder, monkeypatch):
    def no_links(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(files.os, "link", no_links)
    answer = _put(ask)
    assert (answer.status_code, _names(folder)) == (500, set())
    assert "Operation not permitted" in answer.json()["message"]


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {}, {"connector.class": "com.example.Other"}, {**SINK, "no.such.key": "1"}, {**SINK, "topics": {"a": 1}},
        {**SINK, "name": "another"}, {"connector.class": "sluice.sinks.hudi.options.Hudi"},
        {**SINK, "topics": "a,b"}, {**SINK, "topics": ""}, {**SINK, "value.converter": "com.example.Converter"},
    ],
)  # fmt: skip
def test_a_wrong_configuration_changes_nothing(ask, folder, config):
    _put(ask)
    before = (folder / "orders.yaml").read_text()
    for answer in (
        ask("PUT", "/connectors/orders/config", config),
        ask("PUT", "/connectors/more/config", {**config, "name": config.get("name", "more")}),
        ask("POST", "/connectors", {"name": "more", "config": config}),
    ):
        assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    assert (_names(folder), (folder / "orders.yaml").read_text()) == ({"orders.yaml"}, before)


def test_each_key_that_is_wrong_is_named(ask):
    message = _put(ask, **{"no.such.key": "1", "another": "2"}).json()["message"]
    assert "contains 2 errors" in message
    assert "[no.such.key]" in message
    assert "[another]" in message


@pytest.mark.parametrize(
    "name", ["../orders", "..", ".hidden", "a/b", "a b", "orders\n", "", "x" * 191, "o\u0000", "ördern", "a."]
)
def test_no_name_leads_out_of_the_folder(ask, folder, tmp_path, name):
    assert ask("POST", "/connectors", {"name": name, "config": SINK}).status_code == 400
    assert _names(folder) == set()
    assert {path.name for path in tmp_path.iterdir()} == {"pipelines"}
    assert ConnectorFiles(folder).path(name) is None or name == "a."


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connection.password", SECRET),
        ("consumer.override.sasl.jaas.config", f'X required username="u" password="{SECRET}";'),
        ("value.converter.basic.auth.user.info", f"u:{SECRET}"),
        ("connection.url", f"jdbc:postgresql://u:{SECRET}@db:5432/lake"),
        ("gcs.credentials.json", SECRET),
        ("connection.password", "${file:/s:p}" + SECRET),
    ],
)
def test_a_secret_is_in_no_file_no_answer_and_no_log(ask, folder, caplog, key, value):
    caplog.set_level("DEBUG")
    _put(ask)
    for answer in (
        _put(ask, **{key: value}),
        ask("PATCH", "/connectors/orders/config", {key: value}),
        ask("POST", "/connectors", {"name": "more", "config": {**SINK, key: value}}),
    ):
        assert (answer.status_code, f"[{key}] A secret" in answer.json()["message"]) == (400, True), answer.json()
        assert SECRET not in answer.text
    assert _names(folder) == {"orders.yaml"}
    assert SECRET not in (folder / "orders.yaml").read_text() + caplog.text


def test_what_only_looks_like_a_secret_is_kept_and_shown():
    config = {
        **SINK,
        "connection.password": "${vault:secret/db:password}",
        "value.converter.basic.auth.credentials.source": "USER_INFO",
    }
    assert shown(sent("o", config).config) == {**config, "name": "o"}


def test_a_provider_s_value_is_refused_where_it_has_to_be_known():
    with pytest.raises(ActionRequiredError, match="config provider"):
        sent("o", {**SINK, "topics": "${file:/topics:all}"})


def test_a_connector_of_several_tables_is_refused():
    with pytest.raises(ActionRequiredError, match="for each topic or table"):
        sent("o", {**SINK, "connector.class": DEBEZIUM, "topics": "a,b", "collection.name.format": "${topic}", **AVRO})


# A person's files ----------------------------------------------------------------------------------------------------

BY_HAND = "name: orders\nsource: {kafka: {topics: a}}\nsink: {hudi: {path: /lake/o, schema: id BIGINT}}\n"


@pytest.mark.parametrize("file", ["orders.yaml", "other.yml"])
def test_a_person_s_file_is_left_alone_and_named(ask, folder, file):
    (folder / file).write_text(BY_HAND)
    for method, path in CHANGES:
        answer = ask(method, path, {"name": "orders", "config": SINK} if method == "POST" else SINK)
        assert (answer.status_code, answer.json()["error_code"]) == (409, 409)
        assert str(folder / file) in answer.json()["message"]
    assert (_names(folder), (folder / file).read_text()) == ({file}, BY_HAND)


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("schedule: 1 minute", "schedule: 2 minutes"),
        lambda text: text.replace('"orders"', '"returns"', 1),
        lambda text: text.partition("\n")[2],
        lambda text: text.replace('"sha256"', "sha256"),
    ],
)
def test_a_file_that_somebody_has_changed_is_theirs(ask, folder, edit):
    _put(ask)
    file = folder / "orders.yaml"
    edited = edit(file.read_text())
    assert edited != file.read_text()
    file.write_text(edited)
    for method, path in CHANGES[1:]:
        answer = ask(method, path, SINK)
        assert (answer.status_code, str(file) in answer.json()["message"]) == (409, True)
    assert file.read_text() == edited
    assert ask("GET", "/connectors/orders/config").json()["sink.jdbc.table"] == "orders"


def test_a_connector_made_in_python_is_left_alone(ask, folder, monkeypatch):
    known = {"orders": DagFacts("orders", False, False, None, None, None)}
    monkeypatch.setattr(writes, "dags", lambda *_: known)
    for method, path in CHANGES:
        answer = ask(method, path, {"name": "orders", "config": SINK} if method == "POST" else SINK)
        assert (answer.status_code, "Python" in answer.json()["message"]) == (409, True)
    assert _names(folder) == set()


# Files, and two at once ----------------------------------------------------------------------------------------------


def _written(topic: str = "a") -> Written:
    keys = BY_HAND.replace("topics: a", f"topics: {topic}")
    return Written({"topics": topic, "ä": '"\n# connect: x'}, "RUNNING", keys)


def test_a_file_is_what_was_written():
    assert Written.of_text(_written().text()) == _written()


def test_of_two_who_make_a_file_one_gets_to_know_that_it_is_there(tmp_path):
    start, results = threading.Barrier(2), []

    def create(topic: str) -> None:
        start.wait()
        try:
            results.append(ConnectorFiles(tmp_path).create("orders", _written(topic)).source.options.topics[0])
        except FileExistsError:
            results.append(None)

    both = [threading.Thread(target=create, args=(topic,)) for topic in "ab"]
    for one in both:
        one.start()
    for one in both:
        one.join()
    (won,) = [topic for topic in results if topic]
    assert (len(results), results.count(None)) == (2, 1)
    assert ConnectorFiles(tmp_path).read("orders") == _written(won)
    assert _names(tmp_path) == {"orders.yaml"}


@pytest.mark.parametrize("change", ["create", "replace"])
def test_a_file_has_its_name_only_once_it_is_whole_and_on_the_disk(tmp_path, monkeypatch, change):
    folder, seen = ConnectorFiles(tmp_path), []
    if change == "replace":
        folder.create("orders", _written("old"))
    sync = files.os.fsync

    def look(descriptor: int) -> None:
        seen.append([load_pipeline(one).source.options.topics for one in files_in(tmp_path)])
        sync(descriptor)

    monkeypatch.setattr(files.os, "fsync", look)
    getattr(folder, change)("orders", _written("new"))
    assert seen == [[("old",)] if change == "replace" else [], [("new",)]]  # of the file; of the folder


def test_what_is_no_pipeline_file_gets_no_name(tmp_path):
    with pytest.raises(ActionRequiredError):
        ConnectorFiles(tmp_path).create("orders", Written({}, "RUNNING", "name: orders\n"))
    assert _names(tmp_path) == set()


def test_changes_exclude_each_other(tmp_path):
    inside, others = threading.Event(), []

    def change() -> None:
        inside.set()
        with ConnectorFiles(tmp_path).alone():
            others.append("second")

    with ConnectorFiles(tmp_path).alone():
        second = threading.Thread(target=change)
        second.start()
        inside.wait()
        second.join(0.2)
        others.append("first")
    second.join()
    assert others == ["first", "second"]


def test_a_configuration_is_read_by_the_right_to_read_the_dag_s_code(tmp_path, folder, monkeypatch):
    monkeypatch.setenv(writes.FOLDER_VARIABLE, str(folder))

    def no_code(_: str, entity: Any, __: Any) -> bool:
        return entity is None or entity.name != "CODE"

    with light_page(tmp_path, monkeypatch, no_code) as client:
        made = client.put("/connect/connectors/orders/config", json=SINK, headers=BEARER)
        assert made.status_code == 201
        assert client.get("/connect/connectors/orders/config").status_code == 403
        assert "connection.url" not in json.dumps(client.get("/connect/connectors?expand=info").json())
