"""The workload: JSON records of about 200 bytes, and what a table must hold after them.

A record is a pure function of (seed, id, version). An id keeps its Kafka partition and its exchange through
all versions, so that an upsert by key never moves between partitions; a later version has a later ts and
another volume.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 4
EXCHANGES = ("NYSE", "XETRA", "LSE", "TSE")
DESKS = ("equities", "futures", "options", "credit", "rates", "metals", "energy", "fx")
FIRST_TS = 1_700_000_000_000
MASK = (1 << 64) - 1
DDL = "id long, symbol string, ts long, price double, volume long, exchange string, note string, flag boolean"


@dataclass(frozen=True)
class Window:
    """The records with first <= id < last, in one version."""

    first: int
    last: int
    version: int = 0

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class Expected:
    """What a reader must see: rows, as many distinct ids, and the sum of volume, to tell versions."""

    rows: int
    volume: int


def mix(seed: int, number: int) -> int:
    """SplitMix64: 64 well-mixed bits for a number, without state."""
    z = (number * 0x9E3779B97F4A7C15 + seed * 0xD1B54A32D192ED03) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def volume(bits: int, version: int) -> int:
    return (bits >> 8) % 10_000 + 20_000 * version


def record(seed: int, number: int, version: int = 0) -> str:
    """One record's JSON."""
    bits = mix(seed, number)
    symbol = f"{chr(65 + bits % 26)}{chr(65 + (bits >> 5) % 26)}{chr(65 + (bits >> 10) % 26)}{(bits >> 15) % 10}"
    price, desk, lot = (bits >> 20) % 1_000_000 / 100, DESKS[(bits >> 40) & 7], (bits >> 30) % 997
    note = f"order {bits:016x} revision {version}, routed by the {desk} desk, allocation {lot}"
    return (
        f'{{"id":{number},"symbol":"{symbol}","ts":{FIRST_TS + number + version * 86_400_000},'
        f'"price":{price},"volume":{volume(bits, version)},"exchange":"{EXCHANGES[bits >> 62]}",'
        f'"note":"{note}","flag":{"true" if bits & 1 else "false"}}}'
    )


def expected(seed: int, *windows: Window) -> Expected:
    """The table after these windows in this order, with the last version of each id."""
    latest: dict[int, int] = {}
    for window in windows:
        latest.update(dict.fromkeys(range(window.first, window.last), window.version))
    return Expected(len(latest), sum(volume(mix(seed, n), v) for n, v in latest.items()))


def create_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Creates the topic; raises KafkaException if it exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(bootstrap: str, topic: str, seed: int, window: Window, partitions: int = PARTITIONS) -> float:
    """Sends the window's records, key = id, partition = id modulo partitions; returns their mean bytes.

    Raises RuntimeError unless every one of them was acknowledged and the log has grown by exactly that many.
    """
    before, failures = sum(end_offsets(bootstrap, topic, partitions).values()), 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failures
        failures += error is not None

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "log_level": 3,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
        }
    )
    size = 0
    for number in range(window.first, window.last):
        value = record(seed, number, window.version)
        size += len(value)
        while True:
            try:
                producer.produce(topic, value, str(number), number % partitions, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(120)
    grown = sum(end_offsets(bootstrap, topic, partitions).values()) - before
    if failures or grown != len(window):
        raise RuntimeError(f"{topic}: {len(window)} records sent, {failures} refused, the log grew by {grown}")
    return size / max(1, len(window))


def write_files(folder: Path, seed: int, window: Window, files: int) -> float:
    """Writes the window's records as JSON lines into so many files; returns their mean bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for number in range(files):
        first, last = (window.first + len(window) * n // files for n in (number, number + 1))
        with (folder / f"{window.version}-{number:05}.json").open("w") as file:
            for one in range(first, last):
                size += file.write(record(seed, one, window.version) + "\n")
    return size / max(1, len(window))


def end_offsets(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> dict[int, int]:
    """The end offset of each partition, asked of the broker; waits while a new topic is without leaders."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 3})
    deadline = time.monotonic() + 30
    try:
        while True:
            try:
                return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in range(partitions)}
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
    finally:
        consumer.close()
