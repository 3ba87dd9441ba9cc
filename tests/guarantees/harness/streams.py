"""A pipeline over streams of several clusters: real brokers, and the file that says what is where."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from sluice.kafka.config import KafkaSettings, connections_to_environment

from .flow import Flow, invoke
from .kafka import Sent
from .processes import kafka_settings

MAPPED = ["east", "west", "north", "old", "new", "fresh", "reg_east", "reg_west"]
"""Connections that mappings of the tests may name."""


class Streams:
    """Streams of one flow, whose records are sent to clusters of several brokers.

    Args:
        flow: the pipeline.
        brokers: where each cluster is, by the connection by which it is reached.
    """

    def __init__(self, flow: Flow, **brokers: str) -> None:
        self.flow = flow
        self.topic = ""
        self.sent: dict[tuple[str, str], list[Sent]] = {}
        self.file = flow.folder / f"{flow.topic}-streams.yaml"
        flow.connections = self._settings_of
        self.use(**brokers)

    def use(self, **brokers: str) -> None:
        """The connections that there are from now on."""
        self.brokers = brokers
        known = (kafka_settings(bootstrap, name) for name, bootstrap in brokers.items())
        self.flow.secret_environment.update(connections_to_environment(known))

    def _settings_of(self, connection: str) -> KafkaSettings:
        own = kafka_settings(self.flow.bootstrap, self.flow.connection)
        return kafka_settings(self.brokers[connection], connection) if connection in self.brokers else own

    def map(self, **clusters: Any) -> None:
        """What the stream `orders` has on each cluster: topics, or all that the file says of it."""
        made = {
            name: said if isinstance(said, dict) else {"topics": said, "connection": name}
            for name, said in clusters.items()
        }
        self.answer({"streams": {"orders": {"clusters": made}}})

    def answer(self, said: Any) -> None:
        """What the service says from now on."""
        self.file.write_text(said if isinstance(said, str) else yaml.safe_dump(said))

    def read(self, **settings: Any) -> Flow:
        """Have the pipeline read the stream from now on, rather than topics."""
        self.flow.set(source__kafka__topics=None, source__kafka__streams="orders")
        self.flow.set(source__kafka__metadata={"service": "file", "path": str(self.file)})
        self.flow.set(**{"source__kafka__mapped_connections": MAPPED, **settings})
        return self.flow

    @classmethod
    def from_today(cls, flow: Flow, **brokers: str) -> Streams:
        """A table that was loaded from the flow's own topic, and goes on by streams: also of that name on `west`."""
        streams = cls(flow, **brokers)
        streams.sent["east", flow.topic] = flow.sent
        streams.create("west", flow.topic)
        streams.map(east=flow.topic, west=flow.topic)
        streams.read()
        return streams

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Commands find the connections in the environment for as long as the block lasts."""
        with pytest.MonkeyPatch.context() as patch:
            own = kafka_settings(self.flow.bootstrap, self.flow.connection).to_environment("source")
            for variable, value in {**own, **self.flow.secret_environment}.items():
                patch.setenv(variable, value)
            yield

    def shown(self) -> dict[str, Any]:
        """What `sluice streams` shows, in the test's own process."""
        with self.environment():
            result = invoke("streams", str(self.flow.file), "--json")
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    @contextmanager
    def at(self, broker: str, topic: str) -> Iterator[Flow]:
        """The flow, which sends to a topic of one of the brokers for as long as the block lasts."""
        flow = self.flow
        before = flow.bootstrap, flow.topic, flow.admin, flow.sent
        flow.bootstrap, flow.topic = self.brokers[broker], topic
        flow.admin = AdminClient({"bootstrap.servers": flow.bootstrap, "log_level": 0})
        flow.sent = self.sent.setdefault((broker, topic), [])
        try:
            yield flow
        finally:
            flow.bootstrap, flow.topic, flow.admin, flow.sent = before

    def create(self, broker: str, topic: str, partitions: int = 2) -> None:
        with self.at(broker, topic) as flow:
            flow.create_topic(partitions)

    def send(self, broker: str, topic: str, count: int, **how: Any) -> None:
        with self.at(broker, topic) as flow:
            flow.produce(count, **how)

    def rows_of(self, *logs: tuple[str, str], but_not: Callable[[Sent], bool] = lambda _sent: False) -> Counter[Any]:
        """The rows of all records of some logs."""
        return Counter((s.id, s.value) for log in logs for s in self.sent[log] if not but_not(s))

    def check(self, *logs: tuple[str, str], but_not: Callable[[Sent], bool] = lambda _sent: False) -> None:
        """The table has the rows of these logs' records, of each once."""
        wanted = self.rows_of(*logs, but_not=but_not)
        for metadata in (True, False):
            seen = self.flow.rows(metadata=metadata)
            assert seen == wanted, f"too many: {list(seen - wanted)[:5]}; missing: {list(wanted - seen)[:5]}"


def two_clusters(streams: Streams, partitions: int = 2) -> Streams:
    """Have the stream on `east` and `west`, in a topic of the same name."""
    topic = f"{streams.flow.topic}-orders"
    for broker in ("east", "west"):
        streams.create(broker, topic, partitions)
    streams.topic = topic
    streams.map(east=topic, west=topic)
    streams.read()
    return streams
