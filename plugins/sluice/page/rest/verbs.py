"""Airflow's own REST API, called in this process with the caller's own token.

So a verb of Connect's does what the caller may do by Airflow's API, and nothing else: Airflow checks the permission,
carries it out, tells its listeners and writes its audit log, by the version of its API that it keeps stable.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
from starlette.types import ASGIApp, Scope

from sluice.page.rest.answers import Json

_MOUNTED_IN = "sluice.mounted_in"
_log = logging.getLogger(__name__)
_PASSED_ON = (400, 401, 403, 404, 409, 422)


class RefusedByAirflowError(Exception):
    """Airflow's API didn't do it.

    Args:
        status: HTTP's.
        why: what it said.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


def remember_airflow(scope: MutableMapping[str, Any]) -> None:
    """Keep the app that a request was given to, before the mounted one takes its place in the request's scope."""
    scope.setdefault(_MOUNTED_IN, scope.get("app"))


class AirflowApi:
    """The API as one caller may use it.

    Args:
        airflow: Airflow's own app.
        authorization: the caller's header.
        caller: address and port of the caller, for Airflow's access log.
    """

    def __init__(self, airflow: ASGIApp, authorization: str, caller: tuple[str, int]) -> None:
        self._transport = httpx.ASGITransport(airflow, client=caller)
        self._headers = {"Authorization": authorization}
        self._token = authorization.rpartition(" ")[2]

    @classmethod
    def of_request(cls, scope: Scope, authorization: str) -> AirflowApi:
        """The API as the sender of a request may use it."""
        return cls(scope[_MOUNTED_IN], authorization, tuple(scope.get("client") or ("127.0.0.1", 0)))

    async def pause(self, dag_id: str, paused: bool) -> None:
        """Pause or resume a DAG."""
        await self._call("PATCH", _dag(dag_id), {"is_paused": paused})

    async def fail(self, dag_id: str, run_id: str) -> None:
        """End a run: its tasks are killed, and what follows is skipped but for `abort`, which tidies up."""
        await self._call("PATCH", f"{_dag(dag_id)}/dagRuns/{quote(run_id, safe='')}", {"state": "failed"})

    async def clear(self, dag_id: str, run_id: str) -> None:
        """Run a run again from its first step, with the request that it had."""
        body = {"dry_run": False, "only_failed": False}
        await self._call("POST", f"{_dag(dag_id)}/dagRuns/{quote(run_id, safe='')}/clear", body)

    async def clear_task(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> None:
        """Run one task instance of a run again, and what follows it."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": [[task_id, map_index]],
            "only_failed": False,
            "include_downstream": True,
        }
        await self._call("POST", f"{_dag(dag_id)}/clearTaskInstances", body)

    async def trigger(self, dag_id: str) -> None:
        """Start a run; it waits while another is under way."""
        await self._call("POST", f"{_dag(dag_id)}/dagRuns", {"logical_date": None})

    async def _call(self, method: str, path: str, body: Json) -> None:
        async with httpx.AsyncClient(
            transport=self._transport, base_url="http://airflow", headers=self._headers, timeout=None
        ) as client:
            try:
                answer = await client.request(method, path, json=body)
            except Exception as error:  # logged as if Airflow's API had been asked from outside
                _log.exception("Airflow's API failed at %s %s", method, path)
                raise RefusedByAirflowError(
                    500, f"Airflow's API failed at {method} {path}; the API server's log says why."
                ) from error
        if not answer.is_success:
            status = answer.status_code if answer.status_code in _PASSED_ON else 500
            said = _detail(answer)
            said = said.replace(self._token, "***") if self._token else said
            raise RefusedByAirflowError(status, f"Airflow's API answered {method} {path}: {said}")


def _dag(dag_id: str) -> str:
    return f"/api/v2/dags/{quote(dag_id, safe='')}"


def _detail(answer: httpx.Response) -> str:
    try:
        said = answer.json()
    except ValueError:
        return f"status {answer.status_code}"
    return str(said.get("detail", said) if isinstance(said, dict) else said)
