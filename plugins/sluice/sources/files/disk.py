"""A folder on a disk that START, the Spark driver and its executors see under the same path."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sources.files.entries import EDGE, IGNORED, Found, is_read
from sluice.sources.files.options import DISK

_PIECE = 1 << 16
_NO_PERMISSION = (errno.EACCES, errno.EPERM)


def place_of(uri: str) -> Path:
    """The place of a file, by its URI."""
    return Path(unquote(uri.removeprefix(DISK)))


def folder_of(path: str) -> Path:
    """The folder that a pipeline file names, as sinks read theirs: its path has no escapes."""
    return Path(path.removeprefix(DISK))


def uri_of(path: str) -> str:
    """The URI of an absolute path."""
    return DISK + quote(os.fsencode(path), safe="/")


class Disk:
    """Looks at files of a disk, as `sluice.sources.files.entries.Storage` and `Content`."""

    def listing(self, folder: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[Found]:
        """See `Storage`."""
        root = folder_of(folder)
        if not root.is_dir():
            raise ActionRequiredError(
                "The folder of the files doesn't exist.",
                next_step="create it, or correct the source's `path`; START sees it on the machine of its task.",
                path=folder,
            )
        waiting, above = [str(root)], f"{str(root).rstrip('/')}/"
        while waiting:
            below = waiting.pop()
            with _errors(below), os.scandir(below) as entries:
                for entry in entries:
                    if entry.is_dir():
                        if not entry.name.startswith(IGNORED):
                            waiting.append(entry.path)
                    elif is_read(entry.name, entry.path.removeprefix(above), include, exclude) and entry.is_file():
                        _require_utf8(entry.path)
                        try:
                            yield _found(entry.path, entry.stat())
                        except FileNotFoundError:
                            continue  # it was deleted while the folder was listed

    def look(self, uri: str) -> Found | None:
        """See `Storage`."""
        path = str(place_of(uri))
        with _errors(path):
            try:
                return _found(path, place_of(uri).stat())
            except FileNotFoundError:
                return None

    def end_of_lines(self, path: str, size: int) -> int:
        """See `Content`."""
        place = place_of(path)
        with _errors(str(place)), place.open("rb") as file:
            end = size
            while end > 0:
                start = max(0, end - _PIECE)
                file.seek(start)
                at = file.read(end - start).rfind(b"\n")
                if at >= 0:
                    return start + at + 1
                end = start
        return 0

    def edges(self, path: str, end: int) -> tuple[str, str]:
        """See `Content`."""
        place = place_of(path)
        with _errors(str(place)), place.open("rb") as file:
            head = file.read(min(EDGE, end))
            file.seek(max(0, end - EDGE))
            tail = file.read(min(EDGE, end))
        return _digest(head), _digest(tail)


def _found(path: str, status: os.stat_result) -> Found:
    return Found(uri_of(path), status.st_size, status.st_mtime_ns // 1000, str(status.st_ino))


def _require_utf8(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ActionRequiredError(
            "A file's name isn't UTF-8, and Java, which reads the file, has no path for it.",
            next_step="rename the file, or leave it out by the source's `exclude`.",
            path=path.encode(errors="backslashreplace").decode(),
        ) from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_PERMISSION:
            raise ActionRequiredError(
                "Access to a folder or file of the source is denied.",
                next_step="grant the user of the task and of the write jobs to read it.",
                path=path,
            ) from error
        raise RetryableError(
            "A folder or file of the source can't be looked at.",
            next_step="check the disk or the mount; the step is retried.",
            path=path,
            reason=error.strerror,
        ) from error
