"""What the tests of bad records share: pipelines that tolerate them, and readers of what was set aside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition

from .harness import Flow

TOLERANT = {"sink__hudi__record_key": "id", "errors__tolerance": "all"}


def folder(flow: Flow) -> Path:
    return Path(f"{flow.path}_quarantine")


def quarantine(flow: Flow, *, metadata: bool = True) -> list[dict[str, Any]]:
    """The rows of the quarantine as a reader sees them, by place."""
    found = []
    for file in flow.jvm.files(str(folder(flow)), metadata=metadata):
        found += pq.read_table(file, partitioning=None).to_pylist()
    return sorted(found, key=lambda row: (row["kafka_partition"], row["kafka_offset"], row["_hoodie_commit_time"]))


def places(rows: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["kafka_partition"], row["kafka_offset"]) for row in rows]


def files_there(flow: Flow) -> list[Path]:
    """The data files that lie in the quarantine's folders, registered or not."""
    return [f for f in folder(flow).glob("*/*.parquet") if not f.name.startswith(".")]


def markers_there(flow: Flow) -> list[Path]:
    return list((folder(flow) / ".hoodie" / ".temp").rglob("*.marker.*"))


def send(flow: Flow, value: bytes | None, partition: int = 0, **more: Any) -> int:
    """One record with all that it may carry; returns its offset."""
    offsets: list[int] = []
    config = more.pop("config", {})
    producer = Producer({"bootstrap.servers": flow.bootstrap, "log_level": 0, **config})
    producer.produce(
        flow.topic, value, partition=partition, on_delivery=lambda _, message: offsets.append(message.offset()), **more
    )
    assert producer.flush(60) == 0
    return offsets[0]


def consume(flow: Flow, topic: str, partition: int = 0) -> list[Any]:
    """All records of a partition that a read_committed consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": flow.bootstrap,
            "group.id": "read",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    found = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            record = consumer.poll(30)
            assert record is not None, f"{topic} did not come to its end"
            if record.error():
                return found
            found.append(record)
    finally:
        consumer.close()
