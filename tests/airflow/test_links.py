"""Addresses in messages: as Airflow's pages have them, with Sluice's own page where its plugin registers one."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize(
    ("views", "page"),
    [
        ([], None),
        ([{"destination": "nav", "url_route": "sluice"}], "https://airflow.example.com/team/plugin/sluice"),
        (
            [{"destination": "nav", "url_route": "sluice"}, {"destination": "dag_run", "url_route": "sluice_run"}],
            f"https://airflow.example.com/team/dags/orders/runs/{QUOTED}/plugin/sluice_run",
        ),
    ],
)
def test_the_page_is_found_if_the_plugin_has_one(
    views: list[Any], page: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sluice_plugin

    monkeypatch.setattr(sluice_plugin.SluicePlugin, "external_views", views)
    assert page_url("orders", RUN) == page
