"""Workers that stay, as the product's own code has them: they claim ranges, and `write` tasks wait for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from random import Random

from sluice.coordinator import Started
from sluice.errors import IntervalError, RetryableError
from sluice.participant.claiming import RangeId
from sluice.protocol.claims import MOST_TAKERS, Verdict, Waiting
from sluice.protocol.messages import NO_LEASE, Claim, WriteStatus
from sluice.protocol.transaction import State, Transaction

from .parts import SimLog, SimMachine
from .streams import StreamEvents
from .worker import STOPS, SimWorker, Traits
from .world import Process, ViolationError

_WITHIN = 10.0
_MOST_LOOKS = 400  # of a task at a range that nobody writes, a second from each other where nothing else takes time
_MOST_SWITCHES = 150_000
_HOT = (
    "sends CLAIM",
    "worker: follows",
    "worker: sends WRITE",
    "worker: closes",
    "worker: opens",
    "write: sends CLAIM",
)


def has_workers(seed: int) -> bool:
    """Whether the history of a seed has workers."""
    return Random(f"{seed}, workers {_APART}").random() < 0.125


_APART = 5279
"""By this number the histories that docs/simulation.md names for other rules have no workers."""


class Workers(StreamEvents):
    """Some workers, and `write` tasks that wait for them.

    Attributes:
        late: claims that come to the log later, and when.
    """

    late: list[tuple[datetime, Claim]]

    def _lay_workers(self, seed: int) -> None:
        """Whether the history has workers, and what becomes of them."""
        self.late = []
        self.has_workers = has_workers(seed)
        self.workers_are_to_end = False
        self._workers: dict[str, Process] = {}
        self._writes: dict[tuple[str, int], list[Process]] = {}  # who is at work on a range, in a worker
        self._came = 0
        self._claimed_at: dict[int, datetime] = {}
        self._begun: Counter[tuple[str, int]] = Counter()
        if not self.has_workers:
            return
        self.draw = Random(f"{seed}, what workers do")
        draw = self.draw
        self.most_workers = draw.choice((1, 2, 3))
        self.lies = draw.choice((0.0, 0.0, 0.2, 0.7))
        self.late_claims = draw.choice((0.0, 0.0, 0.05, 0.3))
        self.sick = draw.choice((0.0, 0.0, 0.1, 0.5))
        hot = tuple(draw.sample(_HOT, draw.choice((0, 1, 2))))
        self.world.faults = replace(self.world.faults, hot=(*self.world.faults.hot, *hot))
        self.deadly = draw.choice((0.0, 0.0, 0.0, 0.3))  # how many intervals kill the workers that write them
        self.events[Workers._a_worker_comes] = 10
        self.events[Workers._a_worker_is_asked_to_end] = draw.choice((0, 4))

    # What happens to them --------------------------------------------------------------------------------------------

    def _some_workers_come(self) -> None:
        self.workers_are_to_end = False
        for _ in range(self.draw.randint(0, self.most_workers) if self.has_workers else 0):
            self._a_worker_comes()

    def _a_worker_comes(self) -> None:
        if self.workers_are_to_end or len(self._alive()) >= self.most_workers:
            return
        self._came += 1
        name, draw = f"worker{self._came}", self.draw
        traits = Traits(
            lies=self.lies,
            deaf=draw.choice((0, 0, 0.3)),
            fails=self.sick if self.faulty else 0,
            throws=draw.choice((0, 0, self.sick)) if self.faulty else 0,
            sick=self.sick / 2,
            is_old=self.faulty and draw.random() < 0.07,
            misfits=self.faulty and draw.random() < 0.07,
            look_back=draw.choice((0, 0, 3, 500)) if not self.deadly else 500,
            longest_stay=draw.choice((None, None, 300.0, 2000.0)),
            slots=draw.choice((1, 2)),
        )
        process = self.world.spawn(name, lambda p: SimWorker(self, p, name, traits).run(), faults=self.faulty)
        process.group = [process]
        if self.is_duel or (self.serves and self.service_duel):
            process.faults, process.stops_before = False, draw.choice(STOPS) if self.faulty or self.active else ""
        self._workers[name] = process

    def _a_worker_is_asked_to_end(self) -> None:
        for process in self._alive()[:1]:
            self.world.tell(f"{process.name} is asked to end")
            process.lost = True

    def _no_workers_any_more(self) -> None:
        """All end, each when it has done what it was about."""
        if not self.has_workers or self.workers_are_to_end:
            return
        self.workers_are_to_end = True
        while any(p.is_ready for p in self.world.processes):
            self._step()
        for key in range(self.partitions):  # what one wrote beside a task of its range is swept up by who reads on
            self.world.produce(1, key + 1)

    def _alive(self) -> list[Process]:
        return [p for p in self._workers.values() if p.state != "ended"]

    def _tasks(self) -> list[Process]:
        """Processes but for workers and their threads."""
        return [p for p in self.world.processes if not p.group]

    def begins_to_write(self, worker: str, range_id: RangeId, thread: Process) -> None:
        """A worker begins to write a range.

        Raises:
            ViolationError: its START-COMMIT never counted.
        """
        transaction = self._log().at(range_id.start_offset)
        if transaction is None:
            return
        if transaction.state is State.VOID:
            raise ViolationError(f"{worker} writes for {transaction.id}, which never counted")
        self._writes.setdefault((transaction.id, range_id.number), []).append(thread)

    def kills_its_worker(self, control_offset: int) -> bool:
        """Whether an interval is one that kills all workers that write it."""
        transaction = self._log().at(control_offset)
        return self.faulty and transaction is not None and int(transaction.id) % 100 < self.deadly * 100

    def names(self, own: str, lies: float) -> tuple[str, ...]:
        """The workers that are there, as the group says it, which may be out of date."""
        names = {p.name for p in self._alive()}
        if self.draw.random() < lies:
            names = set(self.draw.sample(sorted(self._workers), self.draw.randint(0, len(self._workers))))
        return tuple(sorted({own, *names}))

    def _are_there(self) -> bool:
        """Whether a worker is there, as the group says it."""
        there = any(p.state == "ready" for p in self._alive())
        return not there if self.draw.random() < self.lies else there

    # A task ----------------------------------------------------------------------------------------------------------

    def _is_written_by_a_worker(self, process: Process, started: Started, number: int) -> bool:
        world = self.world
        control = SimLog(world, process, self.control_topic)
        waiting = Waiting(number, _WITHIN, SimMachine(world, process).steady)
        table_log = control.table_log(self.pipeline.table_id, started.control_offset)
        looks = 0
        while True:
            transaction = table_log.at(started.control_offset)
            verdict = waiting.judge(transaction, self._are_there)
            if verdict is Verdict.SUBMIT:
                return False
            if verdict is Verdict.WRITTEN:
                return True
            if verdict is Verdict.FAILED:
                raise RetryableError("A worker could not write the range.", next_step="it is tried again.")
            if verdict is Verdict.ENDED:
                raise IntervalError("The interval is over.", next_step="none.")
            looks = 0 if self._is_at_work(started.instant, number) else looks + 1
            if looks > _MOST_LOOKS:
                raise ViolationError(f"{process.name} waits for workers, and none writes its range")
            end = table_log.position
            world.sleep(process, 1.0, lambda end=end: len(world.topics[self.control_topic]) > end)
            control.extend(table_log)

    def _is_at_work(self, instant: str, number: int) -> bool:
        return any(p.state != "ended" and p.is_ready for p in self._writes.get((instant, number), ()))

    # The log of claims -----------------------------------------------------------------------------------------------

    def _look_after_workers(self) -> None:
        if self.world.switches > _MOST_SWITCHES:
            raise ViolationError("liveness: processes go on for ever")
        if self.deadly and self.faulty and not self.workers_are_to_end:
            self._a_worker_comes()  # whatever keeps them begins the next when one has died
        due = [one for one in self.late if one[0] <= self.world.clock]
        self.late = [one for one in self.late if one not in due]
        for _, claim in due:
            self.world.tell(f"a claim of {claim.worker} comes late")
            self.append_claim(claim)

    def append_claim(self, claim: Claim, knows: int = 0) -> int:
        """Put a claim into the log.

        Args:
            claim: the claim.
            knows: up to where its worker has heard the log when it sends it.

        Raises:
            ViolationError: it counts, though another's lasts, or workers take the range again and again, or one that
                has failed.
        """
        messages = self.world.topics[self.control_topic]
        before = self._claim_on(claim)
        messages.append(claim)
        offset = len(messages) - 1
        self._claimed_at[offset] = self.world.clock
        if self._claim_on(claim)[0] != offset or claim.released:
            return offset
        last, known = before
        is_taken = known is None or known.released or known.worker != claim.worker
        if known is not None and not known.released and known.worker != claim.worker:
            lasted = (self.world.clock - self._claimed_at[last]).total_seconds()
            if lasted < known.lease:
                what = f"{claim.worker} takes a range over that {known.worker} has claimed"
                raise ViolationError(f"{what} after {lasted:.1f} s of its lease")
        if is_taken and self._has_failed(claim, knows):
            raise ViolationError(f"{claim.worker} claims a range of {claim.transaction} that it knows to have failed")
        range_id = claim.transaction, claim.range
        self._begun[range_id] += is_taken
        if self._begun[range_id] > MOST_TAKERS:
            raise ViolationError(f"workers take range {claim.range} of {claim.transaction} again and again")
        return offset

    def _has_failed(self, claim: Claim, knows: int) -> bool:
        of = claim.transaction, claim.range
        return any(
            isinstance(m, WriteStatus) and m.error is not None and (m.transaction, m.range) == of
            for m in self.world.topics[self.control_topic][:knows]
        )

    def _claim_on(self, claim: Claim) -> tuple[int, Claim | None]:
        found: Transaction | None = self._log().get(claim.transaction)
        return found.claims.get(claim.range, (NO_LEASE, None)) if found is not None else (NO_LEASE, None)
