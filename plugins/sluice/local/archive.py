"""Class-data-sharing archives of the three kinds of JVM, made by running real intervals once after the install.

Loading and verifying Spark's and Hudi's classes is most of a small interval's time, and Kafka's half of a broker's
start. A dynamic archive (JEP 350) holds them as the JVM wants them; it fits only the same JVM with the same class path,
which is why it is made on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sluice import runtime
from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.jvm import gateway as hudi_jvm
from sluice.kafka.config import KafkaSettings
from sluice.local.broker import ARCHIVE as BROKER
from sluice.local.broker import LocalBroker
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.local.jars import class_path
from sluice.local.java import java_home
from sluice.local.venv import command, search_path
from sluice.participant.launch.settings import ARCHIVE, spark_conf
from sluice.participant.launch.submit import application_arguments
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source
from sluice.records.settings import Transform

_TOPIC = "archive"
_SCHEMA = "id BIGINT, name STRING, at TIMESTAMP, price DOUBLE, part STRING, flag BOOLEAN"
_VARIABLE = "SLUICE_ARCHIVE_CLASSES"
_MOST_SECONDS = 900  # some 40 on two cores that have nothing else to do


def ensure_archives(home: SluiceHome) -> bool:
    """Make the archives unless they are there for the present jars and Java; True if they were made.

    Raises:
        LocalRuntimeError: the interval failed. Everything works without archives, only slower.
    """
    stamp = home.archive / "stamp"
    jars = [*runtime.jars("spark"), *runtime.jars("coordinator"), *runtime.local_jars(), *class_path(home, "broker")]
    made_for = "\n".join(map(str, [java_home(), *jars]))
    if stamp.exists() and stamp.read_text() == made_for:
        return False
    home.create()
    os.environ["JAVA_HOME"] = str(java_home())  # the archive fits only the JVM that made it
    for left in home.archive.glob("*.new"):
        left.unlink()
    with tempfile.TemporaryDirectory(prefix="sluice-archive-") as scratch:
        broker = LocalBroker(home, data=Path(scratch) / "broker")
        with _archiving(BROKER):
            broker.start()
        try:
            settings = KafkaSettings("archive", {"bootstrap.servers": broker.bootstrap})
            _produce(settings)
            _run_intervals(Path(scratch), settings)
        finally:
            broker.stop()  # it writes its archive now
    for made in home.archive.glob("*.new"):
        made.replace(made.with_suffix(".jsa"))  # at once: JVMs may start meanwhile
    stamp.write_text(made_for)
    return True


def _produce(settings: KafkaSettings) -> None:
    admin = AdminClient(settings.client())  # kept: it must outlive its own answer
    admin.create_topics([NewTopic(_TOPIC, 2)])[_TOPIC].result()
    producer = Producer(settings.client())
    for i in range(2000):
        record = {"id": i % 500, "name": f"n{i}", "at": "2026-01-01T00:00:00Z", "price": i / 7, "part": f"p{i % 2}"}
        producer.produce(_TOPIC, json.dumps(record).encode(), key=str(i % 500).encode())
    producer.flush()


def _pipelines(scratch: Path) -> list[Pipeline]:
    return [
        Pipeline(
            name=operation,
            transforms=(Transform(filter="id IS NOT NULL"),),  # for Spark's analyzer, which START asks about them
            source=Source(kafka=Kafka(topics=(_TOPIC,))),
            sink=Sink(
                hudi=Hudi(
                    path=str(scratch / operation),
                    operation=operation,
                    record_key=("id",),
                    partition_fields=("part",),
                    ordering_field=("price",),
                    schema_=_SCHEMA,
                )
            ),
        )
        for operation in ("append", "upsert")
    ]


def _run_intervals(scratch: Path, settings: KafkaSettings) -> None:
    """Both kinds of interval, all of the coordinator in one JVM and all of the participants in another."""
    with _archiving(hudi_jvm.ARCHIVE), hudi_jvm.lean_jvm() as shared:

        @contextmanager
        def same_jvm() -> Iterator[hudi_jvm.HudiJvm]:
            yield shared

        started: list[tuple[Coordinator, Started]] = []
        for pipeline in _pipelines(scratch):
            coordinator = Coordinator(pipeline, settings, jvm=same_jvm)
            first = coordinator.start(Run(pipeline.name, "superseded"))
            second = coordinator.start(Run(pipeline.name, "archive"))  # rolls the first one back
            if isinstance(first, Outcome) or isinstance(second, Outcome):
                raise LocalRuntimeError(
                    "The archive's topic is empty.", next_step=f"run `{runtime.command('install')}` again."
                )
            started.append((coordinator, second))
        _run_participants(started, settings)
        for coordinator, transaction in started:
            coordinator.commit(transaction.control_offset)
            coordinator.start(Run(coordinator.pipeline.name, "empty"))


def _run_participants(started: list[tuple[Coordinator, Started]], settings: KafkaSettings) -> None:
    with _archiving(ARCHIVE):
        conf = spark_conf("local[2]", {})
        environment = {
            **os.environ,
            **settings.to_environment("source"),
            **search_path(runtime.packages()),
        }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    arguments = json.dumps([application_arguments(c.pipeline, t, 0) for c, t in started])
    application = str(Path(__file__).with_name("archive_application.py"))
    submit = command("spark-submit", "--master", "local[2]", *options, application, arguments)
    try:
        done = subprocess.run(submit, env=environment, capture_output=True, text=True, timeout=_MOST_SECONDS)
    except subprocess.TimeoutExpired as slow:
        raise LocalRuntimeError(
            f"The interval that fills the class-data-sharing archive took more than {_MOST_SECONDS // 60} minutes.",
            next_step=f"run `{runtime.command('install')}` again when less runs on this machine.",
        ) from slow
    if done.returncode != 0:
        raise LocalRuntimeError(
            "The interval that fills the class-data-sharing archive failed.",
            next_step="read the log below; Sluice works without the archive, only slower.",
            detail=done.stdout + done.stderr,
        )


@contextmanager
def _archiving(name: str) -> Iterator[None]:
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
