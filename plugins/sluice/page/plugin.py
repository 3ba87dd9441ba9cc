"""What the plugin registers for the page: the app, and where Airflow's pages show it."""

from __future__ import annotations

import os
import sys
from typing import Any

from sluice.airflow.links import PAGE_OF_A_RUN

_MOUNTS_APPS = "airflow.api_fastapi.app"


def fastapi_apps() -> list[dict[str, Any]]:
    """The app, in the API server only: no other process of Airflow, nor any task, has to import it.

    The scheduler says that it is a server, too, and so do the tasks that it forks: the module that mounts the app isn't
    loaded there.
    """
    if os.environ.get("_AIRFLOW_PROCESS_CONTEXT") != "server" or _MOUNTS_APPS not in sys.modules:
        return []
    from sluice.page.app import PREFIX, make_app

    return [{"app": make_app(), "url_prefix": PREFIX, "name": "Sluice"}]


def external_views() -> list[dict[str, Any]]:
    """In the navigation, on each DAG and on each DAG run. Addresses are relative to Airflow's own base address."""
    icons = {"icon": "sluice/static/icon/icon.svg", "icon_dark_mode": "sluice/static/icon/icon-dark.svg"}
    return [
        {
            "name": "Sluice",
            "href": "sluice/",
            "destination": "nav",
            "nav_top_level": True,
            "url_route": "sluice",
            **icons,
        },
        {"name": "Sluice", "href": "sluice/#/dag/{DAG_ID}", "destination": "dag", "url_route": "sluice_dag", **icons},
        {
            "name": "Sluice",
            "href": "sluice/#/dag/{DAG_ID}/run/{RUN_ID}",
            "destination": "dag_run",
            "url_route": PAGE_OF_A_RUN,
            **icons,
        },
    ]
