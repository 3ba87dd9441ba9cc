"""Table services in memory: plans on the timeline, and the job that carries them out; each call is one of the world's.

A clustering puts the rows of some files of a table partition into one file. A compaction does so with all files of a
table partition, of which it keeps each key's last version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sluice.errors import RetryableError
from sluice.protocol.messages import StartCommit, TableSpec

from .kafka import Record
from .lake import Completed, File, Instant, instant_at
from .world import Process, World

if TYPE_CHECKING:
    from .table import SimHudi

_MOST_FILES = 3  # of one clustering


class SimMaintenance:
    """A table's services, in the coordinator's process."""

    def __init__(self, world: World, process: Process, table: SimHudi) -> None:
        self._world = world
        self._process = process
        self._table = table

    @property
    def writer(self) -> TableSpec:
        return self._table.writer

    def pending(self, service: str, *, own: bool = False) -> list[str]:
        return _pending(self._world, self._process, service)

    def plan(self, service: str) -> str | None:
        """Plan the service of the table partition that has most files."""
        world = self._world
        instant = self._table.new_instant()

        def choose() -> str | None:
            planned = {path for i in world.timeline.values() if i.is_pending for path in i.plan}
            free: dict[str, list[str]] = {}
            for path, file in sorted(world.committed_files().items()):
                free.setdefault(file.partition, []).append(path)
            most = sorted(max(free.values(), key=len, default=[]))
            if service == "clustering":
                most = [path for path in most if path not in planned][:_MOST_FILES]
            if len(most) < 2 or (service == "compaction" and planned & set(most)):
                return None
            world.timeline[instant] = Instant(service, plan=frozenset(most))
            return instant

        made: str | None = world.call(self._process, f"plans the {service} {instant}", choose)
        return made

    def take_off(self, instant: str) -> None:
        world = self._world

        def begin() -> bool:
            found = world.timeline.get(instant)
            if found is None or not found.is_pending:
                return False
            if found.plan and found.inflight:
                world.on_plan(self._process, f"takes the plan {instant} off", False)
                world.rollbacks.add(instant)
                return True
            if not found.inflight:
                del world.timeline[instant]
            return False

        if world.call(self._process, f"takes the plan {instant} off", begin):
            self._table.roll_back(instant)

    def carry_out(self, service: str) -> str:
        raise NotImplementedError


class SimServiceJob:
    """Hudi's client in the job of one service."""

    process = 0

    def __init__(self, world: World, process: Process, table: SimHudi, start: StartCommit) -> None:
        self._world = world
        self._process = process
        self._table = table
        self._start = start

    def await_clock(self) -> None:
        self._table.await_clock()

    def pending(self) -> Sequence[str]:
        return _pending(self._world, self._process, str(self._start.service))

    def close(self) -> None:
        pass

    def write(self, instant: str) -> Callable[[], None]:
        """Begin the plan, taking away what an earlier attempt at it wrote, and write its file."""
        world = self._world

        def begin() -> Instant:
            found = world.timeline.get(instant)
            if found is None or not found.plan or not found.is_pending:
                raise RetryableError("There is no such plan.", next_step="look again.")
            world.on_plan(self._process, f"begins the plan {instant}", False)
            if not world.has_turn(self._process.turn):
                world.undone.add(instant)
            for path in world.markers.pop(instant, set()) if found.inflight else ():
                world.files.pop(path, None)
            found.inflight = True
            return found

        plan: Instant = world.call(self._process, f"begins the plan {instant}", begin)
        files = world.call(self._process, f"reads the files of {instant}", lambda: self._planned(plan))
        world.attempts += 1
        partition = files[0].partition
        group = f"{self._start.service}-{world.attempts}"
        path = f"{partition}/{group}_0-0-0_{instant}.parquet"
        found = tuple(row for file in files for row in file.rows)
        kept = found if self._start.service == "clustering" else _last_of_each_key(files, self._start)
        world.call(self._process, f"opens {path}", lambda: world.markers.setdefault(instant, set()).add(path))

        def close() -> None:
            newest = max(file.rank for file in files)
            world.files[path] = File(instant, partition, group, kept, newest)

        world.call(self._process, f"closes {path}", close)
        groups = frozenset(file.group for file in files)
        return lambda: self._complete(instant, path, groups)

    def _planned(self, plan: Instant) -> list[File]:
        if not plan.plan <= set(self._world.files):
            raise RetryableError("A planned file is gone.", next_step="look again.")
        return [self._world.files[path] for path in sorted(plan.plan)]

    def _complete(self, instant: str, path: str, replaced: frozenset[str]) -> None:
        world, transaction = self._world, self._start.transaction

        def begin() -> None:
            found = world.timeline.get(instant)
            if found is None or not found.inflight or found.completed:
                raise RetryableError("The plan is not pending.", next_step="look again.")
            world.on_plan(self._process, f"commits the plan {instant}", True)
            began = world.leases.get((self._process.name, transaction))
            if (
                began is not None and world.clock - began < self._table.lease
            ):  # else the fence is for what comes too late
                world.require_alone(self._process, transaction, "commits", self._table.lease, self._table.clock_wait)
            world.committing.setdefault(transaction, []).append(self._process)
            for other in world.markers.get(instant, set()) - {path}:
                world.files.pop(other, None)
                if not world.has_turn(transaction):
                    world.undone.add(instant)

        def complete() -> None:
            found = world.timeline.setdefault(instant, Instant(str(self._start.service), requested=False))
            late = not world.has_turn(transaction)
            name = f"{instant}_{instant_at(world.clock + self._process.skew)}.{found.action}"
            found.completed.append(Completed(name, frozenset({path}), {}, replaced, late))
            world.on_change()

        try:
            world.call(self._process, f"begins Hudi's commit of the plan {instant}", begin)
            world.call(self._process, f"completes the plan {instant}", complete)
            world.call(self._process, f"clears the markers of {instant}", lambda: world.markers.pop(instant, None))
        finally:
            inside = world.committing.get(transaction, [])
            world.committing[transaction] = [p for p in inside if p is not self._process]


def _pending(world: World, process: Process, service: str) -> list[str]:
    """As Hudi lists them: with clusterings come replays that are under way."""
    actions = ("compaction",) if service == "compaction" else ("clustering", "replacecommit")
    found: list[str] = world.call(
        process,
        f"looks for plans of a {service}",
        lambda: sorted(n for n, i in world.timeline.items() if i.is_pending and i.action in actions),
    )
    return found


def _last_of_each_key(files: list[File], start: StartCommit) -> tuple[Record, ...]:
    last: dict[int, tuple[Any, Record]] = {}
    for file in files:
        for row in file.rows:
            rank = ("" if start.writer.ordering_fields else file.rank, row.number)
            if row.key not in last or last[row.key][0] < rank:
                last[row.key] = rank, row
    return tuple(row for _, row in last.values())
