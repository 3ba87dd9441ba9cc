"""Follows many control topics of one cluster with one consumer, for a worker: messages as they come, of all tables."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import IsolationLevel, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import OffsetSpec

from sluice.control.clients import TIMEOUT, Clients
from sluice.control.topic import ControlTopic
from sluice.errors import SluiceError
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import kafka_errors
from sluice.logs import log
from sluice.protocol.messages import ControlMessage

_LOOK_BACK = 500  # offsets before a topic's end: a transaction that is open began there, or its own task writes it
_LOOK_AGAIN = 5.0  # seconds between checks for missing topics
_POLL = 0.2  # seconds; how soon it ends when it is stopped

Found = Callable[[str, Sequence[tuple[int, ControlMessage]]], None]
"""Called with messages of a control topic as they come, each with its offset there."""
Dead = Callable[[], None]
"""Called when following ends without having been stopped."""
Began = Callable[[str, int, int], None]
"""Called with a control topic, the offset at which reading begins, and the topic's end at that moment."""


class Following:
    """Follows control topics in a separate thread until it is stopped.

    Args:
        settings: the cluster's settings.
        topics: the control topics by name; missing ones are found once they are created.
        tables: by control topic, the tables whose messages are wanted.
        found: gets the messages, in the order of their topic, from that thread: first all of a topic's present ones at
            once,
            since the first ones alone would show intervals as open that later ones have ended.
        began: gets the offset at which reading of a topic begins, before its messages, and again after an unreadable
            one; and the topic's end at that moment: messages from there on are new.
        dead: is called if its thread ends by an error.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topics: Mapping[str, ControlTopic],
        tables: Mapping[str, frozenset[str]],
        found: Found,
        began: Began,
        dead: Dead,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._tables = tables
        self._found = found
        self._began = began
        self._dead = dead
        self._missing = set(topics)
        self._positions: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._held_back: dict[str, list[tuple[int, ControlMessage]]] = {}  # of topics whose end wasn't reached yet
        self._clients = Clients(settings)
        self._has_looked = False
        self._polled = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-following", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def silent_for(self) -> float:
        """Seconds since it last asked for messages; from any thread."""
        return time.monotonic() - self._polled

    @property
    def is_current(self) -> bool:
        """Whether it has read all topics that exist to the ends that they had; from any thread."""
        return self._has_looked and not self._held_back

    def _run(self) -> None:
        try:
            self._follow()
        except Exception:
            log.exception("the control topics can't be followed any more", connection=self._settings.name)
            self._dead()

    def _follow(self) -> None:
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
        look_again = 0.0
        try:
            while not self._stop.is_set():
                if self._missing and time.monotonic() >= look_again:
                    self._look_for_missing(consumer)
                    look_again = time.monotonic() + _LOOK_AGAIN
                self._polled = time.monotonic()
                record = consumer.poll(_POLL)
                if record is not None:
                    self._take(consumer, record)
        finally:
            consumer.close()

    def _look_for_missing(self, consumer: AssignedConsumer) -> None:
        """Begin to follow missing topics that exist by now."""
        try:
            there = [topic for topic in sorted(self._missing) if self._topics[topic].exists()]
            first, end = (self._offsets(there, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        except SluiceError as error:
            log.warning("the control topics can't be looked for; it is tried again", reason=str(error))
            self._clients.forget(self._clients.admin)
            return
        for topic in there:
            self._positions[topic] = max(first[topic], end[topic] - _LOOK_BACK)
            self._held_back[topic] = []
            self._ends[topic] = end[topic]
            self._began(topic, self._positions[topic], end[topic])
        self._missing -= set(there)
        self._has_looked = True
        if there:
            consumer.incremental_assign([KafkaTopicPartition(t, 0, self._positions[t]) for t in there])

    def _offsets(self, topics: list[str], spec: OffsetSpec) -> dict[str, int]:
        if not topics:
            return {}
        wanted = {KafkaTopicPartition(topic, 0): spec for topic in topics}
        with kafka_errors("asking for the control topics' offsets", connection=self._settings.name):
            answers = self._clients.ask(
                lambda admin: admin.list_offsets(
                    wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=TIMEOUT
                ),
                connected_by=topics[0],
            )
        return {partition.topic: int(answer.offset) for partition, answer in answers.items()}

    def _take(self, consumer: AssignedConsumer, record: Message) -> None:
        topic, error = str(record.topic()), record.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._let_go(topic)
            return
        if error is not None:
            self._lose(consumer, topic, error)
            return
        key = (record.key() or b"").decode(errors="replace")
        if key not in self._tables.get(topic, frozenset()):
            return
        offset = int(record.offset() or 0)
        try:
            message = self._topics[topic].read(record, key)
        except Exception as error_:
            # A message in an unknown format, or whose parts could not be fetched; any other error must not affect the
            # other topics. It may end or begin a transaction: whatever depends on it is unknown here, and is left to
            # readers of it.
            log.warning("a message could not be read", control_topic=topic, offset=offset, reason=str(error_))
            self._began(topic, offset + 1, self._ends[topic])
            return
        if message is not None and topic in self._held_back:
            self._held_back[topic].append((offset, message))
        elif message is not None:
            self._found(topic, [(offset, message)])

    def _let_go(self, topic: str) -> None:
        """Pass on a topic's messages when its end is reached for the first time."""
        messages = self._held_back.pop(topic, [])
        if messages:
            self._found(topic, messages)

    def _lose(self, consumer: AssignedConsumer, topic: str, error: KafkaError) -> None:
        gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
        if error.code() in gone and topic in self._topics and topic not in self._missing:
            log.warning("a control topic isn't what it was; it is looked for again", control_topic=topic)
            consumer.incremental_unassign([KafkaTopicPartition(topic, 0)])
            self._missing.add(topic)
        elif error.code() not in gone:
            log.warning("the control topics could not be read, trying again", reason=str(error))
