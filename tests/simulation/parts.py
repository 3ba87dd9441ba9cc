"""Source, control log, machine and job in memory: each call is one of the world's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from greenlet import getcurrent

from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.protocol.messages import ControlMessage, EndCommit, PartitionResult, StartCommit, WriteStatus
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.redriven import Places
from sluice.protocol.signing import Signatures
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.transaction import TableLog
from sluice.sources.kafka.probe import RecordHead
from sluice.sources.kafka.windows import Windows

from .kafka import TOPIC, Cluster, Log, Record
from .lake import File, rows
from .world import EPOCH, Process, World

_UNSIGNED = Signatures("control", (), lambda _offset, _reason: None)
_NOTHING = Checkpoint()
_LOOK = 200  # records, as the product's own probe does


class SimMachine:
    """A machine whose clock may be wrong."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    @property
    def seen(self) -> dict[Any, float]:
        return self._process.seen

    def steady(self) -> float:
        return (self._world.clock - EPOCH).total_seconds()

    def now(self) -> datetime:
        return self._world.clock + self._process.skew

    def is_gone(self, holder: str, wait: float = 5.0) -> bool:
        return all(p.name != holder for p in self._world.processes)


class SimLog:
    """The control topic."""

    def __init__(self, world: World, process: Process, topic: str) -> None:
        self.topic = topic
        self.topic_id = f"id of {topic}"
        self.signatures = _UNSIGNED
        self._world = world
        self._process = process

    def exists(self) -> bool:
        return self.topic in self._world.topics

    def ensure(self) -> None:
        self._world.topics.setdefault(self.topic, [])

    @property
    def _messages(self) -> list[ControlMessage]:
        return self._world.topics[self.topic]

    def expect_to_send(self) -> None:
        pass

    def end(self) -> int:
        return int(self._call("looks at the control topic's end", lambda: len(self._messages)))

    def send(self, message: ControlMessage) -> int:
        def append() -> int:
            if isinstance(message, WriteStatus) and message.error is None:
                self._world.on_report(self._process, message.transaction)
            if isinstance(message, StartCommit):
                self._world.on_start(self._process, message)
            self._messages.append(message)
            return len(self._messages) - 1

        if isinstance(message, StartCommit):
            self._process.turn = message.transaction
        if isinstance(message, EndCommit) and not message.released:
            self._world.leases[self._process.name, message.transaction] = self._world.clock
        offset: int = self._call(f"sends {message.type} of {message.transaction}", append)
        return offset

    def table_log(self, table: str, start: int) -> TableLog:
        return self.extend(TableLog(table), start)

    def extend(self, table_log: TableLog, start: int | None = None) -> TableLog:
        first = table_log.position if start is None else start

        def read() -> TableLog:
            messages = self._messages
            table_log.extend((o, messages[o]) for o in range(min(first, len(messages)), len(messages)))
            table_log.position = max(table_log.position, len(messages))
            self._process.knows = len(messages)
            return table_log

        log: TableLog = self._call("reads the control topic", read)
        return log

    def follow(self, table_log: TableLog, stop: threading.Event) -> Iterator[TableLog]:
        while not stop.is_set() and getcurrent().parent is not None:  # a participant's watch: it looks again anyway
            self._world.clock += timedelta(seconds=1)
            yield self.extend(table_log)

    def _call(self, what: str, effect: Callable[[], Any]) -> Any:
        return self._world.call(self._process, what, effect)


class Heads:
    """What a cluster tells of single records."""

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        self._logs = logs

    def at(self, partitions: Sequence[TopicPartition], time: datetime) -> dict[TopicPartition, tuple[int, int]]:
        found = {}
        for tp in partitions:
            later = (r for r in self._logs[tp].records.values() if r.time >= time)
            first = min(later, key=lambda r: r.offset, default=None)
            found[tp] = (first.offset, _milliseconds(first.time)) if first is not None else (-1, -1)
        return found

    @contextmanager
    def probe(self) -> Iterator[Heads]:
        yield self

    def first(
        self, offsets: Mapping[TopicPartition, int], wanted: Callable[[TopicPartition, RecordHead], bool]
    ) -> dict[TopicPartition, RecordHead | None]:
        def of(tp: TopicPartition) -> Iterator[RecordHead]:
            records = sorted((r for r in self._logs[tp].records.values()), key=lambda r: r.offset)
            from_there = [r for r in records if r.offset >= offsets[tp]][:_LOOK]
            return (RecordHead(r.offset, _milliseconds(r.time), r.epoch) for r in from_there)

        return {tp: next((head for head in of(tp) if wanted(tp, head)), None) for tp in offsets}


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


