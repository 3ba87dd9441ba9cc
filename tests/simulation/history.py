"""One history: what a seed asks for and breaks, the invariants while it goes on, and what has to be true at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from sluice.connectors.options import SourceOptions
from sluice.coordinator import Run, Started
from sluice.protocol.request import Request

from .events import EVENTS, Events
from .kafka import CLUSTER, TOPIC
from .kafka_sink import LOG, SENDS, brokers_of
from .lake import TABLE
from .producers import Producers
from .rows import Shop
from .runs import Steps
from .streams import STREAM_EVENTS, StreamEvents
from .workers import Workers, has_workers
from .world import HOT_SPOTS, Faults, Process, ViolationError, World, awaits_none

_QUIET_RUNS = 6
"""Runs that faults leave alone within which a table has to come up with its topic."""
_BELIEVED = SourceOptions.model_fields["max_future"].default
_TOPICS = 80
"""By this number the histories that docs/simulation.md names for other rules write no topic."""
_ROWS = 74
"""By this number they read no table of a database."""
_PRODUCERS = 90
"""Their topics are written without transactions."""
_RESTORES = 86
"""Their tables aren't restored."""
_LEFTOVERS = 125_288
"""And their tables can't list what intervals have left."""
_WORK = 255
"""Nor do their ranges follow the work."""
_MOST_SWITCHES = 60_000
"""Of a history's processes. Three runs that supersede each other, since nobody asks Airflow, take up to 40,000: each
START looks at every instant that was aborted since the last commit."""


