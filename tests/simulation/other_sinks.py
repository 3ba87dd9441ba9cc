"""Tables in memory that are committed by other rules than Hudi's: a folder of files with its log, and a database's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from sluice.connectors.intervals import LoggedCommit, TransactionalTable, Turn
from sluice.connectors.sink import Completion, Ended, InstantState
from sluice.errors import IntervalError, RetryableError
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import holds_checkpoint

from .lake import Completed, Instant
from .table import SimTable, named_in
from .world import Process, ViolationError, World

_RECENT = 3  # intervals of the log that `completions` names


def _overtaken() -> RetryableError:
    return RetryableError("Another process was faster.", next_step="look again.")


class SimFiles(SimTable):
    """As `sluice.sinks.files.table`: a number of the log is made once, and files are shown when the topic was read."""

    def __init__(
        self, world: World, process: Process, writer: TableSpec, clock_wait: timedelta, lease: timedelta
    ) -> None:
        super().__init__(world, process, writer, clock_wait, lease)
        self._based_on: int | None = None

    def written_as(self, writer: TableSpec, further: Sequence[TableSpec] = ()) -> SimFiles:
        other = SimFiles(self._world, self._process, writer, self.clock_wait, self.lease)
        other._based_on = self._based_on
        return other

    def last_checkpoint(self) -> dict[str, str] | None:
        def newest() -> tuple[int, dict[str, str] | None]:
            log = self._world.log_of_files
            extras = (self._world.timeline[name].completed[0].extra for name in reversed(log))
            return len(log), next((extra for extra in extras if holds_checkpoint(extra)), None)

        found: tuple[int, dict[str, str] | None] = self._call("reads the last checkpoint", newest)
        self._based_on = found[0]
        return found[1]

    def _state(self, instant: str) -> InstantState:
        state = super()._state(instant)
        return "pending" if state == "absent" and instant in self._world.rollbacks else state

    def open(self, instant: str) -> None:
        self._call(f"begins {instant}", lambda: self._world.timeline.setdefault(instant, Instant("commit", True, True)))

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        world = self._world
        paths = frozenset(one.path for one in committables)

        def require_pending() -> None:
            if self._state(instant) != "pending":
                raise _overtaken()
            if not paths <= world.files.keys():
                raise IntervalError("A file is gone.", next_step="see the next interval.")

        def into_the_log() -> None:
            found = world.timeline.get(instant)
            if found is None or found.completed or not self._is_next(base):
                raise _overtaken()
            world.log_of_files.append(instant)
            found.completed.append(Completed(f"{instant}.json", paths, dict(extra), frozenset()))
            world.on_change()

        self._call(f"begins Hudi's commit of {instant}", require_pending)  # the words by which faults are placed
        base = self._based_on if self._based_on is not None else len(world.log_of_files)
        self._call(f"completes {instant}", into_the_log)
        self._based_on = base + 1
        return []

    def _is_next(self, base: int) -> bool:
        """Whether the log has no interval yet of the number that comes after the one that the plan rests on."""
        return base == len(self._world.log_of_files)

    def publish(self, instant: str) -> None:
        world = self._world

        def show(path: str) -> None:
            if world.is_void(instant):
                raise ViolationError(f"{self._process.name} shows a file of {instant}, which was aborted")
            if path not in world.files:
                raise ViolationError(f"{self._process.name} finds no file {path} to show, and {instant} is committed")
            world.shown.add(path)

        found = world.timeline.get(instant)
        if found is None or not found.completed:
            raise ValueError(f"{instant} is not committed")
        for path in sorted(found.completed[0].paths):
            self._call(f"shows {path}", lambda path=path: show(path))
        self._call(f"marks {instant}", lambda: world.marked.add(instant))
        self._call(f"clears {instant}", lambda: self._delete_staged(instant))

    def rollback(self, instant: str) -> bool:
        world = self._world

        def rename_away() -> bool:
            found = world.timeline.get(instant)
            if found is not None and found.completed:
                return False
            if world.timeline.pop(instant, None) is None and instant not in world.rollbacks:
                return False
            world.rollbacks.add(instant)
            return True

        if not self._call(f"begins to roll {instant} back", rename_away):
            return False
        self._call(f"deletes the files of {instant}", lambda: self._delete_staged(instant))
        self._call(f"completes the roll-back of {instant}", lambda: world.rollbacks.discard(instant))
        return True

    def completions(self) -> dict[str, Completion]:
        def look() -> dict[str, Completion]:
            return {n: Completion("commit", [f"{n}.json"], True) for n in self._world.log_of_files[-_RECENT:]}

        found: dict[str, Completion] = self._call("looks at what is completed", look)
        return found

    def take_off(self, instant: str, files: list[str]) -> None:
        world = self._world

        def take() -> None:
            if instant not in world.log_of_files:
                return
            if world.log_of_files[-1] != instant or instant in world.marked:
                raise ViolationError(f"{self._process.name} takes {instant} off, whose files are shown")
            world.log_of_files.pop()
            del world.timeline[instant]
            world.rollbacks.add(instant)
            world.on_change()

        self._call(f"takes a completion of {instant} off", take)

    def leftovers(self) -> set[str]:
        if not self._world.lists_leftovers:
            return named_in(self._world)

        def look() -> set[str]:
            pending = {n for n in self._world.timeline if n not in self._world.log_of_files}
            return pending | self._world.rollbacks | self._all_staged()

        found: set[str] = self._call("looks for what intervals have left", look)
        return found

    def sweep(self, ended: Ended) -> list[str]:
        swept: list[str] = []

        def delete(instant: str) -> None:
            if self._is_over(instant):
                swept.extend(self._delete_staged(instant))

        there = [*ended.registered]
        if self._world.lists_leftovers:
            there = sorted(ended.registered.keys() & self._call("looks for staged files", self._all_staged))
        for instant in there:
            self._call(f"sweeps up {instant}", lambda instant=instant: delete(instant))
        return swept

    def _is_over(self, instant: str) -> bool:
        """Whether an interval needs nothing any more of what its participants wrote, whatever a message says."""
        if instant in self._world.log_of_files:
            return instant in self._world.marked
        return instant not in self._world.timeline

    def _all_staged(self) -> set[str]:
        world = self._world
        return {file.instant for path, file in world.files.items() if path not in world.shown}

    def _staged(self, instant: str) -> list[str]:
        world = self._world
        return [path for path, file in world.files.items() if file.instant == instant and path not in world.shown]

    def _delete_staged(self, instant: str) -> list[str]:
        gone = self._staged(instant)
        for path in gone:
            del self._world.files[path]
        self._world.markers.pop(instant, None)
        return gone


class SimDatabase(SimTable, TransactionalTable):
    """The product's own rules on a database in memory: one transaction compares, merges, and moves the position."""

    written_as, written_by = TransactionalTable.written_as, TransactionalTable.written_by
    _takes_back = "takes the turn of {} away"  # the words by which faults are placed

    def newest_time(self) -> str:
        return max(self._world.timeline, default="")

    def _last(self) -> LoggedCommit | None:
        found: LoggedCommit | None = self._call(
            "reads the last checkpoint", lambda: self._committed(self._world.position or "")
        )
        return found

    def _committed(self, instant: str) -> LoggedCommit | None:
        found = self._world.timeline.get(instant)
        return LoggedCommit(instant, found.completed[0].extra) if found is not None and found.completed else None

    def open(self, instant: str) -> None:
        world = self._world
        rests_on = self._plan_base()

        def insert() -> None:
            if instant in world.timeline:
                raise RetryableError("The interval's row is there already.", next_step="look again.")
            world.timeline[instant] = Instant("commit", True, True)
            world.rests_on[instant] = rests_on

        self._call(f"begins {instant}", insert)

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        world = self._world
        paths = frozenset(one.path for one in committables)

        def transaction() -> None:
            if not self._may_commit(instant):
                return
            if not paths <= world.files.keys():
                raise IntervalError("A staging table is gone.", next_step="see the next interval.")
            if world.is_void(instant):
                raise ViolationError(f"{self._process.name} commits {instant}, which was aborted")
            world.timeline[instant].completed.append(Completed(f"{instant}.commit", paths, dict(extra), frozenset()))
            world.position = instant
            world.on_change()

        self._call(f"begins Hudi's commit of {instant}", lambda: None)  # the words by which faults are placed
        self._call(f"completes {instant}", transaction)
        self._delete_staged(instant)
        return []

    def _turn(self, instant: str) -> Turn:
        return Turn(self._state(instant), self._world.rests_on.get(instant), self._world.position)

    def _take_back(self, instant: str) -> InstantState:
        def delete() -> bool:
            is_pending = self._state(instant) == "pending"
            if is_pending:
                del self._world.timeline[instant]
            return is_pending

        if self._call(self._takes_back.format(instant), delete):
            return "pending"
        return "completed" if self.state_of(instant) == "completed" else "absent"

    def last_commits(self) -> list[str]:
        return [instant for instant in self._world.timeline if self._state(instant) == "completed"]

    def rollback(self, instant: str) -> bool:
        self._takes_back = "begins to roll {} back"
        try:
            return super().rollback(instant)
        finally:
            del self._takes_back

    def _pending(self) -> set[str]:
        world = self._world
        if not world.lists_leftovers:
            return named_in(world)
        pending: set[str] = self._call(
            "looks for pending rows", lambda: {n for n in world.timeline if self._state(n) == "pending"}
        )
        return pending

    def _staged(self) -> set[str]:
        if not self._world.lists_leftovers:
            return named_in(self._world)
        found: set[str] = self._call("looks for staging tables", self._all_staged)
        return found

    def _all_staged(self) -> set[str]:
        return {instant for instant in {f.instant for f in self._world.files.values()} if self._tables_of(instant)}

    def _tables_of(self, instant: str) -> list[str]:
        """Staging tables that are there; what of them was merged is the table's."""
        world = self._world
        found = world.timeline.get(instant)
        merged = found.completed[0].paths if found is not None and found.completed else frozenset()
        return [path for path, file in world.files.items() if file.instant == instant and path not in merged]

    def _delete_staged(self, instant: str) -> list[str]:
        def drop() -> list[str]:
            gone = self._tables_of(instant)
            for path in gone:
                del self._world.files[path]
            self._world.markers.pop(instant, None)
            return gone

        gone: list[str] = self._call(f"drops the staging tables of {instant}", drop)
        return gone
