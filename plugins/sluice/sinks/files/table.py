"""A folder of files as the coordinator sees it: its log, its checkpoint, and the steps of a two-phase commit.

What of a commit and a roll-back wins is decided in one step, which depends on what the storage has: a rename
(`sluice.sinks.files.renames`) or a conditional PUT (`sluice.sinks.files.objects`).
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Self

from sluice.connectors.sink import Completion, InstantState, Registered, WrittenInterval
from sluice.errors import ActionRequiredError, IntervalError, RetryableError
from sluice.failpoints import reach
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint, holds_checkpoint
from sluice.sinks.clock import await_clock, instant_now
from sluice.sinks.files.log import IntervalLog, Record
from sluice.sinks.files.names import (
    ABORTING,
    COMMITTED,
    LOG,
    PENDING,
    DataFile,
    Layout,
    committed_mark,
    files_of,
    log_entry,
    staging,
)
from sluice.sinks.files.storage import Storage

_RECENT = 3  # whoever completes an interval that was aborted is found by the very next START


class FilesTable(ABC):
    """The folder, opened by one process; see `sluice.connectors.sink.Table`.

    Args:
        storage: the folder.
        writer: how intervals are written.
        clock_wait: how long to wait for this machine's clock to pass the last interval's instant.
        process: the process that carries out commits.
        based_on: the number of the interval whose checkpoint was read last; None if none was.
    """

    columns = None
    """No column has to be in an interval because earlier ones have it: files keep their own schema."""

    def __init__(
        self, storage: Storage, writer: TableSpec, clock_wait: timedelta, process: str, based_on: int | None = None
    ) -> None:
        self.writer = writer
        self.clock_wait = clock_wait
        self._storage = storage
        self._process = process
        self._log = IntervalLog(storage)
        self._based_on = based_on

    def prepare(self) -> None:
        """Make the folders of the log."""
        for folder in (LOG, COMMITTED, PENDING, ABORTING):
            self._storage.make_folder(folder)

    def is_there(self) -> bool:
        """Whether the folder is a table."""
        return self._storage.exists(LOG)

    @property
    def process(self) -> str:
        """See `Table`."""
        return self._process

    def written_as(self, writer: TableSpec) -> Self:
        """See `Table`."""
        made = type(self)(self._storage, writer, self.clock_wait, self._process, self._based_on)
        made._log = self._log
        return made

    # What is committed

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the newest interval that holds a checkpoint. A commit has to follow on that interval."""
        self._based_on = last = self._log.last()
        records = (record for _, record in self._log.newest_first(last))
        return next((dict(record.extra) for record in records if holds_checkpoint(record.extra)), None)

    def last_schema(self) -> str | None:
        """The columns of the last interval's files as Spark DDL; None before the first."""
        return next((record.schema for _, record in self._log.newest_first() if record.schema), None)

    def bytes_per_row(self) -> float | None:
        """How large a row is in files, on the average of the last interval that had some; None before that."""
        found = next((record for _, record in self._log.newest_first() if record.rows and record.files), None)
        return None if found is None else sum(one.bytes for one in found.files) / found.rows

    def published(self) -> Iterator[tuple[int, Record]]:
        """The intervals whose files are all where readers look, newest first."""
        for number, record in self._log.newest_first():
            if self._storage.exists(committed_mark(number)):
                yield number, record

    def is_empty(self) -> bool:
        """See `Table`."""
        return next(self._log.newest_first(), None) is None

    def state_of(self, instant: str) -> InstantState:
        """The log outranks the folder of an interval that is under way, which may be left behind."""
        if self._log.find(instant) is not None:
            return "completed"
        there = self._storage.exists(f"{PENDING}/{instant}") or self._storage.exists(f"{ABORTING}/{instant}")
        if there and self._log.find(instant) is not None:  # committed between the two looks
            return "completed"
        return "pending" if there else "absent"

    def written_by(self, instant: str) -> WrittenInterval | None:
        """See `Table`. The files are the file groups."""
        found = self._log.find(instant)
        if found is None or OFFSETS_KEY not in found[1].extra:
            return None
        record = found[1]
        checkpoint = Checkpoint.model_validate_json(record.extra[OFFSETS_KEY])
        note = json.loads(record.extra[TRANSACTION_KEY])
        return WrittenInterval(instant, note, {"": tuple(one.path for one in record.files)}, checkpoint)

    def replayed_by(self, instant: str) -> str | None:  # noqa: ARG002
        """None: nothing is replaced here."""
        return None

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:  # noqa: ARG002
        """None: files stay as they were written."""
        return {}

    # The two phases of a commit

    def await_clock(self) -> None:
        """See `Table`."""
        last = max([*self._under_way(), *self._newest()], default="")
        await_clock(last, self.clock_wait, self.writer.path)

    def new_instant(self) -> str:
        """The time, in milliseconds."""
        self.await_clock()
        return instant_now()

    def open(self, instant: str, *, replaces: bool = False) -> None:
        """See `Table`.

        Raises:
            ActionRequiredError: it is to replace rows, and files that readers may have open stay as they are.
        """
        if replaces:
            raise ActionRequiredError(
                "The rows of an interval can't be replaced in files.",
                next_step="load the topic into a new table.",
                table=self.writer.path,
            )
        self._storage.make_folder(f"{PENDING}/{instant}")

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """Put the interval into the log. Its files become visible by `publish`.

        Raises:
            RetryableError: another process has committed or rolled it back, or another interval came in between.
            IntervalError: files are not as the participants have left them, or their names are taken.
        """
        if replaced is not None:
            raise ValueError("nothing can be replaced: `open` has refused it")
        # First the number: whoever rolls the interval back after this look at its state is noticed when it is taken.
        number = (self._log.last() if self._based_on is None else self._based_on) + 1
        if not self._is_open(instant):
            raise self._overtaken(instant)
        options, written = self.writer.options, list(committables)
        layout: Layout = "interval" if options["layout"] == "interval" else "connect"
        files = files_of(written, instant, options["topics_dir"], layout)
        self._require_there(instant, files)
        self._require_free(instant, layout, files)
        rows = sum(one.rows for one in written)
        record = Record(instant, layout, options["format"], self.writer.schema_ddl, rows, files, dict(extra))
        try:
            self._enter(number, record)
        except (FileNotFoundError, FileExistsError) as error:
            raise self._overtaken(instant) from error
        self._based_on = number

    def publish(self, instant: str) -> None:
        """Put a committed interval's files where readers look; whoever comes after a death goes on.

        A file that is at its place already has been put there before. No other process may roll the interval back any
        more: it is in the log, and the topic says so.

        Raises:
            ActionRequiredError: a file is nowhere, or another one has its name.
        """
        found = self._log.find(instant)
        if found is None:
            raise ValueError(f"{instant} is not committed")
        number, record = found
        if self._storage.exists(committed_mark(number)):
            self._clear(instant)
            return
        try:
            self._show(record)
        except ActionRequiredError:
            if not self._is_published(number, record):
                raise
        reach("sink.before_committed_mark")
        self._mark(number, record)
        self._clear(instant)

    def _is_published(self, number: int, record: Record) -> bool:  # noqa: ARG002 - a folder may say it, too
        """Whether a process that goes on with the same commit has done it all while this one stood still."""
        return self._storage.exists(committed_mark(number))

    def _mark(self, number: int, record: Record) -> None:
        said = {
            "transaction": record.instant,
            "files": len(record.files),
            "rows": record.rows,
            "paths": [one.path for one in record.files],
        }
        try:
            self._make(record.instant, committed_mark(number), json.dumps(said).encode())
        except (FileNotFoundError, FileExistsError) as error:
            if not self._storage.exists(committed_mark(number)):  # else whoever went on with the same commit was first
                raise self._overtaken(record.instant) from error

    def _clear(self, instant: str) -> None:
        """What a published interval needs no more."""
        self._storage.delete(staging(instant))
        self._storage.delete(f"{PENDING}/{instant}")

    def finish_rollbacks(self) -> list[str]:
        """See `Table`."""
        return [instant for instant in self._storage.names(ABORTING) if self.rollback(instant)]

    # What processes leave behind that were suspended for too long

    def completions(self) -> dict[str, Completion]:
        """Of the last intervals: one that the topic says was aborted is found by the next START, which looks here."""
        return {
            record.instant: Completion("commit", [_name(log_entry(number))], requested=True)
            for number, record in reversed([*itertools.islice(self._log.newest_first(), _RECENT)])
        }

    def registered(self, completion: str) -> Registered:
        """See `Table`."""
        files = Record.of_json(self._storage.read(f"{LOG}/{completion}"), completion).files
        lost = sum(not (self._storage.exists(one.path) or self._storage.exists(one.staged)) for one in files)
        return Registered(len(files), lost)

    def take_off(self, instant: str, files: list[str]) -> None:
        """Take an interval out of the log that was aborted while it was committed; `rollback` deletes its files.

        Raises:
            ActionRequiredError: it is not the last one, or readers have seen its files. The protocol leaves no way to
                that: files become visible when the topic has been read, and an abort looks into the log.
        """
        found = self._log.find(instant)
        if found is None:
            return
        number = found[0]
        if number != self._log.last() or self._storage.exists(committed_mark(number)):
            raise ActionRequiredError(
                "An interval that was aborted is in the table's log, and its files are visible.",
                next_step="stop the pipeline, and find who else writes to the control topic or to the table's folder.",
                table=self.writer.path,
                instant=instant,
                files=", ".join(files),
            )
        self._take_out(number, instant)

    def marker_partitions(self, instant: str) -> set[str]:
        """The table itself, where the interval has files: folders for readers are made by the commit."""
        return {""} if self._storage.exists(staging(instant)) else set()

    def partitions_on_storage(self) -> set[str]:
        """The table itself."""
        return {""}

    def sweep(self, committed: Mapping[str, set[str]], partitions: Iterable[str]) -> list[str]:  # noqa: ARG002
        """Delete what participants have left of ended intervals; see `Table`. What readers see is never touched."""
        swept: list[str] = []
        for instant in committed:
            folder = staging(instant)
            if self._storage.exists(folder) and self._is_over(instant):
                swept += [f"{folder}/{path}" for path in self._storage.files(folder)]
                self._storage.delete(folder)
        return swept

    def _is_over(self, instant: str) -> bool:
        """Whether an interval needs nothing any more of what its participants wrote, whatever a message says."""
        found = self._log.find(instant)
        if found is not None:
            return self._storage.exists(committed_mark(found[0]))
        return not self._storage.exists(f"{PENDING}/{instant}")

    # How

    def _newest(self) -> list[str]:
        return [record.instant for _, record in itertools.islice(self._log.newest_first(), 1)]

    def _under_way(self) -> list[str]:
        return [*self._storage.names(PENDING), *self._storage.names(ABORTING)]

    def _is_taken(self, path: str) -> bool:
        """Whether anything has a file's name."""
        return self._storage.exists(path)

    def _is_open(self, instant: str) -> bool:
        """Whether an interval may be committed, as far as a look can say."""
        return self.state_of(instant) == "pending"

    @abstractmethod
    def _enter(self, number: int, record: Record) -> None:
        """Put an interval into the log, under a number that nobody has taken: the one step that commits it.

        Raises:
            FileNotFoundError, FileExistsError: it was rolled back meanwhile, or the number is taken.
        """

    @abstractmethod
    def _make(self, instant: str, path: str, content: bytes) -> None:
        """Make a file that others see whole or not at all.

        Raises:
            FileNotFoundError, FileExistsError: another process that goes on with the same interval was first.
        """

    @abstractmethod
    def _show(self, record: Record) -> None:
        """Put each file of a committed interval where readers look, unless it is there already.

        Raises:
            ActionRequiredError: a file is nowhere, or another one has its name.
        """

    @abstractmethod
    def _take_out(self, number: int, instant: str) -> None:
        """Take the last interval out of the log, which nobody has seen."""

    @abstractmethod
    def rollback(self, instant: str) -> bool:
        """See `Table`."""

    def _cannot_be_placed(self, instant: str, one: DataFile, target: str) -> ActionRequiredError:
        return ActionRequiredError(
            "A committed interval's file can't be put in its place.",
            next_step=f"the rows are committed, and other files of the interval may be visible. Move what is at "
            f"{target} away if it is none of Sluice's, or put back {one.staged}; the next run goes on.",
            table=self.writer.path,
            instant=instant,
            path=target,
            staged=one.staged,
            bytes=one.bytes,
            found=self._storage.size(target),
        )

    def _overtaken(self, instant: str) -> RetryableError:
        return RetryableError(
            "Another process has changed the table's log meanwhile: it has committed this interval or another one, or "
            "rolled this one back.",
            next_step="the step is retried, and looks again.",
            table=self.writer.path,
            instant=instant,
        )

    def _require_there(self, instant: str, files: Iterable[DataFile]) -> None:
        """The log must not name a file that isn't there, or isn't whole."""
        there = self._storage.files(staging(instant))
        own = f"{staging(instant)}/"
        for one in files:
            size = there.get(one.staged.removeprefix(own))
            if size != one.bytes:
                raise IntervalError(
                    "A file is not as its participant has left it.",
                    next_step="nothing was committed; the next interval reads the same offsets.",
                    table=self.writer.path,
                    instant=instant,
                    path=one.staged,
                    bytes=one.bytes,
                    found=size,
                )

    def _require_free(self, instant: str, layout: Layout, files: Iterable[DataFile]) -> None:
        """Two files of one name: a topic that was made again has the same offsets once more."""
        if layout == "interval":
            return
        taken = next((one.path for one in files if self._is_taken(one.path)), None)
        if taken is not None:
            raise IntervalError(
                "There is a file already of the name that one of the interval's would get.",
                next_step="if the topic was made again, its offsets are those of other records now: give the pipeline "
                "another topics_dir, or `layout: interval`. Nothing was committed.",
                table=self.writer.path,
                instant=instant,
                path=taken,
            )


def _name(path: str) -> str:
    return path.rpartition("/")[2]
