"""A topic that is written in Kafka transactions: the product's own table, on brokers in memory that keep the rules."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from sluice.errors import IntervalError, RetryableError
from sluice.kafka.transactional import Record as Sent
from sluice.kafka.transactional import TransactionalSender
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.protocol.notes import SignedNotes
from sluice.sinks.kafka.log import TableLog
from sluice.sinks.kafka.options.takes import LARGEST
from sluice.sinks.kafka.table import KafkaTable

from .kafka import Record
from .lake import Completed, File, Instant
from .parts import SimMachine
from .table import new_instant, wait_for_clock
from .world import Killed, Process, ViolationError, World

TOPIC, LOG = "orders-out", "_sluice.orders-out"
TIMEOUT = timedelta(minutes=15)
"""How long a transaction may last."""
_CHUNK = 4  # records that are sent at once


@dataclass
class Transaction:
    """A Kafka transaction: what is sent in it, and when it was begun."""

    began: datetime
    rows: list[Record] = field(default_factory=list)
    entries: list[Sent] = field(default_factory=list)

    @property
    def commit(self) -> tuple[str, dict[str, str]] | None:
        """The interval that it commits, and what the coordinator has given; None if it commits none."""
        for one in self.entries:
            if (one.key or b"").startswith(b"commit:") and one.value is not None:
                entry = json.loads(one.value)
                return entry["instant"], entry["extra"]
        return None


class Brokers:
    """The target cluster, with the one transactional id of the table.

    Attributes:
        log: what consumers of the log see that read what is committed.
        is_seen: how often they see what is decided at once, or when they look again.
    """

    def __init__(self, world: World, draw: Random) -> None:
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self._world, self._draw = world, draw
        self.is_seen = draw.choice((0.2, 0.7, 1.0))
        self._owners = self._first = 0  # those before the first one are refused
        self._open: dict[int, Transaction] = {}
        self._decided: Transaction | None = None  # which consumers don't see yet
        self._ended = 0

    def take(self) -> int:
        """Make somebody the owner of the transactional id."""
        self.end()
        self._owners += 1
        self.fence(self._owners)
        return self._owners

    def fence(self, owner: int) -> None:
        """Refuse all who had the id before, and end what they have begun."""
        self._first = owner
        self._open.clear()

    def append(self, owner: int, records: Sequence[Record | Sent]) -> None:
        """Add records to an owner's transaction, which begins with its first one."""
        self.end()
        found = self._of(owner) or self._open.setdefault(owner, Transaction(self._world.clock))
        for one in records:
            found.rows.append(one) if isinstance(one, Record) else found.entries.append(one)

    def abort(self, owner: int) -> None:
        """End an owner's transaction, if it has one, and nothing was."""
        self._open.pop(owner, None)

    def decide(self, owner: int, who: str) -> None:
        """Commit an owner's transaction: consumers see it at once, or a moment later."""
        found = self._of(owner)
        if found is None:
            raise _fenced()
        if found.commit is not None and self._world.is_void(found.commit[0]):
            raise ViolationError(f"{who} commits {found.commit[0]}, which was aborted")
        del self._open[owner]
        self._decided = found
        self.look()

    def look(self) -> None:
        """A moment passes, after which a transaction that was decided may be seen."""
        if self._decided is not None and self._draw.random() < self.is_seen:
            self.end()

    def end(self) -> None:
        """Let consumers see what was decided."""
        found, self._decided = self._decided, None
        if found is not None:
            self._show(found)

    def _of(self, owner: int) -> Transaction | None:
        """The transaction of an owner, if the brokers haven't ended it."""
        found = self._open.get(owner)
        if found is not None and self._world.clock - found.began > TIMEOUT:
            del self._open[owner]
            self._first = max(self._first, owner + 1)
        if owner < self._first:
            raise _fenced()
        return self._open.get(owner)

    def _show(self, found: Transaction) -> None:
        world, commit = self._world, found.commit
        instant = commit[0] if commit is not None else ""
        paths: frozenset[str] = frozenset()
        if found.rows:
            self._ended += 1
            path = f"{TOPIC}/{self._ended}"
            paths = frozenset({path})
            world.files[path] = File(instant, TOPIC, path, tuple(found.rows))
            world.shown.add(path)
        for one in found.entries:
            self.log.append((one.key, one.value))
            kind, _, name = (one.key or b"").decode().partition(":")
            if kind == "open" and one.value is not None:
                world.timeline.setdefault(name, Instant("commit", True, True))
            elif kind == "open" and name != instant:
                world.timeline.pop(name, None)
        if commit is not None:
            done = world.timeline.setdefault(instant, Instant("commit", True, True))
            done.completed.append(Completed(f"{instant}.commit", paths, commit[1], frozenset()))
        if found.rows or commit is not None:
            world.on_change()


def _fenced() -> RetryableError:
    return RetryableError("Another process sends in this table's name.", next_step="look again.")


