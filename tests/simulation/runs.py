"""The tasks of a DAG run as Airflow carries them out, each a process of the world's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, Literal

from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.coordinator.parts import Parts
from sluice.coordinator.services import Services
from sluice.errors import ActionRequiredError, IntervalError, RetryableError, SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.participant.participant import Assignment, Participant
from sluice.participant.service import Running, RunningService, ServiceAssignment, ServiceJob
from sluice.pipeline.model import Pipeline
from sluice.protocol.messages import StartCommit
from sluice.protocol.transaction import State

from .broker import SimKafka
from .invariants import Invariants
from .kafka import CLUSTER, TOPIC
from .kafka_sink import TIMEOUT
from .kafka_sink import TOPIC as OUT
from .lake import TABLE
from .mapping import CONNECTIONS, STREAM, Mapped
from .parts import SimJob, SimLog, SimMachine, SimSource
from .rows import SimRows, section_of
from .services import SimServiceJob
from .sink import SimSink
from .table import SimHudi
from .world import Process, awaits_none

Steps = Iterator[list[Process]]


@cache
def _pipeline(
    operation: str,
    ordered: bool,
    ranges: int,
    records_per_range: int | None,
    on_offset_loss: str,
    on_missing_range: str,
    max_records: int,
    serves: bool,
    streams: tuple[str, str] | None,
    sink: str,
    splits: int,
) -> Pipeline:
    services = {"wait": "60 seconds", **({"clustering": {}} if operation == "append" else {})}
    read: dict[str, Any] = {"topics": TOPIC}
    if streams is not None:
        on_removed, on_unreachable = streams
        followed = {"on_removed": on_removed, "on_unreachable": on_unreachable, "mapped_connections": CONNECTIONS}
        read = {"streams": STREAM, "metadata": {"service": "in memory"}, **followed}
    source = {"kafka": {**read, "on_offset_loss": on_offset_loss, "max_records": max_records}}
    return Pipeline.model_validate(
        {
            "name": "orders",
            "source": {"jdbc": section_of(max_records, splits)} if splits else source,
            "sink": {sink: {**_section(sink, operation, ordered), "schema": "id BIGINT, v BIGINT, p STRING"}},
            "write": {"ranges": {"at_most": ranges, "records": records_per_range} if records_per_range else ranges},
            "on_missing_range": on_missing_range,
            **({"table_services": services} if serves else {}),
            "control": {
                "commit_timeout": "60 seconds",
                "clock_wait": "300 seconds",
                **({"connection": "control"} if splits else {}),
            },
        }
    )


def _section(sink: str, operation: str, ordered: bool) -> dict[str, Any]:
    by = {"ordering_field": "v" if ordered else []} if operation == "upsert" else {}
    if sink == "files":
        return {"path": TABLE}
    if sink == "kafka":
        return {"connection": "target", "topic": OUT, "staging": TABLE, "transaction_timeout": TIMEOUT}
    if sink == "jdbc":
        keyed = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"} if by else {}
        return {"connection": "warehouse", "table": "orders", **keyed, **by}
    upsert = {"record_key": "id", "key_placement": "trusted"} if by else {}
    return {"path": TABLE, "partition_fields": "p", "operation": operation, **upsert, **by}


_KAFKA = KafkaSettings(CLUSTER, {"bootstrap.servers": "nowhere:1"})


class Runs(Invariants):
    """Airflow, with one pipeline.

    Attributes:
        random: draws what happens.
        faulty: whether anything may still go wrong.
        retries: of each task.
        twice: how often Airflow begins an attempt twice.
        broken: how often a range of a run can't be written at all.
        airflow_knows: whether START asks which runs go on.
        active: the runs that go on, by name.
        ranges: as the pipeline file has it, and so are `loss`, `partial` (`on_missing_range`) and `max_records`.
        records_per_range: about the most records of a range; None where `ranges` is a number.
        serves: whether the pipeline has table services.
        sink: the name of the pipeline's sink.
        mapped: what the metadata service says; None in a history without streams.
        on_removed: of streams, and so is `on_unreachable`.
        has_workers: whether `write` tasks wait for workers first.
    """

    random: Random
    faulty: bool
    retries: int
    twice: float
    broken: float
    airflow_knows: bool
    active: dict[str, Steps]
    ranges: int
    loss: str
    partial: str
    max_records: int
    serves: bool
    sink: str = "hudi"
    mapped: Mapped | None = None
    records_per_range: int | None = None
    on_removed: str = "drain"
    on_unreachable: str = "fail"
    has_workers: bool = False

    def _is_written_by_a_worker(self, process: Process, started: Started, number: int) -> bool:
        """Whether a worker has written a range, for which its `write` task waits."""
        raise NotImplementedError

    @property
    def pipeline(self) -> Pipeline:
        return _pipeline(
            self.operation, self.ordered, self.ranges, self.records_per_range, self.loss, self.partial,
            self.max_records, self.serves,
            (self.on_removed, self.on_unreachable) if self.mapped is not None else None, self.sink,
            self.partitions if self.world.shop is not None else 0,
        )  # fmt: skip

    @property
    def control_topic(self) -> str:
        return self.pipeline.control_topic

    def coordinator(self, process: Process) -> Coordinator:
        return Coordinator.with_parts(self.pipeline, self._parts(process), self._is_running)

    def _is_running(self, _dag: str, run: str) -> bool:
        return self.airflow_knows and run in self.active

    def _parts(self, process: Process) -> Parts:
        world = self.world
        return Parts(
            self._source(process),
            lambda topic: SimLog(world, process, topic),
            SimSink(world, process, self.pipeline),
            _KAFKA,
            lambda name, address: SimSource(world, process, world.cluster_at(address.connection), name),
            lambda _name, _address: _KAFKA,
            SimMachine(world, process),
        )

    def _source(self, process: Process) -> Any:
        world = self.world
        if world.producers is not None:
            return SimKafka(world, process, world.clusters[0], CLUSTER, self.pipeline.source.options.read_isolation)
        return (SimSource if world.shop is None else SimRows)(world, process, world.clusters[0], CLUSTER)

    def _participant(self, process: Process, started: Started, number: int) -> None:
        control = SimLog(self.world, process, self.pipeline.control_topic)
        assignment = Assignment(self.pipeline.table_id, control.topic, started.control_offset, number, started.digest)
        Participant(assignment, control, SimJob(self.world, process)).run()

    def _work_of(self, started: Started, number: int, is_broken: bool) -> Callable[[Process], Any]:
        def work(process: Process) -> None:
            if self.has_workers and self._is_written_by_a_worker(process, started, number):
                return
            if is_broken and self.faulty:
                raise RetryableError("The job can't start.", next_step="give it memory.")
            self._participant(process, started, number)

        return work

    def _task(self, name: str, work: Callable[[Process], Any]) -> Iterator[list[Process]]:
        """A task: attempts until one succeeds. One that is frozen is lost to Airflow, and may wake up later."""
        for attempt in range(self.retries + 1 if self.faulty else 3):
            twice = self.faulty and self.random.random() < self.twice
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
                    lambda p: self._commit(p, run, started),
                )
                if commit.error is None and commit.state == "ended":
                    return commit.outcome
        if self.faulty and self.random.random() < 0.2:
            return None  # somebody has marked the run, or Airflow is gone
        yield from self._task(f"{name} abort", lambda p: self.coordinator(p).abort(run))
        return None

    def service_run(self, run: Run) -> Steps:
        """One DAG run of the table services: one task, which plans, has a job carry the plan out, and gives up."""
        ended = yield from self._task(f"{run.run_id} service", lambda p: self._serve(p, run))
        return ended.outcome

    def _serve(self, process: Process, run: Run) -> State | Outcome:
        world, service = self.world, self.service
        services = Services.with_parts(self.pipeline, self._parts(process), self._is_running)
        planned = services.plan(run, service)
        if isinstance(planned, Outcome):
            return planned
        control = SimLog(world, process, self.pipeline.control_topic)
        assignment = ServiceAssignment(TABLE, control.topic, planned.control_offset, planned.digest)
        failure: SluiceError | None = None
        try:
            ServiceJob(assignment, control, self._service_job(process), SimMachine(world, process).now).run()
        except SluiceError as error:
            failure = error
        state = services.state(planned.control_offset)
        if state is not State.COMMITTED:
            failure = failure or RetryableError("The job failed.", next_step="try again.")
            services.give_up(planned.control_offset, str(failure))
            raise failure
        self.told_done.update(dict.fromkeys(planned.instants, process.name))
        return state

    @property
    def service(self) -> Literal["clustering", "compaction"]:
        return "clustering" if self.operation == "append" else "compaction"

    def _service_job(self, process: Process) -> Running:
        control = self.pipeline.control

        @contextmanager
        def running(start: StartCommit) -> Iterator[RunningService]:
            table = SimHudi(self.world, process, start.writer, control.clock_wait, control.commit_timeout)
            job = SimServiceJob(self.world, process, table, start)
            yield RunningService(job, process.name, lambda: None)

        return running

    def _commit(self, process: Process, run: Run, started: Started) -> Outcome:
        outcome = self.coordinator(process).commit(started.control_offset, started.instant, started.digest)
        self.told_committed[started.instant] = process.name
        self._check_request(run.request, started)
        return outcome


def _side_by_side(tasks: list[Iterator[list[Process]]]) -> Iterator[list[Process]]:
    """Mapped tasks: each goes on when its own attempt has ended."""
    waiting: dict[int, list[Process]] = {}
    ended: dict[int, Process] = {}
    for number, task in enumerate(tasks):
        waiting[number] = next(task)
    while waiting:
        yield [p for processes in waiting.values() for p in processes]
        for number in list(waiting):
            if awaits_none(waiting[number]):
                try:
                    waiting[number] = next(tasks[number])
                except StopIteration as end:
                    ended[number] = end.value
                    del waiting[number]
    return [ended[number] for number in sorted(ended)]
