"""A world: a Kafka cluster, a control topic and a Hudi table in memory, and the processes at work on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from greenlet import getcurrent, greenlet

from sluice.errors import RetryableError
from sluice.protocol.messages import ControlMessage

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER = "kafka"
TOPIC = "orders"
TABLE = "file:///lake/orders"


Where = tuple[str, int, int, int]
"""A record: its topic's id, partition, offset, and the leader epoch in which it was taken."""


class ViolationError(AssertionError):
    """An invariant doesn't hold."""


class Killed(BaseException):
    """SIGKILL: no handler of the code under test sees it."""


@dataclass(frozen=True)
class Faults:
    """How likely what goes wrong is, at each call of an interface."""

    kill: float = 0.012
    freeze: float = 0.01
    unreachable: float = 0.01
    lost_answer: float = 0.01
    """The effect took place, and the caller is told that it timed out."""
    short: float = 0.005
    """A range is not read to its end, or a record is lost between reading and writing, and nobody says so."""
    hot: tuple[str, ...] = ()
    """Words of the calls at which this history's faults meet: what is rare everywhere never meets anywhere. What
    stands before a colon is the only task of which that is so."""
    lost: float = 0.0
    """Airflow takes the process for dead, which goes on beside whatever comes instead of it."""


_AT_THE_HOT_SPOT = Faults(kill=0.1, freeze=0.25, unreachable=0.05, lost_answer=0.1, lost=0.15)
HOT_SPOTS = (
    "sends START", "sends WRITE", "sends END", "sends ACK", "sends ABORT", "begins Hudi's", "completes 2", "begins 2",
    "requests", "begins to roll", "deletes the files", "takes", "opens", "closes", "reads the last", "asks Kafka",
    "write: reads the control", "commit: reads the control", "abort: reads the control", "commit: looks at",
    "abort: sends", "commit: sends",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """A record as it was produced.

    `log` is the id of its topic, `epoch` that of the leader that took it; `number` tells it from all others.
    """

    log: str
    partition: int
    offset: int
    key: int
    number: int
    time: datetime
    epoch: int = 0

    @property
    def where(self) -> Where:
        """Which record it is, whatever its topic is called."""
        return self.log, self.partition, self.offset, self.epoch


@dataclass
class Log:
    """One partition."""

    records: dict[int, Record] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    epoch: int = 0


@dataclass
class File:
    """A data file: of which instant, in which table partition and file group, with which records."""

    instant: str
    partition: str
    group: str
    rows: tuple[Record, ...]


@dataclass
class Completed:
    """One file of the timeline that completes an instant."""

    name: str
    paths: frozenset[str]
    extra: dict[str, str]
    replaced: frozenset[str]
    is_late: bool = False  # somebody else had taken the lease over by then


@dataclass
class Instant:
    """What lies on the timeline of one instant."""

    action: str
    requested: bool = True
    inflight: bool = False
    completed: list[Completed] = field(default_factory=list)

    @property
    def is_pending(self) -> bool:
        return self.requested and not self.completed


@dataclass(eq=False)
class Process:
    """One process of a task: on a machine with clocks of its own."""

    name: str
    skew: timedelta
    greenlet: greenlet = None
    state: str = "ready"  # ready, frozen, ended
    outcome: Any = None
    error: BaseException | None = None
    seen: dict[Any, float] = field(default_factory=dict)
    doing: str = ""
    faults: bool = True
    hot: tuple[str, ...] = ()  # words of calls at which it is in danger
    lost: bool = False  # Airflow takes it for dead
    stops_before: str = ""  # words of the call before which it freezes, once
    closed_at: int = 0  # the control topic's end when it closed its last file


def awaits_none(processes: Iterable[Process]) -> bool:
    """Whether Airflow waits for none of these any more."""
    return all(p.lost or p.state != "ready" for p in processes)


class World:
    """Everything that outlives a process.

    Args:
        seed: makes the whole history.
        faults: how likely what goes wrong is.
    """

    def __init__(self, seed: int, faults: Faults = Faults()) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.faults = faults
        self.clock = EPOCH
        self.story: list[str] | None = None
        # Kafka
        self.cluster_id = "cluster-0"
        self.topic_number = 0
        self.logs: list[Log] = []
        self.produced: dict[Where, Record] = {}
        self.excused: set[Where] = set()  # gone before they were rows
        self.kept: set[Where] = set()  # rows whose log is gone, or was cut off before them: nothing may take them off
        self.elects = False  # whether partitions come to have other leaders
        self.cut: set[Where] = set()  # records that an election has taken off their log
        # control topics
        self.topics: dict[str, list[ControlMessage]] = {}
        # the table
        self.timeline: dict[str, Instant] = {}
        self.files: dict[str, File] = {}
        self.markers: dict[str, set[str]] = {}
        self.rollbacks: set[str] = set()  # begun, with their instants still on the timeline or off it
        self.attempts = 0
        self.spread = 2  # table partitions, by key
        self.leases: dict[tuple[str, str], datetime] = {}  # by process and instant: when it began to send END-COMMIT
        self.committing: dict[str, list[Process]] = {}  # who is inside Hudi's commit of an instant
        # the processes
        self.processes: list[Process] = []
        self.main = getcurrent()
        self.switches = 0
        self.on_change: Callable[[], None] = lambda: None
        self.on_report: Callable[[Process, str], None] = lambda _process, _instant: None
        self.is_void: Callable[[str], bool] = lambda _instant: False

    # Kafka ---------------------------------------------------------------------------------------------------------

    @property
    def log_id(self) -> str:
        """The id of the topic that is there now."""
        return f"topic-{self.topic_number}"

    def make_topic(self, partitions: int) -> None:
        """Make the topic, or make it again."""
        self._gone(self.produced)
        self.kept |= self._rows_for_good()
        self.topic_number += 1
        self.logs = [Log() for _ in range(partitions)]

    def produce(self, count: int, keys: int) -> None:
        """Some records, each key always to the same partition."""
        self.send(self.random.randrange(keys) for _ in range(count))

    def send(self, keys: Iterable[int]) -> None:
        """A record of each key."""
        for key in keys:
            partition = key % len(self.logs)
            log = self.logs[partition]
            self.clock += timedelta(milliseconds=5)
            record = Record(self.log_id, partition, log.end, key, len(self.produced), self.clock, log.epoch)
            log.records[log.end] = record
            self.produced[record.where] = record
            log.end += 1

    def skip_offsets(self, partition: int, count: int) -> None:
        """Offsets without records, as the markers of transactions take."""
        self.logs[partition].end += count

    def delete_before(self, partition: int, offset: int) -> None:
        """Retention."""
        log = self.logs[partition]
        log.start = max(log.start, min(offset, log.end))
        self._gone(log.records.pop(offset).where for offset in [o for o in log.records if o < log.start])

    def elect(self, partition: int, lacks: int) -> None:
        """Another leader, which lacks the last offsets of the log: others come to stand there."""
        log = self.logs[partition]
        log.epoch += 1
        end = max(log.start, log.end - lacks)
        log.records = {offset: record for offset, record in log.records.items() if offset < end}
        log.end = end
        here = (r for r in self.produced.values() if (r.log, r.partition) == (self.log_id, partition))
        gone = {r.where for r in here if r.offset >= end}  # with what Kafka had compacted, which may be rows
        self.kept |= gone & self._rows_for_good()
        self.cut |= gone
        self._gone(gone)

    def compact(self, partition: int) -> None:
        """Take out a record that a later one of its key replaces."""
        log = self.logs[partition]
        last = {r.key: r.offset for r in log.records.values()}
        old = [o for o, r in log.records.items() if last[r.key] != o]
        if old:
            self._gone([log.records.pop(self.random.choice(old)).where])

    def cluster(self, paths: list[str]) -> None:
        """Another writer puts the rows of some files into a file group of its own."""
        last = max(self.timeline, default="")
        self.clock = max(self.clock, time_of(last)) + timedelta(milliseconds=1) if last else self.clock
        instant = instant_at(self.clock)
        gathered = tuple(row for path in paths for row in self.files[path].rows)
        gone = frozenset(self.files[path].group for path in paths)
        partition = self.files[paths[0]].partition
        self.attempts += 1
        path = f"{partition}/clustered-{self.attempts}_0-0-0_{instant}.parquet"
        self.files[path] = File(instant, partition, f"clustered-{self.attempts}", gathered)
        found = Instant("replacecommit", inflight=True)
        found.completed.append(Completed(f"{instant}_{instant}.replacecommit", frozenset({path}), {}, gone))
        self.timeline[instant] = found
        self.tell(f"another writer clusters {', '.join(paths)} as {instant}")
        self.on_change()

    def _gone(self, records: Iterable[Where]) -> None:
        """Kafka has them no more; what isn't a row yet may never be one."""
        self.excused |= set(records) - self._rows_for_good()

    def _rows_for_good(self) -> set[Where]:
        return {r.where for r in rows({p: f for p, f in self.committed_files().items() if not self.is_void(f.instant)})}

    # Processes -----------------------------------------------------------------------------------------------------

    def spawn(self, name: str, work: Callable[[Process], Any], *, faults: bool = True) -> Process:
        """Begin a process, which runs when the scheduler comes to it."""
        skew = timedelta(seconds=self.random.choice((0, 0, 0, -100, 100, 250)))
        hot = [spot.rpartition(": ") for spot in self.faults.hot]
        process = Process(name, skew, faults=faults, hot=tuple(words for task, _, words in hot if task in name))

        def run() -> None:
            try:
                process.outcome = work(process)
            except (Killed, ViolationError) as error:
                process.error = error
            except Exception as error:
                process.error = error
            process.state = "ended"

        process.greenlet = greenlet(run)
        self.processes.append(process)
        return process

    def resume(self, process: Process) -> None:
        """Let a process go on to its next call."""
        self.switches += 1
        process.greenlet.parent = getcurrent()
        process.greenlet.switch()
        if isinstance(process.error, ViolationError):
            raise process.error
        if process.state == "ended":
            self.processes.remove(process)
            self.tell(f"{process.name} ended: {_how(process)}")

    def kill(self, process: Process) -> None:
        """End a process where it stands."""
        if process.greenlet:
            process.greenlet.parent = getcurrent()
            process.greenlet.throw(Killed())
        process.state = "ended"
        if process in self.processes:
            self.processes.remove(process)
        self.tell(f"{process.name} is killed at: {process.doing}")

    def call(self, process: Process, what: str, effect: Callable[[], Any]) -> Any:
        """One call of an interface: others may go before it, and it may fail before its effect, or after it."""
        process.doing = what
        self.main_switch()
        if process.stops_before and process.stops_before in what:
            process.stops_before = ""
            self.tell(f"{process.name}: freezes before: {what}")
            process.state = "frozen"
            self.main_switch()
        if not process.faults:
            self.tell(f"{process.name}: {what}")
            return effect()
        faults = _AT_THE_HOT_SPOT if any(words in what for words in process.hot) else self.faults
        chance = self.random.random()
        self._stand(process, 1 - chance, faults, f"before: {what}")
        if chance < faults.unreachable:
            self.tell(f"{process.name}: {what}: can't be reached")
            raise RetryableError(f"{what}: can't be reached", next_step="try again.")
        self.tell(f"{process.name}: {what}")
        result = effect()
        chance -= faults.unreachable
        if chance < faults.lost_answer:
            self.tell(f"{process.name}: {what}: done, but the answer is lost")
            raise RetryableError(f"{what}: timed out", next_step="try again.")
        chance -= faults.lost_answer
        if chance < faults.kill:
            self.tell(f"{process.name}: is killed after: {what}")
            raise Killed
        self._stand(process, chance - faults.kill, faults, f"after: {what}")
        return result

    def _stand(self, process: Process, chance: float, faults: Faults, when: str) -> None:
        """Freeze, or be taken for dead and go on beside what comes instead: half of it before a call, half after."""
        if chance < faults.freeze / 2:
            self.tell(f"{process.name}: freezes {when}")
            process.state = "frozen"
            self.main_switch()
        elif chance < (faults.freeze + faults.lost) / 2:
            self.tell(f"{process.name}: Airflow takes it for dead {when}")
            process.lost = True
            self.main_switch()

    def has_lost_the_lease(self, process: Process, instant: str) -> bool:
        """Whether somebody else has taken the lease on an instant's commit since this process did."""
        own = self.leases.get((process.name, instant))
        others = (at for (name, of), at in self.leases.items() if of == instant and name != process.name)
        return own is not None and any(at > own for at in others)

    def require_alone(self, process: Process, instant: str, what: str, lease: timedelta, skew: timedelta) -> None:
        """Check that nobody else who has a lease on the instant is inside Hudi's commit of it.

        Raises:
            ViolationError: somebody is, and his clock doesn't differ by more than it may.
        """
        for other in self.committing.get(instant, ()):
            began = self.leases.get((other.name, instant))
            if other is process or began is None or other not in self.processes:
                continue
            if self.clock - began < lease and abs(other.skew - process.skew) <= skew:
                raise ViolationError(f"{process.name} {what} {instant} while {other.name} commits it under its lease")

    @staticmethod
    def main_switch() -> None:
        """Let the scheduler choose who goes next."""
        getcurrent().parent.switch()

    def tell(self, what: str) -> None:
        """Add a line to the story, where somebody wants to read it."""
        if self.story is not None:
            self.story.append(f"{(self.clock - EPOCH).total_seconds():9.2f}  {what}")

    # The table as readers see it -----------------------------------------------------------------------------------

    def committed_files(self) -> dict[str, File]:
        """The files that a reader of the timeline reads."""
        taken = {group for i in self.timeline.values() for c in i.completed for group in c.replaced}
        named = (path for i in self.timeline.values() for c in i.completed[:1] for path in c.paths)
        return {path: self.files[path] for path in named if path in self.files and self.files[path].group not in taken}

    def listed_files(self) -> dict[str, File]:
        """The files that a reader reads who lists folders and takes a file's instant for its proof."""
        taken = {group for i in self.timeline.values() for c in i.completed for group in c.replaced}
        done = {name for name, instant in self.timeline.items() if instant.completed}
        return {p: f for p, f in self.files.items() if f.instant in done and f.group not in taken}


def instant_at(time: datetime) -> str:
    """A time as the name of an instant."""
    return time.strftime("%Y%m%d%H%M%S") + f"{time.microsecond // 1000:03}"


def time_of(instant: str) -> datetime:
    """The time that an instant is named by."""
    return datetime.strptime(instant + "000+0000", "%Y%m%d%H%M%S%f%z")


def _how(process: Process) -> str:
    if process.error is None:
        return str(process.outcome)[:150]
    return "killed" if isinstance(process.error, Killed) else f"{type(process.error).__name__}: {process.error}"[:300]


def rows(files: dict[str, File]) -> Iterator[Record]:
    """All rows of some files."""
    for file in files.values():
        yield from file.rows
