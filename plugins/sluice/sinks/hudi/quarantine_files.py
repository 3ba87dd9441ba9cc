"""Reads a quarantine's files, and so its bad records, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sluice.errors import RetryableError
from sluice.protocol.quarantine import Quarantined
from sluice.sinks.hudi.timeline import TimelineFiles
from sluice.sinks.quarantined import IN_SHORT, quarantined, rows_in
from sluice.sinks.reading import file_system, file_url

_INSTANT = "_hoodie_commit_time"


class QuarantineFiles:
    """The files of the quarantine at a path or URI; credentials are those of the process's environment.

    Raises (all methods):
        RetryableError, ActionRequiredError: the file system can't be read from this process.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        file_url(path)  # refuses a path at once if no table can be there

    def committed(self, instants: Iterable[str] = ()) -> dict[str, list[str]]:
        """The committed files by instant, relative to the table; of all instants if none is named."""
        timeline = TimelineFiles(self.path)
        found = timeline.read()
        if found is None:
            return {}
        wanted = set(instants)
        files: dict[str, list[str]] = {}
        for path, instant in self._data_files():
            if (not wanted or instant in wanted) and found.standing(instant) in ("completed", "archived"):
                files.setdefault(instant, []).append(path)
        for instant, paths in files.items():
            if found.standing(instant) == "completed":  # a file that a zombie finished late is not among them
                named = timeline.paths(found.instants[instant])
                files[instant] = [path for path in paths if path in named]
        return dict(sorted(files.items()))

    def _data_files(self) -> Iterator[tuple[str, str]]:
        from sluice.sinks.hudi.strays import instant_in

        try:
            files, root = file_system(self.path)
            files.invalidate_cache()
            found = files.glob(f"{root}/*/*.parquet")
        except Exception as error:  # each file system has its own kinds
            raise self._failed(error) from error
        for path in sorted(found):
            relative = "/".join(str(path).rsplit("/", 2)[-2:])
            instant = instant_in(relative.rpartition("/")[2])
            if instant is not None and not relative.startswith("."):
                yield relative, instant

    def records(self, paths: Sequence[str], *, whole: bool = True) -> Iterator[Quarantined]:
        """The records of files; see `sluice.connectors.views.QuarantineReader`."""
        for row in self._rows(paths, None if whole else (_INSTANT, *IN_SHORT)):
            yield quarantined(row, row[_INSTANT])

    def _rows(self, paths: Sequence[str], columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
        """The rows of files as dictionaries; see `sluice.sinks.quarantined.rows_in`."""
        try:
            files, root = file_system(self.path)
            for path in paths:
                with files.open(f"{root}/{path}", "rb") as file:
                    yield from rows_in(file, columns)
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> Exception:
        if isinstance(error, ImportError | PermissionError):
            return TimelineFiles(self.path).failed(error)
        return RetryableError(
            f"The quarantine can't be read: {type(error).__name__}.",
            next_step="check that its file system can be reached from here, and the credentials.",
            quarantine=self.path,
        )
