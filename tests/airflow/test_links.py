"""Addresses in messages: as Airflow's pages have them, with Sluice's own page where its plugin registers one."""

from __future__ import annotations

import pytest

from sluice.airflow.links import log_url, page_url, run_url

RUN = "scheduled__2026-01-01T00:00:00+00:00"
QUOTED = "scheduled__2026-01-01T00%3A00%3A00%2B00%3A00"


@pytest.fixture(autouse=True)
def base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/team/")


def test_runs_and_logs() -> None:
    run = f"https://airflow.example.com/team/dags/orders/runs/{QUOTED}"
    assert run_url("orders", RUN) == run
    assert log_url("orders", RUN, "commit") == f"{run}/tasks/commit"
    assert log_url("orders", RUN, "write", 3) == f"{run}/tasks/write/mapped/3"


def test_the_page_of_a_run_is_where_the_plugin_registers_it() -> None:
    from sluice_plugin import SluicePlugin

    (view,) = [view for view in SluicePlugin.external_views if view["destination"] == "dag_run"]
    run = f"https://airflow.example.com/team/dags/orders/runs/{QUOTED}"
    assert page_url("orders", RUN) == f"{run}/plugin/{view['url_route']}"


def test_without_the_plugins_folder_there_is_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.airflow.links.find_spec", lambda _name: None)
    assert page_url("orders", RUN) is None
