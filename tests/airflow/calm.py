"""Settings of an Airflow that tests start: on a machine where much else runs, it neither gives up nor keeps busy."""

from __future__ import annotations

from sluice.local.process import free_port

PATIENCE = 1200.0  # seconds for a start
_CALM = {
    # What is new or changed is parsed at once all the same; parsing everything every few seconds takes half a core.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
    "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "600",
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "300",
}


def calm() -> dict[str, str]:
    """These settings, with ports of its own: two Airflows that look for a free one at once would find the same."""
    ports = {
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
    }
    return {**_CALM, **ports}
