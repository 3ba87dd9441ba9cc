"""Source, sink, control log, machine and job in memory: each call is one of the world's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from greenlet import getcurrent

from sluice.connectors.sink import Completion, InstantState, Registered, WrittenInterval
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.pipeline.model import Pipeline
from sluice.protocol.messages import ControlMessage, PartitionResult, StartCommit, TableWriter
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint, TopicPartition, holds_checkpoint
from sluice.protocol.redriven import Places
from sluice.protocol.signing import Signatures
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.transaction import TableLog
from sluice.records.plan import RecordPlan

from .world import CLUSTER, EPOCH, TABLE, TOPIC, Completed, File, Instant, Process, Record, World, rows

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
            self._messages.append(message)
            return len(self._messages) - 1

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

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        return (TOPIC,)

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,
        window_start: datetime | None = None,
        *,
        max_future: timedelta | None = None,
        checkpoint: Checkpoint = _NOTHING,
    ) -> ClusterState:
        world = self._world

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
            return ClusterState(found, {CLUSTER: world.cluster_id}, {(CLUSTER, TOPIC): world.log_id})

        state: ClusterState = world.call(self._process, "asks Kafka for offsets", look)
        return state

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        ids: dict[str, str] = self._world.call(
            self._process, "asks Kafka for topic ids", lambda: dict.fromkeys(topics, self._world.log_id)
        )
        return ids

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        return {}

    def sent_again(self, topic: str, table: str) -> Places:
        return Places()

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        pass


class SimTable:
    """The Hudi table, opened by one process."""

    def __init__(self, world: World, process: Process, writer: TableWriter, clock_wait: timedelta) -> None:
        self.writer = writer
        self.clock_wait = clock_wait
        self._world = world
        self._process = process
        self._machine = SimMachine(world, process)

    @property
    def process(self) -> str:
        return self._process.name

    def written_as(self, writer: TableWriter) -> SimTable:
        return SimTable(self._world, self._process, writer, self.clock_wait)

    def last_checkpoint(self) -> dict[str, str] | None:
        def newest() -> dict[str, str] | None:
            for name in sorted(self._world.timeline, reverse=True):
                for completed in self._world.timeline[name].completed[:1]:
                    if holds_checkpoint(completed.extra):
                        return completed.extra
            return None

        found: dict[str, str] | None = self._call("reads the last checkpoint", newest)
        return found

    def is_empty(self) -> bool:
        return not any(i.completed for i in self._world.timeline.values())

    def state_of(self, instant: str) -> InstantState:
        state: InstantState = self._call(f"looks at {instant} on the timeline", lambda: self._state(instant))
        return state

    def _state(self, instant: str) -> InstantState:
        found = self._world.timeline.get(instant)
        if found is None:
            return "absent"
        return "completed" if found.completed else "pending"

    def written_by(self, instant: str) -> WrittenInterval | None:
        found = self._world.timeline.get(instant)
        if found is None or not found.completed or TRANSACTION_KEY not in found.completed[0].extra:
            return None
        completed = found.completed[0]
        groups: dict[str, set[str]] = {}
        for path in completed.paths:
            partition, _, name = path.rpartition("/")
            groups.setdefault(partition, set()).add(name.partition("_")[0])
        checkpoint = Checkpoint.model_validate_json(completed.extra[OFFSETS_KEY])
        note = json.loads(completed.extra[TRANSACTION_KEY])
        return WrittenInterval(instant, note, {p: tuple(sorted(g)) for p, g in groups.items()}, checkpoint)

    def replayed_by(self, instant: str) -> str | None:
        for name in sorted(self._world.timeline, reverse=True):
            written = self.written_by(name)
            if written is not None and written.note.get("replays") == instant:
                return name
        return None

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:
        gone = {g: n for n, i in self._world.timeline.items() for c in i.completed for g in c.replaced}
        return {g: gone[g] for groups in written.file_groups.values() for g in groups if g in gone}

    # The two phases

    def await_clock(self) -> None:
        last = max(self._world.timeline, default="")
        behind = _time_of(last) - self._machine.now() if last else timedelta(0)
        if behind > self.clock_wait:
            raise RetryableError("This machine's clock is too far behind.", next_step="set it.")
        if behind > timedelta(0):
            self._world.clock += behind + timedelta(milliseconds=1)

    def new_instant(self) -> str:
        self.await_clock()
        self._world.clock += timedelta(milliseconds=1)
        instant = _instant_at(self._machine.now())
        known = {m.transaction for messages in self._world.topics.values() for m in messages}
        while instant in known or instant in self._world.timeline:
            self._world.clock += timedelta(milliseconds=1)  # two coordinators in one millisecond: no fault of ours
            instant = _instant_at(self._machine.now())
        return instant

    def open(self, instant: str, *, replaces: bool = False) -> None:
        timeline = self._world.timeline
        action = "replacecommit" if replaces else "commit"
        self._call(f"requests {instant}", lambda: timeline.setdefault(instant, Instant(action)))

        def begin() -> None:
            if instant not in timeline:
                raise RetryableError("The instant is gone.", next_step="try again.")
            timeline[instant].inflight = True

        self._call(f"begins {instant}", begin)

    def commit(
        self,
        instant: str,
        stats: Iterable[Mapping[str, Any]],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self.await_clock()
        world = self._world
        paths = frozenset(str(stat["path"]) for stat in stats)

        def require_pending() -> None:
            if self._state(instant) != "pending":
                raise RetryableError("The instant is not pending.", next_step="look again.")
            for path in world.markers.get(instant, set()) - paths:
                world.files.pop(path, None)

        self._call(f"begins Hudi's commit of {instant}", require_pending)

        def complete() -> None:
            found = world.timeline.setdefault(instant, Instant("commit", requested=False))
            gone = frozenset(group for groups in (replaced or {}).values() for group in groups)
            name = f"{instant}_{_instant_at(self._machine.now())}.{found.action}"
            found.completed.append(Completed(name, paths, dict(extra), gone))
            world.on_change()

        self._call(f"completes {instant}", complete)
        self._call(f"clears the markers of {instant}", lambda: world.markers.pop(instant, None))

    def rollback(self, instant: str) -> bool:
        if self.state_of(instant) != "pending":
            return instant in self.finish_rollbacks()
        self.await_clock()
        self._call(f"begins to roll {instant} back", lambda: self._world.rollbacks.add(instant))
        self._roll_back(instant)
        return True

    def _roll_back(self, instant: str) -> None:
        world = self._world

        def delete_files() -> None:
            for path in world.markers.pop(instant, set()):
                world.files.pop(path, None)

        def take_off() -> None:
            found = world.timeline.get(instant)
            if found is not None and found.completed:
                found.requested = found.inflight = False
            else:
                world.timeline.pop(instant, None)

        self._call(f"deletes the files of {instant}", delete_files)
        self._call(f"takes {instant} off the timeline", take_off)
        self._call(f"completes the roll-back of {instant}", lambda: world.rollbacks.discard(instant))

    def finish_rollbacks(self) -> list[str]:
        begun = sorted(self._call("looks for roll-backs that were begun", lambda: set(self._world.rollbacks)))
        for instant in begun:
            self._roll_back(instant)
        return begun

    # What those leave who stood still

    def completions(self) -> dict[str, Completion]:
        def look() -> dict[str, Completion]:
            return {
                name: Completion(i.action, [c.name for c in i.completed], i.requested)
                for name, i in self._world.timeline.items()
                if i.completed
            }

        found: dict[str, Completion] = self._call("looks at what is completed", look)
        return found

    def registered(self, completion: str) -> Registered:
        for instant in self._world.timeline.values():
            for completed in instant.completed:
                if completed.name == completion:
                    return Registered(len(completed.paths), sum(p not in self._world.files for p in completed.paths))
        raise ValueError(completion)

    def take_off(self, instant: str, files: list[str]) -> None:
        def delete() -> None:
            found = self._world.timeline.get(instant)
            if found is None:
                return
            found.completed = [c for c in found.completed if c.name not in files]
            if not found.completed and not found.requested:
                del self._world.timeline[instant]
            self._world.on_change()

        self._call(f"takes a completion of {instant} off", delete)

    def marker_partitions(self, instant: str) -> set[str]:
        return {path.rpartition("/")[0] for path in self._world.markers.get(instant, ())}

    def sweep(self, committed: Mapping[str, set[str]], partitions: Iterable[str]) -> list[str]:
        wanted = {*partitions, *(p for i in committed for p in self.marker_partitions(i))}

        def delete() -> list[str]:
            world, gone = self._world, []
            for path, file in list(world.files.items()):
                if file.instant in committed and file.partition in wanted and path not in committed[file.instant]:
                    found = world.timeline.get(file.instant)
                    if found is not None and any(path in c.paths for c in found.completed):
                        continue
                    del world.files[path]
                    gone.append(path)
            for instant in committed:
                if world.markers.get(instant, set()) <= {*world.files, *gone}:
                    world.markers.pop(instant, None)
            return gone

        swept: list[str] = self._call("sweeps up", delete)
        return swept

    def _call(self, what: str, effect: Callable[[], Any]) -> Any:
        return self._world.call(self._process, what, effect)


class SimSink:
    """Opens the table."""

    def __init__(self, world: World, process: Process, pipeline: Pipeline) -> None:
        self._table = SimTable(world, process, pipeline.writer("id BIGINT", "{}"), pipeline.control.clock_wait)

    @contextmanager
    def open(self) -> Iterator[SimTable]:
        yield self._table

    @contextmanager
    def look(self) -> Iterator[SimTable | None]:
        yield self._table

    def pin(self, table: SimTable, last: RecordPlan | None, topics: tuple[str, ...]) -> tuple[RecordPlan, TableWriter]:
        return RecordPlan(), table.writer

    def pin_quarantine(self, table: SimTable, writer: TableWriter) -> TableWriter:
        raise NotImplementedError("histories have no bad records yet")

    def open_quarantine(self, table: SimTable, pinned: TableWriter) -> SimTable:
        raise NotImplementedError("histories have no bad records yet")

    def maintenance(self, table: SimTable, services: Any) -> Any:
        raise NotImplementedError("histories have no table services yet")


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
            for partition in ("p0", "p1"):
                here = tuple(r for r in kept if f"p{r.key % 2}" == partition)
                if here:
                    group = f"{planned.partition:08}-{planned.start}-{token}"
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
        world.call(self._process, f"closes {path}", lambda: world.files.__setitem__(path, file))


def _instant_at(time: datetime) -> str:
    return time.strftime("%Y%m%d%H%M%S") + f"{time.microsecond // 1000:03}"


def _time_of(instant: str) -> datetime:
    return datetime.strptime(instant[:14] + instant[14:] + "000+0000", "%Y%m%d%H%M%S%f%z")


__all__ = ["TABLE", "SimJob", "SimLog", "SimMachine", "SimSink", "SimSource", "SimTable"]
