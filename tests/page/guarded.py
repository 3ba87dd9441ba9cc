"""An auth manager for the tests: Airflow's simple one, in which nobody but the admin may read the DAG `secret`."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class GuardedAuthManager(SimpleAuthManager):
    """As an auth manager with permissions of single DAGs would decide."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        if user.username != "admin" and (details is None or details.id in (None, "secret")):
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
