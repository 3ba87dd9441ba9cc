"""The worker of the embedded runtime: Airflow keeps it, by the DAG that `dags/workers/default.yaml` makes."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from sluice import runtime
from sluice.control.presence import members
from sluice.errors import RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.local.airflow_api import AirflowApi
from sluice.pipeline.workers import dag_of_workers

GROUP = "default"


def start_workers(api: AirflowApi) -> bool:
    """Let Airflow keep the group's workers from now on; it doesn't wait until one is there.

    Args:
        api: the running Airflow's.

    Returns:
        Whether there is a file that says how many.

    Raises:
        LocalRuntimeError: Airflow doesn't read the DAG.
    """
    if not (runtime.project() / "dags" / "workers" / f"{GROUP}.yaml").exists():
        return False
    api.await_dag(dag_of_workers(GROUP))
    api.unpause(dag_of_workers(GROUP))
    return True


def workers_there(settings: KafkaSettings) -> tuple[str, ...]:
    """The names of the group's present workers; none where the broker doesn't know the group yet.

    Args:
        settings: the broker's.

    Raises:
        ActionRequiredError: the broker may not be asked.
    """
    try:
        return tuple(member.worker for member in members(AdminClient(settings.client()), settings, GROUP))
    except RetryableError:  # a broker that was never asked for a group makes room for groups first
        return ()
