"""The page's app without Airflow's database and brokers, for a user with the rights that a test gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.common.db.common import _get_session
from airflow.api_fastapi.core_api import security
from airflow.api_fastapi.core_api.security import get_user
from fastapi import FastAPI
from fastapi.testclient import TestClient
from jwt import InvalidTokenError
from starlette.routing import Mount

from sluice.page import access, catalogue, service
from sluice.page.app import make_app
from sluice.page.rest import found, reads, writes
from sluice.page.rest.answers import Facts

Rights = Callable[..., bool]


class Manager:
    """In place of Airflow's auth manager."""

    def __init__(self, may: Rights) -> None:
        self._may = may

    def get_url_login(self) -> str:
        return "/auth/login"

    async def get_user_from_token(self, _: str) -> Any:
        raise InvalidTokenError("no token of ours")

    def is_authorized_dag(self, *, method: str, access_entity: Any = None, details: Any, user: Any) -> bool:
        return self._may(method, access_entity, details.id if details else None)

    def is_authorized_view(self, **_: Any) -> bool:
        return self._may("GET", "view", None)


@contextmanager
def light_page(folder: Path, patch: pytest.MonkeyPatch, may: Rights = lambda *_: True) -> Iterator[TestClient]:
    """A client of the app.

    Args:
        folder: the DAGs folder; its pipeline files are in `pipelines`.
        patch: undoes what this changes.
        may: who may do what, by method, entity and DAG.
    """
    (folder / "pipelines").mkdir(exist_ok=True)
    without_airflow(folder, patch, may)
    app = for_a_user(make_app())
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def without_airflow(folder: Path, patch: pytest.MonkeyPatch, may: Rights) -> None:
    """Take Airflow's settings, database and auth manager, and all brokers, away from the page; see `light_page`."""
    patch.setattr(catalogue.conf, "get", lambda *_, **__: str(folder))
    for module in (access, security):
        patch.setattr(module, "get_auth_manager", lambda: Manager(may))
    patch.setattr(access.DagModel, "get_team_name", staticmethod(lambda *_, **__: None))
    patch.setattr(service, "tagged_dags", lambda _: frozenset())
    patch.setattr(service, "dags", lambda *_: {})
    patch.setattr(service, "latest_runs", lambda *_: {})
    patch.setattr(service, "one_run", lambda *_: None)
    patch.setattr(service, "refresh_all", lambda _: None)
    patch.setattr(catalogue, "refresh_all", lambda _: None)
    patch.setattr(writes, "dags", lambda *_: {})
    patch.setattr(writes, "mark_gone", lambda *_: None)
    patch.setattr(access.Viewer, "note", lambda *_: None)
    for module in (found, reads, writes):
        patch.setattr(module, "facts_of", lambda _, ids: {one: Facts(known=False) for one in ids})


def for_a_user(app: FastAPI) -> FastAPI:
    """The app, for a user who is logged in."""
    for one in apps(app):
        one.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
        one.dependency_overrides[_get_session] = lambda: SimpleNamespace(close=lambda: None)
    return app


def apps(app: FastAPI) -> list[FastAPI]:
    """An app, and those that are mounted in it."""
    return [app, *(route.app for route in app.routes if isinstance(route, Mount) and isinstance(route.app, FastAPI))]
