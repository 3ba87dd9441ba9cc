"""Addresses of Airflow's pages, for messages that people read elsewhere."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import quote

from airflow.sdk.configuration import conf


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
    """Sluice's own page of the DAG run, or its first page, within Airflow's; None if its plugin has none."""
    try:
        plugin = import_module("sluice_plugin").SluicePlugin
    except ImportError:
        return None  # the plugins folder is not on this process's path
    views = {view.get("destination"): view.get("url_route") for view in getattr(plugin, "external_views", [])}
    if views.get("dag_run"):
        return f"{run_url(dag_id, run_id)}/plugin/{views['dag_run']}"
    return f"{base_url()}/plugin/{views['nav']}" if views.get("nav") else None
