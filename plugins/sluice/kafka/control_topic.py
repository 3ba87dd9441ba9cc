"""The control topic: one partition, so that its offsets give every message of every table a total order (RFC-32)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta

from confluent_kafka import OFFSET_INVALID, Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, kafka_errors, until_there_is_a_leader
from sluice.logs import log
from sluice.protocol.messages import ControlMessage
from sluice.protocol.transaction import TableLog
from sluice.protocol.wire import MessagePart, assemble, decode, encode

TIMEOUT = 30.0
RETENTION = timedelta(days=90)
_OVERHEAD = 2048  # bytes of a record batch beside the value: headers, key, framing


class ControlTopic:
    """Sends and reads the control messages of one pipeline.

    Raises (all methods):
        RetryableError: the broker can't be reached in time.
        ActionRequiredError: the topic is missing, has more than one partition, or may not be used.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self.settings = settings
        self.topic = topic
        self._partition = KafkaTopicPartition(topic, 0)
        self._admin = AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
        self._where = {
            "control_topic": topic,
            "connection": settings.name,
            "bootstrap_servers": settings.bootstrap_servers,
        }

    def ensure(self) -> None:
        """Create the topic on first use, and check that it has one partition."""
        with kafka_errors("looking for the control topic", **self._where):
            known = self._admin.list_topics(timeout=TIMEOUT).topics.get(self.topic)
        if known is not None:
            if len(known.partitions) != 1:
                raise ActionRequiredError(
                    "The control topic must have exactly one partition: its offsets are the order of all messages.",
                    next_step="name another topic in control.topic, or delete this one and let Sluice create it.",
                    partitions=len(known.partitions),
                    **self._where,
                )
            return
        new = NewTopic(
            self.topic,
            num_partitions=1,
            config={"retention.ms": str(int(RETENTION.total_seconds() * 1000)), "cleanup.policy": "delete"},
        )
        try:
            self._admin.create_topics([new], request_timeout=TIMEOUT)[self.topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise classify(error.args[0], "creating the control topic", **self._where) from error

    def end(self) -> int:
        """The offset that the next message will get, or a later one."""
        return self._bound(OffsetSpec.latest())

    def _bound(self, spec: OffsetSpec) -> int:
        with kafka_errors("asking for the control topic's offsets", **self._where):
            return self._offset(spec)

    @until_there_is_a_leader
    def _offset(self, spec: OffsetSpec) -> int:
        answer = self._admin.list_offsets(
            {self._partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=TIMEOUT
        )
        return int(answer[self._partition].result().offset)

    def send(self, message: ControlMessage) -> int:
        """Send a message, wait for the broker's acknowledgement, and return its offset (the last part's)."""
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
        producer = Producer(
            self.settings.client(
                enable_idempotence=True,
                acks="all",
                message_max_bytes=limit + _OVERHEAD,
                delivery_timeout_ms=int(TIMEOUT * 1000),
            )
        )
        earlier = self._deliver(producer, message, encoded.earlier)
        return self._deliver(producer, message, [encoded.last(earlier)])[0]

    def _deliver(self, producer: Producer, message: ControlMessage, values: Sequence[bytes]) -> list[int]:
        """Send values that are a message or parts of it, and return their offsets once all stand."""
        delivered: list[Message] = []
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, record: Message) -> None:
            failed.append(error) if error is not None else delivered.append(record)

        for value in values:
            producer.produce(self.topic, value=value, key=message.table.encode(), partition=0, on_delivery=on_delivery)
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
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        with kafka_errors("asking for the control topic's message limit", **self._where):
            entries = self._admin.describe_configs([resource], request_timeout=TIMEOUT)[resource].result()
        return int(entries["max.message.bytes"].value) - _OVERHEAD

    def table_log(self, table: str, start: int) -> TableLog:
        """Fold all of a table's messages from offset `start` to the topic's present end."""
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
        """A table's messages among the topic's last `number` offsets, with their offsets."""
        end = self.end()
        first = max(0, end - number, self._bound(OffsetSpec.earliest()))
        return list(self._messages(table, first, end)) if first < end else []

    def follow(self, table_log: TableLog, stop: threading.Event) -> Iterator[TableLog]:
        """Yield the log whenever a message has been folded into it, and twice a second, until `stop` is set."""
        consumer = self._consumer(table_log.position)
        try:
            while not stop.is_set():
                record = consumer.poll(0.5)
                if record is None:
                    yield table_log
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
        for record in self._records(start, end):
            message = self._decode(record, table)
            if message is not None:
                yield _offset(record), message

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
                        # The last offsets may hold no record, but a broker's own marker; or the broker that answers
                        # is behind the one that was asked for the end: then there is more to come.
                        position = max(position, _offset(record))
                        continue
                    if error.fatal() or not error.retriable():
                        raise classify(error, "reading the control topic", **self._where)
                    continue
                position = _offset(record) + 1
                yield record
        finally:
            consumer.close()

    def _consumer(self, start: int) -> Consumer:
        consumer = Consumer(
            self.settings.client(
                group_id=f"sluice-reader-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                # What stands, stands: none of ours is in a Kafka transaction, and one of somebody else's that is open
                # would hide all that comes after it.
                isolation_level="read_uncommitted",
                fetch_wait_max_ms=50,
            )
        )
        consumer.assign([KafkaTopicPartition(self.topic, 0, start)])
        return consumer

    def _decode(self, record: Message, table: str) -> ControlMessage | None:
        if _key(record) != table:
            return None
        try:
            found = decode(record.value() or b"")
            if not isinstance(found, MessagePart):
                return found
            return self._whole(found, _offset(record), table) if found.stands else None
        except ValueError as error:
            raise ActionRequiredError(
                "A message of this table in the control topic can't be read.",
                next_step="if a newer release has written it, upgrade this one; else find who writes to the topic.",
                offset=record.offset() if record.offset() != OFFSET_INVALID else None,
                table=table,
                **self._where,
            ) from error

    def _whole(self, last: MessagePart, offset: int, table: str) -> ControlMessage | None:
        """The message whose last part stands at an offset; None where its first parts have left the topic."""
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
