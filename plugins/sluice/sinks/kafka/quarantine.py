"""Bad records of a pipeline that writes topics: a separate topic with unchanged records, and their problems in headers.

It has a separate log, too: an interval's bad records are one Kafka transaction, sent once the interval is committed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition
from pydantic import ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, kafka_errors
from sluice.kafka.transactional import TIMEOUT
from sluice.protocol.identity import LogId
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import INSTANT, SCHEMA, Quarantined, quarantine_path
from sluice.records.settings import Errors
from sluice.sinks.kafka.cluster import target_settings
from sluice.sinks.kafka.log import TableLog
from sluice.sinks.kafka.offsets import Offsets
from sluice.sinks.kafka.options import KafkaTopic
from sluice.sinks.kafka.options.names import LEFT_OUT, log_of, quarantine_topic

_DDL: Final = f"{SCHEMA}, {INSTANT} STRING"
_OWN: Final = "sluice."
_HEADERS: Final = (
    *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "reason", "stage", "table_name"),
    *("dag_id", "run_id", "range_number", "attempt", "kafka_topic_id", "kafka_cluster_id", INSTANT),
)
"""The columns written as headers after the record's original headers; the headers' names begin with `_OWN`.

`LEFT_OUT` follows them if a record was shortened.
"""
_CONFIG: Final = {"retention.ms": "-1", "cleanup.policy": "delete", "max.message.bytes": "10485760"}

Header = tuple[str, str | bytes | None]
Span = tuple[str, int, int, int]
"""A range of records: topic, partition, first offset, and end offset (exclusive)."""


def quarantine_section(table: TableSpec, errors: Errors, section: KafkaTopic) -> KafkaTopic:
    """The sink's section for a pipeline's bad records.

    Args:
        table: the settings for the pipeline's good records.
        errors: the pipeline's `errors` section.
        section: the pipeline's sink section.

    Raises:
        ActionRequiredError: errors.quarantine isn't a log on the same connection.
    """
    path = quarantine_path(table.path, errors)
    beside = section.topic_settings.model_copy(update={"create": True, "partitions": 1, "config": _CONFIG})
    try:
        connection, log = log_of(path)
        made = KafkaTopic.model_validate(
            {
                "connection": connection,
                "topic": quarantine_topic(log),
                "log_topic": log,
                "staging": f"{section.staging}/_quarantine",
                "schema": _DDL,
                "key_fields": "kafka_key",
                "key": {"encoder": "bytes"},
                "value_fields": "kafka_value",
                "value": {"encoder": "bytes"},
                "headers": {f"{_OWN}{name}": name for name in _HEADERS},
                "headers_from": "kafka_headers",
                "timestamp": "kafka_timestamp",
                "compression": section.compression,
                "transaction_timeout": section.transaction_timeout,
                "producer": section.producer,
                "topic_settings": beside,
                "on_topic_change": "continue",  # the interval is already committed when its bad records are sent
            }
        )
    except (ValidationError, ActionRequiredError):
        made = None
    if made is None or made.connection != section.connection:
        raise ActionRequiredError(
            "Bad records can't be set aside there.",
            next_step=f"leave errors.quarantine out, or name a log as kafka://{section.connection}/<log>; the topic of "
            "the records has its name without `_sluice.` in front.",
            quarantine=path,
        )
    return made


class QuarantineTopic:
    """Reads the bad records of a pipeline without a JVM; see `sluice.connectors.views.QuarantineReader`.

    Args:
        path: the id of their table, `kafka://<connection>/<log>`.
        settings: the cluster; by default from the connection given to this process.
    """

    def __init__(self, path: str, settings: KafkaSettings | None = None) -> None:
        self.path = path
        self._connection, self._log = log_of(path)
        self._given = settings

    def committed(self, instants: Iterable[str] = ()) -> dict[str, list[str]]:
        """The instants with bad records; the only path of each is the instant itself.

        The log has the last of these instants; earlier ones are found by reading the records.
        """
        wanted = frozenset(instants)
        known, older = self._spans()
        found: dict[str, None] = {}
        if not wanted or wanted - known.keys():
            found = dict.fromkeys(_own(message)[INSTANT] for message in self._read(older))
        return {one: [one] for one in sorted({*found, *known}) if not wanted or one in wanted}

    def records(self, paths: Sequence[str], *, whole: bool = True) -> Iterator[Quarantined]:  # noqa: ARG002
        """The records of instants, in order; a path is an instant, or begins with an instant and a slash."""
        wanted = dict.fromkeys(path.partition("/")[0] for path in paths)
        known, older = self._spans()
        for instant in wanted:
            for message in self._read(known.get(instant, older)):
                own = _own(message)
                if own[INSTANT] == instant:
                    yield _record(message, own)

    def _spans(self) -> tuple[dict[str, list[Span]], list[Span]]:
        """The ranges of each interval in the log, and the ranges of all earlier intervals together."""
        settings = self._settings()
        offsets = Offsets(settings)
        if not offsets.partitions([self._log]):
            return {}, []
        log = TableLog(settings, self._log)
        try:
            commits = log.read().commits
        finally:
            log.close()
        topic = quarantine_topic(self._log)
        starts = offsets.starts([topic]).get(topic, {})
        ends = offsets.ends([topic], committed=True).get(topic, {})
        known: dict[str, list[Span]] = {}
        first = dict(ends)
        for one in reversed(commits):
            spans = [(topic, p, max(start, starts.get(p, 0)), end) for p, start, end in one.spans.get(topic, ())]
            known[one.instant] = spans
            first |= {p: min(first.get(p, start), start) for _, p, start, _ in spans}
        if not commits or commits[-1].number == 1:
            return known, []
        return known, [(topic, p, starts.get(p, 0), end) for p, end in sorted(first.items())]

    def _read(self, spans: Sequence[Span]) -> Iterator[Message]:
        left = [span for span in spans if span[2] < span[3]]
        if not left:
            return
        consumer = AssignedConsumer(
            self._settings().client(
                group_id=f"sluice-reader-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                isolation_level="read_committed",
                fetch_wait_max_ms=50,
            )
        )
        try:
            for topic, partition, start, end in left:
                consumer.assign([KafkaTopicPartition(topic, partition, start)])
                yield from self._between(consumer, start, end, topic=topic, partition=partition)
        finally:
            consumer.close()

    def _between(self, consumer: AssignedConsumer, position: int, end: int, **where: Any) -> Iterator[Message]:
        """The committed records before an offset; the last one may be followed by transaction markers."""
        deadline = time.monotonic() + TIMEOUT
        while position < end:
            record = consumer.poll(1)
            if record is None:
                with kafka_errors("asking how far bad records were read", **where):
                    (at,) = consumer.position([KafkaTopicPartition(where["topic"], where["partition"])])
                position = max(position, at.offset)
                if position < end and time.monotonic() > deadline:
                    raise RetryableError(
                        "The bad records could not be read to their end in time.",
                        next_step="try again in some minutes: a transaction may be open in their topic.",
                        position=position,
                        end=end,
                        **where,
                    )
                continue
            error, offset = record.error(), record.offset()
            assert offset is not None
            if error is None:
                if offset >= end:
                    return
                yield record
                position, deadline = offset + 1, time.monotonic() + TIMEOUT
            elif error.code() == KafkaError._PARTITION_EOF:
                position = max(position, offset)
            elif not error.retriable():
                raise classify(error, "reading bad records", **where)

    def _settings(self) -> KafkaSettings:
        if self._given is None:
            self._given = target_settings(self._connection)
        return self._given


def _own(message: Message) -> dict[str, str]:
    """Sluice's metadata of a bad record, from the headers after its original ones."""
    headers = _headers(message)[1]
    names = [name.removeprefix(_OWN) for name, _ in headers]
    if names[: len(_HEADERS)] != list(_HEADERS):
        raise ActionRequiredError(
            "The topic of bad records has a record in it that Sluice has not written.",
            next_step="find out which other program writes to this topic.",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
        )
    values = [value.decode() if isinstance(value, bytes) else value for _, value in headers]
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _headers(message: Message) -> tuple[list[Header], list[Header]]:
    """A bad record's original headers, and Sluice's headers after them."""
    headers = list(message.headers() or ())
    ours = len(_HEADERS) + bool(headers and headers[-1][0] == LEFT_OUT)
    return headers[:-ours], headers[-ours:]


def _record(message: Message, own: Mapping[str, str]) -> Quarantined:
    time_of_record = own.get("kafka_timestamp")
    carried, _ = _headers(message)
    return Quarantined(
        instant=own[INSTANT],
        topic=own["kafka_topic"],
        partition=int(own["kafka_partition"]),
        offset=int(own["kafka_offset"]),
        reason=own["reason"],
        stage=own["stage"],
        range_number=int(own["range_number"]),
        run_id=own["run_id"],
        log=LogId(own.get("kafka_cluster_id"), own.get("kafka_topic_id")),
        timestamp=datetime.fromisoformat(time_of_record).replace(tzinfo=UTC) if time_of_record else None,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in carried),
        left_out=own.get(LEFT_OUT.removeprefix(_OWN)),
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
