"""Sluice's one Airflow plugin module. All that it registers lives in `sluice.airflow` and `sluice.page`."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from sluice.airflow import listeners
from sluice.page import plugin


class SluicePlugin(AirflowPlugin):
    """Registers the listener that writes the DAG runs' notes, and the page in the navigation."""

    name = "sluice"
    listeners = [listeners]  # noqa: RUF012  # the base class declares it so
    fastapi_apps = plugin.fastapi_apps()
    external_views = plugin.external_views()
