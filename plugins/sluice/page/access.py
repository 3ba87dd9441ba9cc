"""Who may see what: each request is checked by Airflow's log-in and its permission to read a DAG's runs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from airflow.models.dag import DagModel
from airflow.models.log import Log
from fastapi import Depends, HTTPException, Request, status
from fastapi.security import HTTPAuthorizationCredentials
from sqlalchemy.orm import Session

BY_HAND = "sluice"  # the DAG id in messages of manual commands


class Viewer:
    """A logged-in user, and which DAGs they may read; made for one request."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._verdicts: dict[tuple[str | None, DagAccessEntity], bool] = {}

    def may_read(self, dag_id: str | None, what: DagAccessEntity = DagAccessEntity.RUN) -> bool:
        """Whether they may read a part of the DAG, by default its runs; None asks for all DAGs.

        Airflow guards a DAG's code, its XComs and its tasks' logs apart from its runs, and so does the page.

        Without a DAG's id, FAB's auth manager checks only the permission for "DAG Runs", which users who may read
        only single DAGs have, too. So the permission for all DAGs is checked as well.
        """
        key = (dag_id, what)
        if key not in self._verdicts:
            team = DagModel.get_team_name(dag_id) if dag_id else None
            entities = (what,) if dag_id else (what, None)
            self._verdicts[key] = all(
                get_auth_manager().is_authorized_dag(
                    method="GET",
                    access_entity=entity,
                    details=DagDetails(id=dag_id, team_name=team),
                    user=self._user,
                )
                for entity in entities
            )
        return self._verdicts[key]

    def may_edit_dags(self) -> bool:
        """Whether they may edit all DAGs."""
        manager = get_auth_manager()
        return bool(manager.is_authorized_dag(method="PUT", details=DagDetails(), user=self._user))

    def note(self, session: Session, event: str, dag_id: str) -> None:
        """Write what they did into Airflow's audit log."""
        name = self._user.get_name()
        session.add(Log(event, owner=name, owner_display_name=name, dag_id=dag_id))
        session.commit()

    def may_read_import_errors(self) -> bool:
        """Whether they may read what is wrong with files that aren't DAGs."""
        manager = get_auth_manager()
        return bool(manager.is_authorized_view(access_view=AccessView.IMPORT_ERRORS, user=self._user))


def viewer(user: Annotated[BaseUser, Depends(get_user)]) -> Viewer:
    """The user of a request; without a log-in the request fails with 401."""
    return Viewer(user)


async def logged_in_or_sent_to_log_in(
    request: Request, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer_scheme)]
) -> None:
    """For the page itself: a browser without a log-in is redirected to Airflow's log-in page."""
    try:
        await get_user(request, None, bearer)
    except HTTPException as error:
        if error.status_code != status.HTTP_401_UNAUTHORIZED:
            raise
        log_in = get_auth_manager().get_url_login()
        separator = "&" if "?" in log_in else "?"
        location = f"{log_in}{separator}{urlencode({'next': str(request.url)})}"
        raise HTTPException(status.HTTP_307_TEMPORARY_REDIRECT, headers={"Location": location}) from None


ViewerDep = Annotated[Viewer, Depends(viewer)]
