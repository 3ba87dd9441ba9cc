"""The log of a table: a topic with one partition, in which offsets and intervals stand in the order of their commits.

Whoever writes to it takes the table's transactional id first, which ends what others have begun, and then reads it to
its end. Its keys come round, so that compaction keeps the newest intervals and the file stays small:

- `open:<instant>` an interval that is under way; without a value when it has ended;
- `commit:<slot>` a committed interval, numbered from 1, of which the last `KEPT` have slots.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, kafka_errors
from sluice.kafka.transactional import TIMEOUT, Record

KEPT: Final = 256
"""Committed intervals that are remembered."""
NOTHING: Final = "nothing"
"""In place of a way of writing: no interval has written any record yet."""
CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "86400000", "min.cleanable.dirty.ratio": "0.2"}
_VERSION: Final = 1
_PATIENCE: Final = 5.0  # seconds; brokers write what ends a decided transaction in milliseconds
_OPEN, _COMMIT = "open:", "commit:"


@dataclass(frozen=True)
class Open:
    """An interval that is under way.

    Attributes:
        instant: the transaction.
        rests_on: the instant of the last commit when it was planned; None where there was none.
    """

    instant: str
    rests_on: str | None


@dataclass(frozen=True)
class Commit:
    """A committed interval.

    Attributes:
        number: its place among all, from 1.
        instant: the transaction.
        completed: when it was sent, as instants are written.
        records: records with a value that it has sent.
        tombstones: records without one.
        bytes: of keys and values.
        extra: what the coordinator has given: offsets and its note.
        topics: how many records each topic has got.
        spans: between which offsets of each topic's partitions they are: partition, first offset, and the first one
            that is none of them; empty where there would be too many, and in what earlier builds have written.
        written: tells ways of writing records apart (`sluice.sinks.kafka.names.way_of_writing`).
        since: the number of the first of the commits before it that were all written in the same way; 0 if unknown.
    """

    number: int
    instant: str
    completed: str
    records: int
    tombstones: int
    bytes: int
    extra: Mapping[str, str]
    topics: Mapping[str, int] = field(default_factory=dict)
    spans: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    written: str = ""
    since: int = 0


class TableLog:
    """The log, read on from where it was read before.

    Args:
        settings: the target cluster.
        topic: the log's topic.
        patience: how long to wait for a transaction that is open in it, in seconds.
        timeout: how long Kafka may take to answer, in seconds.
        newest: how many of its last offsets to read; None for all.

    Raises (all methods):
        RetryableError: Kafka doesn't answer.
        ActionRequiredError: the topic may not be read, or has something else in it.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        patience: float = _PATIENCE,
        timeout: float = TIMEOUT,
        newest: int | None = None,
    ) -> None:
        self._settings, self._topic = settings, topic
        self._patience, self._timeout, self._newest = patience, timeout, newest
        self._where = {"topic": topic, "connection": settings.name}
        self._consumer: Consumer | None = None
        self._admin: AdminClient | None = None
        self._position = 0
        self._hanging = -1
        self.opened: dict[str, Open] = {}
        self._commits: dict[str, Commit] = {}
        self.is_whole = True  # whether nothing of it was left out

    @property
    def commits(self) -> list[Commit]:
        """The committed intervals that are remembered, newest first."""
        return sorted(self._commits.values(), key=lambda one: one.number, reverse=True)

    @property
    def last(self) -> Commit | None:
        """The newest committed interval."""
        return max(self._commits.values(), key=lambda one: one.number, default=None)

    def find(self, instant: str) -> Commit | None:
        """A committed interval; None if it isn't, or isn't remembered any more."""
        return next((one for one in self._commits.values() if one.instant == instant), None)

    def since(self, written: str) -> int:
        """From which commit on all were written in a way that the next one is, too."""
        last = self.last
        if last is None:
            return 1
        return last.since if last.since and last.written in (written, NOTHING) else last.number + 1

    def read(self) -> TableLog:
        """Read what has come since; records of a transaction that is open don't count.

        `commit_transaction` returns when the commit is decided, and consumers see it a moment later. So this waits for
        transactions that are in the log to end, `_PATIENCE` long: a process that died in one leaves it open. Whoever
        writes knows more: taking the transactional id ends it.
        """
        consumer = self._reader()
        end, stable = self._end(IsolationLevel.READ_UNCOMMITTED), self._end(IsolationLevel.READ_COMMITTED)
        began = time.monotonic()
        while self._position < end:
            waited = time.monotonic() - began
            if self._position >= stable and (end == self._hanging or waited >= self._patience):
                stable = self._end(IsolationLevel.READ_COMMITTED)
                if self._position >= stable:
                    self._hanging = end  # the next look needn't wait for the same
                    break
            if waited > self._timeout:
                raise RetryableError(
                    "The sink's log could not be read to its end in time.",
                    next_step="the step is retried.",
                    position=self._position,
                    end=end,
                    **self._where,
                )
            record = consumer.poll(0.05 if self._position >= stable else 1)
            if record is None:
                continue
            error, offset = record.error(), record.offset()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._position = max(self._position, offset if offset is not None else 0)
            elif error is not None and not error.retriable():
                raise classify(error, "reading the sink's log", **self._where)
            elif error is None:
                self._take(record.key(), record.value())
                self._position = (offset or 0) + 1
        return self

    def _reader(self) -> Consumer:
        if self._consumer is None:
            partition = KafkaTopicPartition(self._topic, 0)
            self._consumer = Consumer(
                self._settings.client(
                    group_id=f"sluice-reader-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                    enable_auto_commit=False,
                    enable_partition_eof=True,
                    auto_offset_reset="error",
                    isolation_level="read_committed",
                    fetch_wait_max_ms=50,
                )
            )
            with kafka_errors("asking for the log's offsets", **self._where):
                first, end = self._consumer.get_watermark_offsets(partition, self._timeout)
            self._position = first if self._newest is None else max(first, end - self._newest)
            self.is_whole = self._position == first
            self._consumer.assign([KafkaTopicPartition(self._topic, 0, self._position)])
            self._admin = AdminClient(self._settings.client(socket_timeout_ms=int(self._timeout * 1000)))
        return self._consumer

    def _end(self, isolation: IsolationLevel) -> int:
        """The log's end for a consumer of that isolation."""
        assert self._admin is not None
        wanted = KafkaTopicPartition(self._topic, 0)
        with kafka_errors("asking for the log's end", **self._where):
            asked = self._admin.list_offsets(
                {wanted: OffsetSpec.latest()}, isolation_level=isolation, request_timeout=self._timeout
            )
            return int(next(iter(asked.values())).result().offset)

    def close(self) -> None:
        """End the client."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = self._admin = None

    # What is written

    def record_of_open(self, instant: str, rests_on: str | None) -> Record:
        """That an interval is under way."""
        return self._record(f"{_OPEN}{instant}", asdict(Open(instant, rests_on)))

    def record_of_end(self, instant: str) -> Record:
        """That an interval isn't under way any more."""
        return Record(self._topic, f"{_OPEN}{instant}".encode(), None, partition=0)

    def record_of_commit(self, commit: Commit) -> Record:
        """That an interval is committed."""
        return self._record(f"{_COMMIT}{commit.number % KEPT}", asdict(commit))

    def _record(self, key: str, value: Mapping[str, Any]) -> Record:
        return Record(self._topic, key.encode(), json.dumps({"version": _VERSION, **value}).encode(), partition=0)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        try:
            name = (key or b"").decode()
            if name.startswith(_OPEN):
                self.opened.pop(name, None)
                if value is not None:
                    self.opened[name] = Open(**_fields(value))
            elif name.startswith(_COMMIT) and value is not None:
                self._commits[name] = Commit(**_fields(value))
            else:
                raise ValueError(f"a record of another kind, {name[:40]!r}")
        except (ValueError, TypeError, KeyError) as error:
            raise ActionRequiredError(
                "The sink's log has a record in it that this release can't read.",
                next_step="find who else writes to this topic, or use the release that wrote it; without the log "
                "nobody knows which offsets are in the topics.",
                reason=f"{type(error).__name__}: {error}"[:300],
                **self._where,
            ) from error

    def is_open(self, instant: str) -> Open | None:
        """An interval that is under way; None if it isn't."""
        return self.opened.get(f"{_OPEN}{instant}")


def _fields(value: bytes) -> dict[str, Any]:
    found = json.loads(value)
    version = found.pop("version")
    if version != _VERSION:
        raise ValueError(f"version {version}")
    return dict(found)
