"""Kafka Connect's REST API: what Connect's tools ask is answered in Connect's shapes, to who may see it; its verbs do
what Airflow's own API lets the caller do; connectors are made where there is a folder for them; the rest is refused.

The shapes are those that Connect 3.9 answers with (its REST reference, KIP-875, KIP-745).
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sluice import __version__
from sluice.local.process import Daemon, free_port
from sluice.local.venv import command

from .conftest import PASSWORD, Site, answers

pytestmark = [pytest.mark.airflow, pytest.mark.kafka]
AT = "/sluice/connect"
READS = (
    "/", "/connectors", "/connectors?expand=status&expand=info", "/connectors/flights", "/connectors/flights/config",
    "/connectors/flights/status", "/connectors/flights/tasks", "/connectors/flights/topics",
    "/connectors/flights/offsets", "/connector-plugins", "/connector-plugins/hudi/config",
)  # fmt: skip
VERBS = (
    ("PUT", "pause"), ("PUT", "resume"), ("PUT", "stop"), ("POST", "restart"), ("POST", "tasks/0/restart"),
)  # fmt: skip
WRITES = (
    ("POST", "/connectors"), ("PUT", "/connectors/flights/config"), ("PATCH", "/connectors/flights/config"),
    ("DELETE", "/connectors/flights"),
)  # fmt: skip
FILES = (
    ("PATCH", "/connectors/flights/offsets", "--pass-over"), ("DELETE", "/connectors/flights/offsets", "table"),
)  # fmt: skip
TABLE = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "topics": "flights",
    "connection.url": "jdbc:postgresql://db:5432/lake", "connection.user": "loader",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
}  # fmt: skip


def _get(site: Site, path: str, user: str | None = "admin") -> Any:
    status, answer, _ = site.ask("GET", f"{AT}{path}", user)
    assert status == 200, answer
    return answer


def _read(site: Site) -> None:
    """Once the control topic has been read."""
    site.until("offsets are known", lambda: site.ask("GET", f"{AT}/connectors/flights/offsets")[0] == 200)


def _state(site: Site, name: str) -> Any:
    return _get(site, f"/connectors/{name}/status")


# Who may ask ---------------------------------------------------------------------------------------------------------


def test_nothing_without_a_log_in(site: Site) -> None:
    asked = [("GET", path) for path in READS]
    asked += [(method, f"/connectors/flights/{verb}") for method, verb in VERBS]
    asked += [*WRITES, *((method, path) for method, path, _ in FILES)]
    for method, path in asked:
        status, answer, _ = site.ask(method, f"{AT}{path}", None)
        assert (status, answer["error_code"]) == (401, 401), path


def test_a_connector_is_as_if_it_were_not_there_to_who_may_not_read_its_dag(site: Site) -> None:
    assert "secret" in _get(site, "/connectors")
    assert {"flights", "by_python"} <= set(_get(site, "/connectors", "guest"))
    assert "secret" not in _get(site, "/connectors", "guest")
    assert "secret" not in _get(site, "/connectors?expand=status", "guest")
    asked = [("GET", f"/connectors/secret{rest}") for rest in ("", "/config", "/status", "/tasks", "/offsets")]
    asked += [(method, f"/connectors/secret/{verb}") for method, verb in VERBS]
    for method, path in asked:
        status, answer, _ = site.ask(method, f"{AT}{path}", "guest")
        assert (status, answer) == (404, {"error_code": 404, "message": "Connector secret not found"}), path


@pytest.mark.parametrize(
    "name", ["no", "wrong", "..%2Fflights", "%2e%2e", "flights%00", "flights%2Fconfig", "flights%20", "~", "*", "%25"]
)
def test_a_name_that_is_no_connector_s_is_not_found(site: Site, name: str) -> None:
    for method, path in (("GET", "/status"), ("PUT", "/pause"), ("POST", "/restart")):
        status, answer, _ = site.ask(method, f"{AT}/connectors/{name}{path}")
        assert (status, answer["error_code"]) == (404, 404), path


def test_a_verb_takes_the_rights_that_airflow_asks_for(site: Site) -> None:
    site.add_run("many", "rights", "running")
    for method, verb in VERBS[:4]:
        status, answer, _ = site.ask(method, f"{AT}/connectors/many/{verb}?includeTasks=true", "guest")
        assert (status, answer["error_code"]) == (403, 403), verb
        assert "Forbidden" in answer["message"]
    assert not site.get("/api/v2/dags/many")[1]["is_paused"]
    assert site.get("/api/v2/dags/many/dagRuns/rights")[1]["state"] == "running"


def test_a_cookie_alone_changes_nothing(site: Site) -> None:
    cookie = {"Cookie": f"_token={site.token('admin')}"}
    asked = urllib.request.Request(f"{site.url}{AT}/connectors/many/status", headers=cookie)
    with urllib.request.urlopen(asked) as answer:  # it reads
        assert json.load(answer)["name"] == "many"
    asked = urllib.request.Request(f"{site.url}{AT}/connectors/many/pause", headers=cookie, method="PUT")
    with pytest.raises(urllib.request.HTTPError, match="401"):
        urllib.request.urlopen(asked)
    assert not site.get("/api/v2/dags/many")[1]["is_paused"]


# What it reads -------------------------------------------------------------------------------------------------------


def test_the_root_is_a_worker_s(site: Site) -> None:
    assert _get(site, "/").keys() == {"version", "commit", "kafka_cluster_id"}


def test_a_connector_has_its_file_as_its_configuration(site: Site) -> None:
    config = _get(site, "/connectors/flights/config")
    assert config["name"] == "flights"
    assert config["topics"] == config["source.kafka.topics"] == "flights"
    assert config["connector.class"] == "sluice.sinks.hudi.options.Hudi"
    assert (config["schedule"], config["control.topic"]) == ("3600 seconds", "control-one")
    assert all(isinstance(value, str) for value in config.values())
    whole = _get(site, "/connectors/flights")
    assert (whole["name"], whole["type"], whole["config"]) == ("flights", "sink", config)
    assert whole.keys() == {"name", "config", "tasks", "type"}
    of_python = _get(site, "/connectors/by_python/config")
    assert of_python == {"name": "by_python", "connector.class": "sluice.sinks.hudi.options.Hudi"}


def test_status_and_list_have_connect_s_shape(site: Site) -> None:
    status = _state(site, "flights")
    assert status == {
        "name": "flights",
        "connector": {"state": "RUNNING", "worker_id": "", "version": __version__},
        "tasks": [],
        "type": "sink",
    }
    every = _get(site, "/connectors?expand=status&expand=info")
    assert every.keys() == set(_get(site, "/connectors"))
    assert every["flights"] == {"status": status, "info": _get(site, "/connectors/flights")}
    assert _get(site, "/connectors?expand=status")["flights"] == {"status": status}


def test_offsets_are_those_of_the_table(site: Site) -> None:
    _read(site)
    assert _get(site, "/connectors/flights/offsets") == {
        "offsets": [
            {
                "partition": {"kafka_topic": "flights", "kafka_partition": partition},
                "offset": {"kafka_offset": offset},
            }
            for partition, offset in sorted(site.story.standing.items())
        ]
    }
    assert _get(site, "/connectors/flights/topics") == {"flights": {"topics": ["flights"]}}


def test_plugins_are_the_sources_and_sinks_that_are_installed(site: Site) -> None:
    found = {one["class"]: one["type"] for one in _get(site, "/connector-plugins?connectorsOnly=true")}
    assert found["sluice.sinks.jdbc.options.Jdbc"] == "sink"
    assert found["sluice.sources.kafka.options.Kafka"] == "source"
    assert found["sluice_lines.options.Lines"] == "source"  # of another package
    keys = {one["name"]: one for one in _get(site, "/connector-plugins/sluice.sinks.jdbc.options.Jdbc/config")}
    table = keys["sink.jdbc.connection"]
    assert table.keys() == {
        "name", "type", "required", "default_value", "importance", "documentation", "group", "width", "display_name",
        "dependents", "order",
    }  # fmt: skip
    assert (table["type"], table["required"], table["importance"]) == ("STRING", True, "HIGH")
    status, answer, _ = site.ask("GET", f"{AT}/connector-plugins/no/config")
    assert (status, answer["error_code"]) == (404, 404)


def test_validate_says_of_each_key_of_connect_s_what_becomes_of_it(site: Site) -> None:
    s3 = "io.confluent.connect.s3.S3SinkConnector"
    config = {
        "connector.class": s3, "name": "lake", "topics": "flights", "s3.bucket.name": "lake", "tasks.max": "2",
        "flush.size": "1000", "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
        "aws.secret.access.key": PASSWORD, "no.such.key": "1",
    }  # fmt: skip
    status, answer, _ = site.ask("PUT", f"{AT}/connector-plugins/S3SinkConnector/config/validate", "admin", config)
    assert status == 200, answer
    assert answer.keys() == {"name", "error_count", "groups", "configs"}
    keys = {one["value"]["name"]: one for one in answer["configs"]}
    assert keys.keys() == config.keys()
    assert {one.keys() == {"definition", "value"} for one in answer["configs"]} == {True}
    assert keys["topics"]["value"] == {
        "name": "topics", "value": "flights", "recommended_values": [], "errors": [], "visible": True,
    }  # fmt: skip
    assert keys["no.such.key"]["value"]["errors"]
    assert answer["error_count"] == sum(len(one["value"]["errors"]) for one in answer["configs"]) >= 1
    assert PASSWORD not in json.dumps(answer)
    for body in (b"{", b"[" * 60_000, b"[]", json.dumps({"connector.class": "x.Other"}).encode()):
        status, answer, _ = site.ask("PUT", f"{AT}/connector-plugins/S3SinkConnector/config/validate", "admin", body)
        assert (status, answer["error_code"]) == (400, 400)
    assert site.ask("PUT", f"{AT}/connector-plugins/S3SinkConnector/config/validate", "admin", b"[" * 66_000)[0] == 413


def test_a_configuration_is_checked_for_editors_of_dags_alone_and_its_patterns_are_not_run(site: Site) -> None:
    """One whose matching takes hours would hold up every other request of the API server."""
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "a" * 60 + "!",
        "connection.url": "jdbc:postgresql://db/shop",
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "(a+)+b",
        "transforms.r.replacement": "c",
    }
    path = f"{AT}/connector-plugins/JdbcSinkConnector/config/validate"
    # Airflow's right to edit all DAGs, not some.
    assert [site.ask("PUT", path, user, config)[0] for user in ("guest", "editor")] == [403, 403]
    status, answer, _ = site.ask("PUT", path, "admin", config)
    assert status == 200, answer
    said = {one["value"]["name"]: one["value"]["errors"] for one in answer["configs"]}
    assert said["transforms.r.regex"]


# What it changes -----------------------------------------------------------------------------------------------------


def test_pause_and_resume_are_airflow_s_with_an_entry_in_its_audit_log(site: Site) -> None:
    before = _logged(site, "many", "patch_dag")
    assert site.ask("PUT", f"{AT}/connectors/many/pause", "editor")[:2] == (202, None)
    assert site.get("/api/v2/dags/many")[1]["is_paused"]
    assert site.ask("PUT", f"{AT}/connectors/many/resume", "editor")[:2] == (202, None)
    assert not site.get("/api/v2/dags/many")[1]["is_paused"]
    assert _logged(site, "many", "patch_dag") == [*before, "editor", "editor"]


def _logged(site: Site, dag_id: str, event: str) -> list[str]:
    logs = site.get(f"/api/v2/eventLogs?dag_id={dag_id}&event={event}&order_by=id")[1]["event_logs"]
    return [log["owner"] for log in logs]


def _ranges(site: Site, dag_id: str, run_id: str, *states: str | None) -> None:
    """The tasks of an interval's ranges, which a scheduler maps once START-COMMIT has planned them."""
    own = {"id": "?", "map_index": "?", "state": "?", "rendered_map_index": "?"}
    columns = [name for (name,) in site.write("select name from pragma_table_info('task_instance')")]
    template = "dag_id = ? and run_id = ? and task_id = 'write' and map_index = -1"
    values = ", ".join(own.get(name, name) for name in columns)
    order = [name for name in columns if name in own]
    for number, state in enumerate(states):
        given = {"id": uuid4().hex, "map_index": number, "state": state, "rendered_map_index": f"flights[{number}]"}
        site.write(
            f"insert into task_instance ({', '.join(columns)}) select {values} from task_instance where {template}",
            *(given[name] for name in order),
            dag_id,
            run_id,
        )
    site.write(f"delete from task_instance where {template}", dag_id, run_id)
    planned = "insert into task_map (dag_id, task_id, run_id, map_index, length) values (?, 'start_commit', ?, -1, ?)"
    site.write(planned, dag_id, run_id, len(states))


