"""An auth manager for the tests: Airflow's simple one, in which the admin alone may read the DAG `secret`.

The user `runner` may read DAGs and their runs, and neither code nor XComs nor tasks' logs.

Asked about no DAG, it answers as FAB's does of somebody who may read single DAGs: yes where an entity such as DAG runs
is named, which is a permission of its own; no where all DAGs are meant.
"""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class GuardedAuthManager(SimpleAuthManager):
    """As an auth manager with permissions of single DAGs would decide."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        dag_id = details.id if details is not None else None
        if user.username != "admin" and (dag_id == "secret" or (dag_id is None and access_entity is None)):
            return False
        if user.username == "runner" and access_entity not in (DagAccessEntity.RUN, None):
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
