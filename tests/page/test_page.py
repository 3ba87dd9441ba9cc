"""What the page tells is what stands in the control topic, on the timeline and in Airflow; and only to who may read it.

One Airflow for all of it, since starting it takes longest.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.parse
from typing import Any

import pytest

from .conftest import FIRST_OF_MANY, MANY, PASSWORD, REGIONS, Site
from .story import BAD_RECORD

pytestmark = [pytest.mark.airflow, pytest.mark.kafka]
ROUTES = (
    "pipelines", "pipeline?key=flights", "transaction?key=flights&instant=1", "messages?key=flights&instant=1",
    "workers", "dag?dag_id=flights", "run?dag_id=flights&run_id=r",
)  # fmt: skip


def acknowledged(site: Site) -> list[Any]:
    return [m for m in site.story.messages if m.type == "ACK-COMMIT"]


def whole_window(site: Site, key: str = "flights", **more: Any) -> dict[str, Any]:
    """A pipeline, once the control topic has been read to its end."""
    site.until("the control topic is read", lambda: not _reading(site.data("pipeline", key=key)))
    return site.data("pipeline", key=key, **more)


def _reading(answer: dict[str, Any]) -> bool:
    return any(b["level"] == "info" for b in answer["banners"])


# Who may see it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_no_data_without_a_log_in(site: Site, route: str) -> None:
    assert site.get(f"/sluice/api/v1/{route}", user=None)[0] == 401


def test_without_a_log_in_the_page_leads_to_airflows_and_its_parts_are_not_served(site: Site) -> None:
    assert site.get("/sluice/", user=None)[0] == 307
    assert site.get("/sluice/static/any/app.js", user=None)[0] == 401
    assert site.get("/sluice/static/any/app.js")[0] == 200


def test_a_pipeline_is_hidden_from_who_may_not_read_its_dag(site: Site) -> None:
    site.until("both are seen", lambda: {"secret", "flights"} <= _keys(site, "admin"))
    assert "flights" in _keys(site, "guest")
    assert "secret" not in _keys(site, "guest")
    instant = site.data("pipeline", key="secret")["transactions"][0]["instant"]
    for route in (
        "pipeline?key=secret",
        f"transaction?key=secret&instant={instant}",
        f"messages?key=secret&instant={instant}",
    ):
        assert site.get(f"/sluice/api/v1/{route}", "guest")[0] == 404
    for route in ("dag?dag_id=secret", "run?dag_id=secret&run_id=r"):
        assert site.get(f"/sluice/api/v1/{route}", "guest")[0] == 403


def test_a_table_that_was_loaded_by_hand_is_hidden_from_who_may_not_read_all_dags(site: Site) -> None:
    table = next(iter({k for k in _keys(site, "admin") if k.endswith("/by_hand")}))
    assert table not in _keys(site, "guest")
    assert site.data("pipeline", key=table)["transactions"]
    assert site.get(f"/sluice/api/v1/pipeline?key={urllib.parse.quote(table)}", "guest")[0] == 404


def test_the_lag_is_what_waits_whatever_was_read_again(site: Site) -> None:
    found = {t["instant"]: t for t in whole_window(site, limit=100)["transactions"]}
    planned = {m.transaction: [r for g in m.ranges for r in g] for m in site.story.messages if m.type == "START-COMMIT"}
    assert all(t["lag_left"] is None for t in found.values() if t["kind"] != "continue")
    aborted = [t for t in found.values() if t["state"] == "aborted"]
    for t in aborted:
        assert t["lag_left"] == sum(r.log_end - r.start for r in planned[t["instant"]]) > 0


def _keys(site: Site, user: str) -> set[str]:
    return {p["key"] for p in site.data("pipelines", user)["pipelines"]}


def test_a_wrong_file_is_told_to_who_may_read_import_errors(site: Site) -> None:
    assert any("wrong.yaml" in b["text"] for b in site.data("pipelines")["banners"])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    for route in ROUTES:
        with pytest.raises(urllib.error.HTTPError, match="405"):
            site.post(f"/sluice/api/v1/{route}", {}, site.token("admin"), method)


# What it tells -------------------------------------------------------------------------------------------------------


def test_the_list_tells_state_lag_and_completeness(site: Site) -> None:
    whole_window(site)
    site.until("the logs' ends are known", lambda: _row(site, "flights")["lag"] is not None)
    row = _row(site, "flights")
    last = acknowledged(site)[-1]
    assert (row["last_instant"], row["valid_through"]) == (last.transaction, last.valid_through.isoformat())
    assert (row["lag"], row["state"], row["schedule"]) == (137, "running", "every hour")
    assert row["recent"][-1]["instant"] == site.story.messages[-1].transaction


def _row(site: Site, key: str) -> dict[str, Any]:
    return next(p for p in site.data("pipelines")["pipelines"] if p["key"] == key)


def test_a_pipeline_made_in_python_is_found_by_its_control_topic(site: Site) -> None:
    site.until("it is found", lambda: "by_python" in _keys(site, "admin"))
    found = whole_window(site, "by_python")
    assert (found["from_file"], found["total"], found["topics"]) == (False, 1, ["flights"])


def test_the_transactions_are_those_of_the_control_topic(site: Site) -> None:
    shown = {t["instant"]: t for t in whole_window(site, limit=100)["transactions"]}
    starts = {m.transaction: m for m in site.story.messages if m.type == "START-COMMIT"}
    assert shown.keys() == starts.keys()
    for ack in acknowledged(site):
        found = shown[ack.transaction]
        assert (found["state"], found["records_written"]) == ("committed", _written(site, ack.transaction))
    states = [t["state"] for t in shown.values()]
    assert {s: states.count(s) for s in ("aborted", "superseded", "void", "open")} == {
        "aborted": 3, "superseded": 1, "void": 1, "open": 1,
    }  # fmt: skip
    assert {t["kind"] for t in shown.values()} == {"continue", "replay", "range", "correction", "service"}


def _written(site: Site, instant: str) -> int:
    statuses = [m for m in site.story.messages if m.type == "WRITE-STATUS" and m.transaction == instant]
    return sum(m.records_written for m in statuses)


def test_offsets_lag_and_windows(site: Site) -> None:
    found = whole_window(site, limit=10)
    assert {p["partition"]: (p["committed"], p["lag"]) for p in found["partitions"]} == {
        0: (site.story.standing[0], 137),
        1: (site.story.standing[1], 0),
    }
    older = site.data("pipeline", key="flights", limit=10, before=found["transactions"][-1]["instant"])
    both = [t["instant"] for t in (*found["transactions"], *older["transactions"])]
    assert both == sorted(both, reverse=True)
    assert len(both) == 20
    assert any(line["lags"].count(None) < 10 for line in found["lag_lines"])


def test_a_run_without_a_transaction_is_an_empty_window(site: Site) -> None:
    runs = whole_window(site)["runs_without_transaction"]
    assert [(r["run_id"], r["state"]) for r in runs] == [("empty-window", "empty")]


def test_the_timeline_confirms_commits_and_shows_those_of_others(site: Site) -> None:
    found = whole_window(site, limit=100)
    *ours, others = site.on_timeline
    stands = {t["instant"]: t["timeline"] for t in found["transactions"]}
    assert {stands[instant] for instant in ours} == {"completed"}
    assert [c["instant"] for c in found["others"]["commits"]] == [others]
    assert found["others"]["commits"][0]["facts"]["operation"] == "BULK_INSERT"


def test_a_pipeline_with_a_user_s_source_and_sink_is_shown_as_any_other(site: Site) -> None:
    found = whole_window(site, "visits")
    assert found["banners"] == []
    assert (found["operation"], found["topics"], found["table"]) == ("append", ["a.log"], site.visits.table)
    assert [t["timeline"] for t in found["transactions"]] == ["completed", "completed", "absent"]
    assert found["partitions"][0]["committed"] == site.visits.standing[0]
    (other,) = found["others"]["commits"]
    assert (other["action"], other["facts"]["rows"], other["facts"]["files"]) == ("manifest", 1, 1)
    gone = site.data("transaction", key="visits", instant=found["transactions"][-1]["instant"])
    assert any("no longer on the table's timeline" in b["text"] for b in gone["banners"])


@pytest.mark.parametrize("key", ["exported", "orders"])
def test_the_commits_of_files_and_of_a_database_s_table_are_compared_with_the_topic_s(site: Site, key: str) -> None:
    found = whole_window(site, key)
    assert found["banners"] == []
    assert found["table"] == site.sinks[key].table
    assert [t["timeline"] for t in found["transactions"]] == ["absent", "completed"]
    assert found["others"]["commits"] == []


def test_a_transaction_with_its_attempts_audit_and_messages(site: Site) -> None:
    whole_window(site)
    instant = next(m.transaction for m in site.story.messages if m.type == "ABORT-COMMIT")
    found = site.data("transaction", key="flights", instant=instant)
    assert (found["state"], found["abort_reason"]) == ("aborted", BAD_RECORD)
    attempts = found["whole_ranges"][0]["attempts"]
    assert [(a["error"], a["recovery"]) for a in attempts] == [(BAD_RECORD, "retry"), (BAD_RECORD, "act")]
    messages = site.data("messages", key="flights", instant=instant)["messages"]
    sent = [m for m in site.story.messages if m.transaction == instant]
    assert [m["message"]["type"] for m in messages] == [m.type for m in sent]
    assert messages[-1]["message"] == sent[-1].model_dump(mode="json", exclude_none=True)


def test_a_run_leads_to_its_transaction(site: Site) -> None:
    whole_window(site)
    sent = acknowledged(site)[0]
    found = site.data("run", dag_id="flights", run_id=sent.run_id)
    assert [(t["pipeline"], t["instant"]) for t in found["transactions"]] == [("flights", sent.transaction)]
    assert site.data("run", dag_id="flights", run_id="empty-window")["transactions"] == []


def test_an_old_transaction_is_read_again_with_its_partitions(site: Site) -> None:
    whole_window(site, "many")
    found = site.data("transaction", key="many", instant=FIRST_OF_MANY)
    assert [(p["partition"], p["start"], p["end"]) for r in found["whole_ranges"] for p in r["planned"]] == [
        (0, 0, 100),
        (1, 0, 100),
    ]


def test_ten_thousand_transactions_answer_as_fast_as_fifty(site: Site) -> None:
    assert whole_window(site, "many")["total"] == MANY

    def seconds(key: str) -> float:
        began = time.perf_counter()
        site.data("pipeline", key=key, limit=50)
        return time.perf_counter() - began

    few, many = min(seconds("flights") for _ in range(5)), min(seconds("many") for _ in range(5))
    assert many < 10 * few + 0.5, f"{few:.3f} s with fifty, {many:.3f} s with ten thousand"


# How it looks --------------------------------------------------------------------------------------------------------


@pytest.mark.browser
def test_a_person_walks_from_the_navigation_to_a_transactions_messages(site: Site, open_page: Any) -> None:
    page = open_page("/")
    page.get_by_role("link", name="Sluice").first.click()
    frame = page.frame_locator("iframe[title=Sluice]")
    frame.get_by_role("link", name="flights", exact=True).click()
    instant = next(m.transaction for m in site.story.messages if m.type == "ABORT-COMMIT")
    frame.get_by_role("link", name=instant, exact=True).click()
    frame.get_by_text(BAD_RECORD).first.wait_for()
    assert page.url.endswith(f"/plugin/sluice/sluice/#/pipeline/flights/transaction/{instant}")
    frame.get_by_role("button", name="Show the messages").click()
    frame.get_by_text("ABORT-COMMIT coordinator").wait_for()
    frame.get_by_role("link", name="task log").first.click()
    page.wait_for_url(re.compile(r"/dags/flights/runs/.*/tasks/write/mapped/0"))


@pytest.mark.browser
def test_a_link_to_a_view_opens_that_view(site: Site, open_page: Any) -> None:
    instant = acknowledged(site)[0].transaction
    page = open_page(f"/plugin/sluice/sluice/#/pipeline/flights/transaction/{instant}")
    page.frame_locator("iframe[title=Sluice]").get_by_role("heading", name=instant).wait_for()


@pytest.mark.browser
def test_partitions_of_two_clusters_are_told_apart(site: Site, open_page: Any) -> None:
    table = next(key for key in _keys(site, "admin") if key.endswith("/by_hand"))
    (transaction,) = site.data("pipeline", key=table)["transactions"]
    page = open_page(f"/sluice/#/pipeline/{urllib.parse.quote(table, safe='')}/transaction/{transaction['instant']}")
    for cluster in REGIONS:
        page.get_by_text(f"{cluster}/flights[0]").first.wait_for()
    page.goto(f"{site.url}/sluice/#/pipeline/{urllib.parse.quote(table, safe='')}")
    for cluster in REGIONS:
        page.get_by_role("cell", name=cluster, exact=True).first.wait_for()


@pytest.mark.browser
def test_of_a_database_s_table_a_person_sees_times_and_no_topic(site: Site, open_page: Any) -> None:
    (transaction,) = whole_window(site, "changed")["transactions"]
    page = open_page("/sluice/#/pipeline/changed")
    page.get_by_role("columnheader", name="Read up to").wait_for()
    read_up_to = page.locator("time[title^='2026-01-01 00:00:00.250']").first
    read_up_to.wait_for()
    assert page.get_by_role("columnheader", name=re.compile("Topic|Partition|Log end")).count() == 0
    page.goto(f"{site.url}/sluice/#/pipeline/changed/transaction/{transaction['instant']}")
    page.get_by_role("columnheader", name="Table and split").wait_for()
    read_up_to.wait_for()
    assert page.get_by_text("Offsets without a record").count() == 0


@pytest.mark.browser
def test_a_dag_and_a_run_show_their_own(site: Site, open_page: Any) -> None:
    run_id = [m.run_id for m in site.story.messages if m.type == "START-COMMIT"][-2]
    instant = next(m.transaction for m in site.story.messages if m.run_id == run_id)
    page = open_page("/dags/flights/plugin/sluice_dag")
    page.frame_locator("iframe[title=Sluice]").get_by_role("heading", name="Transactions").wait_for()
    page.goto(f"{site.url}/dags/flights/runs/{urllib.parse.quote(run_id)}/plugin/sluice_run")
    page.frame_locator("iframe[title=Sluice]").get_by_role("heading", name=instant).wait_for()


@pytest.mark.browser
def test_it_is_dark_or_light_as_airflow_is(open_page: Any) -> None:
    def brightness(page: Any) -> float:
        frame = page.frame_locator("iframe[title=Sluice]")
        frame.get_by_role("heading", name="Pipelines").wait_for()
        colour = frame.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        return sum(int(n) for n in re.findall(r"\d+", colour)[:3]) / 3

    page = open_page("/plugin/sluice", scheme="dark")
    assert brightness(page) < 60
    page.evaluate("localStorage.setItem('theme', 'light')")
    page.reload()
    assert brightness(page) > 200


@pytest.mark.browser
@pytest.mark.parametrize("path", ["", "pipeline/flights", "pipeline/flights/transaction/{aborted}"])
def test_a_narrow_window_needs_no_scrolling_sideways(site: Site, open_page: Any, path: str) -> None:
    aborted = next(m.transaction for m in site.story.messages if m.type == "ABORT-COMMIT")
    page = open_page(f"/sluice/#/{path.format(aborted=aborted)}", width=400)
    page.locator("main[aria-busy=false] h1").wait_for()
    page.locator("table").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.browser
def test_ten_thousand_transactions_make_a_small_page(site: Site, open_page: Any) -> None:
    whole_window(site, "many")
    page = open_page("/sluice/#/pipeline/many?n=240")
    page.get_by_text("of 10,000, newest first").wait_for()
    assert page.evaluate("document.querySelectorAll('*').length") < 15_000
    page.get_by_role("link", name="Older").click()
    page.get_by_text(re.compile("^241.480 of 10,000, newest first$")).wait_for()


# When things are down ------------------------------------------------------------------------------------------------


@pytest.mark.browser
def test_a_broker_that_is_down_is_said_and_what_was_known_stays(site: Site, open_page: Any) -> None:
    page = open_page("/sluice/#/pipeline/flights")
    page.get_by_text(acknowledged(site)[-1].transaction).first.wait_for()
    site.broker.kill()
    try:
        banner = page.locator(".banner.error", has_text="Kafka did not answer as it should").first
        banner.wait_for()
        assert "What is shown was read" in banner.inner_text()
        assert page.get_by_text(acknowledged(site)[-1].transaction).first.is_visible()
        began = time.perf_counter()
        assert len(site.data("pipeline", key="flights")["transactions"]) > 50
        assert time.perf_counter() - began < 20  # Kafka itself is waited for longer
        # Connect's API: states are Airflow's, and offsets that may be old are not told.
        assert site.ask("GET", "/sluice/connect/connectors/flights/status")[0] == 200
        status, answer, _ = site.ask("GET", "/sluice/connect/connectors/flights/offsets")
        assert (status, answer["error_code"]) == (503, 503)
    finally:
        site.broker.start()
    banner.wait_for(state="detached")


def test_no_password_and_no_stack_trace_anywhere(site: Site) -> None:
    answers = [str(site.get(f"/sluice/api/v1/{route}")[1]) for route in ROUTES]
    answers.append(site.log.read_text())
    assert not [a for a in answers if PASSWORD in a]
    assert not [a for a in answers[:-1] if "Traceback" in a]
