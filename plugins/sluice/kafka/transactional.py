"""Sends records in Kafka transactions: all of one or none, however often a step is run."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, NoReturn, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, kafka_errors
from sluice.kafka.topic_id import PresentTopicId, topic_id, topic_id_of
from sluice.kafka.topics import message_limit

TIMEOUT = 60.0
_TRANSACTION_TIMEOUT = 60.0  # of a chunk; a process that dies in one holds its topics' readers up for so long
_CHUNK_RECORDS = 5_000
_CHUNK_BYTES = 16 << 20
_ANY = -1  # the partition is computed from the key, RD_KAFKA_PARTITION_UA
_SERVED = 100  # records between polls for the results of earlier ones
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_RAISED = (KafkaException, SystemError)
# A fatal error, such as that the producer is fenced, is raised where callbacks are served; the next callback is called
# with that exception under way, and Python makes a SystemError of it, whose cause it is, or which has lost it.
_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
_NOT_THERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A record to send; there are millions of them, and a tuple is made in a fraction of an object's time.

    `partition` is None where its key decides; `timestamp` in ms is None for now.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None

    @property
    def size(self) -> int:
        """About its bytes in a separate batch."""
        headers = sum(len(name) + len(value or b"") + 10 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 128


def identity_of(what: str, name: str, table: str) -> str:
    """A transactional id or group of one table: for people its name, and a hash of its path."""
    return f"sluice.{what}.{name}.{hashlib.sha256(table.encode()).hexdigest()[:12]}"


class TransactionalSender:
    """A transactional producer, for one transaction. Making it aborts any open transaction of the same id.

    librdkafka's transactions all have the producer epoch with which the id was initialized: it lacks KIP-890. A request
    that ends one of them and reaches the broker late, after a retry, would end the next one prematurely. So each
    transaction has its own epoch: `take_anew` comes before a second one.

    Args:
        settings: the cluster.
        identity: the transactional id. A second process with it fences the first one.
        timeout: after how many seconds the broker aborts an unfinished transaction.
        client: further settings of the producer.
        refusal: the error to report where Kafka refuses a record; None for errors of any producer.

    Raises (all methods):
        RetryableError: Kafka doesn't answer, or another process has the same id now.
        ActionRequiredError: a topic is missing, or may not be used.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        identity: str,
        *,
        timeout: float = _TRANSACTION_TIMEOUT,
        client: Mapping[str, Any] | None = None,
        refusal: Callable[[KafkaError], SluiceError | None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._refusal = refusal
        self._where = {"connection": settings.name, "transactional_id": identity}
        self._failed: list[KafkaError] = []
        self._begun = False
        given = settings.client(message_max_bytes=1_000_000_000, linger_ms=20) | dict(client or {})
        self._client = given | {"transactional.id": identity, "transaction.timeout.ms": int(timeout * 1000)}
        self._producer = self._taken()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()

    def _taken(self) -> Producer:
        producer = Producer(self._client)
        with self._errors("taking the transactional id"):
            producer.init_transactions(TIMEOUT)
        return producer

    def take_anew(self) -> None:
        """Initialize the id again, for another transaction; requests in flight of the earlier one are void.

        Another process may have had the id in between, so check afterwards which records were sent.
        """
        self._producer.purge()
        self._producer = self._taken()
        self._begun = False

    def remembered(self, topic: str) -> str | None:
        """The metadata of that topic's offset in the group of the same name, where earlier releases kept notes."""
        consumer = Consumer(self._settings.client(group_id=self._identity, enable_auto_commit=False))
        try:
            with self._errors("asking what was sent already"):
                found = consumer.committed([KafkaTopicPartition(topic, 0)], timeout=TIMEOUT)[0]
            if found.error is not None:
                raise classify(found.error, "asking what was sent already", **self._where)
            return found.metadata if found.offset >= 0 else None
        finally:
            consumer.close()

    def send(self, records: Iterable[Record]) -> None:
        """Send the records in one transaction: all or none."""
        self.begin()
        try:
            self.produce_all(records)
            self.flush()
            reach("kafka.before_commit_transaction")
            self.commit()
        except BaseException:
            with suppress(*_RAISED):
                self._producer.abort_transaction(TIMEOUT)
            raise

    def begin(self) -> None:
        """Begin the transaction.

        Raises:
            RuntimeError: it is not the first one of this producer: see the class.
        """
        if self._begun:
            raise RuntimeError(f"{self._identity} has had its transaction: take the id anew for another one")
        self._begun = True
        with self._errors("sending in a transaction"):
            self._producer.begin_transaction()

    def commit(self) -> None:
        """Commit the transaction. Where this fails it may be committed nevertheless: a successor's look decides."""
        with self._errors("committing the transaction"):
            self._producer.commit_transaction(TIMEOUT)

    def produce_all(self, records: Iterable[Record]) -> None:
        """Add records to the transaction one after the other, waiting for room. This loop runs for every record."""
        queue, delivered = self._producer.produce, self._delivered
        for number, (topic, key, value, headers, partition, timestamp) in enumerate(records, 1):
            place = _ANY if partition is None else partition
            time_of_it = 0 if timestamp is None or timestamp < 0 else timestamp  # 0 is librdkafka's word for now
            while True:
                try:
                    queue(topic, value, key, place, delivered, None, time_of_it, list(headers) if headers else None)
                    break
                except BufferError:  # the queue is full
                    self._serve(1)
                except KafkaException as error:
                    self._serve(0)  # which record was refused says more than that the transaction has failed
                    raise self._classified(error.args[0], "sending in a transaction") from error
            if number % _SERVED == 0:
                self._serve(0)

    def _serve(self, seconds: float) -> None:
        """Poll for the records' results."""
        try:
            self._producer.poll(seconds)
        except _RAISED as error:
            self._raise(error, "sending in a transaction")
        self._raise_failure()

    def flush(self) -> None:
        """Wait until Kafka has all records of the transaction."""
        with self._errors("sending in a transaction"):
            left = self._producer.flush(TIMEOUT)
        if left:
            raise RetryableError(
                "Records were not acknowledged in time.",
                next_step="check that the brokers are up; the step is retried.",
                **self._where,
            )
        self._raise_failure()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def _raise_failure(self) -> None:
        """Raise a refused record's error, if any, rather than those of records purged because of it."""
        if not self._failed:
            return
        if all(error.code() in _PURGED for error in self._failed):
            with suppress(*_RAISED):
                self._producer.flush(TIMEOUT)  # the refused record may be reported after them
        told = next((error for error in self._failed if error.code() not in _PURGED), self._failed[0])
        raise self._classified(told, "sending in a transaction")

    def _classified(self, error: KafkaError, doing: str) -> SluiceError:
        if error.code() in _FENCED:
            return RetryableError(
                f"Another process sends in this table's name ({doing}).",
                next_step="none: that one does it; this step is retried, and finds it done.",
                **self._where,
            )
        return self._refusal(error) or classify(error, doing, **self._where)

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except _RAISED as error:
            self._raise(error, doing)

    def _raise(self, error: Exception, doing: str) -> NoReturn:
        """Classify an exception of the client's; other exceptions are returned unchanged."""
        found = error if isinstance(error, KafkaException) else error.__cause__ or self._fatal()
        if not isinstance(found, KafkaException):
            self._raise_failure()
            raise error
        if found.args[0].code() not in _FENCED:  # a fencing error says more than the records' own errors
            self._raise_failure()
        raise self._classified(found.args[0], doing) from error

    def _fatal(self) -> KafkaException | None:
        """The client's fatal error, if any: a fatal client fails every call, any other only as "already begun"."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            return None if error.args[0].code() == KafkaError._STATE else error
        return None


def chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records in chunks, each small enough for a transaction and for memory, made lazily."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        if chunk and (len(chunk) == _CHUNK_RECORDS or size + record.size > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += record.size
    if chunk:
        yield chunk


def read_all(settings: KafkaSettings, topic: str, partition: int = 0, since: int = 0) -> Iterator[Message]:
    """All committed records of a topic's partition, by default of its only one, up to its present end.

    Args:
        settings: the cluster.
        topic: the topic.
        partition: its partition.
        since: the offset to begin at.

    Raises:
        RetryableError: nothing comes for long, since the broker doesn't answer or a transaction is open.
    """
    where = {"topic": topic, "connection": settings.name}
    consumer = AssignedConsumer(
        settings.client(
            group_id=f"sluice-reader-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            isolation_level="read_committed",
        )
    )
    try:
        with kafka_errors("asking for the topic's offsets", **where):
            start, end = consumer.get_watermark_offsets(KafkaTopicPartition(topic, partition), TIMEOUT)
        position = max(start, since)
        consumer.assign([KafkaTopicPartition(topic, partition, position)])
        deadline = time.monotonic() + TIMEOUT
        while position < end:
            record = consumer.poll(1)
            error = record.error() if record is not None else None
            if time.monotonic() > deadline:
                raise RetryableError(
                    "A topic could not be read to its end in time.",
                    next_step="try again in some minutes: a transaction may be open in it.",
                    position=position,
                    end=end,
                    **where,
                )
            if record is None or (error is not None and error.retriable()):
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise classify(error, "reading a topic", **where)
            offset = record.offset()
            assert offset is not None
            position = max(position, offset + (error is None))
            if error is None:
                yield record
                deadline = time.monotonic() + TIMEOUT
    finally:
        consumer.close()


def read_whole(settings: KafkaSettings, topic: str) -> Iterator[Message]:
    """All committed records of a topic, one partition after another, up to their present ends.

    Raises:
        ActionRequiredError: there is no such topic.
        RetryableError: nothing comes for long, since the broker doesn't answer or a transaction is open.
    """
    where = {"topic": topic, "connection": settings.name}
    admin = AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
    with kafka_errors("looking for the topic", **where):
        known = admin.list_topics(timeout=TIMEOUT).topics
    if topic not in known:
        raise ActionRequiredError("There is no such topic.", next_step="correct its name, or the cluster.", **where)
    for partition in sorted(known[topic].partitions):
        yield from read_all(settings, topic, partition)


def topic_exists(settings: KafkaSettings, topic: str) -> bool:
    """Whether a topic is there.

    Raises:
        RetryableError, ActionRequiredError: Kafka doesn't say.
    """
    admin = AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
    with kafka_errors("looking for the topic", topic=topic, connection=settings.name):
        return topic in admin.list_topics(timeout=TIMEOUT).topics


def topics_there(
    settings: KafkaSettings, topics: Collection[str], admin: AdminClient | None = None
) -> dict[str, str | None]:
    """Those of the topics that are there and may be looked at, each with its id, None from a broker without ids.

    Raises:
        RetryableError, ActionRequiredError: Kafka doesn't say.
    """
    admin = admin or AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
    found: dict[str, str | None] = {}
    for topic, answer in admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT).items():
        try:
            found[topic] = topic_id(answer.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_THERE:
                raise classify(error.args[0], "looking for the topic", topic=topic, connection=settings.name) from error
    return found


def present_topic_id(settings: KafkaSettings, topic: str) -> PresentTopicId:
    """The id of a topic that exists, asked for when first needed.

    Raises (when it is asked for):
        RetryableError, ActionRequiredError: Kafka doesn't say.
    """

    def ask() -> str | None:
        admin = AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
        with kafka_errors("asking for the topic's id", topic=topic, connection=settings.name):
            return topic_id_of(admin, topic, TIMEOUT)

    return PresentTopicId(ask)


def ensure_topic(
    settings: KafkaSettings, topic: str, config: dict[str, str] | None = None, *, partitions: int = 1
) -> int:
    """See that a topic is there, created with these partitions on first use; returns its message limit in bytes.

    How many replicas it has is the brokers' `default.replication.factor`.

    Raises:
        RetryableError, ActionRequiredError: as for any topic.
    """
    where = {"topic": topic, "connection": settings.name}
    admin = AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
    if not topic_exists(settings, topic):
        new = NewTopic(topic, num_partitions=partitions, config=config or {})
        try:
            admin.create_topics([new], request_timeout=TIMEOUT)[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise classify(error.args[0], "creating the topic", **where) from error
    with kafka_errors("asking for the topic's message limit", **where):
        return message_limit(
            lambda request: {one: answer.result() for one, answer in request(admin).items()}, topic, TIMEOUT
        )
