"""Tables in memory, and Hudi's: its timeline, its files and their markers; each call is one of the world's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sluice.connectors.sink import Completion, Ended, InstantState, Registered, WrittenInterval
from sluice.errors import RetryableError
from sluice.protocol.commit_note import read_note
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint, holds_checkpoint

from .lake import Completed, Instant, instant_at, time_of
from .parts import SimMachine
from .services import SimMaintenance
from .world import Process, World


class SimTable:
    """A table, opened by one process: what all kinds have in common."""

    def __init__(
        self, world: World, process: Process, writer: TableSpec, clock_wait: timedelta, lease: timedelta
    ) -> None:
        self.writer = writer
        self.clock_wait = clock_wait
        self.lease = lease
        self._world = world
        self._process = process
        self._machine = SimMachine(world, process)

    @property
    def process(self) -> str:
        return self._process.name

    def written_as(self, writer: TableSpec, further: Sequence[TableSpec] = ()) -> SimTable:
        return type(self)(self._world, self._process, writer, self.clock_wait, self.lease)

    def state_of(self, instant: str) -> InstantState:
        state: InstantState = self._call(f"looks at {instant} on the timeline", lambda: self._state(instant))
        return state

    def _state(self, instant: str) -> InstantState:
        found = self._world.timeline.get(instant)
        if found is None:
            return "absent"
        return "completed" if found.completed else "pending"

    def written_by(self, instant: str) -> WrittenInterval | None:
        found = self._world.timeline.get(instant)
        if found is None or not found.completed or TRANSACTION_KEY not in found.completed[0].extra:
            return None
        completed = found.completed[0]
        groups: dict[str, set[str]] = {}
        for path in completed.paths:
            partition, _, name = path.rpartition("/")
            groups.setdefault(partition, set()).add(name.partition("_")[0])
        checkpoint = Checkpoint.model_validate_json(completed.extra[OFFSETS_KEY])
        note = read_note(completed.extra)
        return WrittenInterval(instant, note, {p: tuple(sorted(g)) for p, g in groups.items()}, checkpoint)

    def await_clock(self) -> None:
        last = max(self._world.timeline, default="")
        wait_for_clock(self._world, self._machine, last, self.clock_wait)

    def new_instant(self) -> str:
        self.await_clock()
        return new_instant(self._world, self._machine)

    def _call(self, what: str, effect: Callable[[], Any]) -> Any:
        return self._world.call(self._process, what, effect)


class SimHudi(SimTable):
    """The Hudi table, whose timeline other writers and table services share."""

    def last_checkpoint(self) -> dict[str, str] | None:
        def newest() -> dict[str, str] | None:
            for name in sorted(self._world.timeline, reverse=True):
                for completed in self._world.timeline[name].completed[:1]:
                    if holds_checkpoint(completed.extra):
                        return completed.extra
            return None

        found: dict[str, str] | None = self._call("reads the last checkpoint", newest)
        return found

    def is_empty(self) -> bool:
        return not any(i.completed for i in self._world.timeline.values())

    def replayed_by(self, instant: str) -> str | None:
        for name in sorted(self._world.timeline, reverse=True):
            written = self.written_by(name)
            if written is not None and written.note.replays == instant:
                return name
        return None

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:
        gone = {g: n for n, i in self._world.timeline.items() for c in i.completed for g in c.replaced}
        return {g: gone[g] for groups in written.file_groups.values() for g in groups if g in gone}

    def planned_by_others(self, _written: WrittenInterval) -> dict[str, str]:
        return {}  # other writers make a plan and carry it out at once

    def open(self, instant: str) -> None:
        self._open(instant, "commit")

    def open_replacing(self, instant: str) -> None:
        self._open(instant, "replacecommit")

    def _open(self, instant: str, action: str) -> None:
        timeline = self._world.timeline
        self._call(f"requests {instant}", lambda: timeline.setdefault(instant, Instant(action)))

        def begin() -> None:
            if instant not in timeline:
                raise RetryableError("The instant is gone.", next_step="try again.")
            timeline[instant].inflight = True

        self._call(f"begins {instant}", begin)

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        return self.commit_replacing(instant, committables, extra, {})

    def commit_replacing(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]],
    ) -> list[str]:
        self.await_clock()
        world = self._world
        paths = frozenset(one.path for one in committables)

        def require_pending() -> None:
            if self._state(instant) != "pending":
                raise RetryableError("The instant is not pending.", next_step="look again.")
            began = world.leases.get((self._process.name, instant))
            if began is not None and world.clock - began < self.lease:  # else it comes too late: the fence is for that
                world.require_alone(self._process, instant, "commits", self.lease, self.clock_wait)
            world.committing.setdefault(instant, []).append(self._process)
            for path in world.markers.get(instant, set()) - paths:
                world.files.pop(path, None)

        def complete() -> None:
            found = world.timeline.setdefault(instant, Instant("commit", requested=False))
            gone = frozenset(group for groups in replaced.values() for group in groups)
            name = f"{instant}_{instant_at(self._machine.now())}.{found.action}"
            late = world.has_lost_the_lease(self._process, instant)
            found.completed.append(Completed(name, paths, dict(extra), gone, late))
            world.on_change()

        try:
            self._call(f"begins Hudi's commit of {instant}", require_pending)
            self._call(f"completes {instant}", complete)
            self._call(f"clears the markers of {instant}", lambda: world.markers.pop(instant, None))
        finally:
            inside = world.committing.get(instant, [])
            world.committing[instant] = [p for p in inside if p is not self._process]
        return []

    def rollback(self, instant: str) -> bool:
        if self.state_of(instant) != "pending":
            return instant in self.finish_rollbacks()
        self.await_clock()

        def begin() -> None:
            self._world.require_alone(self._process, instant, "rolls back", self.lease, self.clock_wait)
            self._world.rollbacks.add(instant)

        self._call(f"begins to roll {instant} back", begin)
        self.roll_back(instant)
        return True

    def roll_back(self, instant: str) -> None:
        """Go on with a roll-back that was begun."""
        world = self._world

        def delete_files() -> None:
            if not world.has_turn(self._process.turn):
                world.undone.add(instant)
            for path in world.markers.pop(instant, set()):
                world.files.pop(path, None)

        def take_off() -> None:
            found = world.timeline.get(instant)
            if found is not None and found.completed:
                found.requested = found.inflight = False
            else:
                world.timeline.pop(instant, None)

        self._call(f"deletes the files of {instant}", delete_files)
        self._call(f"takes {instant} off the timeline", take_off)
        self._call(f"completes the roll-back of {instant}", lambda: world.rollbacks.discard(instant))

    def finish_rollbacks(self) -> list[str]:
        begun = sorted(self._call("looks for roll-backs that were begun", lambda: set(self._world.rollbacks)))
        for instant in begun:
            self.roll_back(instant)
        return begun

    def mend(self) -> list[str]:
        return []  # others' commits leave nothing incomplete here

    def maintenance(self) -> SimMaintenance:
        return SimMaintenance(self._world, self._process, self)

    def pending_writes(self) -> list[str]:
        return sorted(n for n, i in self._world.timeline.items() if i.is_pending and not i.plan)

    def completions(self) -> dict[str, Completion]:
        def look() -> dict[str, Completion]:
            return {
                name: Completion(i.action, [c.name for c in i.completed], i.requested)
                for name, i in self._world.timeline.items()
                if i.completed
            }

        found: dict[str, Completion] = self._call("looks at what is completed", look)
        return found

    def registered(self, completion: str) -> Registered:
        for instant in self._world.timeline.values():
            for completed in instant.completed:
                if completed.name == completion:
                    return Registered(len(completed.paths), sum(p not in self._world.files for p in completed.paths))
        raise ValueError(completion)

    def take_off(self, instant: str, files: list[str]) -> None:
        def delete() -> None:
            found = self._world.timeline.get(instant)
            if found is None:
                return
            found.completed = [c for c in found.completed if c.name not in files]
            if not found.completed and not found.requested:
                del self._world.timeline[instant]
            self._world.on_change()

        self._call(f"takes a completion of {instant} off", delete)

    def marker_partitions(self, instant: str) -> set[str]:
        return {path.rpartition("/")[0] for path in self._world.markers.get(instant, ())}

    def partitions_on_storage(self) -> set[str]:
        found: set[str] = self._call("lists folders", lambda: {f.partition for f in self._world.files.values()})
        return found

    def leftovers(self) -> set[str]:
        if not self._world.lists_leftovers:
            return named_in(self._world)

        def look() -> set[str]:
            world = self._world
            return {n for n in world.timeline if self._state(n) == "pending"} | world.rollbacks | set(world.markers)

        found: set[str] = self._call("looks for what intervals have left", look)
        return found

    def sweep(self, ended: Ended) -> list[str]:
        world, committed = self._world, ended.registered
        partitions = {*ended.partitions, *(self.partitions_on_storage() if ended.anywhere else ())}
        marked: dict[str, set[str]] = self._call(
            "looks for markers", lambda: {i: set(world.markers.get(i, ())) for i in committed}
        )
        wanted = {*partitions, *(path.rpartition("/")[0] for paths in marked.values() for path in paths)}
        there: set[str] = set()

        def delete() -> list[str]:
            gone = []
            for path, file in list(world.files.items()):
                if file.instant not in committed or file.partition not in wanted:
                    continue
                there.add(path)
                found = world.timeline.get(file.instant)
                if path in committed[file.instant] or (found and any(path in c.paths for c in found.completed)):
                    continue
                del world.files[path]
                gone.append(path)
            return gone

        def clear() -> None:
            for instant, paths in marked.items():
                if paths and paths <= there and instant in world.markers:
                    world.markers[instant] -= paths  # not those made since

        swept: list[str] = self._call("sweeps up", delete)
        self._call("clears markers", clear)
        return swept


def named_in(world: World) -> set[str]:
    """All instants of which anything may be left: what a table says that doesn't look."""
    return {message.transaction for messages in world.topics.values() for message in messages}


def wait_for_clock(world: World, machine: SimMachine, last: str, most: timedelta) -> None:
    """Let a machine's clock come past the last instant, if there is one."""
    behind = time_of(last) - machine.now() if last else timedelta(0)
    if behind > most:
        raise RetryableError("This machine's clock is too far behind.", next_step="set it.")
    if behind > timedelta(0):
        world.clock += behind + timedelta(milliseconds=1)


def new_instant(world: World, machine: SimMachine) -> str:
    """A machine's time as an instant that no coordinator has chosen."""
    world.clock += timedelta(milliseconds=1)
    instant = instant_at(machine.now())
    known = {m.transaction for messages in world.topics.values() for m in messages}
    while instant in known | world.chosen or instant in world.timeline:
        world.clock += timedelta(milliseconds=1)  # two coordinators in one millisecond: no fault of ours
        instant = instant_at(machine.now())
    world.chosen.add(instant)
    return instant
