"""A folder on an object store, which has no rename, but conditional writes: create an object only if none exists.

A commit puts the interval's record into the log under the next number, on the condition that the number is free. A
roll-back takes that number itself, with an entry that represents no interval, so that a late commit finds the number
taken. The store copies the files to their visible paths. Each copy carries its interval's instant as a tag, which
distinguishes it from any other object of that name; the originals are deleted once all copies exist.

Why no commit gets past a roll-back: a commit first determines its number, then checks that `aborting/<instant>` doesn't
exist, and then that `pending/<instant>` does. A roll-back creates the former, puts its entry, and finally deletes both,
the latter first. If the entry is put after the commit has determined its number, it takes that number, or comes after
another entry that did, and the commit's condition fails. If it is put before, one of the two checks fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from sluice.failpoints import reach
from sluice.protocol.messages import TableSpec
from sluice.sinks.files.log import Record
from sluice.sinks.files.options.names import ABORTING, INNER, PENDING, DataFile, log_entry, staging
from sluice.sinks.files.storage import Objects
from sluice.sinks.files.table import FilesTable

_PROBE: Final = f"{INNER}/conditional"
_RECENT: Final = 3  # enough, since the next START already detects an aborted interval that is committed


class ObjectTable(FilesTable):
    """See `FilesTable`; `storage` has conditional writes."""

    _storage: Objects

    def __init__(self, storage: Objects, writer: TableSpec, clock_wait: timedelta, process: str) -> None:
        super().__init__(storage, writer, clock_wait, process)

    def prepare(self) -> None:
        """Check that the store honours conditional writes; folders need not be created."""
        self._storage.require_conditions(_PROBE)

    def is_there(self) -> bool:
        """Whether the folder is a table."""
        return self._storage.exists(_PROBE)

    def forbid_commit(self, instant: str) -> bool:
        """Take the number that the instant's commit would get; see `sluice.connectors.sink.ForbidsCommits`."""
        if self._storage.exists(f"{PENDING}/{instant}"):
            self._storage.make_folder(f"{ABORTING}/{instant}")
            reach("sink.before_void")
        return not self._is_committed_or_void(instant)

    def last_commits(self) -> list[str]:
        """See `sluice.connectors.sink.ForbidsCommits`."""
        return [record.instant for _, record in itertools.islice(self._log.newest_first(), _RECENT)]

    def rollback(self, instant: str) -> bool:
        """See `Table`. First makes a commit impossible, then deletes the interval's files, and last its markers."""
        pending, aborting = f"{PENDING}/{instant}", f"{ABORTING}/{instant}"
        if not self.forbid_commit(instant):
            self._storage.delete(aborting)
            return False
        if not self._storage.exists(aborting):
            return False
        reach("sink.in_rollback")
        self._storage.delete(staging(instant))
        self._storage.delete(pending)
        self._storage.delete(aborting)
        return True

    def _is_committed_or_void(self, instant: str) -> bool:
        """Whether the interval is committed; if it is still open, it is voided."""
        while True:
            last = self._log.last()  # first: a commit after this line gets the next number, or fails
            if self._log.find(instant) is not None:
                return True
            if not self._storage.exists(f"{PENDING}/{instant}"):
                return False
            newest = self._log.read(last) if last else None
            if newest is not None and newest.voids == instant:
                return False
            position = max(instant, newest.instant) if newest else instant
            try:
                self._storage.create(log_entry(last + 1), Record.void(position, instant).to_json())
            except FileExistsError:
                continue  # another interval was committed, perhaps this one
            return False

    def _is_under_way(self, instant: str) -> bool:
        """See `FilesTable`. An interval that is being rolled back isn't: it can't be committed any more.

        The order of the checks matters: a roll-back deletes `pending` before `aborting`.
        """
        return not self._storage.exists(f"{ABORTING}/{instant}") and self._storage.exists(f"{PENDING}/{instant}")

    def _is_taken(self, path: str) -> bool:
        """See `FilesTable`. Objects in a folder of that name don't conflict with it."""
        return self._storage.size(path) is not None

    def _enter(self, number: int, record: Record) -> None:
        reach("sink.before_log")
        self._storage.create(log_entry(number), record.to_json())

    def _make(self, instant: str, path: str, content: bytes) -> None:  # noqa: ARG002 - objects appear whole
        self._storage.create(path, content)

    def _show(self, record: Record) -> None:
        try:
            self._storage.copy(self._missing(record), record.instant)
        except FileNotFoundError:  # another process that completes the same commit was faster, or the file is lost
            for one in record.files:
                if not self._is_shown(record, one):
                    raise self._cannot_be_placed(record.instant, one, one.path) from None

    def _missing(self, record: Record) -> Iterator[tuple[str, str, int]]:
        for i, one in enumerate(record.files):
            reach(f"sink.before_publish_{i}")
            if not self._is_shown(record, one):
                yield one.staged, one.path, one.bytes

    def _is_shown(self, record: Record, one: DataFile) -> bool:
        found = self._storage.is_copy(one.path, one.bytes, record.instant)
        if found is False:
            raise self._cannot_be_placed(record.instant, one, one.path)
        return bool(found)
