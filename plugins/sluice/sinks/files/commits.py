"""Reads the log of a table of files without a JVM, for the page: the newest intervals, and all that have not ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sluice.connectors.views import CommitFacts, Instant, Timeline
from sluice.errors import ActionRequiredError, RetryableError
from sluice.sinks.files.log import IntervalLog, Record
from sluice.sinks.files.options.names import ABORTING, INNER, LOG, PENDING, log_entry
from sluice.sinks.reading import failed, file_system, modified

SHOWN = 300
"""How many of the newest intervals are read: the log has one file per interval, and none is ever archived."""
_REMEMBERED = 10_000  # intervals, of all tables


class FileCommits:
    """One table's log; see `sluice.connectors.views.CommitLog`.

    Args:
        table: its path.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def read(self) -> Timeline | None:
        """The newest intervals, and all intervals that are pending or being rolled back."""
        try:
            folder = Folder(self._table)
            if not folder.exists(LOG):
                return None
            log = IntervalLog(folder)
            last = log.last()
            first = max(1, last - SHOWN + 1)
            began = log.read(1).instant if last else ""  # differs if the table was deleted and created again
            done = [_followed(self._table, began, number) for number in range(first, last)]
            done += [_completed(folder, last)] if last else []  # not cached: the last may still be taken off
            instants = {one.requested: one for one in done if one is not None}
            for path, action in ((PENDING, "interval"), (ABORTING, "rollback")):
                for entry in folder.entries(path):
                    name = str(entry["name"]).rstrip("/").rpartition("/")[2]
                    under_way = Instant(name, None, action, True, name, modified(entry), is_commit=False)
                    instants.setdefault(name, under_way)
        except Exception as error:  # each file system has its own kinds
            raise self._failed(error) from error
        return Timeline(dict(sorted(instants.items())), archives=first > 1)

    def facts(self, instant: Instant) -> CommitFacts:
        """A committed interval's facts, from its entry in the log."""
        try:
            record = Record.of_json(Folder(self._table).read(f"{LOG}/{instant.name}"), f"{LOG}/{instant.name}")
        except Exception as error:
            raise self._failed(error) from error
        return CommitFacts(
            operation="append",
            rows=record.rows,
            bytes_written=sum(one.bytes for one in record.files),
            files=len(record.files),
            table_partitions=len({one.path.rpartition("/")[0] for one in record.files}),
            extra=tuple(sorted(record.extra)),
        )

    def _failed(self, error: Exception) -> ActionRequiredError | RetryableError:
        return failed(error, self._table, INNER)


class Folder:
    """A table's folder, read through fsspec."""

    def __init__(self, table: str) -> None:
        self._files, self._root = file_system(table)
        self._files.invalidate_cache()

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self._files.exists(f"{self._root}/{path}"))

    def size(self, path: str) -> int | None:
        """A file's size in bytes; None if there is no file."""
        try:
            return int(self._files.size(f"{self._root}/{path}") or 0)
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        """A file's content."""
        return bytes(self._files.cat_file(f"{self._root}/{path}"))

    @contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """A file, opened for random access."""
        with self._files.open(f"{self._root}/{path}", "rb") as file:
            yield file

    def entry(self, path: str) -> dict[str, Any]:
        """A file's metadata, as the file system returns it."""
        return dict(self._files.info(f"{self._root}/{path}"))

    def entries(self, path: str) -> list[dict[str, Any]]:
        """The entries of a folder; empty if the folder doesn't exist."""
        try:
            return list(self._files.ls(f"{self._root}/{path}", detail=True))
        except FileNotFoundError:
            return []


@lru_cache(maxsize=_REMEMBERED)
def _followed(table: str, began: str, number: int) -> Instant | None:  # noqa: ARG001 - identifies the log in the cache
    """An interval before the last one of the log, whose entry can no longer change."""
    return _completed(Folder(table), number)


def _completed(folder: Folder, number: int) -> Instant | None:
    """An interval of the log; None for the entry of a voided interval."""
    path = log_entry(number)
    record = Record.of_json(folder.read(path), path)
    if record.voids:
        return None
    time = modified(folder.entry(path))
    completed = f"{time:%Y%m%d%H%M%S%f}"[:17] if time is not None else None
    return Instant(record.instant, completed, "interval", False, path.rpartition("/")[2], time)
