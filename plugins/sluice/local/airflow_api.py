"""The few calls of Airflow's REST API that the demo makes."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from sluice import runtime
from sluice.local.credentials import ADMIN
from sluice.local.environment import AirflowEnvironment
from sluice.local.errors import LocalRuntimeError

_TIMEOUT = 120.0
_PATIENCE = 300.0  # seconds: a busy machine's API server may drop a request or two, and takes long for its first


@dataclass(frozen=True)
class DagRun:
    """A DAG run: `state` is queued, running, success or failed; `note` is what Sluice wrote about it."""

    run_id: str
    state: str
    scheduled: bool
    note: str


class AirflowApi:
    """The API of a local Airflow, as its admin."""

    def __init__(self, environment: AirflowEnvironment) -> None:
        self._environment = environment
        # Without a proxy, whatever the environment says: this is a local process.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._token: str | None = None

    def await_dag(self, dag_id: str, timeout: float = 180.0) -> None:
        """Wait until the DAG processor has read the DAG.

        Raises:
            LocalRuntimeError: it has not in time; the import errors of the DAG files are shown.
        """
        attempts = Retrying(
            retry=retry_if_result(lambda found: not found),
            wait=wait_fixed(1),
            stop=stop_after_delay(timeout),
            retry_error_callback=lambda _: False,
        )
        if not attempts(lambda: self._call("GET", f"/api/v2/dags/{dag_id}", missing_ok=True)):
            errors = self._call("GET", "/api/v2/importErrors")["import_errors"]
            raise LocalRuntimeError(
                f"Airflow knows no DAG {dag_id} after {timeout:.0f} s.",
                next_step=f"correct the pipeline files, or see {self._environment.url}.",
                detail="\n".join(str(error["stack_trace"]) for error in errors),
            )

    def set_connection(self, connection_id: str, fields: Mapping[str, Any]) -> None:
        """Create a connection, or change it, as a person does on the page Connections.

        Args:
            connection_id: its id.
            fields: `conn_type`, `host`, `port`, `schema`, `login`, `password` and `extra`, as far as it has them.
        """
        body = {"connection_id": connection_id, **fields}
        there = self._call("GET", f"/api/v2/connections/{connection_id}", missing_ok=True)
        if there is None:
            self._call("POST", "/api/v2/connections", body)
        else:
            self._call("PATCH", f"/api/v2/connections/{connection_id}", body)

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler start the DAG's runs."""
        self._call("PATCH", f"/api/v2/dags/{dag_id}?update_mask=is_paused", {"is_paused": False})

    def runs(self, dag_id: str) -> list[DagRun]:
        """The DAG's latest hundred runs, the newest first."""
        answer = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns?order_by=-run_after&limit=100")
        return [_dag_run(run) for run in answer["dag_runs"]]

    def trigger(self, dag_id: str, form: Mapping[str, Any]) -> str:
        """Start a run with the trigger form's values; returns its id."""
        body = {"logical_date": None, "conf": dict(form)}
        return str(self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def await_end(self, dag_id: str, run_id: str, timeout: float) -> DagRun:
        """Wait until a run has ended and its note is written; after the time-out, the run as it is."""
        attempts = Retrying(
            retry=retry_if_result(lambda run: run.state not in ("success", "failed") or not run.note),
            wait=wait_fixed(1),
            stop=stop_after_delay(timeout),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        run: DagRun = attempts(lambda: self.run(dag_id, run_id))
        return run

    def run(self, dag_id: str, run_id: str) -> DagRun:
        """A run as it is now."""
        return _dag_run(self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id)}"))

    def _call(self, method: str, path: str, body: Any = None, *, missing_ok: bool = False) -> Any:
        attempts = Retrying(
            retry=retry_if_exception_type((OSError, _TryAgainError)),
            wait=wait_fixed(1),
            stop=stop_after_delay(_PATIENCE),
            reraise=True,
        )
        try:
            return attempts(self._once, method, path, body, missing_ok)
        except (OSError, _TryAgainError) as error:
            raise LocalRuntimeError(
                f"Airflow at {self._environment.url} doesn't answer: {error}.",
                next_step=f"run `{runtime.command('status')}`; its log is standalone.log or "
                "airflow.log in the runtime's logs folder.",
            ) from error

    def _once(self, method: str, path: str, body: Any, missing_ok: bool) -> Any:
        if self._token is None and path != "/auth/token":
            log_in = {"username": ADMIN, "password": self._environment.credentials().password}
            self._token = self._once("POST", "/auth/token", log_in, False)["access_token"]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._environment.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 404 and missing_ok:
                return None
            if error.code == 401:
                self._token = None
            raise _TryAgainError(f"{method} {path}: {error}") from error


def _dag_run(run: Mapping[str, Any]) -> DagRun:
    return DagRun(run["dag_run_id"], run["state"], run["run_type"] == "scheduled", run["note"] or "")


class _TryAgainError(Exception):
    """An answer that another attempt may better."""
