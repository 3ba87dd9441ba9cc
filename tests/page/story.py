"""Messages as coordinators and participants send them, of any number of intervals of one table."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.protocol.messages import (
    AbortCommit,
    AckCommit,
    Claim,
    ControlMessage,
    EndCommit,
    PartitionResult,
    PlannedRange,
    StartCommit,
    TableSpec,
    WriteStatus,
    encode,
)

CLUSTER = "kafka_default"
WORKER = "default-0-here"
BAD_RECORD = (
    "A record can't be loaded: the value is not JSON, or a field is not of its column's type. "
    "[topic=flights, partition=1, offset=105] Next step: correct the producer."
)


@dataclass
class Story:
    """Sends one table's messages in order; the clock is the story's own. Every third interval leaves some lag."""

    table: str
    dag_id: str
    topic: str
    clock: datetime
    partitions: int = 2
    clusters: tuple[str, ...] = (CLUSTER,)
    ends: dict[str, str] = field(default_factory=dict)  # `source` and `sink`, where they aren't Sluice's own
    messages: list[ControlMessage] = field(default_factory=list)
    standing: dict[int, int] = field(default_factory=dict)
    _chance: random.Random = field(default_factory=lambda: random.Random(7))

    def committed(self, records: int = 100, failures: int = 0, **more: Any) -> str:
        """An interval that is committed; its first range fails as often as `failures` says. Returns its instant."""
        start = self._start(records, **more)
        self._fail(start, failures, for_good=False)
        for number, group in enumerate(start.ranges):
            self._write(start, number, group)
        self._send(EndCommit, start, seconds=0.5, reported=tuple(range(len(start.ranges))))
        counts = {"records_read": records * len(start.ranges), "records_quarantined": 0, "records_skipped": 0}
        counts["records_written"] = counts["records_read"]
        through = start.valid_through
        ends = tuple(r for group in start.ranges for r in group) + start.idle + start.passed_over
        self._send(AckCommit, start, seconds=2.5, offsets=ends, valid_through=through, **counts)
        if start.kind in ("continue", "backfill", "range", "correction"):
            self.standing |= {r.partition: r.end for r in ends}
        return start.transaction

    def aborted(self, records: int = 100) -> str:
        """An interval whose first range fails for good."""
        start = self._start(records)
        self._fail(start, 2)
        self._send(AbortCommit, start, seconds=2, reason=BAD_RECORD)
        return start.transaction

    def started(self, records: int = 100, **more: Any) -> str:
        """An interval that is under way: one range has been written."""
        start = self._start(records, **more)
        self._write(start, 0, start.ranges[0])
        return start.transaction

    def claimed(self, number: int, worker: str, **more: Any) -> None:
        """A worker takes a range of the interval that is under way."""
        start = next(m for m in reversed(self.messages) if isinstance(m, StartCommit))
        self._send(Claim, start, seconds=1, range=number, worker=worker, lease=30, sender=f"worker {worker}", **more)

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.clock += timedelta(seconds=seconds)

    def _start(self, records: int, *, void: bool = False, ranges: bool = True, **more: Any) -> StartCommit:
        position = len(self.messages) - 2 if void else len(self.messages)
        instant = f"{self.clock:%Y%m%d%H%M%S}{self.clock.microsecond // 1000:03}"
        lag = self._chance.randrange(0, 900) if len(self.messages) % 3 == 0 else 0
        planned = tuple(
            PlannedRange(cluster=cluster, topic=self.topic, partition=p, start=at, end=at + records,
                         log_end=at + records + lag * (p + 1))
            for cluster in self.clusters for p in range(self.partitions) for at in [self.standing.get(p, 0)]
        )  # fmt: skip
        fields: dict[str, Any] = {
            "read_position": position, "valid_through": self.clock, "ranges": tuple((r,) for r in planned) if ranges
            else (), "writer": self._writer(), "run_id": f"scheduled__{self.clock:%Y-%m-%dT%H:%M:%S}+00:00",
        }  # fmt: skip
        return self._send(StartCommit, None, transaction=instant, **{**fields, **self.ends, **more})

    def _fail(self, start: StartCommit, failures: int, *, for_good: bool = True) -> None:
        for attempt in range(failures):
            began = self.clock
            self.pause(4)
            error = {"error": BAD_RECORD, "recovery": "act" if for_good and attempt + 1 == failures else "retry"}
            error["sender"] = "participant 0"
            self._send(WriteStatus, start, seconds=3, range=0, attempt=f"failed-{attempt}", began=began, **error)

    def _write(self, start: StartCommit, number: int, group: Iterable[PlannedRange]) -> None:
        began = max(start.time + timedelta(seconds=2), self.clock - timedelta(seconds=3 * number))
        results, stats = [], []
        for r in group:
            records = r.end - r.start
            results.append(
                PartitionResult(cluster=r.cluster, topic=r.topic, partition=r.partition, start=r.start,
                                next_offset=r.end, records_read=records, gaps=0, bytes_read=records * 81,
                                max_timestamp=start.time, file_groups=(f"group-{r.partition}",))
            )  # fmt: skip
            file = {"fileId": f"group-{r.partition}", "path": f"group-{r.partition}_0-1-0_{start.transaction}.parquet"}
            stats.append(file | {"numWrites": records, "totalWriteBytes": records * 60, "totalWriteErrors": 0})
        records = sum(p.records_read for p in results)
        counts = {"records_read": records, "records_written": records, "sender": f"participant {number}"}
        seconds = 3 + self._chance.random() * 4
        self._send(WriteStatus, start, seconds=seconds / (number + 1), range=number, attempt=f"attempt-{number}",
                   began=began, partitions=tuple(results), stats=tuple(stats), **counts)  # fmt: skip

    def _send(self, message_type: Any, start: StartCommit | None, seconds: float = 0, **fields: Any) -> Any:
        self.pause(seconds)
        envelope = {"table": self.table, "epoch": 1, "dag_id": self.dag_id, "sender": "coordinator", "time": self.clock}
        if start is not None:
            envelope |= {"transaction": start.transaction, "run_id": start.run_id, "epoch": start.epoch}
        message = message_type(**{**envelope, **fields})
        self.messages.append(message)
        return message

    def _writer(self) -> TableSpec:
        return TableSpec(path=self.table, name=self.dag_id, table_type="COPY_ON_WRITE", operation="append",
                           record_key=(), partition_fields=(), ordering_fields=(), schema_ddl="id BIGINT",
                           schema_avro="{}", options={})  # fmt: skip


def flights(table: str, topic: str, now: datetime) -> Story:
    """An hour of a pipeline's life with everything that can come of an interval."""
    story = Story(table, "flights", topic, now - timedelta(minutes=51, seconds=40))
    for minute in range(48):
        minute_of = story.clock
        records = 60 + (minute * 37) % 90
        if minute in (11, 12, 30):
            story.aborted(records)
        elif minute == 20:
            story.started(records)  # superseded by the next
        else:
            story.committed(records, failures=int(minute in (8, 25)))
        story.clock = minute_of + timedelta(minutes=1)
    first = story.messages[0].transaction
    story.committed(60, kind="replay", replays=first, reason="the producer sent wrong delays", run_id="replay-1")
    story.pause(20)
    story.committed(50, kind="range", reason="the backlog of Tuesday", run_id="range-1")
    story.pause(20)
    story.committed(0, kind="correction", reason="records that nobody can read", run_id="correction-1", ranges=False)
    story.pause(20)
    story.committed(0, kind="service", service="clustering", run_id="service-1", ranges=False)
    story.pause(20)
    story.started(80, void=True)
    story.pause(20)
    story.committed(110, run_id="manual-1")
    story.pause(50)
    story.started(90, run_id="manual-2")
    story.claimed(1, WORKER, began=story.clock - timedelta(hours=3), memory=1234)
    return story


def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


def send(bootstrap: str, topic: str, messages: Iterable[ControlMessage]) -> None:
    """Send the messages, in order, to partition 0 of a topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for message in messages:
        while True:
            try:
                producer.produce(topic, encode(message), key=message.table.encode(), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def fill(bootstrap: str, topic: str, ends: dict[int, int]) -> None:
    """Send so many small records to each partition of a source topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for partition, number in ends.items():
        for _ in range(number):
            producer.produce(topic, b"{}", partition=partition)
    assert producer.flush(60) == 0
