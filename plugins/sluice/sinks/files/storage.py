"""The few file system operations that a table's commits consist of, and their implementation for a local disk.

Paths are relative to the table's. On every file system, a missing file raises FileNotFoundError, and a file that must
not exist FileExistsError.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sluice.errors import ActionRequiredError, RetryableError

_PIECE = 1 << 20
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Storage(Protocol):
    """One table's folder.

    Raises (all methods):
        RetryableError: the storage doesn't answer.
        ActionRequiredError: access is denied, or the storage is full.
    """

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        ...

    def size(self, path: str) -> int | None:
        """A file's size in bytes; None if there is no file."""
        ...

    def read(self, path: str) -> bytes:
        """A file's content."""
        ...

    def names(self, path: str) -> list[str]:
        """Names of the entries directly in a folder; empty if it doesn't exist. The table's root is ""."""
        ...

    def files(self, path: str) -> dict[str, int]:
        """The sizes of the data files below a folder, by their paths relative to it, without hidden files."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents, unless they exist."""
        ...

    def create(self, path: str, content: bytes) -> None:
        """Write a new file into an existing folder; other processes may see it half written."""
        ...

    def delete(self, path: str) -> bool:
        """Delete a file, or a folder with its content; returns whether it existed."""
        ...

    def checksum(self, path: str) -> str:
        """A file's checksum, prefixed with its kind and a colon."""
        ...


class Renames(Storage, Protocol):
    """A storage whose rename is atomic."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder in one step into an existing folder, never over an existing entry."""
        ...

    def same_file(self, one: str, other: str) -> bool:
        """Whether two names are the same file, as a rename may leave them if its process dies."""
        ...


class Objects(Storage, Protocol):
    """A storage that creates each object whole, and only if none exists, atomically for all processes."""

    def require_conditions(self, path: str) -> None:
        """Check that the store honours the condition, with a probe object.

        Args:
            path: the probe object's path.

        Raises:
            ActionRequiredError: the store ignores the condition.
        """
        ...

    def copy(self, files: Iterable[tuple[str, str, int]], tag: str) -> None:
        """Copy objects and tag the copies.

        Args:
            files: the source, target and size of each object.
            tag: the tag that each copy carries.

        Raises:
            FileNotFoundError: a source doesn't exist; other objects may have been copied.
        """
        ...

    def is_copy(self, path: str, size: int, tag: str) -> bool | None:
        """Whether an object is a copy with the given size and tag; None if there is no object."""
        ...


def emptied(storage: Storage, folder: str) -> list[str]:
    """Delete a folder; returns the paths of the data files that were in it."""
    gone = [f"{folder}/{path}" for path in storage.files(folder)]
    storage.delete(folder)
    return gone


_LOCAL = "file://"


def local_folder(path: str) -> Path | None:
    """A table's folder on this machine; None if it is elsewhere."""
    return Path(path.removeprefix(_LOCAL)) if path.startswith(_LOCAL) else None


class LocalStorage:
    """A folder on this machine, or on a file system that all machines mount at the same path.

    Hadoop isn't used: its local file system checks that a target doesn't exist, and then renames over one created in
    between. A hard link always fails if the name exists, no matter which process created it, or when.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def exists(self, path: str) -> bool:
        """See `Storage`."""
        with self._errors(path):
            return self._at(path).exists()

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        with self._errors(path):
            return _size(self._at(path))

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        with self._errors(path):
            return self._at(path).read_bytes()

    def names(self, path: str) -> list[str]:
        """See `Storage`."""
        folder = self._at(path)
        with self._errors(path):
            return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def files(self, path: str) -> dict[str, int]:
        """See `Storage`."""
        folder = self._at(path)
        with self._errors(path):
            found = sorted(file for file in folder.rglob("*") if is_data(file.name))
            sizes = {file.relative_to(folder).as_posix(): _size(file) for file in found}
            return {name: size for name, size in sizes.items() if size is not None}

    def make_folder(self, path: str) -> None:
        """See `Storage`."""
        try:
            with self._errors(path):
                self._at(path).mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise in_the_way(str(self._at(path))) from error

    def create(self, path: str, content: bytes) -> None:
        """See `Storage`. The file is on disk when this returns."""
        with self._errors(path), self._at(path).open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        """See `Storage`. A file has both names for a moment."""
        old, new = self._at(source), self._at(target)
        with self._errors(target):
            if old.is_dir():
                old.rename(new)
                return
            os.link(old, new)
            _to_disk(new.parent)
            old.unlink(missing_ok=True)

    def same_file(self, one: str, other: str) -> bool:
        """See `Storage`."""
        with self._errors(one):
            return self._at(one).samefile(self._at(other))

    def delete(self, path: str) -> bool:
        """See `Storage`."""
        found = self._at(path)
        try:
            with self._errors(path):
                if found.is_dir():
                    shutil.rmtree(found, onerror=_unless_gone)
                elif found.exists():
                    found.unlink(missing_ok=True)
                else:
                    return False
                return True
        except FileExistsError as error:
            raise RetryableError(
                "Another process still writes to a folder that is being deleted.",
                next_step="the step is retried; a write job that outlives its interval ends by itself.",
                path=str(found),
            ) from error

    def checksum(self, path: str) -> str:
        """See `Storage`."""
        value = 0
        with self._errors(path), self._at(path).open("rb") as file:
            while piece := file.read(_PIECE):
                value = zlib.crc32(piece, value)
        return f"crc32:{value:08x}"

    def on_disk(self, path: str) -> Path:
        """A file's absolute path."""
        return self._at(path)

    def _at(self, path: str) -> Path:
        return self._root / path

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):  # a folder was renamed onto a folder or a file
                raise FileExistsError(path) from error
            raise _classed(error, str(self._at(path))) from error


def _classed(error: OSError, path: str) -> ActionRequiredError | RetryableError:
    if error.errno in _NO_PERMISSION:
        return ActionRequiredError(
            "No permission to write to the table's folder.",
            next_step="give the user of Airflow's workers and of Spark permission to read and write it; the disk must "
            "not be mounted read-only, and must support hard links.",
            path=path,
            reason=error.strerror,
        )
    if error.errno in _FULL:
        return ActionRequiredError(
            "The table's disk is full, or its quota is used up.",
            next_step="make room. Nothing of the interval is visible, and the next interval deletes its files.",
            path=path,
            reason=error.strerror,
        )
    return RetryableError(
        "The table's file system failed.", next_step="the step is retried.", path=path, reason=error.strerror
    )


def _size(file: Path) -> int | None:
    """A file's size; None if there is no file, since another process may delete it at any time."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _unless_gone(_call: object, _path: str, failed: tuple[object, BaseException, object]) -> None:
    """Continue a deletion where another process has already deleted an entry."""
    if not isinstance(failed[1], FileNotFoundError):
        raise failed[1]


def _to_disk(folder: Path) -> None:
    """Write a folder's entries to disk, so that they survive a power cut."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def in_the_way(path: str) -> ActionRequiredError:
    """The error for a folder that can't be created."""
    return ActionRequiredError(
        "A folder of the table can't be created: there is a file of its name, or of a parent folder's.",
        next_step="give the pipeline a separate path, or move that file away.",
        path=path,
    )


def is_data(name: str) -> bool:
    """Whether a file is a data file, and not a checksum or a marker beside one."""
    return not name.startswith((".", "_"))