class History(Workers):
    """One world, and Airflow at work on it.

    Args:
        seed: makes the whole history.
        faults: how likely what goes wrong is.
    """

    world_type = World

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.world = self.world_type(seed)
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
        self.events = dict(EVENTS)
        self.events[Events._the_topic_is_made_again] = self.random.choice((0, 0, 2, 10))
        self.events[Events._others_cluster] = self.random.choice((0, 0, 15))
        # What came later is drawn apart, so that the histories without it are those that they were.
        more = Random(f"{seed}, and more")
        self.events[Events._another_leader] = more.choice((0, 0, 3, 12))
        self.world.elects = self.events[Events._another_leader] > 0
        if more.random() < 0.2:
            self.asks = _BY_TIME
        # By this number the histories that docs/simulation.md names for other rules have no services, as before.
        self.more = Random(f"{seed}, services 1625")
        self.serves = self.more.random() < 0.25
        self.service_rate = self.more.choice((0.005, 0.02, 0.05))
        self.service_duel = self.more.random() < 0.5
        self.by_date = False  # whether each interval ends with a date
        self.airflow_knows = self.random.random() < 0.5
        operation = self.random.choice(("append", "upsert"))
        ordered = self.random.random() < 0.3
        self.broken = self.random.choice((0, 0, 0.15, 0.4))  # how often a range of a run can't be written at all
        self.loss = self.random.choice(("fail", "earliest"))
        self.partial = self.random.choice(("abort", "commit"))
        self.ranges = self.random.choice((1, 2, 2, 3))
        partitions = self.random.choice((1, 2, 3))
        self.max_records = self.random.choice((5, 40, 40))
        streams = Random(f"{seed}, streams 10967")  # by this number those histories have no streams, either
        if streams.random() < 0.2:
            self._lay_streams(streams, streams.choice((2, 2, 3)), partitions)
            again = self.events.pop(Events._the_topic_is_made_again)
            self.events |= {**STREAM_EVENTS, StreamEvents._another_topic: again}
        else:
            self.world.add_cluster(CLUSTER, partitions)
        dates = Random(f"{seed}, dates 5681")  # and rightly dated records
        if dates.random() < 0.15:
            self.world.dates = dates
            self.by_date = dates.random() < 0.6
        self.world.spread = self.random.choice((1, 2, 2, 5))
        sinks = Random(f"{seed}, sinks 512")  # and are of Hudi tables
        if self.mapped is None and sinks.random() < 0.12:
            operation = self._lay_another_table(sinks, sinks.choice(("files", "jdbc")), operation)
        self.topics = Random(f"{seed}, topics {_TOPICS}")
        if self.mapped is None and self.sink == "hudi" and self.topics.random() < 0.06:
            operation = self._lay_another_table(self.topics, "kafka", operation)
            brokers_of(self.world, self.topics)
        rows = Random(f"{seed}, rows {_ROWS}")
        of_kafka = self.mapped is not None or self.world.dates is not None or self.asks is _BY_TIME
        if self.sink == "hudi" and not of_kafka and not has_workers(seed) and rows.random() < 0.06:
            operation = self._lay_rows(rows)
        producers = Random(f"{seed}, producers {_PRODUCERS}")
        if self.mapped is None and self.world.shop is None and producers.random() < 0.05:
            self._lay_producers(producers)
        self.restores = Random(f"{seed}, restores {_RESTORES}")
        self.is_restored = self.restores.random() < 0.05 and self._lay_restores()
        self.world.lists_leftovers = Random(f"{seed}, leftovers {_LEFTOVERS}").random() < 0.15
        work = Random(f"{seed}, work {_WORK}")
        if self.world.shop is None and work.random() < 0.1:
            self.ranges, self.records_per_range = 3, work.choice((2, 5, 10))
        super().__init__(
            self.world, len(self.world.logs), operation, ordered=ordered, table=TABLE_IDS.get(self.sink, TABLE)
        )
        self._lay_workers(seed)
        self.went: Process | None = None
        self.replayed: str | None = None
        self.cut_under: list[str] = []  # intervals that had read a log before it came to have another leader
        self.active: dict[str, Steps] = {}
        self.waits_for: dict[str, list[Process]] = {}
        self.runs = self.services = 0
        self.faulty = True

    def _lay_another_table(self, draw: Random, sink: str, operation: str) -> str:
        """A table of files, of a database, or a topic; what it is loaded by."""
        self.sink = sink
        self.world.lists = sink == "files"
        self.serves = False
        self.events[Events._others_cluster] = 0  # nobody else writes there
        self.asks = {kind: rate for kind, rate in self.asks.items() if kind != "replay"}  # which is refused
        self.asks["range"] = 30
        self.is_duel = draw.random() < 0.6
        hot = (*HOT_SPOTS, *_STOPS_OF[self.sink])
        self.world.faults = replace(self.world.faults, hot=tuple(draw.sample(hot, draw.choice((0, 1, 1, 2, 2)))))
        return operation if sink == "jdbc" else "append"

    def _lay_rows(self, draw: Random) -> str:
        """A table of a database, which is read; how it is loaded."""
        self.world.shop = Shop(self.world, draw, self.max_records)
        self.world.elects = False
        for what in (Events._another_leader, Events._retention, Events._the_topic_is_made_again):
            self.events[what] = 0
        self.events[Events._rows_are_committed] = 30
        self.asks = {"continue": 80, "replay": 20}
        return "append"

    def _lay_producers(self, draw: Random) -> None:
        """A topic that is written in Kafka transactions."""
        self.world.producers = Producers(self.world, draw)
        self.world.elects = False
        self.world.dates = draw if draw.random() < 0.2 else None
        self.by_date = draw.random() < 0.2
        self.events[Events._another_leader] = 0
        self.events[Events._producers_go_on] = draw.choice((20, 60))
        self.is_duel = draw.random() < 0.2
        if draw.random() < 0.5:  # a person passes over what an open transaction holds back
            self.asks = {**self.asks, "correction": 30}

    def _lay_restores(self) -> bool:
        """A Hudi table that a person restores, and that is loaded out of order."""
        if self.mapped is not None or self.world.shop is not None or self.sink != "hudi":
            return False
        draw = self.restores
        self.world.elects = False
        self.events[Events._another_leader] = 0
        self.is_duel = self.service_duel = False
        self.asks = {"continue": 40, "replay": 15, "range": 25, "correction": 15, "backfill": 10}
        self.concurrent = draw.choice((1, 2))
        self.restore_rate = draw.choice((0.2, 0.5))
        return True

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
        self._some_workers_come()
        if self.serves and self.service_duel:
            self._duel_of_services()
        elif self.is_duel:
            self._duel()
        else:
            self._play()
        self._wake_up()
        self._settle()

    def _play(self) -> None:
        """Some runs, one after the other or beside each other, and whatever happens to them."""
        world = self.world
        if self.mapped is not None:
            self.faulty = False
            self._what_came_before()
            self.faulty = True
        if self.is_restored:
            self._load_before_it_is_restored()
        self._produce()
        intervals = self.random.choice((2, 3, 5, 8)) if not self.is_restored else self.restores.choice((3, 5, 8))
        begun, is_paused = 0, False
        while begun < intervals or self.active:
            if is_paused and not self.active:
                self._the_table_is_restored()
                is_paused = False
            if (
                not is_paused
                and begun < intervals
                and (not self.active or (len(self.active) < self.concurrent and self.random.random() < self.haste))
            ):
                begun += 1
                self._begin(self._request())
                is_paused = self.is_restored and self.restores.random() < self.restore_rate
            if self.serves and self.more.random() < self.service_rate and not self._is_serving():
                self._begin_service()
            self._step()
            if self.random.random() < self.unrest:
                self._happen()
            if world.switches > _MOST_SWITCHES:
                raise ViolationError("liveness: runs go on for ever")
        if is_paused:
            self._the_table_is_restored()

    def _load_before_it_is_restored(self) -> None:
        """Some runs of all kinds, which nothing disturbs."""
        self.faulty = False
        for _ in range(self.restores.choice((2, 4, 6))):
            self._produce()
            self.world.clock += timedelta(seconds=500)
            self._begin(self._request())
            self._to_the_end()
        self.faulty = True

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
        stands = world.target is not None and self.topics.random() < 0.8
        if stands:
            chosen = [ends[0], *self.topics.choices([ends[0], *ends[1:3], *ends[1:3]], k=self.topics.choice((1, 2)))]
        for number, (name, work) in enumerate(chosen):
            process = world.spawn(f"duel {name}/{number}", work, faults=False)
            process.stops_before = self.random.choice(("", *_STOPS[name], *_STOPS_OF.get(self.sink, ())))
            if stands and number == 0:
                self._stand_still_alone(process)
        self._go_on_beside_each_other(sleep_well=stands)
        for next_one in begun:
            self._finish(Run("orders", "next", Request()), next_one)

    def _stand_still_alone(self, process: Process) -> None:
        """Who writes a topic comes to where it stands still before anybody else begins, and mostly stays long."""
        process.stops_before = self.topics.choice(SENDS[:3])
        while process.state == "ready":
            self.world.resume(process)
        self.world.clock += timedelta(seconds=self.topics.choice((1, 400, 800, 800)))

    def _duel_of_services(self) -> None:
        """Table services and intervals that meet, while leases run out."""
        world = self.world
        self.faulty = False
        for _ in range(2):
            self._produce()
            self._quiet_run()
        self._what_came_before()
        self._produce()
        kinds = ("service", "interval", "interval", "service", "abort")
        chosen = ["service", *self.more.choices(kinds, k=self.more.choice((1, 2, 3)))]
        for number, kind in enumerate(chosen):
            process = world.spawn(f"duel {kind}/{number}", self._opponent(kind, number), faults=False)
            process.stops_before = self.more.choice(("", *_STOPS[kind]))
            if number == 0 and self.more.random() < 0.7:
                while process.state == "ready":
                    world.resume(process)
                world.clock += timedelta(seconds=self.more.choice((1, 61, 400, 400)))
        self._go_on_beside_each_other(sleep_well=self.more.random() < 0.6)

    def _opponent(self, kind: str, number: int) -> Callable[[Process], Any]:
        """A run of the table services, an interval from START-COMMIT to ACK-COMMIT, or the first one's abort."""
        if kind == "service":
            return partial(self._serve, run=Run("orders.table_services", f"duel{number}"))
        if kind == "abort":
            return lambda p: self.coordinator(p).abort(Run("orders.table_services", "duel0"))
        instants = [n for n, i in sorted(self.world.timeline.items()) if i.completed and not i.plan]
        replay = Request(kind="replay", instant=self.more.choice(instants)) if instants else Request()
        run = Run("orders", f"duel{number}", self.more.choice((Request(), replay)))

        def interval(process: Process) -> None:
            started = self.coordinator(process).start(run)
            if isinstance(started, Started):
                for n in range(len(started.ranges)):
                    self._participant(process, started, n)
                self._commit(process, run, started)

        return interval

    def _what_came_before(self) -> None:
        for _ in range(self.random.choice((0, 1, 1, 2))):
            self._produce()
            self._quiet_run()
            if self.random.random() < 0.2 and self.world.shop is None:
                self._another_topic() if self.mapped is not None else self._the_topic_is_made_again()
            elif self.world.elects and self.random.random() < 0.5:
                self._another_leader()
                self._produce()
                self._quiet_run()

    def _go_on_beside_each_other(self, *, sleep_well: bool = False) -> None:
        """All processes go on until none is left; leases run out, and who was frozen wakes up or dies.

        Args:
            sleep_well: those who are frozen wake up when nobody else is left.
        """
        world = self.world
        self.stays = self.random.choice((0, 0.6, 0.85))
        self.unrest = self.random.choice((0.02, 0.05))
        while self._tasks():
            frozen = [p for p in world.processes if p.state == "frozen"]
            ready = any(p.state != "frozen" for p in self._tasks())
            if frozen and (not ready or (not sleep_well and self.random.random() < self.unrest)):
                self._wake_or_kill(self.random.choice(frozen))
            if self.random.random() < self.unrest:
                self.random.choice((self._time_passes, self._time_passes, self._others_cluster))()
                if world.producers is not None:
                    self._producers_go_on()
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

    def _is_serving(self) -> bool:
        return any(name.startswith("services") for name in self.active)

    def _begin_service(self) -> str:
        self.services += 1
        run = Run("orders.table_services", f"services{self.services}")
        self.world.tell(f"{run.run_id}: a {self.service} is due")
        self.active[run.run_id] = self.service_run(run)
        self._go_on(run.run_id)
        return run.run_id

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
        if self.has_workers:
            self._look_after_workers()
        ready = world.ready()
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

    def _request(self) -> Request:
        world = self.world
        if self.cut_under and self.random.random() < 0.3:
            return Request(kind="replay", instant=self.random.choice(self.cut_under))
        (kind,) = self.random.choices(list(self.asks), list(self.asks.values()))
        if kind == "continue":
            return self._read_on()
        if kind == "replay":
            instants = [n for n, i in sorted(world.timeline.items()) if i.completed]
            if not instants:
                return Request()
            if self.replayed is None or self.random.random() >= self.repeats:
                self.replayed = self.random.choice(instants)
            return Request(kind="replay", instant=self.replayed)
        if kind == "backfill" and world.produced:
            times = sorted(self.random.choices([r.time for r in world.produced.values()], k=2))
            return Request(kind="backfill", from_time=times[0], to_time=times[1] + timedelta(milliseconds=1))
        if kind == "range" and self.is_restored and self.restores.random() < 0.5:
            return self._request_of_what_was_passed_over()
        return Request() if kind == "backfill" else self._request_of_offsets(kind)

    def _read_on(self) -> Request:
        """What the schedule asks for: all there is, or what is dated before the end of the run's interval."""
        return Request(to_time=self.world.clock) if self.by_date else Request()

    def _request_of_offsets(self, kind: str) -> Request:
        """Some offsets of some partitions, to be read or to be passed over."""
        world = self.world
        offsets: dict[str, dict[int, tuple[int, int]]] = {}
        for partition in self.random.sample(range(self.partitions), self.random.randint(1, self.partitions)):
            log = world.logs[partition]
            start = self.random.randint(log.start, max(log.start, log.end))
            end = min(log.end, start + self.random.randint(1, 8))
            if start < end:
                place = world.place_of(partition)
                offsets.setdefault(self._topic_in_requests(place.cluster), {})[place.partition] = (start, end)
        if not offsets:
            return Request()
        return Request(kind=kind, offsets=offsets, reason="by hand" if kind == "correction" else None)

    def _request_of_what_was_passed_over(self) -> Request:
        """A range that a person had passed over, and that is to be read after all."""
        topic = self.checkpoint()[0].topic(CLUSTER, TOPIC)
        spans = {p: self.restores.choice(of) for p, of in sorted(topic.passed_over.items()) if of} if topic else {}
        return Request(kind="range", offsets={TOPIC: spans}) if spans else Request()

    def _topic_in_requests(self, connection: str) -> str:
        """What a person calls the topic of a cluster."""
        if self.mapped is None:
            return TOPIC
        return f"{self.mapped.names.get(self.world.cluster_at(connection), connection)}/{TOPIC}"

    # The end ---------------------------------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        """Those who were frozen wake up and go on, one after the other in any order; workers end."""
        self.workers_are_to_end = True
        for process in list(self.world.processes):
            process.state, process.faults, process.lost = "ready", False, False
            if process.group:
                process.stops_before = ""
            self.world.tell(f"{process.name} wakes up")
        while any(p.state == "ready" for p in self.world.processes):
            self._step()

    def _settle(self) -> None:
        """Runs that nothing disturbs bring the table up with its topic."""
        self.faulty = False
        self.loss = "earliest"  # what a person does where it says fail
        if self.world.target is not None:
            self.world.target.is_seen = 1.0
        if self.world.shop is not None:
            self.world.shop.calm()
        self._all_is_well()
        self._some_workers_come()
        if self.world.producers is not None:
            self._settle_beside(self.world.producers)
        for key in range(self.partitions):  # strays are swept up by an interval that has something to read
            self.world.produce(1, key + 1)
        self._come_up()
        if self.serves:
            self._settle_services()
        if self.world.target is not None:
            self.world.target.end()
        self.check_rows(complete=True)

    def _come_up(self) -> None:
        """Runs until there is nothing left to read."""
        last: Any = None
        offsets = max(len(self.world.produced), sum(log.end for log in self.world.logs))
        for _ in range(_QUIET_RUNS + offsets // self.max_records):
            self.world.clock += timedelta(seconds=500)
            asked = self.world.clock
            last = self._quiet_run()
            self._no_workers_any_more()
            self._see_to_it(last)
            if last is not None and last.state == "empty" and not self._waits_for_a_date(asked):
                return
        raise ViolationError(f"liveness: the table isn't up with its topic after {_QUIET_RUNS} runs: {last}")

    def _settle_beside(self, producers: Producers) -> None:
        """Runs that nothing disturbs read what comes before an open transaction in each partition; then all end."""
        producers.hold()
        self.world.send(range(self.partitions))
        self._come_up()
        self._check_up_to_the_open_ones()
        producers.calm()

    def _waits_for_a_date(self, end: datetime) -> bool:
        """Whether a partition has unread records, and one that is dated after a run's end, and not unbelievably far.

        No window goes on past such a date, wherever it stands in the log. Where settling takes a day of the world,
        records that were dated a day ahead, and so didn't count, come to be of that kind for an hour.
        """
        if not self.by_date:
            return False
        checkpoint, last = self.checkpoint()[0], self.world.clock + _BELIEVED
        return any(
            any(end <= r.time <= last for r in log.records.values())
            and any(not any(a <= at < b for a, b in checkpoint.settled(place)) for at in log.records)
            for number, log in enumerate(self.world.logs)
            for place in (self.world.place_of(number),)
        )

    def _settle_services(self) -> None:
        """A service that nothing disturbs carries out what is left, or takes it off."""
        for _ in range(3):
            self.world.clock += timedelta(seconds=500)
            self._begin_service()
            self._to_the_end()
            if not any(i.plan and i.is_pending for i in self.world.timeline.values()):
                return
        raise ViolationError("liveness: plans are left after three services")

    def _quiet_run(self) -> Any:
        self._begin(self._read_on())
        return self._to_the_end()

    def _to_the_end(self) -> Any:
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
    "service": ("plans the", "begins the plan", "closes", "sends END", "begins Hudi's", *["completes"] * 4, "takes"),
    "abort": ("sends END", "sends ABORT", "begins to roll", "takes"),
    "interval": ("asks Kafka", "sends START", "sends END", "begins Hudi's", "completes"),
    "start": ("asks Kafka", "sends START", "begins to roll", "sweeps", "clears", "begins Hudi's"),
}
"""Before what a process of a duel may freeze."""
TABLE_IDS = {"jdbc": "jdbc://warehouse/orders", "kafka": f"kafka://target/{LOG}"}
"""The ids of tables by the sink, where they aren't that of a path."""
_STOPS_OF = {"files": ("shows", "marks", "clears"), "jdbc": ("takes the turn", "drops"), "kafka": SENDS}
"""Besides, where the table is none of Hudi's."""
