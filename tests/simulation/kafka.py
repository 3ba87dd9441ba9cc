"""Kafka in memory: a topic of one or several clusters, which is truncated, compacted, made again, and led by others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sluice.errors import RetryableError
from sluice.protocol.messages import StartCommit
from sluice.protocol.offsets import TopicPartition

if TYPE_CHECKING:
    from .producers import Producers
    from .rows import Shop

CLUSTER = "kafka"
TOPIC = "orders"


Where = tuple[str, int, int, int]
"""A record: its topic's id, partition, offset, and the leader epoch in which it was taken."""


@dataclass(frozen=True)
class Record:
    """A record as it was produced.

    `log` is the id of its topic, `partition` one of the world's, `epoch` that of the leader that took it; `number`
    tells it from all others; `time` is what its producer has written on it, `arrived` when the leader took it.
    """

    log: str
    partition: int
    offset: int
    key: int
    number: int
    time: datetime
    arrived: datetime
    epoch: int = 0

    @property
    def where(self) -> Where:
        """Which record it is, whatever its topic is called."""
        return self.log, self.partition, self.offset, self.epoch


@dataclass
class Log:
    """One partition.

    Attributes:
        records: those that consumers with `read_committed` see, once they come to them.
        cuts: by the leader's epoch where its election has cut the log.
        pending: records of open transactions.
        aborted: records of aborted transactions.
        markers: of ended transactions, by their offsets, with the times at which they were written.
    """

    records: dict[int, Record] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    epoch: int = 0
    cuts: dict[int, int] = field(default_factory=dict)
    pending: dict[int, Record] = field(default_factory=dict)
    aborted: dict[int, Record] = field(default_factory=dict)
    markers: dict[int, datetime] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        """The last stable offset, which consumers with `read_committed` don't pass."""
        return min(self.pending, default=self.end)

    def seen(self, isolation_level: str) -> tuple[dict[int, Record], int]:
        """The records that a consumer gets, and the offset up to which it does."""
        if isolation_level == "read_committed":
            return self.records, self.stable
        return self.records | self.pending | self.aborted, self.end


@dataclass(eq=False)
class Cluster:
    """A Kafka cluster, which has the topic.

    Attributes:
        connection: by which it is reached, whatever it is called.
        first: the number among the world's of its first partition.
        partitions: how many it has.
        id: Kafka's own, as long as it isn't another cluster that is found there.
        log_id: that of the topic.
        is_up: whether it answers.
        has_producers: whether records are sent to it.
    """

    connection: str
    first: int
    partitions: int
    id: str
    log_id: str = ""
    is_up: bool = True
    has_producers: bool = True

    @property
    def numbers(self) -> range:
        """Its partitions' numbers among the world's."""
        return range(self.first, self.first + self.partitions)

    def answer(self, what: Callable[[], Any]) -> Any:
        """What it says, if it says anything.

        Raises:
            RetryableError: it is down.
        """
        if not self.is_up:
            raise RetryableError(f"{self.connection} can't be reached.", next_step="try again.")
        return what()


