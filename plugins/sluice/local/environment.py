"""The settings of a local Airflow: SQLite, LocalExecutor, one admin, no examples."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sluice import runtime
from sluice.kafka.config import CONTROL_SECRET
from sluice.local.credentials import ADMIN, Credentials
from sluice.local.home import SluiceHome
from sluice.local.java import java_home
from sluice.local.venv import search_path

DEFAULT_PORT = 8080
_PATIENCE = 60  # seconds that a write to the database waits for others


@dataclass(frozen=True, slots=True)
class AirflowEnvironment:
    """The environment variables of a local Airflow, for its processes and for `airflow dags test`.

    Args:
        home: The project's runtime folder.
        bootstrap: `bootstrap.servers` of the connection `kafka_default`.
        folder: `AIRFLOW_HOME`. Default: the home's own.
        port: Port of the web pages and of the API that tasks report to.
        dags_folder: Default: the project's `dags/`.
        plugins_folder: Default: the checkout's `plugins/`, or Airflow's own.
        paused: Whether new DAGs start paused.
        spark_master: Host of the connection `spark_default`.
        signed: Whether `kafka_default` has the secret that control messages are signed with.
        extra: Variables on top, e.g. the folder of further pipelines. They win over those here.
    """

    home: SluiceHome
    bootstrap: str
    folder: Path | None = None
    port: int = DEFAULT_PORT
    dags_folder: Path | None = None
    plugins_folder: Path | None = None
    paused: bool = True
    spark_master: str = "local[2]"
    signed: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def airflow_home(self) -> Path:
        """`AIRFLOW_HOME`."""
        return self.folder or self.home.airflow

    @property
    def url(self) -> str:
        """Address of the web pages."""
        return f"http://localhost:{self.port}"

    def credentials(self) -> Credentials:
        """Log-in and keys of this `AIRFLOW_HOME`, made at the first call."""
        return Credentials.of(self.airflow_home)

    @property
    def kafka(self) -> dict[str, str]:
        """The extra field of the connection `kafka_default`."""
        secret = {CONTROL_SECRET: self.credentials().control_secret} if self.signed else {}
        return {"bootstrap.servers": self.bootstrap, **secret}

    def variables(self) -> dict[str, str]:
        """The whole environment: this process's own without its Airflow settings, and Sluice's.

        Settings that the caller's shell has for another Airflow must not reach this one's database.
        """
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW__", "AIRFLOW_CONN_"))}
        return {
            **inherited,
            **self._process_variables(),
            **self._settings(),
            **self._connections(),
            **self.credentials().variables(),
            **self.extra,
        }

    def _process_variables(self) -> dict[str, str]:
        # Tasks report to the API on this machine: a company proxy must not be asked for it.
        direct = ",".join(filter(None, (os.environ.get("NO_PROXY"), "localhost", "127.0.0.1")))
        return {
            "AIRFLOW_HOME": str(self.airflow_home),
            "JAVA_HOME": str(java_home()),
            "NO_PROXY": direct,
            "no_proxy": direct,
            "SLUICE_HOME": str(self.home.root),
            "SLUICE_LAKE": os.environ.get("SLUICE_LAKE") or str(self.home.lake),
            "SLUICE_PROJECT": str(runtime.project()),
            **search_path(runtime.packages()),
        }

    def _settings(self) -> dict[str, str]:
        sections: dict[str, dict[str, object]] = {
            "core": {
                "dags_folder": self.dags_folder or runtime.project() / "dags",
                # An installed package's plugin is found by its entry point.
                "plugins_folder": self.plugins_folder or (runtime.checkout() or self.airflow_home) / "plugins",
                "load_examples": False,
                "executor": "LocalExecutor",
                "parallelism": 8,
                "dags_are_paused_at_creation": self.paused,
                "simple_auth_manager_users": f"{ADMIN}:admin",
                "simple_auth_manager_passwords_file": self.credentials().passwords_file,
            },
            # SQLite allows one writer at a time. A writer that waits for longer than 5 s, its default, gets an error:
            # on a busy laptop a run could not be started.
            "database": {"sql_alchemy_conn": f"sqlite:///{self.airflow_home / 'airflow.db'}?timeout={_PATIENCE}"},
            "api": {"workers": 1, "host": "127.0.0.1", "port": self.port, "base_url": self.url},
            "dag_processor": {"refresh_interval": 5, "min_file_process_interval": 10, "parsing_processes": 2},
            "usage_data_collection": {"enabled": False},
            # A task gives up after five unanswered requests, of 5 s each by default: on a busy laptop the API server
            # may take longer than that for its first.
            "workers": {"execution_api_timeout": 30},
        }
        return {
            f"AIRFLOW__{section}__{name}".upper(): str(value)
            for section, settings in sections.items()
            for name, value in settings.items()
        }

    def _connections(self) -> dict[str, str]:
        # As JSON: the URI form of a Spark connection breaks on the brackets of local[2].
        kafka = {"conn_type": "kafka", "extra": self.kafka}
        spark = {"conn_type": "spark", "host": self.spark_master, "extra": {"deploy-mode": "client"}}
        return {
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(kafka),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        }