class SimSender(TransactionalSender):
    """A producer that has taken the transactional id."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self._failed, self._buffer = [], []
        self._producer = self
        self._owner: int = world.call(process, "takes the transactional id", self._brokers.take)

    @property
    def _brokers(self) -> Brokers:
        assert self._world.target is not None
        return self._world.target

    def purge(self) -> None:
        """Nothing is under way."""

    def begin(self) -> None:
        self._buffer: list[Any] = []

    def produce_all(self, records: Iterable[Any]) -> None:
        for record in records:
            self._buffer.append(record)
            if len(self._buffer) == _CHUNK:
                self.flush()

    def flush(self) -> None:
        some, self._buffer = self._buffer, []
        if some:
            self._world.call(
                self._process, f"sends {len(some)} to the topic", lambda: self._brokers.append(self._owner, some)
            )

    def commit(self) -> None:
        who = self._process.name
        self._world.call(self._process, "commits the Kafka transaction", lambda: self._brokers.decide(self._owner, who))

    def abort_transaction(self, _timeout: float) -> None:
        """As the product's own code asks for it, unless the process is dead: Kafka may not hear of it."""
        if isinstance(sys.exc_info()[1], Killed | ViolationError):
            return
        try:
            self._world.call(self._process, "aborts the Kafka transaction", lambda: self._brokers.abort(self._owner))
        except RetryableError:
            return


class _Target:
    """The target cluster, as one process has it; where topics end nobody asks here."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    @property
    def offsets(self) -> _Target:
        return self

    def ends(self, _topics: Any, *, committed: bool) -> dict[str, dict[int, int]]:
        return {}

    def sender(self, _smallest: int = LARGEST) -> SimSender:
        return SimSender(self._world, self._process)


class _Log(TableLog):
    """The table's log, as one process has read it."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self._topic = LOG
        self._where: dict[str, str] = {}
        self._notes = SignedNotes(LOG, (), lambda _offset, _reason: None)
        self._left_out, self._last_at = {}, -1
        self._position = 0
        self.opened, self._commits = {}, {}

    def read(self) -> _Log:
        brokers = self._world.target
        assert brokers is not None

        def look() -> list[tuple[bytes | None, bytes | None]]:
            brokers.look()
            return brokers.log[self._position :]

        for key, value in self._world.call(self._process, "reads the sink's log", look):
            self._take(self._position, key or b"", value, ())
            self._position += 1
        return self


class _Staging:
    """Where participants leave what is to be sent."""

    def __init__(self, world: World, process: Process) -> None:
        self.world, self.process = world, process

    def exists(self, folder: str) -> bool:
        return bool(self.files(folder))

    def names(self, _path: str) -> list[str]:
        return sorted({f.instant for path, f in self.world.files.items() if path not in self.world.shown})

    def files(self, folder: str) -> dict[str, int]:
        world = self.world
        return {path: 1 for path, f in world.files.items() if f.instant == folder and path not in world.shown}

    def delete(self, folder: str) -> bool:
        def delete() -> bool:
            gone = self.files(folder)
            for path in gone:
                del self.world.files[path]
            self.world.markers.pop(folder, None)
            return bool(gone)

        return bool(self.world.call(self.process, f"deletes what is staged for {folder}", delete))


class SimStaged:
    """What participants have left for one interval; in the place of `sluice.sinks.kafka.staged.Staged`."""

    def __init__(self, storage: _Staging, _instant: str, committables: Sequence[Committable], *_: Any) -> None:
        self._staging, self._committables = storage, committables
        self.topics: Counter[str] = Counter()
        self.bytes, self.way, self.smallest = 0, "one", LARGEST
        self.oldest: dict[str, int] = {}

    def records(self) -> Iterator[Record]:
        for one in self._committables:
            found = self._staging.world.files.get(one.path)
            if found is None:
                raise IntervalError("A staged file is gone.", next_step="see the next interval.")
            self.topics[TOPIC] += len(found.rows)
            yield from found.rows


class SimTopics(KafkaTable):
    """The product's own table, with an Airflow's machine whose clock may be wrong."""

    def __init__(
        self, world: World, process: Process, writer: TableSpec, clock_wait: timedelta, lease: timedelta
    ) -> None:
        target: Any = _Target(world, process)
        staging: Any = _Staging(world, process)
        super().__init__(
            target, _Log(world, process), lambda: staging, writer, clock_wait, process.name, TIMEOUT, writable=True
        )
        self.lease = lease
        self._world, self._machine = world, SimMachine(world, process)

    def await_clock(self) -> None:
        wait_for_clock(self._world, self._machine, self.newest_time(), self.clock_wait)

    def new_instant(self) -> str:
        self.await_clock()
        return new_instant(self._world, self._machine)


SENDS: tuple[str, ...] = (
    "takes the transactional",
    "to the topic",
    "commits the Kafka",
    "deletes what is staged",
    "aborts the Kafka",
    "reads the sink's log",
)
"""Words of the calls at which a topic's table may come to harm."""


def brokers_of(world: World, draw: Random) -> Brokers:
    """The target cluster of a history whose sink is a topic."""
    world.lists = True
    world.target = Brokers(world, draw)
    return world.target
