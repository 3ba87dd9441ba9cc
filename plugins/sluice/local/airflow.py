"""Airflow in the project's folder, as one background process."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Self

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from sluice import runtime
from sluice.jvm.kept import MINUTES
from sluice.local.environment import DEFAULT_PORT, AirflowEnvironment
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome, ensure_dags
from sluice.local.process import Daemon, free_port
from sluice.local.venv import command
from sluice.pipeline.load import FOLDERS_VARIABLE

__all__ = ["AirflowEnvironment", "LocalAirflow"]

_PORT_FILE = "port"
_JVM_MINUTES = "5"  # a step's JVM waits so long for the next step; 'make down' ends waiting ones

# The triggerer is left out: a deferred task waits for it, but the first page doesn't have to.
_HEALTHY_PARTS = ("metadatabase", "scheduler", "dag_processor")


class LocalAirflow:
    """`airflow standalone` as a background process: scheduler, DAG processor, triggerer and API server.

    Args:
        environment: Its settings. Where the port is taken, `start()` picks a free one and notes it in the
            attribute `environment`.
    """

    def __init__(self, environment: AirflowEnvironment) -> None:
        self.environment = environment
        log = environment.home.logs / "airflow.log"
        if environment.folder is not None:
            log = environment.folder / "standalone.log"
        self._daemon = Daemon("standalone", environment.airflow_home, log)

    @classmethod
    def of_home(cls, home: SluiceHome, bootstrap: str, port: int | None = None) -> Self:
        """The Airflow of a runtime folder, at its present port, the requested one, its last one, or 8080."""
        kept = home.airflow / _PORT_FILE
        last = int(kept.read_text()) if kept.exists() else DEFAULT_PORT
        # The demo's own pipelines lie in the home, beside those of the caller.
        folder = home.root / "demo" / "pipelines"
        folder.mkdir(parents=True, exist_ok=True)
        folders = os.pathsep.join(filter(None, (os.environ.get(FOLDERS_VARIABLE), str(folder))))
        # Workers take their work from the control topic, to which any user of this machine may write.
        extra = {FOLDERS_VARIABLE: folders, MINUTES: os.environ.get(MINUTES, _JVM_MINUTES)}
        environment = AirflowEnvironment(home, bootstrap, port=last, signed=True, extra=extra)
        found = cls(environment)
        return found if found.running or port is None else cls(replace(environment, port=port))

    @property
    def running(self) -> bool:
        """Whether its parent process is alive."""
        return self._daemon.running()

    @property
    def log(self) -> Path:
        """The output of all of its processes."""
        return self._daemon.log

    def start(self, timeout: float = 600.0) -> None:
        """Start it and wait until scheduler, DAG processor and database are healthy; harmless if it runs.

        Raises:
            LocalRuntimeError: It ended, or wasn't healthy within `timeout` seconds.
        """
        started = not self.running
        if started:
            self._daemon.kill()  # children of a dead parent hold the port and the database
            self.environment = self._with_free_ports()
            if self.environment.dags_folder is None:
                ensure_dags(runtime.project())
            folder = self.environment.airflow_home
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _PORT_FILE).write_text(str(self.environment.port))
            # Its first step is to make its database, or to bring it to this version.
            self._daemon.start(command("airflow", "standalone"), self.environment.variables(), folder)
        try:
            self._await_healthy(timeout)
        except LocalRuntimeError:
            if started:
                self.stop()
            raise

    def _await_healthy(self, timeout: float) -> None:
        attempts = Retrying(
            retry=retry_if_exception_type(_NotHealthyError),
            stop=stop_after_delay(timeout),
            wait=wait_fixed(0.5),
            reraise=True,
        )
        try:
            attempts(self._check)
        except _NotHealthyError as error:
            raise self._failed(f"wasn't healthy within {timeout:.0f} s ({error})") from error

    def stop(self) -> None:
        """Stop all of its processes, tasks included, and wait for their end."""
        self._daemon.stop(grace=20)

    def health(self) -> dict[str, str]:
        """The status of each of its parts, by its API; empty while the API doesn't answer."""
        try:
            # Without a proxy, whatever the environment says: this is a local process.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            address = f"http://127.0.0.1:{self.environment.port}/api/v2/monitor/health"
            with opener.open(address, timeout=5) as response:
                parts: dict[str, dict[str, str | None]] = json.load(response)
        except (OSError, ValueError):
            return {}
        return {part: str(state.get("status")) for part, state in parts.items()}

    def _with_free_ports(self) -> AirflowEnvironment:
        """Two Airflows on one machine, as in tests, would fight for the ports that serve logs, too."""
        log_servers = {
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port(8793)),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port(8794)),
        }
        wanted = self.environment
        return replace(wanted, port=free_port(wanted.port), extra={**log_servers, **wanted.extra})

    def _check(self) -> None:
        if not self.running:
            raise self._failed("ended while it was starting")
        health = self.health()
        missing = [part for part in _HEALTHY_PARTS if health.get(part) != "healthy"]
        if missing:
            raise _NotHealthyError(f"waiting for {', '.join(missing)}")

    def _failed(self, what: str) -> LocalRuntimeError:
        return LocalRuntimeError(
            f"Airflow at {self.environment.url} {what}.",
            next_step=f"read the end of its log below; all of it is in {self.log}.",
            detail=self._daemon.log_tail(),
        )


class _NotHealthyError(Exception):
    """It lives, but some of its parts aren't up yet."""
