"""The live Airflow: one, which all tests that watch whole DAG runs share, since its start takes longest.

A test file adds its pipelines and DAG files to it, and looks at what comes of them by Airflow's API. All such files run
in one worker of xdist (tests/costs.py), one after the other; with the last of their tests the Airflow ends.

Its connections have passwords, which must not show anywhere afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sluice.local.airflow import AirflowEnvironment, LocalAirflow
from sluice.local.broker import LocalBroker
from sluice.local.credentials import ADMIN
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

from ..examples.package import install
from ..processes import kept_jvms
from .calm import PATIENCE, calm
from .inbox import HOOK_PATH, Inbox, mail_server, statsd, webhook

PROJECT = Path(__file__).parents[2]
KAFKA_PASSWORD = "hunter2-of-the-broker"
HOOK_PASSWORD = "hunter2-of-the-webhook"
SECRETS = (KAFKA_PASSWORD, HOOK_PASSWORD, HOOK_PATH.rpartition("/")[2])
_MODULES = ("sluice_pipelines.py", "sluice_pipeline_errors.py")


@dataclass(frozen=True)
class Run:
    """A DAG run that has ended, as Airflow's API shows it."""

    dag_id: str
    run_id: str
    state: str
    note: str
    tasks: dict[str, str]


@dataclass(frozen=True)
class Live:
    """A running Airflow, and where its things are."""

    api: Any
    airflow: LocalAirflow
    dags: Path
    lake: Path
    lineage: Path
    inbox: Inbox

    @property
    def environment(self) -> AirflowEnvironment:
        return self.airflow.environment

    def add(self, pipelines: dict[str, str], **modules: str) -> None:
        """Add pipeline files, by name, and DAG files in Python.

        Airflow looks for new files every few seconds, and reads one anew that has changed; a pipeline file is read with
        the module that makes DAGs of all of them.
        """
        for name, text in pipelines.items():
            (self.dags / "pipelines" / f"{name}.yaml").write_text(text)
        for name, text in modules.items():
            (self.dags / f"{name}.py").write_text(text)
        for module in _MODULES:
            os.utime(self.dags / module)

    def start(self, dag_id: str, **conf: Any) -> str:
        """Start a run, with these fields of its form; its id. A DAG's runs come one after the other."""
        return str(self.api.trigger(dag_id, **conf))

    def ended(self, dag_id: str, run_id: str) -> Run:
        """The run, once it has ended."""
        run = self.api.ended(dag_id, run_id)
        tasks = {f"{t['task_id']}[{t['map_index']}]": t["state"] for t in self.api.tasks(dag_id, run_id)}
        return Run(dag_id, run_id, run["state"], run["note"], {k.removesuffix("[-1]"): v for k, v in tasks.items()})

    def run(self, dag_id: str, **conf: Any) -> Run:
        """Start a run and wait for its end."""
        return self.ended(dag_id, self.start(dag_id, **conf))

    def create_topic(self, name: str, partitions: int, **config: str) -> str:
        """A topic that no other Airflow of this broker has; its name."""
        from confluent_kafka.admin import AdminClient, NewTopic

        topic = f"{name}-{self.environment.airflow_home.parent.name}"
        admin = AdminClient({"bootstrap.servers": self.environment.bootstrap})  # its futures fail once it is collected
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(topic, partitions, config=settings)])[topic].result(30)
        return topic

    def send(self, topic: str, *values: bytes, partition: int = 0, times: list[datetime] | None = None) -> None:
        """Send records to one partition, with times of their own or the broker's."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.environment.bootstrap})
        for value, at in zip(values, times or [None] * len(values), strict=True):
            more = {} if at is None else {"timestamp": int(at.timestamp() * 1000)}
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(30) == 0

    def written_down(self) -> list[Path]:
        """All files of this Airflow: its database and its logs are among them."""
        files = [path for path in self.environment.airflow_home.rglob("*") if path.is_file()]
        assert {".log", ".db"} <= {path.suffix for path in files}
        return files


@pytest.fixture(scope="session")
def live(
    home: SluiceHome,
    broker: LocalBroker,
    api: Callable[[str, str, str], Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Live]:
    """The live Airflow, with the example's connectors installed. It has no DAGs yet."""
    base, inbox = tmp_path_factory.mktemp("live"), Inbox()
    (base / "dags" / "pipelines").mkdir(parents=True)
    for module in _MODULES:
        shutil.copy(PROJECT / "dags" / module, base / "dags")
    lineage = base / "lineage.jsonl"
    install(base / "site")
    with ExitStack() as servers:
        jvms = servers.enter_context(kept_jvms())
        environment = AirflowEnvironment(
            home,
            broker.bootstrap,
            folder=base / "airflow",
            dags_folder=base / "dags",
            paused=False,
            spark_master="local[1]",
            port=free_port(),
            extra={
                **calm(),
                **jvms,
                "PYTHONPATH": os.pathsep.join([str(PROJECT / "plugins"), str(base / "site")]),
                **_connections(broker.bootstrap, servers.enter_context(mail_server(inbox)),
                               servers.enter_context(webhook(inbox))),
                **_watchers(servers.enter_context(statsd(inbox)), lineage),
            },
        )  # fmt: skip
        airflow = LocalAirflow(environment)
        servers.callback(airflow.stop)
        airflow.start(PATIENCE)
        client = api(airflow.environment.url, ADMIN, environment.credentials().password)
        yield Live(client, airflow, base / "dags", base / "lake", lineage, inbox)


def _connections(bootstrap: str, mail_port: int, hook_url: str) -> dict[str, str]:
    login = {"sasl.username": "svc", "sasl.password": KAFKA_PASSWORD, "sasl.mechanisms": "PLAIN"}
    plain = {"disable_ssl": True, "disable_tls": True, "from_email": "sluice@example.com"}
    connections = {
        "kafka_default": {
            "conn_type": "kafka",
            "extra": {"bootstrap.servers": bootstrap, "security.protocol": "PLAINTEXT", **login},
        },
        "smtp_default": {"conn_type": "smtp", "host": "127.0.0.1", "port": mail_port, "extra": plain},
        "hook": {"conn_type": "http", "host": hook_url, "login": "svc", "password": HOOK_PASSWORD},
    }
    return {f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection) for name, connection in connections.items()}


def _watchers(statsd_port: int, lineage: Path) -> dict[str, str]:
    """Airflow's settings for metrics, of Sluice's alone, and for the lineage of one DAG's tasks.

    Each event is told by a fork of its task, and a DAG's by a process that imports Airflow anew: what the other DAGs
    would tell, nobody looks at.
    """
    lineage_of = [
        {"scope": {}, "controls": {"emit": False}},
        {"scope": {"dag_id": "flights"}, "controls": {"emit_task_events": True, "emit_dag_events": False}},
    ]
    return {
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_PORT": str(statsd_port),
        "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "sluice",
        "AIRFLOW__OPENLINEAGE__EMISSION_POLICY": json.dumps(lineage_of),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(lineage), "append": True}),
    }
