"""Waits for many ranges at once: one consumer and one thread for each cluster of control topics.

The triggerer is one process, in which hundreds of `write` tasks may wait. A consumer for each would mean hundreds of
connections and threads, and as many readings of the same topic.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from sluice.control.clients import Clients
from sluice.control.presence import Presence
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError, SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify
from sluice.protocol.claims import Verdict, Waiting
from sluice.protocol.transaction import TableLog, Transaction

_POLL = 0.1  # seconds; how soon a new one is noticed
_JUDGE = 0.5  # seconds between two looks at the clock: claims run out by it
_READ_WITHIN = 60.0  # seconds within which the log has to be read up to its end
_IDLE = 60.0  # seconds without anybody who waits; then the connections are closed

Told = Callable[[Verdict | SluiceError], None]


@dataclass(frozen=True)
class Awaited:
    """A range that is waited for.

    Attributes:
        table: the table's id.
        control_topic: where its START-COMMIT stands.
        control_offset: at which offset.
        number: the range's number in the plan.
        workers: the group of workers that is to write it.
        claim_within: seconds within which one has to claim it.
    """

    table: str
    control_topic: str
    control_offset: int
    number: int
    workers: str
    claim_within: float


class _One:
    """One who waits."""

    def __init__(self, awaited: Awaited, told: Told) -> None:
        self.awaited = awaited
        self.told = told
        self.began = time.monotonic()
        self.log = TableLog(awaited.table)
        self.log.position = awaited.control_offset
        self.has_read_to_end = False
        self.waiting = Waiting(awaited.number, awaited.claim_within, time.monotonic)

    def transaction(self) -> Transaction | None:
        return self.log.at(self.awaited.control_offset)


@dataclass
class _Followed:
    """A control topic that is followed, and up to where."""

    control: ControlTopic
    position: int
    waiting: list[_One] = field(default_factory=list)


class Waiters:
    """All who wait for ranges whose control topics are on one cluster.

    Its thread is the only one that touches the consumer. It begins with the first who waits, and ends, with all
    connections, a minute after the last.

    Args:
        settings: the cluster's settings.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._clients = Clients(settings)
        self._lock = threading.Lock()
        self._new: deque[_One] = deque()
        self._gone: deque[_One] = deque()
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting(self, awaited: Awaited, told: Told) -> Iterator[None]:
        """Wait for a range until the block is left.

        Args:
            awaited: the range.
            told: called once, from another thread, with what is to be done, or with why that can't be known.
        """
        one = _One(awaited, told)
        with self._lock:
            self._new.append(one)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sluice-waiters", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            self._gone.append(one)

    def _run(self) -> None:
        followed: dict[str, _Followed] = {}
        try:
            self._follow(followed)
        except Exception as error:
            # Whatever it is: none of those who wait may wait for ever, and the next one begins with a new thread.
            told = error if isinstance(error, SluiceError) else _lost(repr(error), self._settings)
            with self._lock:
                self._thread = None
                left = [one for topic in followed.values() for one in topic.waiting] + list(self._new)
                self._new.clear()
            for one in left:
                one.told(told)

    def _follow(self, followed: dict[str, _Followed]) -> None:
        self._clients = Clients(self._settings)
        consumer = Consumer(
            self._settings.client(
                group_id=f"sluice-reader-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                enable_auto_commit=False,
                auto_offset_reset="error",
                isolation_level="read_uncommitted",
                enable_partition_eof=True,
                fetch_wait_max_ms=500,
            )
        )
        presence = Presence(self._settings)
        idle_since = judged = time.monotonic()
        try:
            while True:
                self._take_in(consumer, followed)
                self._let_go(consumer, followed)
                record = consumer.poll(_POLL)
                changed = record is not None and _take(record, followed, self._settings)
                now = time.monotonic()
                if changed or now - judged >= _JUDGE:
                    judged = now
                    _judge(followed, presence)
                if followed:
                    idle_since = now
                elif now - idle_since >= _IDLE and self._may_end():
                    return
        finally:
            consumer.close()

    def _may_end(self) -> bool:
        with self._lock:
            if self._new:
                return False
            self._thread = None
            return True

    def _take_in(self, consumer: Consumer, followed: dict[str, _Followed]) -> None:
        while self._new:
            one = self._new.popleft()
            topic, start = one.awaited.control_topic, one.awaited.control_offset
            place = KafkaTopicPartition(topic, 0, start)
            if topic not in followed:
                followed[topic] = _Followed(ControlTopic(self._settings, topic, self._clients), start)
                consumer.incremental_assign([place])
            elif start < followed[topic].position:
                # Read again from there: to the others what they have read is no news (`TableLog.extend`).
                consumer.incremental_unassign([KafkaTopicPartition(topic, 0)])
                consumer.incremental_assign([place])
                followed[topic].position = start  # one that begins between these is not to be skipped to
            followed[topic].waiting.append(one)

    def _let_go(self, consumer: Consumer, followed: dict[str, _Followed]) -> None:
        while self._gone:
            one = self._gone.popleft()
            topic = one.awaited.control_topic
            if topic in followed and one in followed[topic].waiting:
                followed[topic].waiting.remove(one)
            elif one in self._new:
                self._new.remove(one)
        for topic in [topic for topic, found in followed.items() if not found.waiting]:
            consumer.incremental_unassign([KafkaTopicPartition(topic, 0)])
            del followed[topic]


