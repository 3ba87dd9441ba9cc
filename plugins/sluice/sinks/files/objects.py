"""A folder on an object store, which has no rename, and makes an object only where there is none if it is asked to.

An interval's record is put into the log under the next number, on the condition that nobody has taken it. A roll-back
takes that number itself: it puts an entry there that stands for no interval, so that whoever was about to commit finds
it taken. Files are copied to their places by the store. A copy says of which interval it is, so that it can be told
from another object of its name; the original goes when all are there.

Why no commit gets past a roll-back: a commit takes its number first, then looks whether `aborting/<instant>` is there,
then whether `pending/<instant>` is. A roll-back makes the first, puts its entry, and deletes both at its end, the
second first. If the entry came after the number was taken, it stands there, or on one that was taken before it, and the
commit's condition fails. If it came before, one of the two looks finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from sluice.connectors.sink import InstantState
from sluice.failpoints import reach
from sluice.protocol.messages import TableSpec
from sluice.sinks.files.log import Record
from sluice.sinks.files.names import ABORTING, INNER, PENDING, DataFile, log_entry, staging
from sluice.sinks.files.storage import Objects
from sluice.sinks.files.table import FilesTable

_PROBE: Final = f"{INNER}/conditional"


class ObjectTable(FilesTable):
    """See `FilesTable`; `storage` puts with a condition."""

    _storage: Objects

    def __init__(
        self, storage: Objects, writer: TableSpec, clock_wait: timedelta, process: str, based_on: int | None = None
    ) -> None:
        super().__init__(storage, writer, clock_wait, process, based_on)

    def prepare(self) -> None:
        """Check that the store keeps conditions; folders need not be made."""
        self._storage.require_conditions(_PROBE)

    def is_there(self) -> bool:
        """Whether the folder is a table."""
        return self._storage.exists(_PROBE)

    def state_of(self, instant: str) -> InstantState:
        """See `Table`. One that is being rolled back can't be committed any more: it is absent."""
        if self._log.find(instant) is not None:
            return "completed"
        is_open = self._is_under_way(instant)
        if self._log.find(instant) is not None:  # committed between the two looks
            return "completed"
        return "pending" if is_open else "absent"

    def forbid_commit(self, instant: str) -> bool:
        """Take the number that its commit would have; see `sluice.connectors.sink.ForbidsCommits`."""
        if self._storage.exists(f"{PENDING}/{instant}"):
            self._storage.make_folder(f"{ABORTING}/{instant}")
            reach("sink.before_void")
        return not self._is_committed_or_void(instant)

    def rollback(self, instant: str) -> bool:
        """See `Table`. First nobody can commit it any more; then its files go; last what says that it is under way."""
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
        """Whether the interval is committed; if it isn't and is open, it is made void."""
        while True:
            last = self._log.last()  # first: a commit that comes after this look has the next number, or none
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

    def _is_open(self, instant: str) -> bool:
        """See `FilesTable`. Whoever commits what another has committed would take one more number for it."""
        return self._log.find(instant) is None and self._is_under_way(instant)

    def _is_under_way(self, instant: str) -> bool:
        """In this order: a roll-back deletes what is looked at last before the other."""
        return not self._storage.exists(f"{ABORTING}/{instant}") and self._storage.exists(f"{PENDING}/{instant}")

    def _is_taken(self, path: str) -> bool:
        """See `FilesTable`. An object that is in a folder of that name is in nobody's way."""
        return self._storage.size(path) is not None

    def _enter(self, number: int, record: Record) -> None:
        reach("sink.before_log")
        self._storage.create(log_entry(number), record.to_json())

    def _make(self, instant: str, path: str, content: bytes) -> None:  # noqa: ARG002 - objects appear whole
        self._storage.create(path, content)

    def _show(self, record: Record) -> None:
        try:
            self._storage.copy(self._missing(record), record.instant)
        except FileNotFoundError:  # of those that go on with the same commit another was faster, or it is lost
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

    def _take_out(self, number: int, instant: str) -> None:
        """The entry stays, and stands for no interval: its number must not be free again."""
        self._storage.make_folder(f"{ABORTING}/{instant}")
        self._storage.replace(log_entry(number), Record.void(instant, instant).to_json())
