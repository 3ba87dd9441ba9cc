"""A folder of files as the coordinator sees it: its log, its checkpoint, and the steps of a two-phase commit.

Whether a commit or a roll-back wins is decided by one atomic step, which depends on the storage: a rename
(`sluice.sinks.files.renames`) or a conditional PUT (`sluice.sinks.files.objects`).
"""

from __future__ import annotations

import itertools
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from sluice.connectors.intervals import IntervalTable, LoggedCommit
from sluice.connectors.sink import InstantState
from sluice.errors import ActionRequiredError, IntervalError, RetryableError
from sluice.failpoints import reach
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import holds_checkpoint
from sluice.records.comments import comments_of_pinned
from sluice.sinks.files.log import IntervalLog, Record
from sluice.sinks.files.options.names import (
    ABORTING,
    COMMITTED,
    INNER,
    LOG,
    PENDING,
    DataFile,
    Layout,
    committed_mark,
    files_of,
    staging,
)
from sluice.sinks.files.options.pinned import PinnedFiles
from sluice.sinks.files.storage import Storage, emptied


class FilesTable(IntervalTable):
    """The folder, opened by one process; see `sluice.connectors.sink.Table`.

    Args:
        storage: the folder.
        writer: the settings for writing intervals.
        clock_wait: how long to wait for this machine's clock to pass the last interval's instant.
        process: the identity of the process that carries out commits.
    """

    columns = None
    """No column is required because earlier intervals have it: each file has its own schema."""

    def __init__(self, storage: Storage, writer: TableSpec, clock_wait: timedelta, process: str) -> None:
        self.writer, self.clock_wait, self.process = writer, clock_wait, process
        self._storage = storage
        self._log = IntervalLog(storage)
        self._based_on: int | None = None  # the log's last number, when the checkpoint was read

    def prepare(self) -> None:
        """Create the folders of the log."""
        for folder in (LOG, COMMITTED, PENDING, ABORTING):
            self._storage.make_folder(folder)

    def is_there(self) -> bool:
        """Whether the folder holds a table."""
        return self._storage.exists(LOG)

    # What is committed

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the newest interval with a checkpoint; the next commit must follow the last entry."""
        self._based_on = last = self._log.last()
        records = (record for _, record in self._log.newest_first(last))
        return next((dict(record.extra) for record in records if holds_checkpoint(record.extra)), None)

    def last_schema(self) -> str | None:
        """The columns of the last interval's files as Spark DDL; None before the first."""
        return next((record.schema for _, record in self._log.newest_first() if record.schema), None)

    def last_comments(self) -> Mapping[str, str]:
        """The comments on the columns of the last interval's files, by the columns' names in lower case."""
        return next((record.comments for _, record in self._log.newest_first() if record.schema), {})

    def _comments(self) -> dict[str, str]:
        found = comments_of_pinned(self.writer.schema_avro)
        return {path[0]: text for path, text in found.items() if len(path) == 1}

    def bytes_per_row(self) -> float | None:
        """The average size of a row in the files of the last interval that had rows; None if there is none yet."""
        found = next((record for _, record in self._log.newest_first() if record.rows and record.files), None)
        return None if found is None else sum(one.bytes for one in found.files) / found.rows

    def published(self) -> Iterator[tuple[int, Record]]:
        """The intervals whose files are all visible to readers, newest first."""
        for number, record in self._log.newest_first():
            if self._storage.exists(committed_mark(number)):
                yield number, record

    def state_of(self, instant: str) -> InstantState:
        """See `Table`. The log outranks the folder of a pending interval, which may be left over."""
        if self._log.find(instant) is not None:
            return "completed"
        is_under_way = self._is_under_way(instant)
        if self._log.find(instant) is not None:  # committed between the two checks, and perhaps published
            return "completed"
        return "pending" if is_under_way else "absent"

    def _committed(self, instant: str) -> LoggedCommit | None:
        """See `IntervalTable`. Each file is a file group."""
        found = self._log.find(instant)
        if found is None:
            return None
        return LoggedCommit(instant, found[1].extra, {"": tuple(one.path for one in found[1].files)})

    # The two phases of a commit

    def newest_time(self) -> str:
        """See `TimedByMachine`."""
        return max([*self._pending(), *self._newest()], default="")

    def open(self, instant: str) -> None:
        """See `Table`."""
        self._storage.make_folder(f"{PENDING}/{instant}")

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        """Put the interval into the log. `publish` makes its files visible.

        Raises:
            RetryableError: another process has committed the interval or rolled it back, or has committed another one
                in between.
            IntervalError: files differ from the participants' reports, or their names are taken.
        """
        # First the number: a roll-back after the check of the interval's state makes it impossible to take the number.
        number = (self._log.last() if self._based_on is None else self._based_on) + 1
        if self.state_of(instant) != "pending":
            raise self._overtaken(instant)
        pinned, written = PinnedFiles.of(self.writer), list(committables)
        layout = pinned.layout
        files = files_of(written, instant, pinned.topics_dir, layout)
        self._require_there(instant, files)
        self._require_free(instant, layout, files)
        rows = sum(one.rows for one in written)
        schema = self.writer.schema_ddl
        record = Record(instant, layout, pinned.format, schema, rows, files, dict(extra), comments=self._comments())
        try:
            self._enter(number, record)
        except (FileNotFoundError, FileExistsError) as error:
            raise self._overtaken(instant) from error
        self._based_on = number
        return []

    def publish(self, instant: str) -> None:
        """Make a committed interval's files visible. If a process dies over it, the next one continues.

        Files that are already visible are left alone. No process may roll the interval back any more: it is in the
        log, and the control topic says that it is decided.

        Raises:
            ActionRequiredError: a file is missing, or another file has its name.
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

    def _is_published(self, number: int, record: Record) -> bool:  # noqa: ARG002 - subclasses use the record
        """Whether another process completed the same commit while this process was suspended."""
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
            if not self._storage.exists(committed_mark(number)):  # else another process completed the same commit first
                raise self._overtaken(record.instant) from error

    def _clear(self, instant: str) -> None:
        """Delete the folders that a published interval no longer needs."""
        self._storage.delete(staging(instant))
        self._storage.delete(f"{PENDING}/{instant}")

    # What processes leave behind that were suspended for too long

    def _pending(self) -> set[str]:
        return {*self._storage.names(PENDING), *self._storage.names(ABORTING)}

    def _staged(self) -> set[str]:
        return set(self._storage.names(INNER))

    def _delete_staged(self, instant: str) -> list[str]:
        """See `IntervalTable`. Visible files are elsewhere."""
        return emptied(self._storage, staging(instant))

    def _is_over(self, instant: str) -> bool:
        """See `IntervalTable`. A committed interval's files are needed until they are visible."""
        found = self._log.find(instant)
        if found is not None:
            return self._storage.exists(committed_mark(found[0]))
        return not self._storage.exists(f"{PENDING}/{instant}")

    # How

    def _newest(self) -> list[str]:
        return [record.instant for _, record in itertools.islice(self._log.newest_first(), 1)]

    def _is_taken(self, path: str) -> bool:
        """Whether a file's name is taken."""
        return self._storage.exists(path)

    def _is_under_way(self, instant: str) -> bool:
        """Whether there is a folder of a pending interval, or of one that is being rolled back."""
        return self._storage.exists(f"{PENDING}/{instant}") or self._storage.exists(f"{ABORTING}/{instant}")

    @abstractmethod
    def _enter(self, number: int, record: Record) -> None:
        """Put an interval into the log under a number that must be free: the one step that commits it.

        Raises:
            FileNotFoundError, FileExistsError: it was rolled back meanwhile, or the number is taken.
        """

    @abstractmethod
    def _make(self, instant: str, path: str, content: bytes) -> None:
        """Create a file that other processes see whole or not at all.

        Raises:
            FileNotFoundError, FileExistsError: another process that completes the same interval was first.
        """

    @abstractmethod
    def _show(self, record: Record) -> None:
        """Make each file of a committed interval visible, unless it already is.

        Raises:
            ActionRequiredError: a file is missing, or another file has its name.
        """

    @abstractmethod
    def rollback(self, instant: str) -> bool:
        """See `Table`."""

    def _cannot_be_placed(self, instant: str, one: DataFile, target: str) -> ActionRequiredError:
        return ActionRequiredError(
            "A committed interval's file can't be put in its place.",
            next_step=f"the rows are committed, and other files of the interval may be visible. Move {target} away if "
            f"Sluice didn't write it, or restore {one.staged}; the next run continues.",
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
            next_step="the step is retried, and reads the log again.",
            table=self.writer.path,
            instant=instant,
        )

    def _require_there(self, instant: str, files: Iterable[DataFile]) -> None:
        """Check that each file exists with its reported size: the log must not name a missing or incomplete file."""
        there = self._storage.files(staging(instant))
        own = f"{staging(instant)}/"
        for one in files:
            size = there.get(one.staged.removeprefix(own))
            if size != one.bytes:
                raise IntervalError(
                    "A file is missing, or its size differs from its participant's report.",
                    next_step="nothing was committed; the next interval reads the same offsets.",
                    table=self.writer.path,
                    instant=instant,
                    path=one.staged,
                    bytes=one.bytes,
                    found=size,
                )

    def _require_free(self, instant: str, layout: Layout, files: Iterable[DataFile]) -> None:
        """Check that no file's name is taken: a topic that was deleted and created again repeats its offsets."""
        if layout == "interval":
            return
        taken = next((one.path for one in files if self._is_taken(one.path)), None)
        if taken is not None:
            raise IntervalError(
                "There is a file already of the name that one of the interval's files would get.",
                next_step="if the topic was deleted and created again, its offsets now belong to other records: give "
                "the pipeline another topics_dir, or `layout: interval`. Nothing was committed.",
                table=self.writer.path,
                instant=instant,
                path=taken,
            )
