"""Sluice's own commands, in the one place where they are written down."""

from __future__ import annotations

import json
import sys
import uuid
from typing import TYPE_CHECKING

import yaml

from bench.database import TABLE
from bench.records import DDL, PARTITIONS
from sluice.connectors.connections import ConnectionSettings, to_environment
from sluice.coordinator import Started
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import submit_command
from sluice.pipeline import load_pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from bench.participants import Job

CONNECTION = "bench"


def sluice_commands(job: Job) -> list[list[str]]:
    """The argv of each process of one interval, in order: start first, commit last, the write between them.

    They are what the DAG's tasks run, without Airflow round them, as the peers run without it. Each run has a separate
    control topic, so START-COMMIT is at offset 0 and the later commands are known beforehand.
    """
    file = pipeline_file(job)
    pipeline = load_pipeline(file)
    settings = KafkaSettings(CONNECTION, {"bootstrap.servers": job.bootstrap})
    environment = [f"{name}={value}" for name, value in settings.to_environment("source").items()]
    if job.database:
        warehouse = ConnectionSettings("bench", "jdbc", host=job.database)
        environment += [f"{name}={value}" for name, value in to_environment([warehouse]).items()]
    step = ["env", *environment, sys.executable, "-m", "sluice.cli", "interval"]
    start = [*step, "start", str(file)]
    if job.scenario == "empty" and job.run != "seed":
        return [start]
    write = submit_command(pipeline, Started("", 0, ()), 0, job.master)
    return [start, ["env", *environment, *write], [*step, "commit", str(file), "--control-offset", "0"]]


def _source(job: Job) -> dict[str, object]:
    if job.folder:
        of_log = {"log": f"files-{uuid.uuid4()}", "splits": PARTITIONS}
        return {"files": {"path": job.folder, "min_age": "0 seconds", **of_log}}
    starting = "earliest" if job.starting is None else {job.topic: job.starting}
    return {"kafka": {"topics": job.topic, "starting_offsets": starting, "max_records": 1_000_000_000}}


def _sink(job: Job) -> dict[str, object]:
    if job.scenario == "jdbc":
        return _jdbc()
    return _files(job) if job.scenario == "files" else _hudi(job)


def _hudi(job: Job) -> dict[str, object]:
    return {
        "hudi": {
            "path": str(job.table),
            "operation": "upsert" if job.operation == "upsert" else "append",
            "record_key": "id",
            "partition_fields": "exchange",
            "ordering_field": "ts",
            "key_placement": "trusted",  # bench.records puts an id into a partition that it chooses
            "schema": DDL,
        }
    }


def _files(job: Job) -> dict[str, object]:
    """As the peer (c) writes them: the same format, codec and folders."""
    form = {"format": "parquet", "codec": "zstd", "partitioner": "field", "partition_fields": ["exchange"]}
    return {"files": {"path": str(job.table), "schema": DDL, **form}}


def _jdbc() -> dict[str, object]:
    return {"jdbc": {"connection": "bench", "table": TABLE, "auto_create": True, "schema": DDL}}


def pipeline_file(job: Job, name: str = "bench", **write: object) -> Path:
    """Write the pipeline's file. `write`: further keys of its section of this name."""
    pipeline = {
        "name": name,
        "source": _source(job),
        "sink": _sink(job),
        "write": {"ranges": 1, "driver_memory": job.driver_memory, **write},
        "control": {"topic": f"control-{uuid.uuid4()}", **({"connection": CONNECTION} if job.folder else {})},
    }
    file = job.home / f"{job.run}.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(pipeline))))
    return file
