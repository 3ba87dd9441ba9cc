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

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from sluice.control.clients import Clients
from sluice.control.presence import Presence
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError, SluiceError
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify
from sluice.protocol.claims import Verdict, Waiting
from sluice.protocol.transaction import TableLog, Transaction

_POLL = 0.1  # seconds; how soon a new one is noticed
_JUDGE = 0.5  # seconds between two checks of the clock, by which claims expire
_READ_WITHIN = 60.0  # seconds within which the log has to be read up to its end
_IDLE = 60.0  # seconds without waiting tasks; then the connections are closed

OnVerdict = Callable[[Verdict | SluiceError], None]


@dataclass(frozen=True)
class Awaited:
    """A range that a task waits for.

    Attributes:
        table: the table's id.
        control_topic: the topic of its START-COMMIT.
        control_offset: the offset of its START-COMMIT.
        number: the range's number in the plan.
        workers: the group of workers that should write it.
        claim_within: seconds within which a worker has to claim it.
    """

    table: str
    control_topic: str
    control_offset: int
    number: int
    workers: str
    claim_within: float


class _Wait:
    """One task's wait for a range."""

    def __init__(self, awaited: Awaited, on_verdict: OnVerdict) -> None:
        self.awaited = awaited
        self.on_verdict = on_verdict
        self.began = time.monotonic()
        self.log = TableLog(awaited.table)
        self.log.position = awaited.control_offset
        self.has_read_to_end = False
        self.waiting = Waiting(awaited.number, awaited.claim_within, time.monotonic)

    def transaction(self) -> Transaction | None:
        return self.log.at(self.awaited.control_offset)


@dataclass
class _Subscription:
    """A followed control topic, its position, and the waits for its ranges."""

    control: ControlTopic
    position: int
    waiting: list[_Wait] = field(default_factory=list)


class Waiters:
    """All waits for ranges whose control topics are on one cluster.

    Its thread is the only one that touches the consumer. It begins with the first wait, and ends, with all connections,
    a minute after the last.

    Args:
        settings: the cluster's settings.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._clients = Clients(settings)
        self._lock = threading.Lock()
        self._new: deque[_Wait] = deque()
        self._gone: deque[_Wait] = deque()
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting(self, awaited: Awaited, on_verdict: OnVerdict) -> Iterator[None]:
        """Wait for a range until the block is left.

        Args:
            awaited: the range.
            on_verdict: called once, from another thread, with the verdict, or with the error that prevents one.
        """
        wait = _Wait(awaited, on_verdict)
        with self._lock:
            self._new.append(wait)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sluice-waiters", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            self._gone.append(wait)

    def _run(self) -> None:
        followed: dict[str, _Subscription] = {}
        try:
            self._follow(followed)
        except Exception as error:
            # Any error: no task may wait for ever, and the next one starts a new thread.
            outcome = error if isinstance(error, SluiceError) else _lost(repr(error), self._settings)
            with self._lock:
                self._thread = None
                left = [wait for topic in followed.values() for wait in topic.waiting] + list(self._new)
                self._new.clear()
            for wait in left:
                wait.on_verdict(outcome)

    def _follow(self, followed: dict[str, _Subscription]) -> None:
        self._clients = Clients(self._settings)
        consumer = AssignedConsumer(
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

    def _take_in(self, consumer: AssignedConsumer, followed: dict[str, _Subscription]) -> None:
        while self._new:
            wait = self._new.popleft()
            topic, start = wait.awaited.control_topic, wait.awaited.control_offset
            place = KafkaTopicPartition(topic, 0, start)
            if topic not in followed:
                followed[topic] = _Subscription(ControlTopic(self._settings, topic, self._clients), start)
                consumer.incremental_assign([place])
            elif start < followed[topic].position:
                # Read again from there: the other waits ignore messages that they have read (`TableLog.extend`).
                consumer.incremental_unassign([KafkaTopicPartition(topic, 0)])
                consumer.incremental_assign([place])
                followed[topic].position = start  # a wait that begins in between must not be skipped past
            followed[topic].waiting.append(wait)

    def _let_go(self, consumer: AssignedConsumer, followed: dict[str, _Subscription]) -> None:
        while self._gone:
            wait = self._gone.popleft()
            topic = wait.awaited.control_topic
            if topic in followed and wait in followed[topic].waiting:
                followed[topic].waiting.remove(wait)
            elif wait in self._new:
                self._new.remove(wait)
        for topic in [topic for topic, found in followed.items() if not found.waiting]:
            consumer.incremental_unassign([KafkaTopicPartition(topic, 0)])
            del followed[topic]


def _take(record: Message, followed: dict[str, _Subscription], settings: KafkaSettings) -> bool:
    """Fold a record into the logs of all waits; whether it may change a verdict."""
    topic, error = followed.get(str(record.topic())), record.error()
    if topic is None:
        return False
    if error is not None:
        return _take_error(error, topic, record, settings)
    offset = int(record.offset() or 0)
    topic.position = max(topic.position, offset + 1)
    table = (record.key() or b"").decode(errors="replace")
    concerned = [wait for wait in topic.waiting if wait.awaited.table == table and offset >= wait.log.position]
    if not concerned:
        return False
    try:
        message = topic.control.read(record, table)
    except Exception as unreadable:  # any error: waits for other tables aren't affected
        outcome = unreadable if isinstance(unreadable, SluiceError) else _lost(repr(unreadable), settings)
        for wait in concerned:
            _answer(topic, wait, outcome)
        return False
    if message is not None:
        for wait in concerned:
            wait.log.extend([(offset, message)])
    return any(wait.has_read_to_end for wait in concerned)


def _take_error(error: KafkaError, topic: _Subscription, record: Message, settings: KafkaSettings) -> bool:
    if error.code() == KafkaError._PARTITION_EOF:
        end = int(record.offset() or 0)
        for wait in topic.waiting:
            wait.has_read_to_end = wait.has_read_to_end or end > wait.awaited.control_offset
        return True
    if error.fatal() or not error.retriable():
        outcome = classify(error, "following the control topic", connection=settings.name)
        for wait in tuple(topic.waiting):
            _answer(topic, wait, outcome)
    return False


def _judge(followed: dict[str, _Subscription], presence: Presence) -> None:
    for topic in followed.values():
        for wait in tuple(topic.waiting):
            if not wait.has_read_to_end:
                if time.monotonic() - wait.began >= _READ_WITHIN:
                    _answer(topic, wait, _lost("its end was not reached", topic.control.settings))
                continue
            transaction = wait.transaction()
            if transaction is None:
                _answer(topic, wait, _lost("it holds no such START-COMMIT", topic.control.settings))
                continue
            verdict = wait.waiting.judge(transaction, partial(presence.has_workers, wait.awaited.workers))
            if verdict is not Verdict.WAIT:
                _answer(topic, wait, verdict)


def _answer(topic: _Subscription, wait: _Wait, outcome: Verdict | SluiceError) -> None:
    topic.waiting.remove(wait)
    wait.on_verdict(outcome)


def _lost(reason: str, settings: KafkaSettings) -> RetryableError:
    return RetryableError(
        "The control topic could not be followed.",
        next_step="check that the broker is up; the range is written by a separate Spark job.",
        reason=reason,
        connection=settings.name,
    )
