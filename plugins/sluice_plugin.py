"""Sluice's one Airflow plugin module. All that it registers lives in the package `sluice.airflow`."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from sluice.airflow import listeners


class SluicePlugin(AirflowPlugin):
    """Registers the listener that writes the DAG runs' notes."""

    name = "sluice"
    listeners = [listeners]  # noqa: RUF012  # the base class declares it so
