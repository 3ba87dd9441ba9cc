"""The control topic: one partition, so that its offsets give every message of every table a total order (RFC-32)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec, TopicDescription

from sluice.control.clients import TIMEOUT, Clients
from sluice.control.verdicts import Verdicts
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, kafka_errors, until_it_is_known, until_there_is_a_leader
from sluice.kafka.topic_id import PresentTopicId, topic_id
from sluice.kafka.topics import message_limit
from sluice.logs import log
from sluice.protocol.messages import ControlMessage, SkipMessage
from sluice.protocol.signing import Signatures
from sluice.protocol.transaction import TableLog
from sluice.protocol.wire import MessagePart, assemble, decode, encode

RETENTION = timedelta(days=90)
_OVERHEAD = 2048  # bytes of a record batch beside the value: headers, key, framing
_LOOK_FOR_STOP = 0.01  # seconds: librdkafka waits in C, where no event of Python's wakes it
_TELL = 0.1  # seconds after which a follower yields without news


class UnreadableError(ActionRequiredError):
    """A message of the table that this release can't read."""


class ControlTopic:
    """Sends and reads the control messages of one pipeline.

    Args:
        settings: the cluster's settings.
        topic: its name.
        clients: the cluster's clients, where other control topics share them; else it has its own.

    Raises (all methods):
        RetryableError: the broker can't be reached in time.
        ActionRequiredError: the topic is missing, has more than one partition, or may not be used.
    """

    def __init__(self, settings: KafkaSettings, topic: str, clients: Clients | None = None) -> None:
        self.settings = settings
        self.topic = topic
        self._partition = KafkaTopicPartition(topic, 0)
        self._verdicts = Verdicts(topic)
        self._id = PresentTopicId(self._ask_for_id)
        self.signatures = Signatures(topic, settings.control_secrets, self._verdicts.log_unsigned, self._id)
        self._clients = clients or Clients(settings)
        self._where = {
            "control_topic": topic,
            "connection": settings.name,
            "bootstrap_servers": settings.bootstrap_servers,
        }

    def exists(self) -> bool:
        """Whether the topic exists."""
        return self._number_of_partitions() is not None

    def ensure(self) -> None:
        """Create the topic on first use, and check that it has one partition.

        Its offsets can be queried when this returns: a topic that was just created, here or elsewhere, is not known to
        all brokers at once.
        """
        self.expect_to_send()
        partitions = self._number_of_partitions()
        if partitions is None:
            self._create()
        elif partitions != 1:
            raise ActionRequiredError(
                "The control topic must have exactly one partition: its offsets are the order of all messages.",
                next_step="name another topic in control.topic, or delete this one and let Sluice create it.",
                partitions=partitions,
                **self._where,
            )
        with kafka_errors("asking for the control topic's offsets", **self._where):
            until_it_is_known(self._offset)(OffsetSpec.earliest())

    def _create(self) -> None:
        new = NewTopic(
            self.topic,
            num_partitions=1,
            config={"retention.ms": str(int(RETENTION.total_seconds() * 1000)), "cleanup.policy": "delete"},
        )
        try:
            self._clients.ask(lambda admin: admin.create_topics([new], request_timeout=TIMEOUT))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise classify(error.args[0], "creating the control topic", **self._where) from error

    def _number_of_partitions(self) -> int | None:
        """None if there is no such topic. Only this topic is queried: a cluster may have thousands."""
        with kafka_errors("looking for the control topic", **self._where):
            try:
                found = self._described()
                self._id.tell(topic_id(found.topic_id))
                return len(found.partitions)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return None
                raise

    @property
    def topic_id(self) -> str | None:
        """Kafka's id of the topic that has the name now; None where brokers have no topic ids."""
        return self._id(False)

    def _ask_for_id(self) -> str | None:
        with kafka_errors("asking for the control topic's id", **self._where):
            return topic_id(until_it_is_known(self._described)().topic_id)

    @until_there_is_a_leader
    def _described(self) -> TopicDescription:
        wanted = TopicCollection([self.topic])
        answers = self._clients.ask(lambda admin: admin.describe_topics(wanted, request_timeout=TIMEOUT))
        return answers[self.topic]

    def expect_to_send(self) -> None:
        """Connect a producer in the background, for the first message."""
        self._clients.expect_to_send()

    def end(self) -> int:
        """The topic's end: the next message will get this offset or a later one."""
        return self._bound(OffsetSpec.latest())

    def _bound(self, spec: OffsetSpec) -> int:
        with kafka_errors("asking for the control topic's offsets", **self._where):
            return self._offset(spec)

    @until_there_is_a_leader
    def _offset(self, spec: OffsetSpec) -> int:
        answers = self._clients.ask(
            lambda admin: admin.list_offsets(
                {self._partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=TIMEOUT
            ),
            connected_by=self.topic,
        )
        return int(answers[self._partition].offset)

    def send(self, message: ControlMessage) -> int:
        """Send a message, wait for the broker's acknowledgement, and return its offset (the last part's)."""
        outside = self._verdicts.refusal(message, message.table)
        if outside is not None:
            raise ActionRequiredError(
                f"{message.type} would not count, for it names something outside of the table.",
                next_step="if a partition column holds addresses, or paths such as `..`, write another column "
                "in its place by a transform.",
                reason=outside,
                table=message.table,
                **self._where,
            )
        limit = self._message_limit()
        try:
            encoded = encode(message, limit)
        except ValueError as error:
            raise ActionRequiredError(
                f"{message.type} is too large for the control topic.",
                next_step="raise max.message.bytes of the control topic, or let an interval have less to say: more "
                "write.ranges, fewer table partitions, fewer topics.",
                reason=str(error),
                limit=limit,
                table=message.table,
                **self._where,
            ) from error
        with self._clients.producer() as producer:
            earlier = self._deliver(producer, message, encoded.earlier)
            return self._deliver(producer, message, [encoded.last(earlier)])[0]

    def _deliver(self, producer: Producer, message: ControlMessage, values: Sequence[bytes]) -> list[int]:
        """Send a message's value, or its parts, and return the offsets once all are acknowledged."""
        delivered: list[Message] = []
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, record: Message) -> None:
            failed.append(error) if error is not None else delivered.append(record)

        key = message.table.encode()
        for value in values:
            headers = self.signatures.headers(key, value)
            producer.produce(self.topic, value, key, partition=0, on_delivery=on_delivery, headers=headers)
        undelivered = producer.flush(TIMEOUT + 5)
        if failed:
            raise classify(failed[0], f"sending {message.type}", table=message.table, **self._where)
        if undelivered or len(delivered) != len(values):
            raise RetryableError(
                f"{message.type} was not acknowledged in time.",
                next_step="check that the broker is up; the step is retried.",
                table=message.table,
                **self._where,
            )
        return [_offset(record) for record in delivered]

    def _message_limit(self) -> int:
        with kafka_errors("asking for the control topic's message limit", **self._where):
            return message_limit(self._clients.ask, self.topic, TIMEOUT) - _OVERHEAD

    def table_log(self, table: str, start: int) -> TableLog:
        """Fold a table's messages from offset `start` to the topic's present end."""
        return self.extend(TableLog(table), start)

    def extend(self, table_log: TableLog, start: int | None = None) -> TableLog:
        """Read on from where a log ended (or from `start`) to the topic's present end."""
        end = self.end()
        wanted = table_log.position if start is None else start
        first = max(wanted if wanted <= end else 0, self._bound(OffsetSpec.earliest()))  # past the end: recreated
        if first < end:
            table_log.extend(self._messages(table_log.table, first, end))
        table_log.position = max(table_log.position, end)
        return table_log

    def recent(self, table: str, number: int) -> list[tuple[int, ControlMessage]]:
        """A table's messages among the topic's last `number` offsets, with their offsets.

        With a secret, unsigned messages don't count: signed ones may be further back.
        """
        self.signatures.require_all()
        end = self.end()
        first = max(0, end - number, self._bound(OffsetSpec.earliest()))
        return list(self._messages(table, first, end)) if first < end else []

    def read_one(self, table: str, offset: int) -> ControlMessage | None:
        """A table's message at an offset; None if none that counts is there.

        Raises:
            UnreadableError: it can't be read.
        """
        end = min(self.end(), offset + 1)
        if not max(0, self._bound(OffsetSpec.earliest())) <= offset < end:
            return None
        return next((message for found, message in self._messages(table, offset, end) if found == offset), None)

    def read(self, record: Message, table: str) -> ControlMessage | None:
        """A record's message for a table; None if it is another table's, doesn't count, or isn't complete yet.

        Raises:
            UnreadableError: it can't be read.
        """
        return self._decode(record, table)

    def follow(self, table_log: TableLog, stop: threading.Event) -> Iterator[TableLog]:
        """Yield the log whenever a message has been folded into it, and ten times a second, until `stop` is set."""
        consumer = self._consumer(table_log.position)
        try:
            told = time.monotonic()
            while not stop.is_set():
                record = consumer.poll(_LOOK_FOR_STOP)
                if record is None:
                    if time.monotonic() - told >= _TELL:
                        yield table_log
                        told = time.monotonic()
                    continue
                error = record.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        continue
                    log.warning("control topic could not be read, trying again", reason=str(error))
                    continue
                message = self._decode(record, table_log.table)
                if message is not None:
                    yield table_log.extend([(_offset(record), message)])
        finally:
            consumer.close()

    def _messages(self, table: str, start: int, end: int) -> Iterator[tuple[int, ControlMessage]]:
        unreadable: dict[int, UnreadableError] = {}
        for record in self._records(start, end):
            try:
                message = self._decode(record, table)
            except UnreadableError as error:  # a SET-ASIDE may follow
                unreadable[_offset(record)] = error
                continue
            if isinstance(message, SkipMessage):
                unreadable.pop(message.offset, None)
            if message is not None:
                yield _offset(record), message
        if unreadable:
            raise next(iter(unreadable.values()))

    def _records(self, start: int, end: int) -> Iterator[Message]:
        consumer = self._consumer(start)
        try:
            position = start
            while position < end:
                record = consumer.poll(TIMEOUT)
                if record is None:
                    raise RetryableError(
                        "The control topic could not be read to its end in time.",
                        next_step="check that the broker is up; the step is retried.",
                        position=position,
                        end=end,
                        **self._where,
                    )
                error = record.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        # The last offsets may hold a broker's markers instead of records, or the answering broker may
                        # lag behind the one that returned the end: then more records follow.
                        position = max(position, _offset(record))
                        continue
                    if error.fatal() or not error.retriable():
                        raise classify(error, "reading the control topic", **self._where)
                    continue
                position = _offset(record) + 1
                yield record
        finally:
            consumer.close()

    def _consumer(self, start: int) -> AssignedConsumer:
        consumer = AssignedConsumer(
            self.settings.client(
                group_id=f"sluice-reader-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                # Messages count as soon as they are in the log: Sluice's are never in a Kafka transaction, and another
                # producer's open transaction would hide everything after it.
                isolation_level="read_uncommitted",
                fetch_wait_max_ms=50,
            )
        )
        consumer.assign([KafkaTopicPartition(self.topic, 0, start)])
        return consumer

    def _decode(self, record: Message, table: str) -> ControlMessage | None:
        if _key(record) != table:
            return None
        if not self.signatures.counts(_offset(record), table.encode(), record.value() or b"", record.headers() or []):
            return None
        try:
            found = decode(record.value() or b"")
            if isinstance(found, MessagePart):
                whole = self._whole(found, _offset(record), table) if found.is_last_part else None
            else:
                whole = found
        except ValueError as error:
            raise UnreadableError(
                "A message of this table in the control topic can't be read.",
                next_step="if a newer release has written it, upgrade this one; else find who writes to the topic, and "
                "have it left out: sluice control set-aside FILE --offset N --reason WHY.",
                offset=record.offset() if record.offset() != OFFSET_INVALID else None,
                table=table,
                **self._where,
            ) from error
        return None if whole is None else self._verdicts.counting(_offset(record), whole, table)

    def _whole(self, last: MessagePart, offset: int, table: str) -> ControlMessage | None:
        """The message whose last part is at an offset; None if its first parts have left the topic."""
        wanted = last.offsets_before(offset)
        if wanted[0] < self._bound(OffsetSpec.earliest()):
            return None
        found: dict[int, bytes] = {}
        for record in self._records(wanted[0], wanted[-1] + 1):
            if _offset(record) in wanted and _key(record) == table:
                found[_offset(record)] = record.value() or b""
        return assemble(last, [found[o] for o in wanted if o in found])


def _key(record: Message) -> str | None:
    key = record.key()
    return None if key is None else str(key.decode(errors="replace"))


def _offset(record: Message) -> int:
    offset = record.offset()
    if offset is None:
        raise RuntimeError("a consumed record has no offset")
    return int(offset)
