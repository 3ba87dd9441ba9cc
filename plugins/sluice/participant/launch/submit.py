"""The command line of a write job: one place for the DAG's operator, the command line tool and the benchmark."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sluice import runtime
from sluice.coordinator import Started
from sluice.kafka.config import KafkaSettings, connections_to_environment
from sluice.participant.launch.settings import driver_address, spark_conf
from sluice.pipeline.model import Pipeline
from sluice.private import PrivateSettings

APPLICATION = Path(__file__).with_name("applications") / "write_range.py"
SERVICE_APPLICATION = APPLICATION.with_name("table_service.py")


def application_arguments(pipeline: Pipeline, started: Started, number: int) -> list[str]:
    """Arguments of one range's write job: names only, since settings and secrets are in the environment."""
    arguments = ["--table", pipeline.table_id, "--control-topic", pipeline.control_topic]
    arguments += ["--control-offset", str(started.control_offset), "--range", str(number)]
    return [*arguments, *_digest(started.digest)]


def service_arguments(pipeline: Pipeline, control_offset: int, digest: str | None = None) -> list[str]:
    """Arguments of the job that carries a table service out under the START-COMMIT at that control-topic offset."""
    arguments = ["--table", pipeline.table_id, "--control-topic", pipeline.control_topic]
    return [*arguments, "--control-offset", str(control_offset), *_digest(digest)]


def _digest(digest: str | None) -> list[str]:
    return ["--start-digest", digest] if digest is not None else []


def submit_command(pipeline: Pipeline, started: Started, number: int, master: str) -> list[str]:
    """A whole `spark-submit` command for one range, for use without Airflow."""
    return spark_submit(pipeline, master, APPLICATION, application_arguments(pipeline, started, number))


def spark_submit(pipeline: Pipeline, master: str, application: Path, arguments: Sequence[str]) -> list[str]:
    """A whole `spark-submit` command of one of Sluice's applications, with the write jobs' Spark settings."""
    submit = _spark_submit(master, pipeline.write.conf, pipeline.write.driver_memory)
    return [*submit, str(application), *arguments]


def service_command(pipeline: Pipeline, control_offset: int, master: str, digest: str | None = None) -> list[str]:
    """The same for a compaction or clustering."""
    submit = _spark_submit(master, *service_settings(pipeline))
    return [*submit, str(SERVICE_APPLICATION), *service_arguments(pipeline, control_offset, digest)]


def service_settings(pipeline: Pipeline) -> tuple[dict[str, str], str]:
    """Spark settings and driver memory of compaction and clustering: the write jobs', unless they have their own."""
    write, services = pipeline.write, pipeline.table_services
    if services is None:
        return write.conf, write.driver_memory
    return {**write.conf, **services.conf}, services.driver_memory or write.driver_memory


def _spark_submit(master: str, user: Mapping[str, str], driver_memory: str) -> list[str]:
    conf = spark_conf(master, user, PrivateSettings.from_environment().conf)
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    # Beside this Python where PATH doesn't name one: an environment needn't be activated.
    program = shutil.which("spark-submit") or str(Path(sys.executable).with_name("spark-submit"))
    return [program, "--master", master, "--driver-memory", driver_memory, *options]


def driver_environment(
    source: KafkaSettings, control: KafkaSettings, master: str = "", connections: Iterable[KafkaSettings] = ()
) -> dict[str, str]:
    """The environment of spark-submit and its driver: this process's own, Kafka's settings, and paths.

    The driver inherits this process's private settings (`sluice.private`).

    The driver finds the package whether it is installed or lies in the plugins folder, Java where the coordinator finds
    it, and, unless the worker has its own Spark on its path, the `spark-submit` beside this Python.
    """
    package = str(runtime.packages())
    scripts = str(Path(sys.executable).parent)
    return {
        "PYSPARK_PYTHON": sys.executable,
        # The JVM that only puts spark-submit's command line together: 0.4 s of CPU in place of 0.7 s.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **driver_address(master),
        **os.environ,
        "JAVA_HOME": str(runtime.java_home()),
        "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), scripts]),
        "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
        **source.to_environment("source"),
        **control.to_environment("control"),
        **connections_to_environment(connections),
    }