def _fails_with(site: Site, dag_id: str, run_id: str, number: int, words: str) -> None:
    """The XCom by which a range's task says why it failed."""
    (dag_run,) = site.write("select id from dag_run where dag_id = ? and run_id = ?", dag_id, run_id)
    site.write(
        "insert into xcom (dag_run_id, task_id, map_index, key, dag_id, run_id, value, timestamp)"
        " values (?, 'write', ?, 'sluice_note', ?, ?, ?, current_timestamp)",
        dag_run[0],
        number,
        dag_id,
        run_id,
        json.dumps(words),
    )


def test_an_interval_s_ranges_are_tasks_and_a_stopped_connector_has_none(site: Site) -> None:
    name = "exported"
    site.add_run(name, "first", "running")
    site.write("update task_instance set state = 'success' where run_id = 'first' and task_id = 'start_commit'")
    _ranges(site, name, "first", "running", "failed", None)
    status = _state(site, name)
    assert status["connector"]["state"] == "RUNNING"
    assert [(t["id"], t["state"]) for t in status["tasks"]] == [(0, "RUNNING"), (1, "FAILED"), (2, "UNASSIGNED")]
    assert status["tasks"][1]["trace"]
    assert _get(site, f"/connectors/{name}/tasks/1/status") == status["tasks"][1]
    _fails_with(site, name, "first", 1, "no space left on db-7")
    told = {user: _get(site, f"/connectors/{name}/tasks/1/status", user)["trace"] for user in ("guest", "runner")}
    assert told == {"guest": "no space left on db-7", "runner": "The task's log in Airflow says why."}
    assert site.ask("GET", f"{AT}/connectors/{name}/tasks/3/status")[0] == 404
    assert site.ask("GET", f"{AT}/connectors/{name}/tasks/x/status")[0] == 400
    assert [t["id"] for t in _get(site, f"/connectors/{name}/tasks")] == [
        {"connector": name, "task": number} for number in range(3)
    ]
    # A task of an open interval begins again.
    status_code, body, _ = site.ask("POST", f"{AT}/connectors/{name}/tasks/1/restart", "editor")
    assert status_code == 204, body
    assert [t["state"] for t in _state(site, name)["tasks"]] == ["RUNNING", "UNASSIGNED", "UNASSIGNED"]
    assert site.ask("POST", f"{AT}/connectors/{name}/tasks/7/restart", "editor")[0] == 404
    # Paused, what runs runs on; stopped, it doesn't, and only the teardown is left for later.
    site.ask("PUT", f"{AT}/connectors/{name}/pause", "editor")
    assert _state(site, name)["connector"]["state"] == "PAUSED"
    assert site.ask("PUT", f"{AT}/connectors/{name}/stop", "editor")[:2] == (204, None)
    stopped = _state(site, name)
    assert (stopped["connector"]["state"], stopped["tasks"]) == ("STOPPED", [])
    states = _tasks(site, name, "first")
    assert (states["write", 0], states["commit", -1], states["abort", -1]) == ("failed", "skipped", None)
    # What the scheduler does once it is resumed.
    site.write("update dag_run set state = 'failed' where dag_id = ? and run_id = 'first'", name)
    assert site.ask("PUT", f"{AT}/connectors/{name}/resume", "editor")[0] == 202
    failed = _state(site, name)
    assert failed["connector"]["state"] == "FAILED"
    note = "Failed in write[1] (2 more failed): no space left on db-7"
    assert failed["connector"]["trace"] == note  # the run's
    assert site.ask("POST", f"{AT}/connectors/{name}/tasks/0/restart", "editor")[0] == 409
    # It is run once more from its first step, and no second time while it waits.
    for _ in range(2):
        status_code, body, _ = site.ask(
            "POST", f"{AT}/connectors/{name}/restart?includeTasks=true&onlyFailed=true", "editor"
        )
        assert (status_code, body["name"]) == (202, name)
    assert site.get(f"/api/v2/dags/{name}/dagRuns/first")[1]["state"] == "queued"
    assert _tasks(site, name, "first")["start_commit", -1] is None
    assert site.get(f"/api/v2/dags/{name}/dagRuns")[1]["total_entries"] == 1


