"""Addresses of Airflow's pages, for messages that people read elsewhere."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import quote

from airflow.sdk.configuration import conf

PAGE_OF_A_RUN = "sluice_run"
"""The route of Sluice's page of a DAG run, by which Airflow has its plugin's view in its own addresses."""


def base_url() -> str:
    """The address of Airflow's pages, from `[api] base_url`, without a slash at the end."""
    return str(conf.get("api", "base_url", fallback="http://localhost:8080")).rstrip("/")


def run_url(dag_id: str, run_id: str) -> str:
    """The page of a DAG run."""
    return f"{base_url()}/dags/{quote(dag_id)}/runs/{quote(run_id)}"


def log_url(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """The page with a task's log."""
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    return f"{run_url(dag_id, run_id)}/tasks/{quote(task_id)}{mapped}"


def page_url(dag_id: str, run_id: str) -> str | None:
    """Sluice's own page of the DAG run among Airflow's; None without its plugin."""
    if find_spec("sluice_plugin") is None:  # without the plugins folder the page isn't registered
        return None
    return f"{run_url(dag_id, run_id)}/plugin/{PAGE_OF_A_RUN}"
