"""The intervals that load the classes of the archives: both operations, on a separate broker.

Its arguments are the broker's address and a folder for the tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sluice import runtime
from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.jvm import gateway as hudi_jvm
from sluice.kafka.config import KafkaSettings
from sluice.local.venv import command, search_path
from sluice.participant.launch.settings import ARCHIVE, spark_conf
from sluice.participant.launch.submit import application_arguments
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source
from sluice.records.settings import Transform

_TOPIC = "archive"
_SCHEMA = "id BIGINT, name STRING, at TIMESTAMP, price DOUBLE, part STRING, flag BOOLEAN"
_VARIABLE = "SLUICE_ARCHIVE_CLASSES"
_MOST_SECONDS = 900  # of the participants, some 20 on two cores that have nothing else to do


def run_intervals(settings: KafkaSettings, scratch: Path) -> None:
    """Both kinds of interval, all of the coordinator in one JVM and all of the participants in another."""
    _produce(settings)
    with archiving(hudi_jvm.ARCHIVE), hudi_jvm.lean_jvm() as shared:

        @contextmanager
        def same_jvm() -> Iterator[hudi_jvm.HudiJvm]:
            yield shared

        started: list[tuple[Coordinator, Started]] = []
        for pipeline in _pipelines(scratch):
            coordinator = Coordinator(pipeline, settings, jvm=same_jvm)
            first = coordinator.start(Run(pipeline.name, "superseded"))
            second = coordinator.start(Run(pipeline.name, "archive"))  # rolls the first one back
            if isinstance(first, Outcome) or isinstance(second, Outcome):
                sys.exit("The archive's topic is empty.")
            started.append((coordinator, second))
        _run_participants(started, settings)
        for coordinator, transaction in started:
            coordinator.commit(transaction.control_offset)
            coordinator.start(Run(coordinator.pipeline.name, "empty"))


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


def _run_participants(started: list[tuple[Coordinator, Started]], settings: KafkaSettings) -> None:
    with archiving(ARCHIVE):
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
    done = subprocess.run(submit, env=environment, capture_output=True, text=True, timeout=_MOST_SECONDS)
    if done.returncode != 0:
        sys.exit(f"The participants failed.\n{done.stdout}{done.stderr}")


@contextmanager
def archiving(name: str) -> Iterator[None]:
    """JVMs that start meanwhile write the archive of this name when they end."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


if __name__ == "__main__":
    run_intervals(KafkaSettings("archive", {"bootstrap.servers": sys.argv[1]}), Path(sys.argv[2]))