def _take(record: Message, followed: dict[str, _Followed], settings: KafkaSettings) -> bool:
    """Fold a record into the logs of those who wait; whether that may be news to one of them."""
    topic, error = followed.get(str(record.topic())), record.error()
    if topic is None:
        return False
    if error is not None:
        return _take_error(error, topic, record, settings)
    offset = int(record.offset() or 0)
    topic.position = max(topic.position, offset + 1)
    table = (record.key() or b"").decode(errors="replace")
    concerned = [one for one in topic.waiting if one.awaited.table == table and offset >= one.log.position]
    if not concerned:
        return False
    try:
        message = topic.control.read(record, table)
    except SluiceError as unreadable:
        for one in concerned:
            _tell(topic, one, unreadable)
        return False
    if message is not None:
        for one in concerned:
            one.log.extend([(offset, message)])
    return any(one.has_read_to_end for one in concerned)


def _take_error(error: KafkaError, topic: _Followed, record: Message, settings: KafkaSettings) -> bool:
    if error.code() == KafkaError._PARTITION_EOF:
        end = int(record.offset() or 0)
        for one in topic.waiting:
            one.has_read_to_end = one.has_read_to_end or end > one.awaited.control_offset
        return True
    if error.fatal() or not error.retriable():
        told = classify(error, "following the control topic", connection=settings.name)
        for one in tuple(topic.waiting):
            _tell(topic, one, told)
    return False


def _judge(followed: dict[str, _Followed], presence: Presence) -> None:
    for topic in followed.values():
        for one in tuple(topic.waiting):
            if not one.has_read_to_end:
                if time.monotonic() - one.began >= _READ_WITHIN:
                    _tell(topic, one, _lost("its end was not reached", topic.control.settings))
                continue
            transaction = one.transaction()
            if transaction is None:
                _tell(topic, one, _lost("it holds no such START-COMMIT", topic.control.settings))
                continue
            verdict = one.waiting.judge(transaction, partial(presence.has_workers, one.awaited.workers))
            if verdict is not Verdict.WAIT:
                _tell(topic, one, verdict)


def _tell(topic: _Followed, one: _One, what: Verdict | SluiceError) -> None:
    topic.waiting.remove(one)
    one.told(what)


def _lost(reason: str, settings: KafkaSettings) -> RetryableError:
    return RetryableError(
        "The control topic could not be followed.",
        next_step="check that the broker is up; the range is written by a Spark job of its own.",
        reason=reason,
        connection=settings.name,
    )