def _tasks(site: Site, dag_id: str, run_id: str) -> dict[tuple[str, int], str | None]:
    found = site.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")[1]["task_instances"]
    return {(t["task_id"], t["map_index"]): t["state"] for t in found}


def test_restart_starts_an_interval_where_none_runs_and_leaves_alone_one_that_does(site: Site) -> None:
    restart = f"{AT}/connectors/orders/restart"

    def runs() -> list[str]:
        return [r["state"] for r in site.get("/api/v2/dags/orders/dagRuns?order_by=id")[1]["dag_runs"]]

    assert site.ask("POST", f"{restart}?onlyFailed=true", "editor")[0] == 202
    assert runs() == []  # none has failed
    assert site.ask("POST", restart, "editor")[:2] == (204, None)
    assert runs() == ["queued"]
    site.ask("POST", restart, "editor")
    assert runs() == ["queued"]
    site.write("update dag_run set state = 'running', start_date = run_after where dag_id = 'orders'")
    site.ask("POST", restart, "editor")
    assert runs() == ["running"]
    site.ask("POST", f"{restart}?includeTasks=true", "editor")
    assert runs()[1:] == ["queued"]
    assert {state for (task, _), state in _first_run(site, "orders").items() if task != "abort"} == {"skipped"}


def _first_run(site: Site, dag_id: str) -> dict[tuple[str, int], str | None]:
    run = site.get(f"/api/v2/dags/{dag_id}/dagRuns?order_by=id")[1]["dag_runs"][0]["dag_run_id"]
    return _tasks(site, dag_id, run)