class Topic:
    """The topic that is loaded, and what was ever produced to it. Partitions are counted through all clusters."""

    random: random.Random
    clock: datetime

    def __init__(self) -> None:
        self.clusters: list[Cluster] = []
        self.made = 0  # topics, and clusters that are other ones than before
        self.logs: list[Log] = []
        self.produced: dict[Where, Record] = {}
        self.excused: set[Where] = set()  # gone before they were rows
        self.kept: set[Where] = set()  # rows whose log is gone, or was cut off before them: nothing may take them off
        self.shop: Shop | None = None  # who writes, where the source is a table of a database
        self.producers: Producers | None = None  # who writes, where records are sent in Kafka transactions
        self.taken: list[Record] = []  # all that brokers ever took, also in transactions that were not committed
        self.elects = False  # whether partitions come to have other leaders
        self.cut: set[Where] = set()  # records that an election has taken off their log
        self.dates: random.Random | None = None  # draws dates that records have by mistake, if any have

    def _rows_for_good(self) -> set[Where]:
        """Records that are rows of commits which stand."""
        raise NotImplementedError

    def add_cluster(self, connection: str, partitions: int) -> Cluster:
        """A cluster with the topic."""
        cluster = Cluster(connection, len(self.logs), partitions, f"cluster-{len(self.clusters)}")
        self.clusters.append(cluster)
        self.logs += [Log() for _ in range(partitions)]
        self.make_topic(cluster)
        return cluster

    def make_topic(self, cluster: Cluster) -> None:
        """Make a cluster's topic, or make it again."""
        self._gone(r.where for r in self.produced.values() if r.log == cluster.log_id)
        self.kept |= self._rows_for_good()
        self.made += 1
        cluster.log_id = f"topic{self.made}"
        for number in cluster.numbers:
            self.logs[number] = Log()

    def cluster_of(self, partition: int) -> Cluster:
        """The cluster that has a partition."""
        return next(c for c in self.clusters if partition in c.numbers)

    def cluster_at(self, connection: str) -> Cluster:
        """The cluster that is reached by a connection."""
        return next(c for c in self.clusters if c.connection == connection)

    def log_ids(self) -> list[str]:
        """By partition the id of the topic that is there now."""
        return [cluster.log_id for cluster in self.clusters for _ in cluster.numbers]

    def place_of(self, partition: int) -> TopicPartition:
        """What a partition is called where each cluster has the name of its connection."""
        cluster = self.cluster_of(partition)
        return TopicPartition(cluster.connection, TOPIC, partition - cluster.first)

    def number_of(self, start: StartCommit, tp: TopicPartition) -> int:
        """The partition that an interval's START-COMMIT means."""
        connection = start.streams.clusters[tp.cluster].connection if start.streams else tp.cluster
        return self.cluster_at(connection).first + tp.partition

    def produce(self, count: int, keys: int) -> None:
        """Some records, each key always to the same partition."""
        self.send(self.random.randrange(keys) for _ in range(count))

    def send(self, keys: Iterable[int]) -> None:
        """A record of each key."""
        if self.shop is not None:
            self.shop.insert([(self._sent_to(key), key) for key in keys])
            return
        if self.producers is not None:
            self.producers.send(keys)
            return
        for key in keys:
            self.publish(self.take(key))

    def take(self, key: int) -> Record:
        """A record of a key, at the end of its log; consumers see it once it is published."""
        partition = self._sent_to(key)
        log, log_id = self.logs[partition], self.cluster_of(partition).log_id
        self.clock += timedelta(milliseconds=5)
        record = Record(log_id, partition, log.end, key, len(self.taken), self._date(), self.clock, log.epoch)
        self.taken.append(record)
        log.end += 1
        return record

    def publish(self, record: Record) -> None:
        """Let consumers see a record."""
        self.logs[record.partition].records[record.offset] = record
        self.produced[record.where] = record

    def _date(self) -> datetime:
        if self.dates is None or self.dates.random() < 0.8:
            return self.clock
        return self.clock + timedelta(seconds=self.dates.choice((-(10**9), -90_000, -400, 30, 400, 90_000, 10**9)))

    def _sent_to(self, key: int) -> int:
        """A key's partition; another cluster's once its producers have been switched over."""
        partition = key % len(self.logs)
        if self.cluster_of(partition).has_producers:
            return partition
        others = [number for cluster in self.clusters if cluster.has_producers for number in cluster.numbers]
        return others[key % len(others)]

    def skip_offsets(self, partition: int, count: int) -> None:
        """Offsets without records, as the markers of transactions take."""
        self.logs[partition].end += count

    def delete_before(self, partition: int, offset: int) -> None:
        """Retention."""
        log = self.logs[partition]
        log.start = max(log.start, min(offset, log.end))
        for unread in (log.pending, log.aborted, log.markers):
            for gone in [o for o in unread if o < log.start]:
                del unread[gone]
        self._gone(log.records.pop(offset).where for offset in [o for o in log.records if o < log.start])

    def elect(self, partition: int, lacks: int) -> None:
        """Another leader, which lacks the last offsets of the log: others come to stand there."""
        log, log_id = self.logs[partition], self.cluster_of(partition).log_id
        log.epoch += 1
        end = max(log.start, log.end - lacks)
        log.records = {offset: record for offset, record in log.records.items() if offset < end}
        log.end = log.cuts[log.epoch] = end
        here = (r for r in self.produced.values() if (r.log, r.partition) == (log_id, partition))
        gone = {r.where for r in here if r.offset >= end}  # with what Kafka had compacted, which may be rows
        self.kept |= gone & self._rows_for_good()
        self.cut |= gone
        self._gone(gone)

    def rows_are_gone(self, records: set[Where]) -> None:
        """Rows were taken off the table: what Kafka has no more of them may never be rows again.

        A compaction that was taken off with them had merged earlier versions of keys, which weren't rows any more.
        """
        self.kept -= records
        self._gone(where for where in self.produced if not self.holds(where))

    def holds(self, where: Where) -> bool:
        """Whether a record can still be read."""
        log_id, partition, offset, _ = where
        is_there = log_id == self.cluster_of(partition).log_id
        here = self.logs[partition].records.get(offset) if is_there else None
        return here is not None and here.where == where

    def compact(self, partition: int) -> None:
        """Take out a record that a later one of its key replaces, both before the last stable offset."""
        log, stable = self.logs[partition], self.logs[partition].stable
        settled = sorted((r for r in log.records.values() if r.offset < stable), key=lambda r: r.offset)
        last = {r.key: r.offset for r in settled}
        old = [o for o, r in log.records.items() if o < stable and last[r.key] != o]
        if old:
            self._gone([log.records.pop(self.random.choice(old)).where])

    def _gone(self, records: Iterable[Where]) -> None:
        """Kafka has them no more; what isn't a row yet may never be one."""
        self.excused |= set(records) - self._rows_for_good()
