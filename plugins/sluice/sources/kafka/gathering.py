"""Reads a few records of each of very many partitions with one client, where a Spark task for each would cost far more.

Spark's Kafka source makes a consumer for each partition, and each makes its connections: some hundred milliseconds for
what may be two records. What one client doesn't read in full, for whatever reason, is left to Spark.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from sluice.kafka.assigned import AssignedConsumer
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.protocol.messages import PlannedRange

FULL_BYTES = 16 << 20
"""Keys, values and headers that are held at once; a window that has begun may come to twice as much."""
FULL_RECORDS = 50_000
"""Likewise, of records."""
_WINDOW = 1000  # partitions that are read at the same time
_PATIENCE = 10.0  # seconds without a record; then Spark reads, and says what is wrong
_AT_MOST = 5000  # events at once
_LATEST = 253_402_300_799_999  # the year 9999
_UNKNOWN = -1
_TIME_TYPES = {0: -1, 1: 0, 2: 1}  # librdkafka's numbers, and Java's, which Spark's columns have


class Record(NamedTuple):
    """A record, with its time in milliseconds since 1970 (-1 for none) and the time's type by Java's number."""

    offset: int
    time: int
    time_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@dataclass
class Stretch:
    """One planned range, and its records in their order."""

    planned: PlannedRange
    records: list[Record] = field(default_factory=list)


class Gathering:
    """Reads ranges with one client, as many as are held at once.

    Args:
        settings: the cluster.
        isolation_level: which transactions' records are read.
        headers: whether to keep the records' headers.
    """

    def __init__(self, settings: KafkaSettings, isolation_level: str, *, headers: bool) -> None:
        self._name = settings.name
        self._headers = headers
        self._consumer = AssignedConsumer(
            settings.client(
                group_id=f"sluice-reader-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                isolation_level=isolation_level,
                fetch_wait_max_ms=20,
                fetch_message_max_bytes=65536,  # of a partition, whose log may reach far beyond what was planned
                queued_max_messages_kbytes=16384,
            )
        )
        self._waiting: dict[tuple[str, int], Stretch] = {}
        self._whole: list[Stretch] = []
        self._unfit: list[PlannedRange] = []
        self._bytes = self._records = 0

    def read(self, ranges: Sequence[PlannedRange]) -> tuple[list[Stretch], list[PlannedRange]]:
        """Read ranges, in their order, until there are as many records as are held at once.

        Args:
            ranges: of partitions of this cluster, each at most once.

        Returns:
            The ranges that were read in full, and the ranges that are to be read in another way; never neither.
        """
        left = list(ranges)
        try:
            while left and self._bytes < FULL_BYTES and self._records < FULL_RECORDS:
                window = self._window(left)
                del left[: len(window)]
                if not self._read(window):  # what holds these up would hold up the others, too
                    self._unfit += [*(stretch.planned for stretch in self._waiting.values()), *left]
                    break
                if not self._whole:  # all that could be held was not enough for one of them
                    self._unfit += [stretch.planned for stretch in self._waiting.values()]
        finally:
            self._consumer.close()
        if self._unfit:
            log.info("partitions are read one by one", connection=self._name, partitions=len(self._unfit))
        return self._whole, self._unfit

    def _window(self, left: Sequence[PlannedRange]) -> list[PlannedRange]:
        """The next ranges, at least one, that don't have more offsets than may still be held."""
        ends = accumulate((r.end - r.start for r in left[:_WINDOW]), initial=self._records)
        return list(left[: max(1, sum(held <= FULL_RECORDS for held in ends) - 1)])

    def _read(self, window: Sequence[PlannedRange]) -> bool:
        """Read some ranges, until they are whole or too much is held; False if nothing more was heard of them."""
        self._waiting = {(r.topic, r.partition): Stretch(r) for r in window}
        self._consumer.assign([KafkaTopicPartition(r.topic, r.partition, r.start) for r in window])
        heard = time.monotonic()
        while self._waiting and self._bytes <= 2 * FULL_BYTES:
            # Each one that is waited for has at least one event to come, so this returns as soon as it can.
            events = self._consumer.consume(min(len(self._waiting), _AT_MOST), timeout=0.5)
            beyond: dict[tuple[str, int], None] = {}
            before = len(self._waiting), self._records
            for event in events:
                self._take(event, beyond)
            if beyond:
                self._consumer.pause([KafkaTopicPartition(*place) for place in beyond])
            if (len(self._waiting), self._records) != before:
                heard = time.monotonic()
            elif time.monotonic() - heard > _PATIENCE:
                return False
        return True

    def _take(self, event: Message, beyond: dict[tuple[str, int], None]) -> None:
        partition = event.partition()
        place = (str(event.topic()), _UNKNOWN if partition is None else partition)
        stretch, error, offset = self._waiting.get(place), event.error(), event.offset()
        if error is not None:
            if stretch is None or offset is None:
                return  # of the client as a whole: if it doesn't pass, nothing is heard any more
            if error.code() != KafkaError._PARTITION_EOF:
                self._leave(place, str(error.name()))
            elif offset >= stretch.planned.end:  # the log's end, however many offsets before it hold no record
                self._done(place)
            return
        if stretch is None:
            beyond[place] = None
            return
        assert offset is not None
        last = stretch.records[-1].offset if stretch.records else stretch.planned.start - 1
        if offset <= last:
            self._leave(place, "offsets that don't ascend")
            return
        if offset < stretch.planned.end:
            record = self._record(event, offset)
            if record is None:
                self._leave(place, "a record that only Spark's client reads")
                return
            stretch.records.append(record)
            self._records += 1
        if offset >= stretch.planned.end - 1:
            self._done(place)

    def _done(self, place: tuple[str, int]) -> None:
        self._whole.append(self._waiting.pop(place))

    def _leave(self, place: tuple[str, int], reason: str) -> None:
        planned = self._waiting.pop(place).planned
        log.info("a range is left to Spark's client", range=str(planned), reason=reason)
        self._unfit.append(planned)

    def _record(self, event: Message, offset: int) -> Record | None:
        """The record; None for one that Java's client and Spark may read in another way."""
        kind, when = event.timestamp()
        if kind not in _TIME_TYPES or not _UNKNOWN <= when <= _LATEST:  # Spark takes old dates for Julian ones
            return None
        headers = None
        if self._headers:
            try:
                headers = event.headers() or None
            except UnicodeDecodeError:
                return None
        key, value = event.key(), event.value()
        self._bytes += len(key or b"") + len(value or b"") + sum(len(k) + len(v or b"") for k, v in headers or ())
        return Record(offset, when, _TIME_TYPES[kind], key, value, headers)
