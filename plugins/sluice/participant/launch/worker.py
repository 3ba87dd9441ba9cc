"""How a worker is started: its command line, and the environment that holds its connections.

Its Python starts its JVM, not the other way round as in a write job, so that SIGTERM reaches the process that can end
orderly.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sluice import runtime
from sluice.kafka.config import (
    Connections,
    KafkaSettings,
    Role,
    connection_of_environment,
    connections_of_environment,
    connections_to_environment,
)
from sluice.participant.launch.settings import driver_address, spark_conf
from sluice.participant.launch.submit import APPLICATION
from sluice.pipeline.model import Pipeline
from sluice.private import PrivateSettings

WORKER_APPLICATION = APPLICATION.with_name("worker.py")
LOOPBACK = "127.0.0.1"
_STAYS = {
    "spark.scheduler.mode": "FAIR",
    # Spark's history for its pages, which aren't used here, would grow with each interval.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.worker.ui.retainedExecutors": "5",
}


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker is to work.

    Attributes:
        group: the group of workers, which pipelines name in `write.workers`.
        slots: how many ranges it writes at once.
        memory: of its Spark driver.
        lease: for how long a claim lasts that isn't renewed.
        longest_stay: after how long it ends, for another to begin afresh; None for ever.
        trust_control_topic: whether START-COMMITs count that aren't signed.
        port: on which it answers `/health`, `/ready` and `/metrics`; None for none.
        host: the address that it listens on for that.
    """

    group: str
    slots: int = 2
    memory: str = "2g"
    lease: timedelta = timedelta(seconds=30)
    longest_stay: timedelta | None = timedelta(hours=12)
    trust_control_topic: bool = False
    port: int | None = None
    host: str = LOOPBACK


def worker_command(
    options: WorkerOptions, name: str, places: Sequence[Path], *, ends_with_stdin: bool = False
) -> list[str]:
    """The command of one worker; it needs `worker_environment`.

    Args:
        options: how it is to work.
        name: its name.
        places: pipeline files, and folders of them.
        ends_with_stdin: whether it ends when its standard input is closed: a pipe of the process that keeps it, which
            may be killed before it can end the worker.
    """
    command = [sys.executable, str(WORKER_APPLICATION), "--group", options.group, "--name", name]
    command += ["--slots", str(options.slots), "--lease", str(options.lease.total_seconds())]
    if options.longest_stay is not None:
        command += ["--longest-stay", str(options.longest_stay.total_seconds())]
    if options.trust_control_topic:
        command.append("--trust-control-topic")
    if options.port is not None:
        command += ["--port", str(options.port), "--host", options.host]
    if ends_with_stdin:
        command.append("--ends-with-stdin")
    return [*command, *map(str, places)]


def worker_environment(
    options: WorkerOptions, master: str, conf: Mapping[str, str], connections: Iterable[KafkaSettings]
) -> dict[str, str]:
    """The environment of a worker: this process's own, the connections, and how its JVM is started.

    Args:
        options: how it is to work.
        master: Spark's master.
        conf: Spark settings, `write.conf` of its pipelines.
        connections: all Kafka connections that they name.
    """
    settings = spark_conf(master, {**_STAYS, **conf}, PrivateSettings.from_environment().conf)
    submit = ["--master", master, "--driver-memory", options.memory]
    submit += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    package = str(runtime.packages())
    return {
        "PYSPARK_PYTHON": sys.executable,
        **driver_address(master),
        **os.environ,
        "JAVA_HOME": str(runtime.java_home()),
        "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
        **connections_to_environment(connections),
    }


def settings_here(pipeline: Pipeline) -> tuple[KafkaSettings, KafkaSettings]:
    """In a worker: the clusters of a pipeline's records and of its control topic.

    Raises:
        ActionRequiredError: the environment doesn't hold them.
    """
    source, control = pipeline.kafka_connection, pipeline.control.connection
    records = _here(source, "source").with_java_options(pipeline.write.kafka_options)
    return records, _here(control, "control") if control else records


def connections_here(pipeline: Pipeline) -> Connections:
    """In a worker: the Kafka connections of streams' clusters by their ids."""
    known = connections_of_environment(settings_here(pipeline)[0])
    return lambda connection: known(connection).with_java_options(pipeline.write.kafka_options)


def _here(connection: str, role: Role) -> KafkaSettings:
    return connection_of_environment(connection) or KafkaSettings.from_environment(role)
