"""One worker in a history: the product's own decisions, over a log and threads in memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

from sluice.errors import RetryableError
from sluice.participant.claiming import Claiming, End, RangeId, ServedTable, Terms
from sluice.participant.participant import Assignment, Participant
from sluice.pipeline.model import Pipeline
from sluice.protocol.messages import Claim, ControlMessage, StartCommit

from .parts import SimJob, SimLog, SimMachine
from .world import Killed, Process, World

_LEASE = 30.0
STOPS = ("", "", "follows", "sends CLAIM", "closes", "sends WRITE")
"""Before what a worker of a duel may freeze."""


@dataclass
class Traits:
    """How a worker is: well, or not quite.

    Attributes:
        lies: how often what it is told of the others is wrong.
        deaf: how often it hears the log's last message later.
        fails: how often a range can't be written by it.
        throws: how often it throws what nobody reports.
        sick: how often its application is done for after that.
        is_old: whether it is of another release than the coordinators.
        misfits: whether its pipeline files are others than the coordinators'.
        look_back: from how many messages before the log's end it reads.
        longest_stay: seconds.
        slots: how many ranges it writes at once.
    """

    lies: float
    deaf: float
    fails: float
    throws: float
    sick: float
    is_old: bool
    misfits: bool
    look_back: int
    longest_stay: float | None
    slots: int


class Around(Protocol):
    """What a worker meets in its history."""

    world: World
    draw: Random
    late: list[tuple[datetime, Claim]]
    late_claims: float
    workers_are_to_end: bool

    @property
    def control_topic(self) -> str: ...
    @property
    def pipeline(self) -> Pipeline: ...
    def names(self, own: str, lies: float) -> tuple[str, ...]: ...
    def append_claim(self, claim: Claim, knows: int = 0) -> int: ...
    def begins_to_write(self, worker: str, range_id: RangeId, thread: Process) -> None: ...
    def kills_its_worker(self, control_offset: int) -> bool: ...


class _Thread:
    """A range that a worker writes. It isn't cancelled here: a job that is ends by itself, or stands still."""

    def cancel(self) -> None:
        pass


class _ClaimLog(SimLog):
    """The control topic, as a worker sends claims to it: they may come late, when it was told that they were lost."""

    def __init__(self, around: Around, process: Process) -> None:
        super().__init__(around.world, process, around.control_topic)
        self._around = around

    def send(self, message: ControlMessage) -> int:
        assert isinstance(message, Claim)
        around, process = self._around, self._process
        what = f"sends {message.type} of {message.transaction}"
        if process.faults and around.draw.random() < around.late_claims:
            due = around.world.clock + timedelta(seconds=around.draw.choice((1, 10, 40, 400)))

            def leave_it_to_the_client() -> None:
                around.late.append((due, message))
                raise RetryableError("Timed out.", next_step="try again.")

            self._call(what, leave_it_to_the_client)
        offset: int = self._call(what, lambda: around.append_claim(message, process.knows))
        return offset


class SimWorker:
    """A worker, whose threads are processes of the world that freeze and die with it.

    Args:
        around: its history.
        process: its own process.
        name: its name.
        traits: how it is.
    """

    def __init__(self, around: Around, process: Process, name: str, traits: Traits) -> None:
        self._around = around
        self._process = process
        self._name = name
        self._traits = traits
        self._threads: dict[RangeId, Process] = {}
        self._is_sick = False
        world, topic = around.world, around.control_topic
        served = ServedTable(
            _ClaimLog(around, process), SimJob(world, process), 1e9, lambda _: "no" if traits.misfits else None
        )
        self._claiming = Claiming(
            Terms(name, _LEASE, traits.slots, traits.longest_stay),
            {(topic, around.pipeline.table_id): served},
            self,
            lambda: around.names(name, traits.lies),
            SimMachine(world, process).steady,
            lambda: True,
            self._begin,
        )
        self._position = max(0, len(self._messages) - traits.look_back)
        self._claiming.reads_from(topic, self._position, len(self._messages))

    @property
    def _messages(self) -> list[ControlMessage]:
        return self._around.world.topics.get(self._around.control_topic, [])

    def health_problem(self) -> End | None:
        """As the worker's application."""
        return End.UNHEALTHY if self._is_sick else None

    def run(self) -> str:
        """Work until it ends; why it does."""
        claiming, around = self._claiming, self._around
        while not claiming.is_over:
            if self._process.lost or around.workers_are_to_end:
                claiming.end()
            self._hear()
            self._hear_of_threads()
            claiming.step()
            if not claiming.is_over:
                heard = len(self._messages)
                around.world.sleep(self._process, claiming.until_next(), lambda heard=heard: self._is_told(heard))
        claiming.give_all_back()
        return str(claiming.why)

    def _is_told(self, heard: int) -> bool:
        return len(self._messages) > heard or any(t.state == "ended" for t in self._threads.values())

    def _hear(self) -> None:
        end = len(self._messages)
        if self._position >= end:
            return
        heard = end - (self._around.draw.random() < self._traits.deaf)
        self._around.world.call(self._process, "worker: follows the control topic", lambda: None)
        for offset in range(self._position, heard):
            message = self._messages[offset]
            self._claiming.said(self._around.control_topic, offset, self._as_heard(message))
        self._position = self._process.knows = max(self._position, heard)

    def _as_heard(self, message: ControlMessage) -> ControlMessage:
        if self._traits.is_old and isinstance(message, StartCommit):
            return message.model_copy(update={"release": "0.0.9"})
        return message

    def _hear_of_threads(self) -> None:
        for range_id, thread in [(p, t) for p, t in self._threads.items() if t.state == "ended"]:
            del self._threads[range_id]
            self._process.group.remove(thread)
            error = thread.error if isinstance(thread.error, Exception) else None
            if error is not None and self._around.draw.random() < self._traits.sick:
                self._is_sick = True
            self._claiming.ended(range_id, error)

    def _begin(self, range_id: RangeId, assignment: Assignment, _served: ServedTable) -> _Thread:
        world, process = self._around.world, self._process
        thread = world.spawn(
            f"{self._name} range{range_id.number}", lambda t: self._write(t, assignment), faults=process.faults
        )
        if process.stops_before:
            thread.stops_before = self._around.draw.choice(STOPS)
        thread.group = process.group
        process.group.append(thread)
        self._threads[range_id] = thread
        self._around.begins_to_write(self._name, range_id, thread)
        return _Thread()

    def _write(self, thread: Process, assignment: Assignment) -> None:
        draw, traits, world = self._around.draw, self._traits, self._around.world
        if self._around.kills_its_worker(assignment.control_offset):
            raise Killed
        if thread.faults and draw.random() < traits.throws:
            raise ValueError("nobody has thought of this")
        job = SimJob(world, thread)
        if thread.faults and draw.random() < traits.fails:
            job.write = _fails  # type: ignore[method-assign]
        Participant(assignment, SimLog(world, thread, assignment.control_topic), job).run()


def _fails(*_: object) -> dict[str, object]:
    raise RetryableError("This worker is ill.", next_step="let another one try.")
