"""Applications that send to the topic in Kafka transactions, on a broker in memory that keeps Kafka's rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from .kafka import Log, Record
from .world import World


@dataclass(eq=False)
class Transaction:
    """A Kafka transaction of an application.

    Attributes:
        began: when its first record was sent.
        parts: the partitions that it has been added to, each with its records there.
        hangs: whether no producer can end it: a late record of a refused process has begun it (KAFKA-14402).
    """

    began: datetime
    parts: dict[int, tuple[Log, list[Record]]] = field(default_factory=dict)
    hangs: bool = False


@dataclass(eq=False)
class Application:
    """A transactional id.

    Attributes:
        name: the id.
        timeout: for how long a transaction may be open.
        epoch: of the process that has the id; the broker refuses processes of earlier epochs.
        open: its transaction, if one is open.
        zombies: epochs of processes that were taken for dead, and still send.
    """

    name: str
    timeout: timedelta
    epoch: int = 0
    open: Transaction | None = None
    zombies: list[int] = field(default_factory=list)


class Producers:
    """Applications with transactional ids, and one that sends without transactions.

    Attributes:
        is_held: whether open transactions stay open, whatever happens.
        is_calm: whether each transaction is committed as soon as its records are sent.
    """

    def __init__(self, world: World, draw: Random) -> None:
        self.is_held = self.is_calm = False
        self._world, self._draw = world, draw
        timeouts = (timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=12))
        names = [f"app{n}" for n in range(draw.choice((1, 2, 3)))]
        self._applications = [Application(name, draw.choice(timeouts)) for name in names]
        self._plain = draw.choice((0, 0.2, 0.6))  # how often records are sent without a transaction
        self._ends = draw.choice((0.1, 0.4, 0.8))  # how often a transaction ends as soon as its records are sent
        self._aborts = draw.choice((0.1, 0.5))
        self._is_old = draw.random() < 0.3  # brokers before Kafka 3.6
        self._hanging: list[Transaction] = []

    def send(self, keys: Iterable[int]) -> None:
        """Send a record of each key, in one transaction or without any."""
        if self.is_calm or self._draw.random() < self._plain:
            for key in keys:
                self._world.publish(self._world.take(key))
            return
        application = self._draw.choice(self._applications)
        self._append(application, application.epoch, list(keys))
        if not self.is_held and self._draw.random() < self._ends:
            self._end(application, application.epoch, commits=self._draw.random() >= self._aborts)

    def go_on(self) -> None:
        """Something happens to an application."""
        self.expire()
        one = self._draw.choice(self._applications)
        (what,) = self._draw.choices(("ends", "dies", "zombie", "nothing sent"), (6, 2, 2, 1))
        if what == "ends":
            self._end(one, one.epoch, commits=self._draw.random() >= self._aborts)
        elif what == "dies":
            self._world.tell(f"{one.name} is taken for dead, and another process takes its transactional id")
            one.zombies.append(one.epoch)
            self._take(one)
        elif what == "zombie" and one.zombies:
            self._zombie_sends(one, one.zombies.pop())
        elif what == "nothing sent":  # a transaction whose only records never arrived: its marker takes an offset
            self._add(self._begun(one), self._draw.randrange(len(self._world.logs)))

    def expire(self) -> None:
        """The broker aborts what has been open for too long, and refuses the process that has begun it."""
        for one in self._applications:
            if one.open is not None and not self.is_held and self._world.clock - one.open.began > one.timeout:
                self._world.tell(f"{one.name}'s transaction has been open for too long")
                self._take(one)

    def hold(self) -> None:
        """Open transactions stay open from now on; some are, with records in every partition."""
        self.is_held = True
        one = self._applications[0]
        self._append(one, one.epoch, range(len(self._world.logs)))

    def calm(self) -> None:
        """All transactions end, those that hang by `kafka-transactions.sh`, and none stays open from now on."""
        self.is_held, self.is_calm = False, True
        for one in self._applications:
            self._end(one, one.epoch, commits=self._draw.random() < 0.5)
        while self._hanging:
            self._mark(self._hanging.pop(), commits=False)

    def _take(self, application: Application) -> None:
        """Make another process the owner of a transactional id: what is open is aborted."""
        self._end(application, application.epoch, commits=False)
        application.epoch += 1

    def _append(self, application: Application, epoch: int, keys: Iterable[int]) -> None:
        if epoch < application.epoch:
            return
        self._put(self._begun(application), keys)

    def _begun(self, application: Application) -> Transaction:
        if application.open is None:
            application.open = Transaction(self._world.clock)
        return application.open

    def _put(self, transaction: Transaction, keys: Iterable[int]) -> None:
        for key in keys:
            record = self._world.take(key)
            self._world.logs[record.partition].pending[record.offset] = record
            self._add(transaction, record.partition).append(record)

    def _add(self, transaction: Transaction, number: int) -> list[Record]:
        """Add a partition to a transaction; returns the records that it has there, none of a topic that is gone."""
        log = self._world.logs[number]
        known = transaction.parts.get(number)
        if known is None or known[0] is not log:
            known = transaction.parts[number] = (log, [])
        return known[1]

    def _zombie_sends(self, application: Application, epoch: int) -> None:
        """A refused process tries to commit, and its last record reaches the broker late."""
        self._end(application, epoch, commits=True)
        if not self._is_old:
            self._append(application, epoch, [self._draw.randrange(6)])
            return
        self._world.tell(f"a late record of {application.name} begins a transaction that nothing ends")
        hanging = Transaction(self._world.clock, hangs=True)
        self._put(hanging, [self._draw.randrange(6)])
        self._hanging.append(hanging)

    def _end(self, application: Application, epoch: int, *, commits: bool) -> None:
        if epoch < application.epoch or application.open is None:
            return
        found, application.open = application.open, None
        self._world.tell(f"{application.name}'s transaction is {'committed' if commits else 'aborted'}")
        self._mark(found, commits=commits)

    def _mark(self, transaction: Transaction, *, commits: bool) -> None:
        """Write the markers, each of which takes an offset; consumers see the records from then on, or never."""
        world = self._world
        world.clock += timedelta(milliseconds=5)
        for number, (log, records) in transaction.parts.items():
            if world.logs[number] is not log:  # the topic was made again since
                continue
            for record in records:
                if log.pending.pop(record.offset, None) is None:
                    continue  # retention has removed it
                if commits:
                    world.publish(record)
                else:
                    log.aborted[record.offset] = record
            log.markers[log.end] = world.clock
            log.end += 1
