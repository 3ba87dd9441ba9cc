"""Bad records of a pipeline that writes topics: a topic of their own, each as it was, its problem in its headers.

It has a log of its own, too: the interval's bad records are one Kafka transaction, sent once the interval is committed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition
from pydantic import ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, kafka_errors
from sluice.kafka.transactional import TIMEOUT
from sluice.protocol.identity import LogId
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import INSTANT, SCHEMA, Quarantined, quarantine_path
from sluice.records.settings import Errors
from sluice.sinks.kafka.cluster import target_settings
from sluice.sinks.kafka.log import TableLog
from sluice.sinks.kafka.names import LEFT_OUT, log_of, quarantine_topic
from sluice.sinks.kafka.offsets import Offsets
from sluice.sinks.kafka.options import KafkaTopic

_DDL: Final = f"{SCHEMA}, {INSTANT} STRING"
_OWN: Final = "sluice."
_HEADERS: Final = (
    *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "reason", "stage", "table_name"),
    *("dag_id", "run_id", "range_number", "attempt", "kafka_topic_id", "kafka_cluster_id", INSTANT),
)
"""The columns that stand in headers, behind the record's own; their names there begin with `_OWN`.

Behind them stands `LEFT_OUT` where the topic doesn't take all of a record.
"""
_CONFIG: Final = {"retention.ms": "-1", "cleanup.policy": "delete", "max.message.bytes": "10485760"}

Header = tuple[str, str | bytes | None]
Span = tuple[str, int, int, int]
"""Records of a topic's partition, from an offset up to another."""


def quarantine_section(table: TableSpec, errors: Errors, section: KafkaTopic) -> KafkaTopic:
    """The section of a pipeline that would write nothing but the bad records of this one.

    Args:
        table: how the pipeline's own records are written.
        errors: what it says of bad records.
        section: its own section.

    Raises:
        ActionRequiredError: errors.quarantine names nothing on the same connection.
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
    """The bad records of a pipeline without a JVM; see `sluice.connectors.views.QuarantineReader`.

    Args:
        path: the id of their table, `kafka://<connection>/<log>`.
        settings: the cluster; by default what this process was given of the connection.
    """

    def __init__(self, path: str, settings: KafkaSettings | None = None) -> None:
        self.path = path
        self._connection, self._log = log_of(path)
        self._given = settings

    def committed(self, instants: Iterable[str] = ()) -> dict[str, list[str]]:
        """The instants that have bad records; of each its own name is the only path.

        The log has the last of them; those before are found by the records themselves.
        """
        wanted = frozenset(instants)
        known, older = self._spans()
        found: dict[str, None] = {}
        if not wanted or wanted - known.keys():
            found = dict.fromkeys(_own(message)[INSTANT] for message in self._read(older))
        return {one: [one] for one in sorted({*found, *known}) if not wanted or one in wanted}

    def records(self, paths: Sequence[str], *, whole: bool = True) -> Iterator[Quarantined]:  # noqa: ARG002
        """The records of instants, in their order; a path is an instant, or begins with one and a slash."""
        wanted = dict.fromkeys(path.partition("/")[0] for path in paths)
        known, older = self._spans()
        for instant in wanted:
            for message in self._read(known.get(instant, older)):
                own = _own(message)
                if own[INSTANT] == instant:
                    yield _record(message, own)

    def _spans(self) -> tuple[dict[str, list[Span]], list[Span]]:
        """Where the records of each interval are that the log has, and where those before them are."""
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
        consumer = Consumer(
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

    def _between(self, consumer: Consumer, position: int, end: int, **where: Any) -> Iterator[Message]:
        """The committed records before an offset; behind the last of them may be what ends their transaction."""
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
    """What stands of a bad record in the headers behind its own."""
    headers = _headers(message)[1]
    names = [name.removeprefix(_OWN) for name, _ in headers]
    if names[: len(_HEADERS)] != list(_HEADERS):
        raise ActionRequiredError(
            "The topic of bad records has a record in it that Sluice has not written.",
            next_step="find who else writes to this topic.",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
        )
    values = [value.decode() if isinstance(value, bytes) else value for _, value in headers]
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _headers(message: Message) -> tuple[list[Header], list[Header]]:
    """A bad record's own headers, and those behind them."""
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
