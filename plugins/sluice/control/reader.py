"""Reads a control topic for observers: all tables' messages, with short timeouts; it never writes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sluice.control.verdicts import Verdicts
from sluice.errors import RetryableError
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, is_led, kafka_errors
from sluice.kafka.list_offsets import Question, list_offsets
from sluice.kafka.topic_id import PresentTopicId, topic_id, topic_id_of
from sluice.protocol.messages import ControlMessage
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.signing import Signatures
from sluice.protocol.wire import MessagePart, assemble, decode
from sluice.untrusted import json_of, members

TIMEOUT = 5.0  # seconds: a user is waiting for a page
_BATCH = 500
_CLIENTS = 32  # clients of a process, each with about four threads


class TopicBounds(NamedTuple):
    """The offsets `[first, end)` that the control topic holds now, and Kafka's own id of it."""

    topic_id: str
    first: int
    end: int


class ControlReader:
    """Reads one control topic.

    Raises (all methods):
        RetryableError: the broker can't be reached in time.
        ActionRequiredError: the topic is missing, or may not be read.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self.settings = settings
        self.topic = topic
        self.unreadable = 0
        self._id = PresentTopicId(self._ask_for_id)
        self._verdicts = Verdicts(topic)
        self._signatures = Signatures(topic, settings.control_secrets, self._verdicts.log_unsigned, self._id)
        self._admin = _admins.of(settings)
        self._where = {
            "control_topic": topic,
            "connection": settings.name,
            "bootstrap_servers": settings.bootstrap_servers,
        }

    def bounds(self) -> TopicBounds:
        """The offsets that the topic holds now; none if it doesn't exist yet, as before the first interval."""
        partition = KafkaTopicPartition(self.topic, 0)
        described = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=TIMEOUT)
        ends = []
        with kafka_errors("looking for the control topic", **self._where):
            try:
                given = described[self.topic].result().topic_id
                self._id.tell(topic_id(given))
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return TopicBounds("", 0, 0)
                raise
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
                answer = self._admin.list_offsets(
                    {partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=TIMEOUT
                )
                ends.append(int(answer[partition].result().offset))
        return TopicBounds(str(given), *ends)

    def _ask_for_id(self) -> str | None:
        with kafka_errors("asking for the control topic's id", **self._where):
            return topic_id_of(self._admin, self.topic, TIMEOUT)

    def read(self, start: int, end: int) -> Iterator[list[tuple[int, ControlMessage]]]:
        """The messages at the offsets `[start, end)`, in batches; foreign messages are counted and skipped."""
        for records in self._records(start, end):
            batch = []
            for record in records:
                try:
                    message = self._message(record)
                except ValueError:  # an RFC-32 sink may share the topic
                    self.unreadable += 1
                else:
                    if message is not None:
                        batch.append((_offset(record), message))
            yield batch

    def messages(
        self, offsets: Sequence[int], table: str, *, most: int, most_bytes: int
    ) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """One table's messages at the given offsets (ascending), as they are in the topic, and how many are left out.

        Args:
            offsets: where the messages are.
            table: the table they belong to.
            most: the most messages to read; the last one rather than those in the middle.
            most_bytes: bytes of JSON after which no further message is read.
        """
        wanted = offsets if len(offsets) <= most else [*offsets[: most - most // 4], *offsets[-(most // 4) :]]
        found: list[tuple[int, dict[str, Any]]] = []
        left_out, size = len(offsets) - len(wanted), 0
        for stretch in _stretches(wanted):
            for records in self._records(stretch[0], stretch[-1] + 1):
                for record in records:
                    if _offset(record) not in stretch or _key(record) != table:
                        continue
                    if size > most_bytes:
                        left_out += 1
                        continue
                    fields = self._shown(record)
                    if fields is not None:
                        size += len(json.dumps(fields))
                        found.append((_offset(record), fields))
        return found, left_out

    def _shown(self, record: Message) -> dict[str, Any] | None:
        """A message's content; None if it isn't a message, or doesn't count."""
        value = record.value() or b""
        try:
            message = self._message(record)
        except ValueError:
            return None
        if message is None:
            return None
        if "packed" in members(value):
            return message.model_dump(mode="json", exclude_none=True)
        return dict(json_of(value))

    def _message(self, record: Message) -> ControlMessage | None:
        """The message at a record; None if it doesn't count, or isn't complete.

        Raises:
            ValueError: it isn't one of Sluice's.
        """
        offset, key, value = _offset(record), record.key() or b"", record.value() or b""
        if not self._signatures.counts(offset, key, value, record.headers() or []):
            return None
        found = decode(value)
        whole = self._whole(found, offset, _key(record)) if isinstance(found, MessagePart) else found
        return None if whole is None else self._verdicts.counting(offset, whole, _key(record))

    def _whole(self, part: MessagePart, offset: int, table: str) -> ControlMessage | None:
        """The message whose last part this is; None for a part before it, or if earlier parts have left the topic.

        Raises:
            ValueError: the parts aren't those of one message.
        """
        if not part.is_last_part:
            return None
        wanted = part.offsets_before(offset)
        values: dict[int, bytes] = {}
        if wanted[0] < self.bounds().first:
            return None
        for records in self._records(wanted[0], wanted[-1] + 1):
            values |= {_offset(r): r.value() or b"" for r in records if _offset(r) in wanted and _key(r) == table}
        return assemble(part, [values[o] for o in wanted if o in values])

    def _records(self, start: int, end: int) -> Iterator[list[Message]]:
        consumer = AssignedConsumer(
            self.settings.client(
                group_id=f"sluice-reader-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                isolation_level="read_uncommitted",  # as coordinators and participants read it
                socket_timeout_ms=int(TIMEOUT * 1000),
            )
        )
        try:
            consumer.assign([KafkaTopicPartition(self.topic, 0, start)])
            position = start
            while position < end:
                # Request no more messages than there are: it would wait for further ones.
                got = consumer.consume(min(_BATCH, end - position), timeout=TIMEOUT)
                records = [r for r in got if r.error() is None]
                yield [r for r in records if _offset(r) < end]
                position = max([position, *(_offset(r) + 1 for r in records), *self._ends(got)])
                if not got:
                    raise RetryableError(
                        "The control topic could not be read to its end in time.",
                        next_step="check that the broker is up; it is tried again.",
                        position=position,
                        **self._where,
                    )
        finally:
            consumer.close()

    def _ends(self, got: Sequence[Message]) -> Iterator[int]:
        """Where reading reached a partition's end: past a broker's markers, or short of what another broker has."""
        for record in got:
            error = record.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                yield _offset(record)
            elif error.fatal() or not error.retriable():
                raise classify(error, "reading the control topic", **self._where)


def log_ends(
    settings: KafkaSettings, topics: Collection[str], isolation_level: str = "read_committed"
) -> dict[TopicPartition, int]:
    """The present ends of all partitions of some topics, for a reader of the given isolation level.

    Partitions without a leader are left out: their ends are unknown.

    Raises:
        RetryableError: the cluster can't be reached in time.
        ActionRequiredError: a topic is missing, or may not be read.
    """
    admin = _admins.of(settings)
    where = {"connection": settings.name, "bootstrap_servers": settings.bootstrap_servers}
    isolation = (
        IsolationLevel.READ_COMMITTED if isolation_level == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    )
    described = admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
    led: list[TopicPartition] = []
    for topic, future in described.items():
        with kafka_errors("asking for the topic's partitions", topic=topic, **where):
            partitions = future.result().partitions
        led += [TopicPartition(settings.name, topic, p.id) for p in partitions if is_led(p)]
    (ends,) = list_offsets(admin, settings.name, led, Question(OffsetSpec.latest(), isolation), timeout=TIMEOUT)
    return {tp: int(end.offset) for tp, end in ends.items()}


def _stretches(offsets: Sequence[int]) -> list[list[int]]:
    """Groups of nearby offsets, so that not all messages of other tables between them are read."""
    stretches: list[list[int]] = []
    for offset in offsets:
        if stretches and offset - stretches[-1][-1] <= _BATCH:
            stretches[-1].append(offset)
        else:
            stretches.append([offset])
    return stretches


class _Admins:
    """One client for each set of settings, since a client has its own threads, buffers and connections. Thread-safe.

    A cluster's name isn't part of the key: messages contain names. The least recently used client is dropped, so that
    changed connections don't leave clients behind, and no message can exhaust the process's threads.
    """

    def __init__(self, most: int = _CLIENTS) -> None:
        self._known: dict[str, AdminClient] = {}
        self._most = most
        self._lock = Lock()

    def of(self, settings: KafkaSettings) -> AdminClient:
        way = json.dumps({name: str(value) for name, value in settings.librdkafka.items()}, sort_keys=True)
        with self._lock:
            admin = self._known.pop(way, None)
            if admin is None:
                # Reconnect soon after the broker is back: librdkafka would wait up to ten seconds.
                admin = AdminClient(
                    settings.client(socket_timeout_ms=int(TIMEOUT * 1000), reconnect_backoff_max_ms=1000)
                )
            self._known[way] = admin
            while len(self._known) > self._most:
                del self._known[next(iter(self._known))]
            return admin


_admins = _Admins()


def _key(record: Message) -> str:
    key = record.key()
    return key.decode(errors="replace") if key is not None else ""


def _offset(record: Message) -> int:
    offset = record.offset()
    if offset is None:
        raise RuntimeError("a consumed record has no offset")
    return int(offset)
