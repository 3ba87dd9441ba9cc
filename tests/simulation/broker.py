"""A cluster whose topic is written in Kafka transactions: the product's own look at it, over a broker in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec
from greenlet import getcurrent

from sluice.kafka.list_offsets import Question
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.redriven import Places
from sluice.sources.kafka import cluster as kafka_cluster
from sluice.sources.kafka.cluster import KafkaCluster
from sluice.sources.kafka.probe import RecordHead

from .kafka import TOPIC, Cluster, Log
from .world import Process, World

_LOOK = 200  # records, as the product's own probe does


@contextmanager
def asked_in(world: World) -> Iterator[None]:
    """Let the product's look at a cluster have the time and the single records of a world."""
    clock = SimpleNamespace(now=lambda _zone: world.clock)
    with (
        mock.patch.object(kafka_cluster, "datetime", clock),
        mock.patch.object(kafka_cluster, "RecordProbe", partial(_Probe, world)),
    ):
        yield


class SimKafka(KafkaCluster):
    """The cluster, as one process asks it; each request is one of the world's calls."""

    def __init__(self, world: World, process: Process, cluster: Cluster, name: str, isolation_level: str) -> None:
        committed = isolation_level == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self.settings: Any = SimpleNamespace(name=name, bootstrap_servers="nowhere:1")
        self._admin: Any = self
        self._world, self._process, self._cluster = world, process, cluster

    def cluster_ids(self) -> dict[str, str | None]:
        return {self.name: self._cluster.id}

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        return (TOPIC,)

    def describe_topics(self, _topics: Any, *, request_timeout: float) -> dict[str, Any]:
        """Where the product's code asks the brokers' administration."""

        def answer() -> Any:
            leader = SimpleNamespace(id=0)
            numbers = range(self._cluster.partitions)
            partitions = [SimpleNamespace(id=number, leader=leader) for number in numbers]
            return SimpleNamespace(topic_id=self._cluster.log_id, partitions=partitions)

        described = self._call("asks Kafka for its topics", answer)
        return {TOPIC: SimpleNamespace(result=lambda: described)}

    def _list_offsets(self, partitions: Sequence[TopicPartition], *questions: Question) -> list[Any]:
        return [self._call("asks Kafka for offsets", partial(self._answers, partitions, one)) for one in questions]

    def _answers(self, partitions: Sequence[TopicPartition], question: Question) -> dict[TopicPartition, Any]:
        producers = self._world.producers
        if producers is not None:
            producers.expire()
        committed = question.isolation == IsolationLevel.READ_COMMITTED
        logs = {tp: self._world.logs[self._cluster.first + tp.partition] for tp in partitions}
        return {tp: _answer(log, question.spec, log.stable if committed else log.end) for tp, log in logs.items()}

    def probe(self) -> Any:
        level = "read_committed" if self._isolation == IsolationLevel.READ_COMMITTED else "read_uncommitted"
        return _Probe(self._world, self.settings, level)

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        return {}

    def sent_again(self, topic: str, table: str) -> Places:
        return Places()

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        pass

    def _call(self, what: str, effect: Callable[[], Any]) -> Any:
        return self._world.call(self._process, what, lambda: self._cluster.answer(effect))


def _answer(log: Log, spec: OffsetSpec, last: int) -> Any:
    """As a broker lists an offset: by times it looks through all batches, also those that few consumers see."""
    if spec is OffsetSpec.earliest() or spec is OffsetSpec.latest():
        return SimpleNamespace(offset=log.start if spec is OffsetSpec.earliest() else last, leader_epoch=None)
    times = {offset: r.time for some in (log.records, log.aborted, log.pending) for offset, r in some.items()}
    dated = sorted((offset, _milliseconds(time)) for offset, time in (times | log.markers).items())
    first = next(((offset, time) for offset, time in dated if time >= spec._value), None)
    if first is None or first[0] >= last:
        return SimpleNamespace(offset=-1, timestamp=-1)
    return SimpleNamespace(offset=first[0], timestamp=first[1])


class _Probe:
    """Single records, as a consumer with an isolation level gets them."""

    def __init__(self, world: World, _settings: Any, isolation_level: str) -> None:
        self._world, self._isolation_level = world, isolation_level
        self._process = next(p for p in world.processes if p.greenlet is getcurrent())

    def __enter__(self) -> _Probe:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def first(
        self, offsets: Mapping[TopicPartition, int], wanted: Callable[[TopicPartition, RecordHead], bool]
    ) -> dict[TopicPartition, RecordHead | None]:
        def heads(tp: TopicPartition) -> Iterator[RecordHead]:
            log = self._world.logs[self._world.cluster_at(tp.cluster).first + tp.partition]
            records, end = log.seen(self._isolation_level)
            from_there = [o for o in sorted(records) if offsets[tp] <= o < end][:_LOOK]
            return (RecordHead(o, _milliseconds(records[o].time), records[o].epoch) for o in from_there)

        def look() -> dict[TopicPartition, RecordHead | None]:
            return {tp: next((head for head in heads(tp) if wanted(tp, head)), None) for tp in offsets}

        found: dict[TopicPartition, RecordHead | None] = self._world.call(
            self._process, "asks Kafka for single records", look
        )
        return found


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)
