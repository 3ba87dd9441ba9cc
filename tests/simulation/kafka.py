"""Kafka in memory: one topic, which is truncated, compacted, made again, and comes to have other leaders."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

CLUSTER = "kafka"
TOPIC = "orders"


Where = tuple[str, int, int, int]
"""A record: its topic's id, partition, offset, and the leader epoch in which it was taken."""


@dataclass(frozen=True)
class Record:
    """A record as it was produced.

    `log` is the id of its topic, `epoch` that of the leader that took it; `number` tells it from all others.
    """

    log: str
    partition: int
    offset: int
    key: int
    number: int
    time: datetime
    epoch: int = 0

    @property
    def where(self) -> Where:
        """Which record it is, whatever its topic is called."""
        return self.log, self.partition, self.offset, self.epoch


@dataclass
class Log:
    """One partition."""

    records: dict[int, Record] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    epoch: int = 0


class Topic:
    """The topic that is loaded, and what was ever produced to it."""

    random: random.Random
    clock: datetime

    def __init__(self) -> None:
        self.cluster_id = "cluster-0"
        self.topic_number = 0
        self.logs: list[Log] = []
        self.produced: dict[Where, Record] = {}
        self.excused: set[Where] = set()  # gone before they were rows
        self.kept: set[Where] = set()  # rows whose log is gone, or was cut off before them: nothing may take them off
        self.elects = False  # whether partitions come to have other leaders
        self.cut: set[Where] = set()  # records that an election has taken off their log

    def _rows_for_good(self) -> set[Where]:
        """Records that are rows of commits which stand."""
        raise NotImplementedError

    @property
    def log_id(self) -> str:
        """The id of the topic that is there now."""
        return f"topic-{self.topic_number}"

    def make_topic(self, partitions: int) -> None:
        """Make the topic, or make it again."""
        self._gone(self.produced)
        self.kept |= self._rows_for_good()
        self.topic_number += 1
        self.logs = [Log() for _ in range(partitions)]

    def produce(self, count: int, keys: int) -> None:
        """Some records, each key always to the same partition."""
        self.send(self.random.randrange(keys) for _ in range(count))

    def send(self, keys: Iterable[int]) -> None:
        """A record of each key."""
        for key in keys:
            partition = key % len(self.logs)
            log = self.logs[partition]
            self.clock += timedelta(milliseconds=5)
            record = Record(self.log_id, partition, log.end, key, len(self.produced), self.clock, log.epoch)
            log.records[log.end] = record
            self.produced[record.where] = record
            log.end += 1

    def skip_offsets(self, partition: int, count: int) -> None:
        """Offsets without records, as the markers of transactions take."""
        self.logs[partition].end += count

    def delete_before(self, partition: int, offset: int) -> None:
        """Retention."""
        log = self.logs[partition]
        log.start = max(log.start, min(offset, log.end))
        self._gone(log.records.pop(offset).where for offset in [o for o in log.records if o < log.start])

    def elect(self, partition: int, lacks: int) -> None:
        """Another leader, which lacks the last offsets of the log: others come to stand there."""
        log = self.logs[partition]
        log.epoch += 1
        end = max(log.start, log.end - lacks)
        log.records = {offset: record for offset, record in log.records.items() if offset < end}
        log.end = end
        here = (r for r in self.produced.values() if (r.log, r.partition) == (self.log_id, partition))
        gone = {r.where for r in here if r.offset >= end}  # with what Kafka had compacted, which may be rows
        self.kept |= gone & self._rows_for_good()
        self.cut |= gone
        self._gone(gone)

    def holds(self, where: Where) -> bool:
        """Whether a record can still be read."""
        log_id, partition, offset, _ = where
        here = self.logs[partition].records.get(offset) if log_id == self.log_id else None
        return here is not None and here.where == where

    def compact(self, partition: int) -> None:
        """Take out a record that a later one of its key replaces."""
        log = self.logs[partition]
        last = {r.key: r.offset for r in log.records.values()}
        old = [o for o, r in log.records.items() if last[r.key] != o]
        if old:
            self._gone([log.records.pop(self.random.choice(old)).where])

    def _gone(self, records: Iterable[Where]) -> None:
        """Kafka has them no more; what isn't a row yet may never be one."""
        self.excused |= set(records) - self._rows_for_good()
