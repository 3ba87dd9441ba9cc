"""Workers as the page shows them: who is there by a real consumer group, what each holds by its claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sluice.control.presence import Membership
from sluice.kafka.config import KafkaSettings

from .conftest import Site
from .story import WORKER

pytestmark = [pytest.mark.airflow, pytest.mark.kafka]
IDLE = "default-1-idle"
DAG = "sluice_workers_default"


@pytest.fixture(scope="module")
def there(site: Site) -> Iterator[list[Membership]]:
    """Two members of the group, of which one has claimed a range."""
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": site.broker.bootstrap})
    made = [Membership(settings, "default", name, ["control-one"], lambda: None) for name in (WORKER, IDLE)]
    site.until("both are there", lambda: _states(site) == {WORKER: "writing", IDLE: "idle"})
    yield made
    for membership in made:
        membership.leave()


def _workers(site: Site, user: str = "admin") -> dict[str, list[dict[str, Any]]]:
    return {group["group"]: group["workers"] for group in site.data("workers", user)["groups"]}


def _states(site: Site) -> dict[str, str]:
    return {worker["name"]: worker["state"] for worker in _workers(site)["default"]}


def test_the_workers_that_are_there_and_what_they_hold(site: Site, there: list[Membership]) -> None:
    (claim,) = (m for m in site.story.messages if m.type == "CLAIM")
    writing, idle = _workers(site)["default"]
    assert writing["holds"] == [
        {"pipeline": "flights", "instant": claim.transaction, "range": 1, "since": claim.time.isoformat()}
    ]
    assert (writing["memory"], writing["began"]) == (1234, claim.began.isoformat())
    assert (idle["name"], idle["holds"], idle["memory"], idle["last_heard"]) == (IDLE, [], None, None)
    assert writing["host"] == idle["host"] == "/127.0.0.1"


def test_a_group_without_workers_is_shown_to_who_may_see_a_pipeline_that_names_it(site: Site) -> None:
    site.until("the group is asked for", lambda: all(g["known"] for g in site.data("workers")["groups"]))
    assert _workers(site)["hidden"] == []
    assert _workers(site, "guest").keys() == {"default"}
    assert [g["pipelines"] for g in site.data("workers", "guest")["groups"]] == [["flights"]]


def test_the_dag_that_keeps_them_is_no_pipeline(site: Site) -> None:
    assert site.get(f"/api/v2/dags/{DAG}", "admin")[0] == 200
    assert DAG not in {pipeline["key"] for pipeline in site.data("pipelines")["pipelines"]}
    assert DAG not in site.ask("GET", "/sluice/connect/connectors")[1]


@pytest.mark.browser
def test_the_list_shows_them_and_leads_to_what_they_write(site: Site, there: list[Membership], open_page: Any) -> None:
    page = open_page("/sluice/")
    row = page.get_by_role("row").filter(has_text=WORKER)
    row.get_by_text("1.2 GiB").wait_for()
    assert row.get_by_text("writing").is_visible()
    assert row.locator("td[data-label=Age]").inner_text().startswith("3 h")
    assert page.get_by_role("row").filter(has_text=IDLE).get_by_text("idle").first.is_visible()
    row.get_by_role("link", name="flights, range 1").click()
    page.get_by_role("heading", name=site.story.messages[-1].transaction).wait_for()


def test_one_that_has_gone_with_a_range_is_lost_and_an_idle_one_is_gone(site: Site, there: list[Membership]) -> None:
    for membership in there:
        membership.leave()
    site.until("it is lost", lambda: _states(site) == {WORKER: "lost"})