def test_a_connector_is_made_changed_and_deleted(site: Site) -> None:
    file = site.connectors / "tickets.yaml"
    config = {**TABLE, "name": "tickets"}
    status, answer, headers = site.ask("POST", f"{AT}/connectors", body={"name": "tickets", "config": TABLE})
    assert (status, headers["Location"]) == (201, f"{AT}/connectors/tickets")
    assert answer == {"name": "tickets", "config": config, "tasks": [], "type": "sink"}
    assert "tickets" in _get(site, "/connectors")
    assert _get(site, "/connectors/tickets/config") == config
    assert _state(site, "tickets")["connector"]["state"] == "UNASSIGNED"  # until Airflow parses the folder
    status, answer, _ = site.ask("POST", f"{AT}/connectors", body={"name": "tickets", "config": TABLE})
    assert (status, answer["error_code"]) == (409, 409)
    status, answer, _ = site.ask("PUT", f"{AT}/connectors/tickets/config", body={**TABLE, "tasks.max": "2"})
    assert (status, answer["config"]) == (200, {**config, "tasks.max": "2"})
    before = file.read_text()
    for wrong, said in (({"no.such.key": "1"}, "no.such.key"), ({"connection.password": PASSWORD}, "secret")):
        status, answer, _ = site.ask("PUT", f"{AT}/connectors/tickets/config", body={**TABLE, **wrong})
        assert (status, answer["error_code"], said in answer["message"]) == (400, 400, True)
        assert PASSWORD not in json.dumps(answer)
    assert file.read_text() == before
    _parse(site)
    assert _state(site, "tickets")["connector"]["state"] == "RUNNING"
    site.add_run("tickets", "of_tickets", "running")
    status, answer, _ = site.ask("PATCH", f"{AT}/connectors/tickets/config", body={"tasks.max": None})
    assert (status, answer["config"]) == (200, config)
    assert site.ask("DELETE", f"{AT}/connectors/tickets")[:2] == (204, None)
    assert not file.exists()
    states = {state for (task, _), state in _tasks(site, "tickets", "of_tickets").items() if task != "abort"}
    assert states == {"skipped"}
    assert site.ask("GET", f"{AT}/connectors/tickets/status")[0] == 404
    assert site.ask("DELETE", f"{AT}/connectors/tickets")[0] == 404
    assert site.ask("PUT", f"{AT}/connectors/tickets/config", body=TABLE)[0] == 201
    assert site.ask("DELETE", f"{AT}/connectors/tickets")[0] == 204
    for event, times in (("create", 2), ("change", 2), ("delete", 2)):
        assert _logged(site, "tickets", f"sluice_{event}_connector") == ["admin"] * times
    assert PASSWORD not in site.log.read_text()


