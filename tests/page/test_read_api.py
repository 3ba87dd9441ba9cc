"""The versioned read API answers what docs/openapi.json says, each field that the page shows among it.

That every answer has the fields of its model, and no other, `Site.data` checks for all of the page's tests.
"""

from __future__ import annotations

import json

import pytest

from .conftest import ANSWERS, CHANGED, PROJECT, Site

pytestmark = [pytest.mark.airflow, pytest.mark.kafka]


def test_the_schema_is_that_of_the_docs_and_has_all_routes(site: Site) -> None:
    status, served = site.get("/sluice/api/v1/openapi.json")
    assert status == 200
    written = json.loads((PROJECT / "docs" / "openapi.json").read_text())
    assert (served["paths"], served["components"]) == (written["paths"], written["components"])
    assert {path.strip("/") for path in served["paths"]} == ANSWERS.keys()


def test_transactions_come_in_windows_of_which_each_names_the_next(site: Site) -> None:
    site.until("all are read", lambda: not site.data("transactions", key="flights")["banners"])
    seen: list[str] = []
    before: dict[str, str] = {}
    while True:
        window = site.data("transactions", key="flights", limit=20, **before)
        seen += [transaction["instant"] for transaction in window["transactions"]]
        if not window["older"]:
            break
        before = {"before": seen[-1]}
    starts = {message.transaction for message in site.story.messages if message.type == "START-COMMIT"}
    assert seen == sorted(starts, reverse=True)
    assert window["total"] == len(starts)
    assert window.keys() == ANSWERS["transactions"].model_fields.keys()
    for limit in ("0", "501", "x"):
        assert site.get(f"/sluice/api/v1/transactions?key=flights&limit={limit}")[0] == 422


def test_offsets_are_those_of_all_partitions_with_what_waits(site: Site) -> None:
    def offsets() -> dict[int, tuple[int, int]]:
        return {o["partition"]: (o["committed"], o["lag"]) for o in site.data("offsets", key="flights")["offsets"]}

    standing = site.story.standing
    site.until("the logs' ends are known", lambda: offsets() == {0: (standing[0], 137), 1: (standing[1], 0)})


def test_a_database_s_table_stands_at_a_time_and_not_at_an_offset_of_a_topic(site: Site) -> None:
    """In the read API, and as Connect's REST API tells of its own JDBC source."""
    site.until("all are read", lambda: bool(site.data("pipeline", key="changed")["transactions"]))
    pipeline = site.data("pipeline", key="changed")
    assert (pipeline["positions"], pipeline["topics"], pipeline["lag"]) == ("times", ["public.orders"], None)
    assert site.data("pipeline", key="flights")["positions"] == "offsets"
    (offset,) = site.data("offsets", key="changed")["offsets"]
    assert (offset["cluster"], offset["topic"], offset["committed"]) == ("shop", "public.orders", CHANGED)
    instant = pipeline["transactions"][0]["instant"]
    assert site.data("transaction", key="changed", instant=instant)["positions"] == "times"
    connector = "/sluice/connect/connectors/changed"
    told = {"partition": {"table": "public.orders", "split": 0},
            "offset": {"timestamp": CHANGED // 1000, "timestamp_nanos": 250_001_000}}  # fmt: skip
    assert site.get(f"{connector}/offsets") == (200, {"offsets": [told]})
    assert site.get(f"{connector}/topics") == (200, {"changed": {"topics": ["changed_orders"]}})
    config = site.get(f"{connector}/config")[1]
    assert config["connector.class"] == "sluice.sources.jdbc.options.JdbcTables"
    assert config["source.jdbc.tables"] == "public.orders"
    assert not {"topics", "source.jdbc.topics"} & config.keys()
    status = site.get(f"{connector}/status")[1]
    assert (status["type"], status["connector"]["state"]) == ("source", "RUNNING")


def test_health_is_in_short_what_the_list_says(site: Site) -> None:
    rows = {row["key"]: row for row in site.data("pipelines")["pipelines"]}
    for short in site.data("health")["pipelines"]:
        assert short.keys() == {
            "key", "dag_id", "state", "why", "failures", "last_commit", "last_instant", "valid_through", "lag",
        }  # fmt: skip
        assert short["state"] == rows[short["key"]]["state"]


@pytest.mark.parametrize("route", ["transactions", "offsets", "pipeline"])
def test_a_hidden_pipeline_is_as_if_it_were_not_there(site: Site, route: str) -> None:
    hidden = site.get(f"/sluice/api/v1/{route}?key=secret", "guest")
    assert hidden == site.get(f"/sluice/api/v1/{route}?key=no", "guest")
    assert hidden[0] == 404
    assert site.get(f"/sluice/api/v1/{route}?key=flights", None)[0] == 401


def test_what_airflow_guards_apart_from_runs_is_guarded_here(site: Site) -> None:
    """The file is the DAG's code, and START-COMMIT has all that it says."""
    site.until("all are read", lambda: bool(site.data("pipeline", key="flights")["transactions"]))
    instant = site.data("pipeline", key="flights")["transactions"][0]["instant"]
    messages = f"/sluice/api/v1/messages?key=flights&instant={instant}"
    assert site.get(messages, "guest")[0] == 200
    refused, answer = site.get(messages, "runner")
    assert (refused, "the right to read the DAG's code" in answer["detail"]) == (403, True)
    connectors = "/sluice/connect/connectors"
    assert site.get(f"{connectors}/flights/config", "guest")[0] == 200
    assert site.get(f"{connectors}/flights/config", "runner")[0] == 403
    for shown in (
        site.get(f"{connectors}/flights", "runner")[1],
        site.get(f"{connectors}?expand=info", "runner")[1]["flights"]["info"],
    ):
        assert shown["config"].keys() == {"name", "connector.class"}


def test_the_errors_of_attempts_take_the_right_to_read_tasks_logs(site: Site) -> None:
    def told(user: str) -> set[str]:
        found = set()
        for instant in instants:
            code, answer = site.get(f"/sluice/api/v1/transaction?key=flights&instant={instant}", user)
            assert code == 200
            attempts = [one for r in answer["whole_ranges"] for one in r["attempts"]]
            found |= {one["error"] for one in attempts if one["error"] is not None}
        return found

    site.until("all are read", lambda: bool(site.data("pipeline", key="flights")["transactions"]))
    failed = [message for message in site.story.messages if getattr(message, "error", None) is not None]
    instants = {message.transaction for message in failed[-3:]}
    assert any("Next step" in error for error in told("guest"))
    assert told("runner") == {"The task's log in Airflow says why."}
