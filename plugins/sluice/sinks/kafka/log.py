"""The log of a table: a topic with one partition, which holds offsets and intervals in the order of their commits.

Before writing to it, a process takes the table's transactional id, which fences earlier writers, and then reads the
log to its end. Keys are reused, so that compaction keeps only the newest intervals and the topic stays small:

- `open:<instant>` a pending interval; a record without a value when it has ended;
- `commit:<slot>` a committed interval, numbered from 1; there are slots for the last `KEPT`.

If the connection has a secret (`sluice.control.secret`), each record is signed with it, like control messages
(`sluice.protocol.notes`). After the first signed record, unsigned records and copies of earlier commits don't count.
Such a record may still cause compaction to remove one that counts: under the key of the next commit it stops the table.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pydantic import ConfigDict, TypeAdapter, ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, kafka_errors
from sluice.kafka.topic_id import PresentTopicId, topic_id_of
from sluice.kafka.transactional import TIMEOUT, Record
from sluice.logs import log as story
from sluice.protocol.notes import SignedNotes
from sluice.protocol.signing import Headers
from sluice.sinks.kafka.identity import NotedLife
from sluice.untrusted import first_mistake, json_of

KEPT: Final = 256
"""How many committed intervals the log keeps."""
NOTHING: Final = "nothing"
"""A value of `Commit.written`: no interval has written any record yet."""
CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "86400000", "min.cleanable.dirty.ratio": "0.2"}
_VERSION: Final = 1
_PATIENCE: Final = 5.0  # seconds; brokers write the markers of a decided transaction within milliseconds
_OPEN, _COMMIT = "open:", "commit:"
_AS_WRITTEN = ConfigDict(strict=True, extra="forbid")  # other programs may write to the topic as well


@dataclass(frozen=True)
class Open:
    """A pending interval.

    Attributes:
        instant: the transaction.
        rests_on: the instant of the last commit when the interval was planned; None if there was none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _AS_WRITTEN

    instant: str
    rests_on: str | None


