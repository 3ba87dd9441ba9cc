"""What the routes of Connect's API ask for: the pipeline that is named, what is known of it, and Airflow's API."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import bearer_scheme
from fastapi import Depends, HTTPException, Request, status
from fastapi.security import HTTPAuthorizationCredentials

from sluice.errors import ActionRequiredError
from sluice.page.access import Viewer, ViewerDep
from sluice.page.catalogue import Entry
from sluice.page.rest.answers import Facts, Json
from sluice.page.rest.facts import facts_of
from sluice.page.rest.validate import LARGEST
from sluice.page.rest.verbs import AirflowApi
from sluice.page.service import Page
from sluice.untrusted import json_of


class ConnectorNotFoundError(Exception):
    """There is no such connector, or the caller may not see it: the answer is the same."""


def _page(request: Request) -> Page:
    found: Page = request.app.state.page
    return found


PageDep = Annotated[Page, Depends(_page)]


def _entry(page: PageDep, viewer: ViewerDep, session: SessionDep, dag_id: str) -> Entry:
    for entry in page.of_dags(viewer, session):
        if entry.key == dag_id:
            return entry
    raise ConnectorNotFoundError(dag_id)


EntryDep = Annotated[Entry, Depends(_entry)]


def for_viewer(facts: Facts, entry: Entry, viewer: Viewer) -> Facts:
    """The facts without the errors of tasks, which are XComs, where the caller may not read those."""
    if viewer.may_read(entry.dag_id, DagAccessEntity.XCOM):
        return facts
    return replace(facts, tasks=tuple(replace(task, error=None) for task in facts.tasks))


def _facts(entry: EntryDep, session: SessionDep, viewer: ViewerDep) -> Facts:
    return for_viewer(facts_of(session, [entry.key])[entry.key], entry, viewer)


FactsDep = Annotated[Facts, Depends(_facts)]


def _of_a_dag(facts: FactsDep, entry: EntryDep, session: SessionDep) -> Facts:
    """What there is to act on.

    The session gives its connection back, since Airflow's API, called next, takes another.
    """
    session.close()
    if not facts.known:
        raise HTTPException(status.HTTP_409_CONFLICT, f"Airflow has no DAG {entry.key}: its file can't be loaded.")
    return facts


KnownDep = Annotated[Facts, Depends(_of_a_dag)]


def _airflow(
    request: Request, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer_scheme)]
) -> AirflowApi:
    """Airflow's API for the caller, who has to send a token.

    A cookie alone isn't enough: these calls have no body, so that a form of another page of the same site could send
    them, where Airflow's own calls of this kind have JSON, for which a browser asks first.
    """
    if bearer is None:
        raise HTTPException(
            status.HTTP_401_UNAUTHORIZED,
            "Send a token of Airflow's (`POST /auth/token`) as `Authorization: Bearer …`; a cookie only reads.",
        )
    return AirflowApi.of_request(request.scope, f"Bearer {bearer.credentials}")


AirflowDep = Annotated[AirflowApi, Depends(_airflow)]


async def body_of(request: Request) -> Json:
    """The JSON object that a request has, which is a configuration or has one.

    Raises:
        ActionRequiredError: it has none.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, f"A configuration has {LARGEST} bytes at most.")
    try:
        given = json_of(body)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ActionRequiredError("The body is no configuration.", next_step="send one as a JSON object.")
    return given
