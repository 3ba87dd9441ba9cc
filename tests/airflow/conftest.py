"""Airflow's own database and home for these tests, and a client of its API. Set before anything imports Airflow."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .live import live

__all__ = ["live"]

_HOME = tempfile.mkdtemp(prefix="sluice-airflow-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
_SETTINGS = {
    "AIRFLOW_HOME": _HOME,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(Path(__file__).parents[2] / "plugins"),
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}
for _name, _value in _SETTINGS.items():
    os.environ.setdefault(_name, _value)

PROJECT = Path(__file__).parents[2]
# What isn't there yet, and a backfill that a locked SQLite kept from being made: Airflow has undone what it had begun.
_ASK_AGAIN = (404, 503)
# Airflow writes its audit log in the API server's event loop: with SQLite that waits for a request of a task that has
# the lock, which waits for the loop, until SQLite gives up. Of such a request nothing was done.
_LOCKED = 500
PIPELINE = """
name: {name}
source: {{kafka: {{topics: {topic}}}}}
sink: {{hudi: {{path: {path}, partition_fields: shop, schema: "id BIGINT, shop STRING, amount DOUBLE"}}}}
write: {{ranges: 2}}
retry_delay: 1 second
"""


def pytest_configure(config: pytest.Config) -> None:
    """Airflow reads .airflowignore with a class that its author has since renamed."""
    config.addinivalue_line("filterwarnings", "ignore:GitWildMatchPattern:DeprecationWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of the live Airflow come last, and so one after the other, in every process alike."""
    items.sort(key=_is_live)


@pytest.hookimpl(trylast=True)  # after the fixtures of the test's own file
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the live Airflow with the last of its tests: it would take its share of the processors from all others."""
    if _is_live(item) and not (nextitem and _is_live(nextitem)):
        running = getattr(item, "funcargs", {}).get("live")
        if running is not None:
            running.airflow.stop()


def _is_live(item: pytest.Item) -> bool:
    return "live" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def project() -> Path:
    return PROJECT


@pytest.fixture(scope="session")
def pipeline_text() -> Callable[..., str]:
    """The text of a small pipeline file: `pipeline_text("orders", topic="t", path="/lake/orders")`."""
    return lambda name, topic="orders", path="/tmp/lake/orders": PIPELINE.format(name=name, topic=topic, path=path)


@pytest.fixture(scope="session")
def api() -> Callable[[str, str, str], Api]:
    """Logs in: `api(url, user, password)`."""
    return Api


class Api:
    """What a person would look at in Airflow's pages, by its API."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url
        # Without a proxy, whatever the environment says: it is a process of this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._token: str | None = None
        self._token = self.call("/auth/token", {"username": user, "password": password})["access_token"]

    def call(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data=data, headers=headers, method=method)
        with self._opener.open(request, timeout=120) as response:
            answer = response.read()
        return json.loads(answer) if answer else None

    def until(self, what: str, check: Callable[[], Any], timeout: float = 900.0, *, also: int | None = None) -> Any:
        """Ask again and again until there is an answer that is true; `also` after an error of this status."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                found = check()
            except urllib.error.HTTPError as error:
                if error.code not in (*_ASK_AGAIN, also):
                    raise
                found = None
            if found:
                return found
            time.sleep(1)  # each question takes the API server some hundredths of a second
        raise AssertionError(f"{what}: not within {timeout:.0f} s")

    def trigger(self, dag_id: str, **conf: Any) -> str:
        """Start a run, as soon as the DAG is known, with what a person would put into the form."""
        self.until(f"DAG {dag_id}", lambda: self.call(f"/api/v2/dags/{dag_id}"))
        form = {"logical_date": None, "conf": conf}
        started = self.until("a run", lambda: self.call(f"/api/v2/dags/{dag_id}/dagRuns", form), also=_LOCKED)
        return str(started["dag_run_id"])

    def runs(self, dag_id: str, run_type: str) -> list[dict[str, Any]]:
        """The DAG's runs of one type, by logical date."""
        path = f"/api/v2/dags/{dag_id}/dagRuns?run_type={run_type}&order_by=logical_date"
        found: list[dict[str, Any]] = self.call(path)["dag_runs"]
        return found

    def ended(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""

        def look() -> Any:
            run = self.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")
            return run if run["state"] in ("success", "failed") else None

        run: dict[str, Any] = self.until(f"run of {dag_id}", look)
        return run

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The run's task instances."""
        found: list[dict[str, Any]] = self.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")[
            "task_instances"
        ]
        return found

    def log(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[Any]:
        """The events of a task's first attempt."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/1?map_index={map_index}"
        content: list[Any] = self.call(path)["content"]
        return content
