"""A folder whose file system renames in one step, and never over an existing file: HDFS, or a disk of this machine.

An interval's record is written to `_sluice/pending/<instant>`, which only `open` creates, and renamed from there into
the log. A roll-back first renames that folder away. So of a commit and a roll-back only one succeeds, and a process
that was suspended between its checks and its rename finds nothing to rename.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from datetime import timedelta

from sluice.connectors.sink import Completion
from sluice.errors import ActionRequiredError
from sluice.failpoints import reach
from sluice.protocol.messages import TableSpec
from sluice.sinks.files.log import Record
from sluice.sinks.files.options.names import (
    ABORTING,
    PENDING,
    WHOLE,
    DataFile,
    committed_mark,
    interval_folder,
    log_entry,
    staging,
)
from sluice.sinks.files.storage import Renames
from sluice.sinks.files.table import FilesTable

_RECENT = 3  # enough, since the next START already detects an aborted interval that a process completed
_TAKEN_OFF = "taken-off.json"


class RenamedTable(FilesTable):
    """See `FilesTable`; `storage` renames in one step."""

    _storage: Renames

    def __init__(self, storage: Renames, writer: TableSpec, clock_wait: timedelta, process: str) -> None:
        super().__init__(storage, writer, clock_wait, process)

    def _enter(self, number: int, record: Record) -> None:
        aside = f"{PENDING}/{record.instant}/{uuid.uuid4().hex}.json"
        self._storage.create(aside, record.to_json())
        reach("sink.before_log")
        self._storage.rename(aside, log_entry(number))

    def _make(self, instant: str, path: str, content: bytes) -> None:
        self._storage.make_folder(staging(instant))
        aside = f"{staging(instant)}/{uuid.uuid4().hex}.mark"
        self._storage.create(aside, content)
        self._storage.rename(aside, path)

    def _is_published(self, number: int, record: Record) -> bool:
        """See `FilesTable`. A folder appears with all its files by one rename."""
        whole = record.layout == "interval" and record.files and self._storage.exists(_folder_of(record))
        return bool(whole) or super()._is_published(number, record)

    def _show(self, record: Record) -> None:
        if record.layout == "connect":
            self._rename_each(record, lambda one: one.path)
        elif record.files:
            self._rename_whole(record)

    def _rename_whole(self, record: Record) -> None:
        """Publish an interval by renaming one folder: readers see all its files, or none."""
        target = _folder_of(record)
        if self._storage.exists(target):
            return
        whole = f"{staging(record.instant)}/{WHOLE}"
        self._rename_each(record, lambda one: f"{whole}/{one.path.removeprefix(f'{target}/')}")
        self._storage.make_folder(target.rpartition("/")[0])
        reach("sink.before_publish")
        try:
            self._storage.rename(whole, target)
        except (FileNotFoundError, FileExistsError) as error:
            if not self._storage.exists(target):  # else another process that completes the same commit was first
                raise self._overtaken(record.instant) from error

    def _rename_each(self, record: Record, target_of: Callable[[DataFile], str]) -> None:
        for folder in sorted({target_of(one).rpartition("/")[0] for one in record.files}):
            self._storage.make_folder(folder)
        for i, one in enumerate(record.files):
            reach(f"sink.before_publish_{i}")
            self._rename(record.instant, one, target_of(one))

    def _rename(self, instant: str, one: DataFile, target: str) -> None:
        try:
            self._storage.rename(one.staged, target)
            return
        except FileNotFoundError:
            if self._storage.size(target) == one.bytes:
                return
        except FileExistsError:
            if not self._storage.exists(one.staged) or self._storage.same_file(one.staged, target):
                return
        raise self._cannot_be_placed(instant, one, target)

    def rollback(self, instant: str) -> bool:
        """See `Table`. First makes a commit impossible, then deletes the interval's files, and last its markers."""
        pending, aborting = f"{PENDING}/{instant}", f"{ABORTING}/{instant}"
        if self._log.find(instant) is not None:
            return False
        if self._storage.exists(pending):
            if self._storage.exists(aborting):
                self._storage.delete(pending)
            else:
                self._rename_away(pending, aborting)
        if not self._storage.exists(aborting):
            return False
        if self._log.find(instant) is not None:  # the commit was faster than the rename
            self._storage.delete(aborting)
            return False
        reach("sink.in_rollback")
        self._storage.delete(staging(instant))
        self._storage.delete(aborting)
        return True

    def _rename_away(self, pending: str, aborting: str) -> None:
        try:
            self._storage.rename(pending, aborting)
        except (FileNotFoundError, FileExistsError):
            if self._storage.exists(pending):  # else another process is rolling the interval back, too
                self._storage.delete(pending)

    # An interval that was aborted just before its rename into the log

    def completions(self) -> dict[str, Completion]:
        """See `TakesOff`. Only the last few: the next START already detects an interval that was aborted."""
        return {
            record.instant: Completion("commit", [log_entry(number).rpartition("/")[2]], requested=True)
            for number, record in reversed([*itertools.islice(self._log.newest_first(), _RECENT)])
        }

    def take_off(self, instant: str, files: list[str]) -> None:
        """Take an interval out of the log that was aborted while it was being committed; `rollback` deletes its files.

        Raises:
            ActionRequiredError: it is not the last one, or its files are visible. Under the protocol this can't
                happen: files become visible only after the topic was read again, and an abort checks the log first.
        """
        found = self._log.find(instant)
        if found is None:
            return
        number = found[0]
        if number != self._log.last() or self._storage.exists(committed_mark(number)):
            raise ActionRequiredError(
                "An interval that was aborted is in the table's log, and its files are visible.",
                next_step="stop the pipeline, and find out which other program writes to the control topic or to the "
                "table's folder.",
                table=self.writer.path,
                instant=instant,
                files=", ".join(files),
            )
        self._storage.make_folder(f"{ABORTING}/{instant}")
        try:
            self._storage.rename(log_entry(number), f"{ABORTING}/{instant}/{_TAKEN_OFF}")
        except (FileNotFoundError, FileExistsError) as error:
            if self._log.find(instant) is not None:  # else another process has taken it out
                raise self._overtaken(instant) from error


def _folder_of(record: Record) -> str:
    """An interval's folder under `layout: interval`, below the topics_dir at the time of its commit."""
    return interval_folder(record.files[0].path.partition(f"/{record.instant}/")[0], record.instant)