@dataclass(frozen=True)
class Commit:
    """A committed interval.

    Attributes:
        number: its number among all commits, from 1.
        instant: the transaction.
        completed: the time of sending, in the format of instants.
        records: the number of its records with a value.
        tombstones: the number of its records without a value.
        bytes: the size of all keys and values.
        extra: the coordinator's metadata: offsets and its note.
        topics: the number of records sent to each topic.
        spans: the range of offsets that contains the records, for each topic and partition: partition, first offset,
            and end offset (exclusive); empty if there would be too many, and in commits of earlier builds.
        written: identifies the way in which records were written (`sluice.sinks.kafka.options.names.way_of_writing`).
        since: the number of the first commit from which on all were written in the same way; 0 if unknown.
        targets: the id and the number of partitions of each topic ever written to, at the time of its last record;
            empty in commits of earlier builds.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _AS_WRITTEN

    number: int
    instant: str
    completed: str
    records: int
    tombstones: int
    bytes: int
    extra: Mapping[str, str]
    topics: Mapping[str, int] = field(default_factory=dict)
    spans: Mapping[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    written: str = ""
    since: int = 0
    targets: Mapping[str, NotedLife] = field(default_factory=dict)


class TableLog:
    """The log; each read continues after the last one.

    Args:
        settings: the target cluster.
        topic: the log's topic.
        patience: how long to wait for an open transaction in the log to end, in seconds.
        timeout: how long Kafka may take to answer, in seconds.
        newest: how many of the log's last offsets to read; None for all.

    Raises (all methods):
        RetryableError: Kafka doesn't answer.
        ActionRequiredError: access to the topic is denied, or it contains a record of another kind.
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
        self._consumer: AssignedConsumer | None = None
        self._admin: AdminClient | None = None
        self._notes = SignedNotes(topic, settings.control_secrets, self._tell, PresentTopicId(self._ask_for_id))
        self._last_at = -1
        self._left_out: dict[str, int] = {}
        self._position = 0
        self._hanging = -1
        self.opened: dict[str, Open] = {}
        self._commits: dict[str, Commit] = {}
        self.is_whole = True  # whether the log was read from its beginning

    @property
    def commits(self) -> list[Commit]:
        """The committed intervals that the log keeps, newest first."""
        return sorted(self._commits.values(), key=lambda one: one.number, reverse=True)

    @property
    def last(self) -> Commit | None:
        """The newest committed interval."""
        return max(self._commits.values(), key=lambda one: one.number, default=None)

    def find(self, instant: str) -> Commit | None:
        """A committed interval; None if it isn't committed, or no longer in the log."""
        return next((one for one in self._commits.values() if one.instant == instant), None)

    def since(self, written: str) -> int:
        """The number of the first commit from which on all, including the next one, were written in the given way."""
        last = self.last
        if last is None:
            return 1
        return last.since if last.since and last.written in (written, NOTHING) else last.number + 1

    def read(self) -> TableLog:
        """Read new records; records of open transactions don't count.

        `commit_transaction` returns when the commit is decided, and consumers see it a moment later. So this method
        waits for open transactions in the log to end, at most `_PATIENCE`: a process that died may have left one open.
        Before a write no waiting is needed, since taking the transactional id ends that transaction.

        Raises:
            ActionRequiredError: an unsigned record may have replaced the last commit.
        """
        consumer = self._reader()
        end, stable = self._end(IsolationLevel.READ_UNCOMMITTED), self._end(IsolationLevel.READ_COMMITTED)
        began = time.monotonic()
        while self._position < end:
            waited = time.monotonic() - began
            if self._position >= stable and (end == self._hanging or waited >= self._patience):
                stable = self._end(IsolationLevel.READ_COMMITTED)
                if self._position >= stable:
                    self._hanging = end  # the next read needn't wait for the same transaction
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
                self._take(offset or 0, _bytes(record.key()), record.value(), record.headers() or ())
                self._position = (offset or 0) + 1
        self._require_last_commit()
        return self

    def _reader(self) -> AssignedConsumer:
        if self._consumer is None:
            partition = KafkaTopicPartition(self._topic, 0)
            self._consumer = AssignedConsumer(
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
            if not self.is_whole:  # what was signed before isn't known
                self._notes.require_all()
            self._consumer.assign([KafkaTopicPartition(self._topic, 0, self._position)])
            self._admin = AdminClient(self._settings.client(socket_timeout_ms=int(self._timeout * 1000)))
        return self._consumer

    def _end(self, isolation: IsolationLevel) -> int:
        """The log's end for a consumer with an isolation level."""
        assert self._admin is not None
        wanted = KafkaTopicPartition(self._topic, 0)
        with kafka_errors("asking for the log's end", **self._where):
            asked = self._admin.list_offsets(
                {wanted: OffsetSpec.latest()}, isolation_level=isolation, request_timeout=self._timeout
            )
            return int(next(iter(asked.values())).result().offset)

    def _ask_for_id(self) -> str | None:
        admin = self._admin or AdminClient(self._settings.client(socket_timeout_ms=int(self._timeout * 1000)))
        with kafka_errors("asking for the log's id", **self._where):
            return topic_id_of(admin, self._topic, self._timeout)

    def close(self) -> None:
        """Close the clients."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = self._admin = None

    # What is written

    def record_of_open(self, instant: str, rests_on: str | None) -> Record:
        """The record of a pending interval."""
        return self._record(f"{_OPEN}{instant}", asdict(Open(instant, rests_on)))

    def record_of_end(self, instant: str) -> Record:
        """The record of an interval's end, which removes it from the pending ones."""
        key = f"{_OPEN}{instant}".encode()
        return Record(self._topic, key, None, self._notes.headers(key, b""), partition=0)

    def record_of_commit(self, commit: Commit) -> Record:
        """The record of a committed interval."""
        return self._record(f"{_COMMIT}{commit.number % KEPT}", asdict(commit))

    def _record(self, key: str, value: Mapping[str, Any]) -> Record:
        encoded = json.dumps({"version": _VERSION, **value}).encode()
        return Record(self._topic, key.encode(), encoded, self._notes.headers(key.encode(), encoded), partition=0)

    def _take(self, offset: int, key: bytes, value: str | bytes | None, headers: Headers) -> None:
        try:
            name = key.decode(errors="replace")
            if not self._notes.counts(offset, key, _bytes(value), headers):
                self._leave_out(name, offset)
            elif name.startswith(_OPEN):
                self.opened.pop(name, None)
                if value is not None:
                    self.opened[name] = _read(_OPENS, value)
            elif name.startswith(_COMMIT) and value is not None:
                self._take_commit(name, _read(_COMMITS, value), offset)
            else:
                raise ValueError(f"a record of another kind, {name[:40]!r}")
        except ValueError as error:
            raise ActionRequiredError(
                "The sink's log has a record in it that this release can't read.",
                next_step="find who else writes to this topic, or use the release that wrote it; without the log "
                "the offsets that are in the topics are unknown.",
                reason=_in_words(error),
                **self._where,
            ) from error

    def _take_commit(self, name: str, commit: Commit, offset: int) -> None:
        last = self.last
        if self._notes.asked_for and last is not None and commit.number <= last.number:
            self._leave_out(name, offset)  # a copy: Sluice numbers commits in ascending order
            return
        self._commits[name] = commit
        self._last_at = offset

    def _leave_out(self, name: str, offset: int) -> None:
        self._left_out[name] = offset

    def _tell(self, offset: int, reason: str) -> None:
        story.warning("a record of the sink's log doesn't count", offset=offset, reason=reason, **self._where)

    def _require_last_commit(self) -> None:
        """Check that no discounted record may have replaced the last commit by way of compaction.

        Raises:
            ActionRequiredError: a discounted record has the key of the next commit.
        """
        following = f"{_COMMIT}{(self.last.number + 1 if self.last is not None else 1) % KEPT}"
        offset = self._left_out.get(following)
        if offset is None or offset < self._last_at or not self.is_whole:
            return
        raise ActionRequiredError(
            "The sink's log has a record that isn't signed, or by another secret, or for another topic of this name, "
            "in the place of its next commit: it isn't known whether a commit was there.",
            next_step="if the secret was replaced, put the one before it into sluice.control.secret.previous of the "
            "sink's connection. Else let Sluice alone write to this topic (kafka-acls), and have the pipeline begin a "
            "new log: `log_topic`, and in the source's `starting_offsets` the offsets of its last ACK-COMMIT.",
            offset=offset,
            **self._where,
        )

    def is_open(self, instant: str) -> Open | None:
        """A pending interval; None if it isn't pending."""
        return self.opened.get(f"{_OPEN}{instant}")


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


_Kind = TypeVar("_Kind", Open, Commit)
_OPENS, _COMMITS = TypeAdapter(Open), TypeAdapter(Commit)


def _read(kind: TypeAdapter[_Kind], value: str | bytes) -> _Kind:
    found = json_of(value)
    if not isinstance(found, dict) or found.pop("version", None) != _VERSION:
        raise ValueError("it isn't of the version that this release writes")
    return kind.validate_json(json.dumps(found))  # in strict mode, a dataclass is accepted from JSON, not from a dict


def _in_words(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)[:300]
    return first_mistake(error, "the record")[:300]
