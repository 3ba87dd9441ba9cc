"""The log of a folder's files in Kafka: each entry once, whichever START has listed the folder.

A START that appends takes the log's transactional id first, which fences earlier ones, and only then reads the log to
its end. So it knows all entries that there will ever be before its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from confluent_kafka import Consumer, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import kafka_errors, until_it_is_known, until_there_is_a_leader
from sluice.kafka.transactional import TIMEOUT, Record, TransactionalSender, ensure_topic, identity_of, read_all
from sluice.sources.files.entries import Entry, Logged, decoded, encoded

_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_CHUNK = 50_000  # entries of a transaction: some 15 MB


def ensure_log(settings: KafkaSettings, topic: str, splits: int) -> list[int]:
    """See that the log is there, and that it keeps its entries; returns its partitions.

    Args:
        settings: the cluster.
        topic: the log.
        splits: its partitions if it is created.

    Raises:
        ActionRequiredError: it could lose entries: a file would be read again.
        RetryableError: Kafka doesn't answer.
    """
    ensure_topic(settings, topic, _KEPT, partitions=splits)
    admin = AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with kafka_errors("asking for the settings of the files' log", topic=topic, connection=settings.name):
        found = admin.describe_configs([resource], request_timeout=TIMEOUT)[resource].result()
    wrong = {name: found[name].value for name, value in _KEPT.items() if found[name].value != value}
    if wrong:
        raise ActionRequiredError(
            "The topic of the files' log would lose entries, and their files would be read again.",
            next_step="set it to keep all ("
            + ", ".join(f"{name}={_KEPT[name]}" for name in wrong)
            + "), or name another one in the source's `log`.",
            topic=topic,
            connection=settings.name,
            **{name.replace(".", "_"): value for name, value in wrong.items()},
        )
    with kafka_errors("waiting for the files' log", topic=topic, connection=settings.name):
        return _led_partitions(admin, topic)


@until_it_is_known
@until_there_is_a_leader
def _led_partitions(admin: AdminClient, topic: str) -> list[int]:
    """The partitions of a topic that may just have been created, once the leader of each answers."""
    found = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT)[topic].result()
    wanted = {KafkaTopicPartition(topic, one.id): OffsetSpec.earliest() for one in found.partitions}
    for answer in admin.list_offsets(wanted, request_timeout=TIMEOUT).values():
        answer.result()
    return sorted(one.id for one in found.partitions)


def entries(
    settings: KafkaSettings, topic: str, partition: int, start: int, end: int | None = None
) -> Iterator[Logged]:
    """The entries with numbers from `start` up to `end`, or up to the log's present end.

    Raises:
        ActionRequiredError: the log doesn't have all of them any more, or has something else.
        RetryableError: Kafka doesn't answer.
    """
    for record in read_all(settings, topic, partition, start):
        number = record.offset()
        assert number is not None
        if end is not None and number >= end:
            break
        yield Logged(partition, number, record.timestamp()[1], decoded(record.value(), number))
    _require_kept(settings, topic, partition, start)  # after the read, so that nothing was removed before or in it


def _require_kept(settings: KafkaSettings, topic: str, partition: int, start: int) -> None:
    consumer = Consumer(settings.client(group_id=identity_of("files", topic, topic), enable_auto_commit=False))
    try:
        with kafka_errors("asking for the start of the files' log", topic=topic, connection=settings.name):
            low, _ = consumer.get_watermark_offsets(KafkaTopicPartition(topic, partition), TIMEOUT)
    finally:
        consumer.close()
    if low > start:
        raise ActionRequiredError(
            "Entries of the files' log were removed, so it isn't known any more which files were read.",
            next_step="nothing was read. Load the folder into a new table, by another topic in the source's `log`; "
            "keep that topic from kafka-delete-records.",
            topic=topic,
            partition=partition,
            wanted=start,
            log_start=low,
        )


class Appending:
    """Appends entries, and gives way to a later process that does. Making it fences earlier ones.

    Args:
        settings: the cluster.
        topic: the log.
        extend: reads what is new in the log, and returns its number.
    """

    def __init__(self, settings: KafkaSettings, topic: str, extend: Callable[[], int]) -> None:
        self._settings, self._topic, self._extend = settings, topic, extend
        client = {"compression.type": "lz4"}
        self._sender = TransactionalSender(settings, identity_of("files", topic, topic), client=client)

    def append(self, found: Iterable[tuple[int, Entry]]) -> None:
        """Append entries, each to its partition.

        Raises:
            RetryableError: another process appends to the log, or Kafka doesn't answer.
        """
        given, last = iter(found), 0
        with self._sender as sender:
            while chunk := list(islice(given, _CHUNK)):
                if last:
                    self._require_alone(last)
                sender.send(Record(self._topic, None, encoded(entry), (), partition) for partition, entry in chunk)
                # Kafka answers a commit before readers see the records, and gives the id anew only when they do.
                sender.take_anew()
                last = len(chunk)

    def _require_alone(self, last: int) -> None:
        if self._extend() != last:
            raise RetryableError(
                "Another process has added files to the log meanwhile.",
                next_step="none: the step is retried, and finds them.",
                topic=self._topic,
                connection=self._settings.name,
            )