def _parse(site: Site) -> None:
    """What a DAG processor does from time to time."""
    subprocess.run([command("airflow")[0], "dags", "reserialize"], env=site.environment, check=True, timeout=300)


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_connectors_are_written_for_editors_of_all_dags_and_people_s_files_are_left_alone(
    site: Site, method: str, path: str
) -> None:
    body = {"name": "flights", "config": TABLE} if method == "POST" else TABLE
    assert [site.ask(method, f"{AT}{path}", user, body)[0] for user in ("guest", "editor")] == [403, 403]
    status, answer, _ = site.ask(method, f"{AT}{path}", body=body)
    assert (status, "pipelines/flights.yaml" in answer["message"]) == (409, True)


@pytest.mark.thorough
def test_without_a_folder_connectors_are_files(site: Site, tmp_path: Path) -> None:
    """Another API server of the same Airflow, which has none."""
    port = free_port()
    variables = {**site.environment, "AIRFLOW__API__PORT": str(port)}
    del variables["SLUICE_CONNECT_FOLDER"]
    server = Daemon("without", tmp_path, tmp_path / "without.log")
    server.start(command("airflow", "api-server"), variables, tmp_path)
    try:
        other = replace(site, url=f"http://127.0.0.1:{port}")
        site.until("the other API server answers", lambda: answers(other))
        for method, path in WRITES:
            status, answer, headers = other.ask(method, f"{AT}{path}", body={"name": "flights", "config": TABLE})
            assert (status, answer["error_code"], headers["Allow"]) == (405, 405, "GET")
            assert "SLUICE_CONNECT_FOLDER" in answer["message"]
    finally:
        server.stop()
    assert not list(site.connectors.glob("*.yaml"))


@pytest.mark.parametrize(("method", "path", "how"), FILES)
def test_what_only_a_commit_moves_is_refused_with_how_it_is_done(site: Site, method: str, path: str, how: str) -> None:
    status, answer, headers = site.ask(method, f"{AT}{path}", body={})
    assert (status, answer["error_code"], headers["Allow"]) == (405, 405, "GET")
    assert how in answer["message"]


def test_what_there_is_not_is_not_found_as_connect_says_it(site: Site) -> None:
    for path in ("/admin/loggers", "/connectors/flights/no", "/no"):
        status, answer, _ = site.ask("GET", f"{AT}{path}")
        assert (status, answer["error_code"]) == (404, 404)
        assert isinstance(answer["message"], str)


def test_no_secret_in_any_answer(site: Site) -> None:
    for path in READS:
        assert PASSWORD not in json.dumps(_get(site, path))
