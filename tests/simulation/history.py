"""One history: what a seed asks for and breaks, the invariants while it goes on, and what has to be true at its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.coordinator.parts import Parts
from sluice.errors import ActionRequiredError, IntervalError, RetryableError, SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.participant.participant import Assignment, Participant
from sluice.pipeline.model import Pipeline
from sluice.protocol.offsets import TRANSACTION_KEY, Checkpoint, TopicPartition, read_checkpoint
from sluice.protocol.request import Request
from sluice.protocol.transaction import State, TableLog, Transaction

from .parts import SimJob, SimLog, SimMachine, SimSink, SimSource
from .world import CLUSTER, EPOCH, HOT_SPOTS, TABLE, TOPIC, Faults, File, Process, Record, ViolationError, World, rows

_QUIET_RUNS = 6
"""Runs that faults leave alone within which a table has to come up with its topic."""
_MOST_SWITCHES = 20_000
Steps = Iterator[list[Process]]
Where = tuple[str, int, int]


@cache
def _pipeline(
    operation: str, ordered: bool, ranges: int, on_offset_loss: str, on_missing_range: str, max_records: int
) -> Pipeline:
    upsert: dict[str, Any] = {"record_key": "id", "key_placement": "trusted", "ordering_field": "v" if ordered else []}
    return Pipeline.model_validate(
        {
            "name": "orders",
            "source": {"kafka": {"topics": TOPIC, "on_offset_loss": on_offset_loss, "max_records": max_records}},
            "sink": {
                "hudi": {
                    "path": TABLE,
                    "schema": "id BIGINT, v BIGINT, p STRING",
                    "partition_fields": "p",
                    "operation": operation,
                    **(upsert if operation == "upsert" else {}),
                }
            },
            "write": {"ranges": ranges},
            "on_missing_range": on_missing_range,
            "control": {"commit_timeout": "60 seconds", "clock_wait": "300 seconds"},
        }
    )


_KAFKA = KafkaSettings(CLUSTER, {"bootstrap.servers": "nowhere:1"})


class History:
    """One world, and Airflow at work on it.

    Args:
        seed: makes the whole history.
        faults: how likely what goes wrong is.
    """

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.world.faults = faults or self._faults()
        self.concurrent = self.random.choice((1, 2, 2, 3))
        self.haste = self.random.choice((0.01, 0.03, 0.1))  # how soon the next run begins beside another
        self.unrest = self.random.choice((0.01, 0.03, 0.1))  # how often something happens that is no fault of ours
        self.wakes = self.random.choice((0.15, 0.5))
        self.airflow_knows = self.random.random() < 0.5
        self.operation = self.random.choice(("append", "upsert"))
        self.ordered = self.random.random() < 0.3
        self.broken = self.random.choice((0, 0, 0.15))  # how often a range of a run can't be written at all
        self.loss = self.random.choice(("fail", "earliest"))
        self.partial = self.random.choice(("abort", "commit"))
        self.ranges = self.random.choice((1, 2, 2, 3))
        self.partitions = self.random.choice((1, 2, 3))
        self.max_records = self.random.choice((5, 40, 40))
        self.world.make_topic(self.partitions)
        self.world.on_change = self.check_rows
        self.world.is_void = self._is_void
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
            hot=self.random.choice(("", *HOT_SPOTS)),
        )

    # Steps of a DAG run ----------------------------------------------------------------------------------------------

    @property
    def pipeline(self) -> Pipeline:
        return _pipeline(self.operation, self.ordered, self.ranges, self.loss, self.partial, self.max_records)

    def coordinator(self, process: Process) -> Coordinator:
        world = self.world
        parts = Parts(
            SimSource(world, process),
            lambda topic: SimLog(world, process, topic),
            SimSink(world, process, self.pipeline),
            _KAFKA,
            SimMachine(world, process),
        )
        return Coordinator.over(self.pipeline, parts, lambda _dag, run: self.airflow_knows and run in self.active)

    def _participant(self, process: Process, started: Started, number: int) -> None:
        control = SimLog(self.world, process, self.pipeline.control_topic)
        assignment = Assignment(TABLE, control.topic, started.control_offset, number, started.digest)
        Participant(assignment, control, SimJob(self.world, process)).run()

    def _work_of(self, started: Started, number: int, is_broken: bool) -> Callable[[Process], Any]:
        def work(process: Process) -> None:
            if is_broken and self.faulty:
                raise RetryableError("The job can't start.", next_step="give it memory.")
            self._participant(process, started, number)

        return work

    def _task(self, name: str, work: Callable[[Process], Any], retries: int = 2) -> Iterator[list[Process]]:
        """A task: attempts until one succeeds. One that is frozen is lost to Airflow, and may wake up later."""
        for attempt in range(retries + 1):
            twice = self.faulty and self.random.random() < 0.02
            made = [self.world.spawn(f"{name}/{attempt}{'b' * i}", work, faults=self.faulty) for i in range(1 + twice)]
            yield made
            first = next((p for p in made if p.state == "ended" and p.error is None), None)
            if first is not None:
                return first
            self.world.clock += timedelta(seconds=self.random.choice((1, 15, 70, 400)))
            errors = [p.error for p in made if isinstance(p.error, SluiceError)]
            if any(isinstance(e, IntervalError | ActionRequiredError) for e in errors):
                return made[0]
        return made[0]

    def dag_run(self, run: Run) -> Steps:
        """One DAG run as Airflow carries it out: start_commit, write, commit, and abort where one of them failed."""
        name = run.run_id
        start = yield from self._task(f"{name} start", lambda p: self.coordinator(p).start(run))
        if start.error is None and isinstance(start.outcome, Outcome):
            return start.outcome
        ok = start.error is None and start.outcome is not None
        if ok:
            started = start.outcome
            numbers = range(len(started.ranges))
            broken = self.random.choice(numbers) if numbers and self.random.random() < self.broken else None
            tasks = [self._task(f"{name} write{n}", self._work_of(started, n, n == broken)) for n in numbers]
            results = yield from _side_by_side(tasks)
            ok = all(p.error is None and p.state == "ended" for p in results)
            if ok or self.partial == "commit":
                commit = yield from self._task(
                    f"{name} commit",
                    lambda p: self.coordinator(p).commit(started.control_offset, started.instant, started.digest),
                )
                if commit.error is None and commit.state == "ended":
                    return commit.outcome
        if self.faulty and self.random.random() < 0.2:
            return None  # somebody has marked the run, or Airflow is gone
        yield from self._task(f"{name} abort", lambda p: self.coordinator(p).abort(run))
        return None

    # What happens ----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """The whole history.

        Raises:
            ViolationError: something that has to be true isn't.
        """
        world = self.world
        self._produce()
        intervals = self.random.choice((2, 3, 5))
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
        self._wake_up()
        self._settle()

    def _begin(self, request: Request) -> None:
        self.runs += 1
        run = Run("orders", f"run{self.runs}", request)
        self.world.tell(f"{run.run_id} is asked to: {request.model_dump(exclude_defaults=True) or 'continue'}")
        self.active[run.run_id] = self.dag_run(run)
        self._go_on(run.run_id)

    def _go_on(self, name: str) -> Any:
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
        over = [name for name, ps in self.waits_for.items() if all(p.state != "ready" for p in ps)]
        if over:
            self._go_on(self.random.choice(over))
            return
        ready = [p for p in world.processes if p.state == "ready"]
        if ready:
            world.clock += timedelta(milliseconds=self.random.choice((1, 20, 200)))
            world.resume(self.random.choice(ready))

    def _happen(self) -> None:
        """Something that no process of ours does."""
        world = self.world
        frozen = [p for p in world.processes if p.state == "frozen"]
        if frozen and self.random.random() < self.wakes:
            woken = self.random.choice(frozen)
            world.tell(f"{woken.name} wakes up")
            woken.state = "ready"
            return
        (what,) = self.random.choices(list(_EVENTS), list(_EVENTS.values()))
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

    def _the_topic_is_made_again(self) -> None:
        self.world.tell("the topic is deleted and made again")
        self.world.make_topic(self.partitions)

    def _produce(self) -> None:
        self.world.produce(self.random.choice((1, 4, 12)), 6)

    def _request(self) -> Request:
        world, chance = self.world, self.random.random()
        if chance < 0.55:
            return Request()
        if chance < 0.75:
            instants = [n for n, i in sorted(world.timeline.items()) if i.completed]
            return Request(kind="replay", instant=self.random.choice(instants)) if instants else Request()
        partition = self.random.randrange(self.partitions)
        log = world.logs[partition]
        start = self.random.randint(log.start, max(log.start, log.end))
        window = {TOPIC: {partition: (start, min(log.end, start + self.random.randint(1, 8)))}}
        if window[TOPIC][partition][0] >= window[TOPIC][partition][1]:
            return Request()
        kind = "range" if chance < 0.9 else "correction"
        return Request(kind=kind, offsets=window, reason="by hand" if kind == "correction" else None)

    # The end ---------------------------------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        """Those who were frozen wake up and go on, one after the other in any order."""
        for process in list(self.world.processes):
            process.state, process.faults = "ready", False
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
            self._begin(Request())
            last = None
            while self.active:
                (name,) = self.active
                if all(p.state != "ready" for p in self.waits_for[name]):
                    last = self._go_on(name)
                else:
                    self._step()
            if last is not None and last.state == "empty":
                break
        else:
            raise ViolationError(f"liveness: the table isn't up with its topic after {_QUIET_RUNS} runs: {last}")
        self.check_rows(complete=True)

    # Invariants ------------------------------------------------------------------------------------------------------

    def checkpoint(self) -> tuple[Checkpoint, dict[str, Any]]:
        for name in sorted(self.world.timeline, reverse=True):
            for completed in self.world.timeline[name].completed[:1]:
                return read_checkpoint(completed.extra, CLUSTER, [TOPIC]), json.loads(completed.extra[TRANSACTION_KEY])
        return Checkpoint(), {}

    def check_rows(self, *, complete: bool = False) -> None:
        """Readers see the records of the committed offsets, each once."""
        if not complete and self._to_be_taken_off():
            return  # docs/guarantees/conditions.md: it may be seen until whoever comes next has looked
        checkpoint, note = self.checkpoint()
        topic = checkpoint.topic(CLUSTER, TOPIC)
        log_id = topic.topic_id if topic else None
        covered = {p: checkpoint.covered(TopicPartition(CLUSTER, TOPIC, p)) for p in range(self.partitions)}
        wanted = {
            r.where for r in self.world.produced.values()
            if r.log == log_id and any(a <= r.offset < b for a, b in covered[r.partition])
        }  # fmt: skip
        readers = {"a reader of the timeline": self.world.committed_files()}
        if complete:
            readers["a reader that lists files"] = self.world.listed_files()
        for who, found in readers.items():
            self._compare(who, found, wanted, log_id)
        self._check_completeness(note, wanted)
        if not complete:
            return
        self._check_nothing_is_left()
        for partition, log in enumerate(self.world.logs):
            if log_id != self.world.log_id and log.records:
                raise ViolationError("the table isn't of the log that is there now")
            settled = checkpoint.settled(TopicPartition(CLUSTER, TOPIC, partition))
            unread = [o for o in log.records if not any(a <= o < b for a, b in settled)]
            if unread:
                raise ViolationError(f"partition {partition} has records that the table hasn't, such as {unread[0]}")

    def _to_be_taken_off(self) -> bool:
        """Whether a commit stands that was completed after its transaction had been aborted, or twice."""
        known = self._transactions()
        completed = {name: i for name, i in self.world.timeline.items() if i.completed}
        return any(
            len(i.completed) > 1 or (name in known and known[name].state is State.ABORTED)
            for name, i in completed.items()
        )

    def _transactions(self) -> dict[str, Transaction]:
        messages = self.world.topics.get(self.pipeline.control_topic, [])
        return TableLog(TABLE).extend(enumerate(messages)).transactions

    def _is_void(self, instant: str) -> bool:
        known = self._transactions().get(instant)
        return known is not None and known.state is State.ABORTED

    def _check_nothing_is_left(self) -> None:
        """No instant, no roll-back and no lease is left half done."""
        pending = [name for name, instant in self.world.timeline.items() if not instant.completed]
        if pending:
            raise ViolationError(f"instants are pending for good: {pending}")
        if self.world.rollbacks:
            raise ViolationError(f"roll-backs were begun and never finished: {sorted(self.world.rollbacks)}")

    def _compare(self, who: str, files: dict[str, File], wanted: set[Where], log_id: str | None) -> None:
        found = list(rows(files))
        if self.operation == "append":
            doubled = [where for where, number in Counter(r.where for r in found).items() if number > 1]
            if doubled:
                raise ViolationError(f"{who} sees {len(doubled)} records twice, such as {doubled[0]}")
        seen = {r.where for r in found}
        more = {where for where in seen if where[0] == log_id} - wanted
        if more:
            raise ViolationError(f"{who} sees {len(more)} records of offsets that aren't committed: {min(more)}")
        if self.operation == "upsert":
            self._compare_keys(who, files, wanted)
            return
        missing = (wanted - seen - self.world.excused) | (self.world.kept - seen)
        if missing:
            raise ViolationError(f"{who} misses {len(missing)} records of committed offsets, such as {min(missing)}")

    def _compare_keys(self, who: str, files: dict[str, File], wanted: set[Where]) -> None:
        """An upsert has of each key the version that was produced last among those that it has read."""
        last = self._merged(files)
        for where in wanted - self.world.excused:
            record = self.world.produced[where]
            if last.get(record.key, -1) < record.number:
                raise ViolationError(f"{who} has not the version {where} of a key, or a later one")

    def _merged(self, files: dict[str, File]) -> dict[int, int]:
        """Of each key the record that a reader takes: by the ordering field, or the one that was committed last."""
        last: dict[int, tuple[str, int]] = {}
        for file in files.values():
            for row in file.rows:
                rank = ("" if self.ordered else file.instant, row.number)
                last[row.key] = max(rank, last.get(row.key, rank))
        return {key: number for key, (_, number) in last.items()}

    def _check_completeness(self, note: dict[str, Any], wanted: set[Where]) -> None:
        through = note.get("valid_through")
        if through is None:
            return
        limit = datetime.fromisoformat(through)
        lacking = [
            r.where for r in self.world.produced.values()
            if r.log == self.world.log_id and r.time < limit and r.where not in wanted
            and r.where not in self.world.excused and not self._passed_over(r)
        ]  # fmt: skip
        if lacking:
            raise ViolationError(f"the table says that it is complete to {limit - EPOCH}, and lacks {lacking[0]}")

    def _passed_over(self, record: Record) -> bool:
        topic = self.checkpoint()[0].topic(CLUSTER, TOPIC)
        spans = topic.passed_over.get(record.partition, ()) if topic else ()
        return any(a <= record.offset < b for a, b in spans)


_EVENTS = {
    History._produce: 40,
    History._time_passes: 10,
    History._one_is_killed: 7,
    History._a_transaction_ends: 6,
    History._kafka_compacts: 6,
    History._retention: 4,
    History._the_topic_is_made_again: 2,
}


def _side_by_side(tasks: list[Iterator[list[Process]]]) -> Iterator[list[Process]]:
    """Mapped tasks: each goes on when its own attempt has ended."""
    waiting: dict[int, list[Process]] = {}
    ended: dict[int, Process] = {}
    for number, task in enumerate(tasks):
        waiting[number] = next(task)
    while waiting:
        yield [p for processes in waiting.values() for p in processes]
        for number in list(waiting):
            if all(p.state != "ready" for p in waiting[number]):
                try:
                    waiting[number] = next(tasks[number])
                except StopIteration as end:
                    ended[number] = end.value
                    del waiting[number]
    return [ended[number] for number in sorted(ended)]
