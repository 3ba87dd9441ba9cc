"""What Airflow lists of this package beside its plugin: `airflow providers list`, and types of connections."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Sluice as a provider, in the form of Airflow's `provider_info.schema.json`."""
    return {
        "package-name": "sluice",
        "name": "Sluice",
        "description": "Exactly-once ingestion from Kafka to Hudi: one Airflow DAG run is one transaction.",
        "connection-types": [
            {"connection-type": "mariadb", "hook-class-name": "sluice.airflow.hooks.MariaDbHook"},
        ],
    }
