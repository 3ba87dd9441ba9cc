"""A world: Kafka, control topics and a Hudi table in memory, and the processes at work on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from greenlet import getcurrent, greenlet

from sluice.errors import RetryableError
from sluice.protocol.messages import ControlMessage, StartCommit

from .kafka import Topic
from .lake import Lake

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


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
    knows: int = 0  # the control topic's end when it last read it
    turn: str = ""  # the instant in its last START-COMMIT
    group: list[Process] = field(default_factory=list)  # a worker and its threads freeze and die as one
    sleeps_until: datetime | None = None
    wakes: Callable[[], bool] = lambda: False  # whether there is news for it while it sleeps

    @property
    def is_ready(self) -> bool:
        """Whether it can go on, though it may sleep just now."""
        return self.state == "ready" and all(one.state != "frozen" for one in self.group)


def awaits_none(processes: Iterable[Process]) -> bool:
    """Whether Airflow waits for none of these any more."""
    return all(p.lost or p.state != "ready" for p in processes)


class World(Lake, Topic):
    """Everything that outlives a process.

    Args:
        seed: makes the whole history.
        faults: how likely what goes wrong is.
    """

    def __init__(self, seed: int, faults: Faults = Faults()) -> None:
        Topic.__init__(self)
        Lake.__init__(self)
        self.random = random.Random(seed)
        self.seed = seed
        self.faults = faults
        self.clock = EPOCH
        self.story: list[str] | None = None
        self.topics: dict[str, list[ControlMessage]] = {}  # the control topics
        self.leases: dict[tuple[str, str], datetime] = {}  # by process and instant: when it began to send END-COMMIT
        self.committing: dict[str, list[Process]] = {}  # who is inside Hudi's commit of an instant
        # the processes
        self.processes: list[Process] = []
        self.main = getcurrent()
        self.switches = 0
        self.lists_leftovers = False  # whether a table looks what intervals have left, or names all that messages name
        self.on_change: Callable[[], None] = lambda: None
        self.on_report: Callable[[Process, str], None] = lambda _process, _instant: None
        self.on_start: Callable[[Process, StartCommit], None] = lambda _process, _start: None
        self.on_plan: Callable[[Process, str, bool], None] = lambda _process, _what, _decided: None
        self.skews: dict[str, timedelta] = {}  # of the clocks of all processes that ever ran
        self.has_turn: Callable[[str], bool] = lambda _instant: True
        self.is_void: Callable[[str], bool] = lambda _instant: False

    # Processes -----------------------------------------------------------------------------------------------------

    def spawn(self, name: str, work: Callable[[Process], Any], *, faults: bool = True) -> Process:
        """Begin a process, which runs when the scheduler comes to it."""
        skew = timedelta(seconds=self.random.choice((0, 0, 0, -100, 100, 250)))
        hot = [spot.rpartition(": ") for spot in self.faults.hot]
        self.skews[name] = skew
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
            if isinstance(process.error, Killed):
                self._kill_with(process)

    def ready(self) -> list[Process]:
        """Who may go on: those that are awake, or else the one that wakes up first."""
        ready = [p for p in self.processes if p.is_ready]
        awake = [p for p in ready if p.sleeps_until is None or p.sleeps_until <= self.clock or p.wakes()]
        return awake or sorted(ready, key=lambda p: p.sleeps_until or self.clock)[:1]

    def sleep(self, process: Process, seconds: float, wakes: Callable[[], bool]) -> None:
        """Let time pass until there is news, or so many seconds are over."""
        process.sleeps_until, process.wakes = self.clock + timedelta(seconds=seconds), wakes
        self.main_switch()
        if not wakes():
            self.clock = max(self.clock, process.sleeps_until)
        process.sleeps_until = None

    def _kill_with(self, process: Process) -> None:
        """End the threads that end with a process."""
        group, process.group = list(process.group), []
        for one in group:
            one.group = []
            if one is not process and one.state != "ended":
                self.kill(one)

    def kill(self, process: Process) -> None:
        """End a process where it stands."""
        if process.greenlet:
            process.greenlet.parent = getcurrent()
            process.greenlet.throw(Killed())
        process.state = "ended"
        if process in self.processes:
            self.processes.remove(process)
        self.tell(f"{process.name} is killed at: {process.doing}")
        self._kill_with(process)

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
        """Check that nobody else who has a lease on the instant is inside Hudi's commit of it; or, to commit, of any.

        Raises:
            ViolationError: somebody is, and no clock by which his lease was judged differs by more than it may.
        """
        for its, others in self.committing.items():
            if its != instant and (what != "commits" or not self.has_turn(its)):
                continue  # another's roll-back, or a commit that somebody has acknowledged since
            for other in others:
                began = self.leases.get((other.name, its))
                if other is process or began is None or other not in self.processes:
                    continue
                judged_by = {process.name, *(name for (name, t), at in self.leases.items() if t == its and at > began)}
                if self.clock - began < lease and all(abs(other.skew - self.skews[name]) <= skew for name in judged_by):
                    it = "it" if its == instant else its
                    raise ViolationError(
                        f"{process.name} {what} {instant} while {other.name} commits {it} under its lease"
                    )

    @staticmethod
    def main_switch() -> None:
        """Let the scheduler choose who goes next."""
        getcurrent().parent.switch()

    def tell(self, what: str) -> None:
        """Add a line to the story, where somebody wants to read it."""
        if self.story is not None:
            self.story.append(f"{(self.clock - EPOCH).total_seconds():9.2f}  {what}")


def _how(process: Process) -> str:
    if process.error is None:
        return str(process.outcome)[:150]
    return "killed" if isinstance(process.error, Killed) else f"{type(process.error).__name__}: {process.error}"[:300]
