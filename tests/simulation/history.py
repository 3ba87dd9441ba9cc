"""One history: what a seed asks for and breaks, the invariants while it goes on, and what has to be true at its end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from sluice.coordinator import Run, Started
from sluice.protocol.request import Request

from .runs import Runs, Steps
from .world import HOT_SPOTS, TOPIC, Faults, Process, ViolationError, World, awaits_none

_QUIET_RUNS = 6
"""Runs that faults leave alone within which a table has to come up with its topic."""
_MOST_SWITCHES = 20_000


class History(Runs):
    """One world, and Airflow at work on it.

    Args:
        seed: makes the whole history.
        faults: how likely what goes wrong is.
    """

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.world.faults = faults or self._faults()
        self.concurrent = self.random.choice((1, 1, 2, 3))
        self.haste = self.random.choice((0.01, 0.03, 0.1))  # how soon the next run begins beside another
        self.unrest = self.random.choice((0.01, 0.03, 0.1))  # how often something happens that is no fault of ours
        self.wakes = self.random.choice((0.15, 0.5))
        self.stays = self.random.choice((0, 0.8, 0.97))  # how often the same process goes on before all others
        self.twice = self.random.choice((0.02, 0.02, 0.3))  # how often Airflow begins an attempt twice
        self.is_duel = self.random.random() < 0.35
        self.asks = self.random.choice(_ASKS)
        self.repeats = self.random.choice((0, 0.5))  # how often what is replayed is what was replayed before
        self.retries = self.random.choice((0, 2, 2))
        self.beside = self.random.choice((0, 0.3))  # how often who was frozen goes on just when the next step begins
        self.events = dict(_EVENTS)
        self.events[History._the_topic_is_made_again] = self.random.choice((0, 0, 2, 10))
        self.events[History._others_cluster] = self.random.choice((0, 0, 15))
        # What came later is drawn apart, so that the histories without it are those that they were.
        more = Random(f"{seed}, and more")
        self.events[History._another_leader] = more.choice((0, 0, 3, 12))
        self.world.elects = self.events[History._another_leader] > 0
        if more.random() < 0.2:
            self.asks = _BY_TIME
        self.airflow_knows = self.random.random() < 0.5
        operation = self.random.choice(("append", "upsert"))
        ordered = self.random.random() < 0.3
        self.broken = self.random.choice((0, 0, 0.15, 0.4))  # how often a range of a run can't be written at all
        self.loss = self.random.choice(("fail", "earliest"))
        self.partial = self.random.choice(("abort", "commit"))
        self.ranges = self.random.choice((1, 2, 2, 3))
        partitions = self.random.choice((1, 2, 3))
        self.max_records = self.random.choice((5, 40, 40))
        self.world.make_topic(partitions)
        self.world.spread = self.random.choice((1, 2, 2, 5))
        super().__init__(self.world, partitions, operation, ordered=ordered)
        self.went: Process | None = None
        self.replayed: str | None = None
        self.cut_under: list[str] = []  # intervals that had read a log before it came to have another leader
        self.active: dict[str, Steps] = {}
        self.waits_for: dict[str, list[Process]] = {}
        self.runs = 0
        self.faulty = True

    def _faults(self) -> Faults:
        """Each history has its own: where everything goes wrong nothing gets far, and what is rare never meets."""
        return Faults(
            kill=self.random.choice((0, 0.01, 0.04)),
            freeze=self.random.choice((0, 0.01, 0.05)),
            unreachable=self.random.choice((0, 0.01, 0.03)),
            lost_answer=self.random.choice((0, 0.01, 0.06)),
            short=self.random.choice((0, 0, 0.05)),
            hot=tuple(self.random.sample(HOT_SPOTS, self.random.choice((0, 1, 1, 2, 2)))),
            lost=self.random.choice((0, 0, 0.01)),
        )

    # What happens ----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """The whole history.

        Raises:
            ViolationError: something that has to be true isn't.
        """
        if self.is_duel:
            self._duel()
        else:
            self._play()
        self._wake_up()
        self._settle()

    def _play(self) -> None:
        """Some runs, one after the other or beside each other, and whatever happens to them."""
        world = self.world
        self._produce()
        intervals = self.random.choice((2, 3, 5, 8))
        begun = 0
        while begun < intervals or self.active:
            if begun < intervals and (
                not self.active or (len(self.active) < self.concurrent and self.random.random() < self.haste)
            ):
                begun += 1
                self._begin(self._request())
            self._step()
            if self.random.random() < self.unrest:
                self._happen()
            if world.switches > _MOST_SWITCHES:
                raise ViolationError("liveness: runs go on for ever")

    def _duel(self) -> None:
        """Those who end one interval, each in its own way and all at once, while leases run out."""
        world = self.world
        self.faulty = False
        self._what_came_before()
        self._produce()
        run = Run("orders", "duel", self._request())
        started = self._alone(lambda p: self.coordinator(p).start(run), "start")
        if not isinstance(started, Started):
            return
        begun: list[Started] = []

        def start_next(process: Process) -> None:
            outcome = self.coordinator(process).start(Run("orders", "next", Request()))
            if isinstance(outcome, Started):
                begun.append(outcome)

        ends: list[tuple[str, Callable[[Process], Any]]] = [
            ("commit", lambda p: self._commit(p, run, started)),
            ("abort", lambda p: self.coordinator(p).abort(run)),
            ("start", start_next),
        ]
        for number in range(len(started.ranges)):
            write = self._work_of(started, number, is_broken=False)
            if self.random.random() < 0.9:
                self._alone(write, f"write{number}")
            ends.append(("write", write))
        chosen = [ends[0], *self.random.choices(ends, k=self.random.choice((1, 1, 2, 3)))]
        for number, (name, work) in enumerate(chosen):
            process = world.spawn(f"duel {name}/{number}", work, faults=False)
            process.stops_before = self.random.choice(("", *_STOPS[name]))
        self._go_on_beside_each_other()
        for next_one in begun:
            self._finish(Run("orders", "next", Request()), next_one)

    def _what_came_before(self) -> None:
        for _ in range(self.random.choice((0, 1, 1, 2))):
            self._produce()
            self._quiet_run()
            if self.random.random() < 0.2:
                self._the_topic_is_made_again()
            elif self.world.elects and self.random.random() < 0.5:
                self._another_leader()
                self._produce()
                self._quiet_run()

    def _go_on_beside_each_other(self) -> None:
        """All processes go on until none is left; leases run out, and who was frozen wakes up or dies."""
        world = self.world
        self.stays = self.random.choice((0, 0.6, 0.85))
        self.unrest = self.random.choice((0.02, 0.05))
        while world.processes:
            frozen = [p for p in world.processes if p.state == "frozen"]
            ready = len(frozen) < len(world.processes)
            if frozen and (not ready or self.random.random() < self.unrest):
                self._wake_or_kill(self.random.choice(frozen))
            if self.random.random() < self.unrest:
                self.random.choice((self._time_passes, self._time_passes, self._others_cluster))()
            self._step()

    def _finish(self, run: Run, started: Started) -> None:
        """The rest of a run, which nothing disturbs."""
        for number in range(len(started.ranges)):
            self._alone(self._work_of(started, number, is_broken=False), f"write{number}")
        self._alone(lambda p: self._commit(p, run, started), "commit")

    def _wake_or_kill(self, process: Process) -> None:
        if self.random.random() < 0.3:
            self._time_passes()
        if self.random.random() < 0.2:
            self.world.kill(process)
            return
        self.world.tell(f"{process.name} wakes up")
        process.state = "ready"

    def _alone(self, work: Callable[[Process], Any], name: str) -> Any:
        """What comes of a process that nothing disturbs."""
        process = self.world.spawn(f"duel {name}", work, faults=False)
        while process.state == "ready":
            self.world.resume(process)
        return process.outcome

    def _begin(self, request: Request) -> None:
        self.runs += 1
        run = Run("orders", f"run{self.runs}", request)
        self.world.tell(f"{run.run_id} is asked to: {request.model_dump(exclude_defaults=True) or 'continue'}")
        self.active[run.run_id] = self.dag_run(run)
        self._go_on(run.run_id)

    def _go_on(self, name: str) -> Any:
        for process in self.world.processes if self.faulty else ():
            if process.state == "frozen" and process.name.startswith(f"{name} ") and self.random.random() < self.beside:
                self.world.tell(f"{process.name} wakes up")
                process.state = "ready"
        try:
            self.waits_for[name] = next(self.active[name])
        except StopIteration as end:
            self.world.tell(f"{name} is over: {end.value}")
            del self.active[name], self.waits_for[name]
            return end.value
        return None

    def _step(self) -> None:
        """One process goes on to its next call, or a run to its next task."""
        world = self.world
        over = [name for name, ps in self.waits_for.items() if awaits_none(ps)]
        if over:
            self._go_on(self.random.choice(over))
            return
        ready = [p for p in world.processes if p.state == "ready"]
        if ready:
            world.clock += timedelta(milliseconds=self.random.choice((1, 20, 200)))
            if self.went not in ready or self.random.random() >= self.stays:
                self.went = self.random.choice(ready)
            world.resume(self.went)

    def _happen(self) -> None:
        """Something that no process of ours does."""
        world = self.world
        frozen = [p for p in world.processes if p.state == "frozen"]
        if frozen and self.random.random() < self.wakes:
            woken = self.random.choice(frozen)
            world.tell(f"{woken.name} wakes up")
            woken.state = "ready"
            return
        (what,) = self.random.choices(list(self.events), list(self.events.values()))
        what(self)

    def _time_passes(self) -> None:
        self.world.clock += timedelta(seconds=self.random.choice((5, 61, 400)))

    def _one_is_killed(self) -> None:
        ready = [p for p in self.world.processes if p.state == "ready"]
        if ready and self.world.faults.kill:
            self.world.kill(self.random.choice(ready))

    def _a_transaction_ends(self) -> None:
        self.world.skip_offsets(self.random.randrange(self.partitions), 1)

    def _kafka_compacts(self) -> None:
        self.world.compact(self.random.randrange(self.partitions))

    def _retention(self) -> None:
        log = self.random.randrange(self.partitions)
        self.world.tell(f"retention takes records of partition {log}")
        self.world.delete_before(log, self.world.logs[log].start + 3)

    def _another_leader(self) -> None:
        log, lacks = self.random.randrange(self.partitions), self.random.choice((0, 1, 3, 6))
        self.world.tell(f"another leader of partition {log}, which lacks {lacks} offsets")
        before = [r.key for r in self.world.logs[log].records.values()][-lacks:] if lacks else []
        self.cut_under = [n for n, i in sorted(self.world.timeline.items()) if i.completed]
        self.world.elect(log, lacks)
        if self.random.random() < 0.5:  # their producer sends them again
            self.world.send(before)
        if lacks and self.random.random() < 0.7:
            self.loss = "earliest"  # somebody has seen to it

    def _the_topic_is_made_again(self) -> None:
        self.world.tell("the topic is deleted and made again")
        before = [r.key for r in self.world.produced.values() if r.log == self.world.log_id]
        self.world.make_topic(self.partitions)
        if self.random.random() < 0.5:  # its producer fills it again
            self.world.send(before)
        if self.random.random() < 0.7:
            self.loss = "earliest"  # somebody has seen to it

    def _others_cluster(self) -> None:
        """Another writer puts rows of some files into one, where no commit of ours is about to replace them."""
        world = self.world
        if self.operation != "append" or self._log().unfinished() is not None or any(world.committing.values()):
            return
        if any(c.is_late for i in world.timeline.values() for c in i.completed) and self._to_be_taken_off():
            return  # docs/guarantees/conditions.md: what is made of such a commit's files stays
        where = f"p{self.random.randrange(world.spread)}"
        files = sorted(path for path, file in world.committed_files().items() if file.partition == where)
        if files:
            world.cluster(self.random.sample(files, min(2, len(files))))

    def _produce(self) -> None:
        self.world.produce(self.random.choice((1, 4, 12)), 6)

    def _request(self) -> Request:
        world = self.world
        if self.cut_under and self.random.random() < 0.3:
            return Request(kind="replay", instant=self.random.choice(self.cut_under))
        (kind,) = self.random.choices(list(self.asks), list(self.asks.values()))
        if kind == "continue":
            return Request()
        if kind == "replay":
            instants = [n for n, i in sorted(world.timeline.items()) if i.completed]
            if not instants:
                return Request()
            if self.replayed is None or self.random.random() >= self.repeats:
                self.replayed = self.random.choice(instants)
            return Request(kind="replay", instant=self.replayed)
        if kind == "backfill":
            times = sorted(self.random.choices([r.time for r in world.produced.values()], k=2))
            return Request(kind="backfill", from_time=times[0], to_time=times[1] + timedelta(milliseconds=1))
        window = {}
        for partition in self.random.sample(range(self.partitions), self.random.randint(1, self.partitions)):
            log = world.logs[partition]
            start = self.random.randint(log.start, max(log.start, log.end))
            end = min(log.end, start + self.random.randint(1, 8))
            if start < end:
                window[partition] = (start, end)
        if not window:
            return Request()
        return Request(kind=kind, offsets={TOPIC: window}, reason="by hand" if kind == "correction" else None)

    # The end ---------------------------------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        """Those who were frozen wake up and go on, one after the other in any order."""
        for process in list(self.world.processes):
            process.state, process.faults, process.lost = "ready", False, False
            self.world.tell(f"{process.name} wakes up")
        while any(p.state == "ready" for p in self.world.processes):
            self._step()

    def _settle(self) -> None:
        """Runs that nothing disturbs bring the table up with its topic."""
        self.faulty = False
        self.loss = "earliest"  # what a person does where it says fail
        for key in range(self.partitions):  # strays are swept up by an interval that has something to read
            self.world.produce(1, key + 1)
        last: Any = None
        for _ in range(_QUIET_RUNS + len(self.world.produced) // self.max_records):
            self.world.clock += timedelta(seconds=500)
            last = self._quiet_run()
            if last is not None and last.state == "empty":
                break
        else:
            raise ViolationError(f"liveness: the table isn't up with its topic after {_QUIET_RUNS} runs: {last}")
        self.check_rows(complete=True)

    def _quiet_run(self) -> Any:
        self._begin(Request())
        last = None
        while self.active:
            (name,) = self.active
            if awaits_none(self.waits_for[name]):
                last = self._go_on(name)
            else:
                self._step()
        return last


_ASKS: tuple[dict[Any, int], ...] = (
    {"continue": 55, "replay": 20, "range": 15, "correction": 10},
    {"continue": 50, "replay": 50},
    {"continue": 45, "replay": 10, "range": 45},
)
"""How often each kind of request is asked for."""
_BY_TIME = {"continue": 45, "replay": 10, "range": 10, "backfill": 35}
_STOPS = {
    "write": ("closes", "sends"),
    "commit": ("sends END", "begins Hudi's", "completes", "sends ACK"),
    "abort": ("sends END", "sends ABORT", "begins to roll", "takes"),
    "start": ("asks Kafka", "sends START", "begins to roll", "sweeps", "clears", "begins Hudi's"),
}
"""Before what a process of a duel may freeze."""
_EVENTS = {
    History._produce: 40,
    History._time_passes: 10,
    History._one_is_killed: 7,
    History._a_transaction_ends: 6,
    History._kafka_compacts: 6,
    History._retention: 4,
    History._the_topic_is_made_again: 2,
}
