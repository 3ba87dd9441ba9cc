"""Thin partitions, which the driver's client reads, get to the executors of a cluster, and their rows to the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.coordinator import Started
from sluice.kafka.config import KafkaSettings
from sluice.local.broker import LocalBroker
from sluice.local.demo.fingerprint import columns_of, fingerprint, last_versions
from sluice.local.demo.tables import append_table, upsert_table
from sluice.participant.launch.submit import driver_environment, submit_command
from sluice.participant.parts import FEW
from sluice.pipeline import load_pipeline

from .servers import LOOPBACK, SparkCluster

pytestmark = [pytest.mark.kafka, pytest.mark.thorough]

SCHEMA = "id BIGINT, shop STRING, amount DOUBLE, version BIGINT"
PARTITIONS, IDS = FEW + 4, 90
VALUES: list[dict[str, Any]] = [
    {"id": i % IDS, "shop": "ab"[i % IDS % 2], "amount": i / 4, "version": i} for i in range(4 * IDS)
]
KEYS: dict[str, dict[str, Any]] = {
    "append": {"partition_fields": "shop"},
    "upsert": {"record_key": "id", "ordering_field": "version", "key_placement": "trusted"},
}


def _send(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # which is gone with its last name
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in VALUES:
        producer.produce(topic, json.dumps(value).encode(), partition=value["id"] % PARTITIONS)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("operation", KEYS)
def test_what_the_driver_read_is_written_by_an_executor(
    broker: LocalBroker, spark_cluster: SparkCluster, tmp_path: Path, operation: str
) -> None:
    name = f"thin-{operation}-{tmp_path.parent.name}"
    _send(broker.bootstrap, name)
    hudi = {"path": str(tmp_path / "table"), "operation": operation, "schema": SCHEMA, **KEYS[operation]}
    described = {
        "name": name,
        "source": {"kafka": {"topics": name}},
        "sink": {"hudi": hudi},
        "write": {"driver_memory": "512m", "conf": {"spark.executor.memory": "512m"}},
        "control": {"topic": f"control-{name}"},
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(described))
    spark_cluster.await_worker()
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": broker.bootstrap})
    # The executors call the driver back, at an address that this machine may not route to itself.
    environment = {**driver_environment(settings, settings, spark_cluster.url), "SPARK_LOCAL_IP": LOOPBACK}

    def carried_out(*command: str) -> tuple[str, str]:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr

    step = (sys.executable, "-m", "sluice.cli", "interval")
    begun = json.loads(carried_out(*step, "start", str(file), "--run-id", "1")[0])
    offset = int(begun["control_offset"])
    job = submit_command(load_pipeline(file), Started(begun["instant"], offset, ()), 0, spark_cluster.url)
    said = "".join(carried_out(*job))
    assert "one by one" not in said
    outcome = json.loads(carried_out(*step, "commit", str(file), "--control-offset", str(offset))[0])
    assert outcome["records"] == len(VALUES)
    if operation == "append":
        assert append_table(hudi["path"], columns_of(SCHEMA)) == fingerprint(VALUES, columns_of(SCHEMA))
    else:
        expected = fingerprint(last_versions(VALUES, "id", "version"), columns_of(SCHEMA))
        assert upsert_table(hudi["path"], SCHEMA) == expected
    [application] = [a for a in spark_cluster.state()["completedapps"] if begun["instant"] in a["name"]]
    log = spark_cluster.executor_log(application["id"])
    assert "Finished task" in log
    assert f"{name}-0" not in log  # no executor has a consumer
