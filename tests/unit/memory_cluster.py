"""librdkafka's cluster in memory, to which real clients connect: it answers in milliseconds, and needs no broker.

It answers producers and consumers, and requests for offsets, but not those for a topic's configuration, its id or the
cluster's controller. Topics come to be when they are asked for, with four partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from sluice.kafka.config import KafkaSettings


@contextmanager
def cluster_in_memory() -> Iterator[KafkaSettings]:
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})  # the cluster lives as long as this
    servers = ",".join(f"{one.host}:{one.port}" for one in owner.list_topics(timeout=10).brokers.values())
    yield KafkaSettings("k", {"bootstrap.servers": servers, "log_level": 0})
    owner.purge()
