"""Small worlds: a few processes that meet over one interval, played in every order and with every fault, not drawn.

A campaign draws histories and may miss one. A small world is exhausted: in each of its states everything is tried that
can happen next, within two bounds: how many faults there are, and how often a process is interrupted by another while
it could go on (a process that has died, frozen or ended is followed by any other, which doesn't count). States that
are equal are visited once. A state is what the world holds and, for each process, all answers to its calls: processes
are deterministic, and know nothing else.

Bounding interruptions instead of depth follows Musuvathi and Qadeer, "Iterative context bounding for systematic
testing of multithreaded programs" (PLDI 2007): most faults of concurrent programs show with two of them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import chain, count
from random import Random
from typing import Any

from pydantic import BaseModel

from sluice.coordinator import Run, Started
from sluice.errors import RetryableError, SluiceError
from sluice.protocol.request import Request
from sluice.protocol.transaction import TableLog

from .campaign import in_its_world, patched
from .history import TABLE_IDS, History
from .kafka import Record
from .kafka_sink import Brokers, brokers_of
from .world import Faults, Killed, Process, ViolationError, World

_SEED = 40
"""Whose history is of one partition, without anything that comes besides."""
_BEYOND_THE_LEASE = timedelta(seconds=400)
_SETTLED_BY = 1
_CALM = Faults(kill=0, freeze=0, unreachable=0, lost_answer=0, short=0)


@dataclass(frozen=True)
class Small:
    """A small world.

    Attributes:
        opponents: what the processes are, such as `commit` and `abort` of the interval, or the next run's `start`.
        faults: how many there are at most: a death before a call, an answer that is lost after the call's effect, or
            a freeze that lasts beyond a lease.
        switches: how often a process is interrupted by another at most.
        sink: of the pipeline.
        written: whether all that the interval reads is written, and only its end is open.
        before: how many intervals were committed before.
    """

    opponents: tuple[str, ...]
    faults: int = 1
    switches: int = 1
    sink: str = "hudi"
    written: bool = True
    before: int = 1


_MEET = (("commit", "abort"), ("commit", "start"), ("commit", "commit"))


def _worlds() -> Iterator[Small]:
    for ones in (*_MEET, ("abort", "start"), ("abort", "abort"), ("start", "start")):
        yield Small(ones)
    for other in ("abort", "start", "write"):
        yield Small(("write", other), written=False)
    for other in ("start", "commit", "abort", "service"):
        yield Small(("service", other), before=2)
    for sink in ("files", "jdbc", "kafka"):
        for ones in _MEET:
            yield Small(ones, sink=sink)


WORLDS = {" and ".join(one.opponents) + (f", {one.sink}" if one.sink != "hudi" else ""): one for one in _worlds()}


@dataclass
class Explored:
    """What came of a small world: how much there is of it, and what is violated, with the choices that lead there."""

    states: int = 0
    ends: int = 0
    violated: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


class _Observed(World):
    """A world that notes of each process what it has seen."""

    seen_by: dict[str, bytes]
    loses: str = ""  # the process whose next answer is lost

    def call(self, process: Process, what: str, effect: Callable[[], Any]) -> Any:
        process.doing = what
        self.main_switch()
        self.tell(f"{process.name}: {what}")
        if what.startswith("completes"):
            self.clock += timedelta(milliseconds=1)  # no two completions of Hudi's have one name
        try:
            answer = effect()
            if self.loses == process.name:
                self.loses = ""
                raise RetryableError(f"{what}: timed out", next_step="try again.")
        except SluiceError as error:
            self._note(process, what, repr(error))
            raise
        # The control topic's log is extended in place: the topic is the world's, so its end says all.
        self._note(process, what, answer.position if isinstance(answer, TableLog) else answer)
        return answer

    def _note(self, process: Process, what: str, answer: Any) -> None:
        before = self.seen_by.get(process.name, b"")
        self.seen_by[process.name] = _digest((before, what, self.clock, answer))


@dataclass(frozen=True)
class Before:
    """What came before the opponents meet, for all plays of a small world."""

    _NAMES = ("log", "told_committed", "told_done", "runs", "services")
    content: bytes

    @classmethod
    def of(cls, history: SmallHistory, met: tuple[Run, Started]) -> Before:
        into = io.BytesIO()
        pickler = pickle.Pickler(into)
        pickler.persistent_id = lambda one: "world" if one is history.world else None  # type: ignore[method-assign]
        pickler.dump((_shared(history.world), {name: getattr(history, name) for name in cls._NAMES}, met))
        return cls(into.getvalue())

    def restore(self, history: SmallHistory) -> tuple[Run, Started]:
        """Have it all in a history in which nothing has happened yet; the interval over which they meet."""
        unpickler = pickle.Unpickler(io.BytesIO(self.content))
        unpickler.persistent_load = lambda _world: history.world  # type: ignore[method-assign]
        of_world, of_history, met = unpickler.load()
        vars(history.world).update(of_world)
        vars(history).update(of_history)
        run, started = met
        return run, started


class SmallHistory(History):
    """One play of a small world."""

    world_type = _Observed
    world: _Observed

    def __init__(self, small: Small) -> None:
        super().__init__(_SEED, _CALM)
        self.small, self.world.seen_by = small, {}
        self.operation, self.max_records, self.faulty, self.airflow_knows = "append", 40, False, False
        self.world.spread, self.world.elects = 1, False
        if small.sink != "hudi":
            self._lay_another_table(Random(_SEED), small.sink, self.operation)
        if small.sink == "kafka":
            brokers_of(self.world, Random(_SEED))
            assert self.world.target is not None
            self.world.target.is_seen = 1.0
        self.world.faults = _CALM
        self.table = TABLE_IDS.get(small.sink, self.table)
        self.log = TableLog(self.table)
        self.serves = "service" in small.opponents
        self.at_work: Process | None = None
        self._next_runs: list[tuple[Run, Started]] = []

    def begin(self, before: Before | None = None) -> Before:
        """Come to where the opponents meet; what came before can be given, as an earlier play has returned it."""
        if before is None:
            before = Before.of(self, self._come_to_it())
        run, started = before.restore(self)
        works: dict[str, Callable[[Process], Any]] = {
            "commit": lambda p: self._commit(p, run, started),
            "abort": lambda p: self.coordinator(p).abort(run),
            "write": self._work_of(started, 0, is_broken=False),
            "start": self._start_the_next,
            "service": partial(self._serve, run=Run("orders.table_services", "met")),
        }
        for number, name in enumerate(self.small.opponents):
            process = self.world.spawn(f"{name}/{number}", works[name], faults=False)
            process.skew = self.world.skews[process.name] = timedelta(0)
        return before

    def _come_to_it(self) -> tuple[Run, Started]:
        for _ in range(self.small.before):
            self._send()
            self._quiet_run()
        self._send()
        run = Run("orders", "met", Request())
        started = self._alone(lambda p: self.coordinator(p).start(run), "start")
        assert isinstance(started, Started)
        if self.small.written:
            self._alone(self._work_of(started, 0, is_broken=False), "write")
        return run, started

    def _send(self) -> None:
        self.world.send((0,))
        self.world.clock += timedelta(seconds=1)

    def _start_the_next(self, process: Process) -> None:
        run = Run("orders", f"next of {process.name}", Request())
        outcome = self.coordinator(process).start(run)
        if isinstance(outcome, Started):
            self._next_runs.append((run, outcome))

    def end(self) -> None:
        """Whatever has begun goes on undisturbed, and then all has to be well."""
        self.world.random = self.random = Random(_SETTLED_BY)
        for run, started in self._next_runs:
            self._finish(run, started)
        self._settle()

    # What can happen next

    def options(self, faults: int, switches: int) -> Iterator[tuple[str, Callable[[], None]]]:
        """All that can happen next, in words: what begins with "!" is a fault, with "|" a switch between processes."""
        ready = [p for p in self.world.processes if p.is_ready]
        runs = self.at_work if self.at_work in ready else None
        if runs is not None:
            yield f"{runs.name} goes on", partial(self._resume, runs)
        for process in ready:
            if process is not runs and (runs is None or switches):
                yield f"{'|' if runs else ''}{process.name} goes on", partial(self._resume, process)
        if runs is None or not faults:
            return
        yield f"!{runs.name} dies", partial(self.world.kill, runs)
        yield f"!{runs.name} loses its answer", partial(self._lose, runs)
        if len(ready) > 1:
            yield f"!{runs.name} freezes", self._freeze
        else:
            yield f"!{runs.name} goes on after its lease", self._freeze

    def _resume(self, process: Process) -> None:
        self.at_work = process
        self.world.resume(process)
        if process.state == "ended" and not isinstance(process.error, SluiceError | Killed | None):
            raise ViolationError(f"{process.name} breaks: {process.error!r}")

    def _lose(self, process: Process) -> None:
        self.world.loses = process.name
        self._resume(process)

    def _freeze(self) -> None:
        self.at_work = None
        self.world.tell("time passes")
        self.world.clock += _BEYOND_THE_LEASE

    def state(self, *left: int) -> bytes:
        """What decides all that may come."""
        world = self.world
        processes = [(p.name, p.doing, p.sleeps_until, p.knows, world.seen_by.get(p.name)) for p in world.processes]
        return _digest((left, self.at_work, processes, self.outcome()))

    def outcome(self) -> tuple[Any, ...]:
        """What has come of it so far: what the world holds, what has begun, and what processes were told."""
        return self._next_runs, self.told_committed, self.told_done, _shared(self.world)

    def stop(self) -> None:
        """End what goes on, of a play that others have gone on with."""
        for process in list(self.world.processes):
            self.world.kill(process)


def explore(small: Small) -> Explored:
    """Come to every state of a small world, or to the first that violates anything."""
    found = Explored()
    known: set[bytes] = set()
    settled: set[bytes] = set()
    before: Before | None = None
    open_choices: list[tuple[int, ...]] = [()]
    while open_choices and not found.violated:
        prefix = open_choices.pop()
        _unchanging.clear()
        history = SmallHistory(small)
        said: list[str] = []
        with patched(history), in_its_world(history.world):
            try:
                before = history.begin(before)
                _play(history, prefix, said, known, open_choices)
                if not history.world.processes and (end := _digest(history.outcome())) not in settled:
                    settled.add(end)
                    history.end()
            except ViolationError as error:
                found.violated.append((str(error), tuple(said)))
            finally:
                history.stop()
    found.states, found.ends = len(known), len(settled)
    return found


def _play(
    history: SmallHistory, prefix: tuple[int, ...], said: list[str], known: set[bytes], others: list[tuple[int, ...]]
) -> None:
    """Make the choices of a prefix, and then the first of each, up to an end or to where another play has been."""
    faults, switches, made = history.small.faults, history.small.switches, list(prefix)
    for depth in count():
        if not history.world.processes:
            return
        options = list(history.options(faults, switches))
        if depth >= len(prefix):
            state = history.state(faults, switches)
            if state in known:
                return
            known.add(state)
            others += [(*made, other) for other in range(1, len(options))]
            made.append(0)
        words, happen = options[made[depth]]
        said.append(words)
        faults -= words.startswith("!")
        switches -= words.startswith("|")
        happen()


_NOT_OF_THE_STATE = {"random", "processes", "main", "switches", "story", "seen_by", "faults", "seed"}


def _shared(world: World) -> dict[str, Any]:
    """What of a world outlives a process."""
    return {name: value for name, value in vars(world).items() if name not in _NOT_OF_THE_STATE and not callable(value)}


def _digest(value: Any) -> bytes:
    """A value's content, whatever objects hold it."""
    hashed = blake2b(digest_size=16)
    _into(hashed.update, value)
    return hashed.digest()


_unchanging: dict[int, tuple[Any, bytes]] = {}
"""Of this play what never changes, with its content."""


def _into(add: Callable[[bytes], None], value: Any) -> None:
    if isinstance(value, str | int | float | datetime | timedelta | bytes | type(None)):
        add(f"{value!r};".encode())
    elif isinstance(value, BaseModel | Record):
        if id(value) not in _unchanging:
            content = value.model_dump_json() if isinstance(value, BaseModel) else repr(value)
            _unchanging[id(value)] = value, content.encode()
        add(_unchanging[id(value)][1])
    elif isinstance(value, set | frozenset):
        add(b"".join(sorted(_digest(one) for one in value)) + b"};")
    else:
        add(b"[")
        for one in _parts(value):
            _into(add, one)
        add(b"]")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return chain.from_iterable(value.items())
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Process):
        return (value.name,)
    if isinstance(value, Brokers):
        return (one for name, one in vars(value).items() if name not in ("_world", "_draw"))
    if is_dataclass(value):
        return (type(value).__name__, *(getattr(value, one.name) for one in fields(value)))
    raise TypeError(f"{type(value).__name__} is of no kind whose content is known")