class SimSource:
    """A Kafka cluster, by one of the names that it has."""

    def __init__(self, world: World, process: Process, cluster: Cluster, name: str) -> None:
        self.name = name
        self._world = world
        self._process = process
        self._cluster = cluster

    def cluster_ids(self) -> dict[str, str | None]:
        if len(self._world.clusters) == 1:
            return {self.name: self._cluster.id}
        ids: dict[str, str | None] = self._call("asks a cluster for its id", lambda: {self.name: self._cluster.id})
        return ids

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        return (TOPIC,)

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,
        window_start: datetime | None = None,
        *,
        max_future: timedelta | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> ClusterState:
        world = self._world
        known = checkpoint or _NOTHING

        def look() -> ClusterState:
            logs = {TopicPartition(self.name, TOPIC, n): world.logs[at] for n, at in enumerate(self._cluster.numbers)}
            limit = world.clock + max_future if max_future is not None else None
            ends = {tp: log.end for tp, log in logs.items()}
            windows = Windows(Heads(logs), list(logs), ends, world.clock, limit)
            first, last = windows.bound(window_start), windows.bound(window_end)
            found = []
            for tp, log in logs.items():
                end, start = last.get(tp, -1), first.get(tp, 0)
                through = window_end if window_end and end >= 0 else world.clock
                end, start = end if end >= 0 else log.end, start if start >= 0 else log.end
                found.append(PartitionBounds(tp, log.start, log.end, end, through, log.end, start))
            read = {
                b.topic_partition: (known.end_of_settled(b.topic_partition), epoch)
                for b in found
                if (epoch := known.leader_epoch(b.topic_partition)) is not None
            }
            return ClusterState(
                found,
                {self.name: self._cluster.id},
                {(self.name, TOPIC): self._cluster.log_id},
                leader_epochs={b.topic_partition: self._log(b.topic_partition).epoch for b in found}
                if world.elects
                else {},  # as old brokers answer
                truncated=self._truncated(read),
            )

        state: ClusterState = self._call("asks Kafka for offsets", look)
        return state

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        ids: dict[str, str] = self._call(
            "asks Kafka for topic ids", lambda: dict.fromkeys(topics, self._cluster.log_id)
        )
        return ids

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        if not self._world.elects:
            return {}
        found: dict[TopicPartition, int] = self._call("asks Kafka for leader epochs", lambda: self._truncated(read))
        return found

    def _truncated(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        found = {}
        for tp, (end, epoch) in read.items():
            log = self._log(tp)
            others = [o for o, r in log.records.items() if o < end and r.epoch > epoch]
            if log.epoch != epoch and (others or log.end < end):
                found[tp] = min([*others, log.end])
        return found

    def sent_again(self, topic: str, table: str) -> Places:
        return Places()

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        pass

    def _log(self, tp: TopicPartition) -> Log:
        return self._world.logs[self._cluster.first + tp.partition]

    def _call(self, what: str, effect: Callable[[], Any]) -> Any:
        return self._world.call(self._process, what, lambda: self._cluster.answer(effect))


class SimJob:
    """What a Spark job does, without Spark."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    @contextmanager
    def running(self, start: StartCommit) -> Iterator[SimJob]:
        yield self

    def cancel(self) -> None:
        pass

    def classified(self, error: Exception, start: StartCommit, number: int) -> SluiceError:
        return error if isinstance(error, SluiceError) else RetryableError(str(error), next_step="look into it.")

    def write(self, start: StartCommit, number: int, attempt: str, check: Callable[[], None]) -> dict[str, Any]:
        """Read each partition, and write a file for each table partition of it."""
        world = self._world
        results, stats, read, written = [], [], 0, 0
        world.attempts += 1
        token = world.attempts
        for planned in start.ranges[number]:
            partition = self._world.number_of(start, planned.topic_partition)
            records = self._read(partition, planned.start, planned.end, start.isolation_level)
            fault = world.random.random() / world.faults.short if self._process.faults and world.faults.short else 1.0
            next_offset = planned.end
            if fault < 0.5 and records:
                next_offset = records.pop().offset
                world.tell(f"{self._process.name}: reads no further than {next_offset}, and doesn't say so")
            read += len(records)
            if 0.5 <= fault < 1 and records:
                world.tell(f"{self._process.name}: loses {records.pop()}, and doesn't say so")
            kept = self._newer(start, records) if start.keep_newer else records
            written += len(kept)
            for table_partition in range(world.spread):
                folder = f"p{table_partition}"
                here = tuple(r for r in kept if r.key % world.spread == table_partition)
                if here:
                    group = f"{partition:08}-{planned.start}-{token}{folder}"
                    path = f"{folder}/{group}_0-0-{token}_{start.transaction}.parquet"
                    self._close(path, File(start.transaction, folder, group, here))
                    stats.append({"fileId": group, "path": path, "partitionPath": folder, "numWrites": len(here)})
            results.append(
                PartitionResult(
                    **planned.topic_partition._asdict(), start=planned.start, next_offset=next_offset,
                    records_read=len(records), gaps=planned.end - planned.start - len(records),
                    bytes_read=10 * len(records), max_timestamp=max((r.time for r in records), default=None),
                )
            )  # fmt: skip
        check()
        return {
            "records_read": read,
            "records_written": written,
            "records_skipped": read - written,
            "partitions": tuple(results),
            "stats": tuple(stats),
        }

    def _read(self, partition: int, start: int, end: int, isolation_level: str) -> list[Record]:
        def read() -> list[Record]:
            log = self._world.logs[partition]
            records, last = log.seen(isolation_level)
            if start < log.start or end > last:
                raise ActionRequiredError("Planned offsets could not be read.", next_step="see the next interval.")
            return [records[o] for o in sorted(records) if start <= o < end]

        cluster = self._world.cluster_of(partition)
        found: list[Record] = self._world.call(
            self._process, f"reads {partition}@[{start}, {end})", lambda: cluster.answer(read)
        )
        return found

    def _newer(self, start: StartCommit, records: list[Record]) -> list[Record]:
        """Without records of keys of which the table has a row that was produced later."""
        if start.writer.operation == "append":
            return records
        known: dict[int, int] = {}
        for row in rows(self._world.committed_files()):
            known[row.key] = max(row.number, known.get(row.key, -1))
        return [r for r in records if known.get(r.key, -1) <= r.number]

    def _close(self, path: str, file: File) -> None:
        world = self._world

        def mark() -> None:
            world.markers.setdefault(file.instant, set()).add(path)

        world.call(self._process, f"opens {path}", mark)

        def close() -> None:
            world.files[path] = file
            self._process.closed_at = max(map(len, world.topics.values()))

        world.call(self._process, f"closes {path}", close)
