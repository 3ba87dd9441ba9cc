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

from .kafka import CLUSTER, TOPIC, Record
from .lake import File, rows
from .world import EPOCH, Process, World

_UNSIGNED = Signatures("control", (), lambda _offset, _reason: None)
_NOTHING = Checkpoint()


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

    def is_gone(self, holder: str) -> bool:
        return all(p.name != holder for p in self._world.processes)


class SimLog:
    """The control topic."""

    def __init__(self, world: World, process: Process, topic: str) -> None:
        self.topic = topic
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


class SimSource:
    """The Kafka cluster."""

    name = CLUSTER

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def cluster_ids(self) -> dict[str, str | None]:
        return {CLUSTER: self._world.cluster_id}

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
            found = []
            for number, log in enumerate(world.logs):
                later = [o for o, r in log.records.items() if window_end is not None and r.time >= window_end]
                first = [o for o, r in log.records.items() if window_start is None or r.time >= window_start]
                end = min(later, default=log.end)
                start = 0 if window_start is None else min(first, default=log.end)
                through = window_end if later and window_end else world.clock
                found.append(
                    PartitionBounds(
                        TopicPartition(CLUSTER, TOPIC, number), log.start, log.end, end, through, log.end, start
                    )
                )
            read = {
                b.topic_partition: (known.end_of_settled(b.topic_partition), epoch)
                for b in found
                if (epoch := known.leader_epoch(b.topic_partition)) is not None
            }
            return ClusterState(
                found,
                {CLUSTER: world.cluster_id},
                {(CLUSTER, TOPIC): world.log_id},
                leader_epochs={b.topic_partition: world.logs[b.topic_partition.partition].epoch for b in found}
                if world.elects
                else {},  # as old brokers answer
                truncated=self._truncated(read),
            )

        state: ClusterState = world.call(self._process, "asks Kafka for offsets", look)
        return state

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        ids: dict[str, str] = self._world.call(
            self._process, "asks Kafka for topic ids", lambda: dict.fromkeys(topics, self._world.log_id)
        )
        return ids

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        if not self._world.elects:
            return {}
        found: dict[TopicPartition, int] = self._world.call(
            self._process, "asks Kafka for leader epochs", lambda: self._truncated(read)
        )
        return found

    def _truncated(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        found = {}
        for tp, (end, epoch) in read.items():
            log = self._world.logs[tp.partition]
            others = [o for o, r in log.records.items() if o < end and r.epoch > epoch]
            if log.epoch != epoch and (others or log.end < end):
                found[tp] = min([*others, log.end])
        return found

    def sent_again(self, topic: str, table: str) -> Places:
        return Places()

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        pass


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
            records = self._read(planned.partition, planned.start, planned.end)
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
                partition = f"p{table_partition}"
                here = tuple(r for r in kept if r.key % world.spread == table_partition)
                if here:
                    group = f"{planned.partition:08}-{planned.start}-{token}{partition}"
                    path = f"{partition}/{group}_0-0-{token}_{start.transaction}.parquet"
                    self._close(path, File(start.transaction, partition, group, here))
                    stats.append({"fileId": group, "path": path, "partitionPath": partition, "numWrites": len(here)})
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

    def _read(self, partition: int, start: int, end: int) -> list[Record]:
        def read() -> list[Record]:
            log = self._world.logs[partition]
            if start < log.start or end > log.end:
                raise ActionRequiredError("Planned offsets could not be read.", next_step="see the next interval.")
            return [log.records[o] for o in sorted(log.records) if start <= o < end]

        found: list[Record] = self._world.call(self._process, f"reads {partition}@[{start}, {end})", read)
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
