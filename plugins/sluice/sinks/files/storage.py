"""The few steps on a file system that a table's commits are made of, and how a local disk does them.

Paths are relative to the table's. What isn't there is a FileNotFoundError, what must not be there a FileExistsError,
whatever the file system.
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
        ActionRequiredError: it may not be used, or is full.
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
        """What is directly in a folder, by name; nothing if there is none."""
        ...

    def files(self, path: str) -> dict[str, int]:
        """The data files below a folder, by their paths relative to it, with their sizes; not the hidden ones."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder, with those above it, where there is none."""
        ...

    def create(self, path: str, content: bytes) -> None:
        """Write a whole file in a folder that is there; other processes may see it half written."""
        ...

    def delete(self, path: str) -> bool:
        """Delete a file, or a folder with all in it; whether there was one."""
        ...

    def checksum(self, path: str) -> str:
        """A file's checksum, with its kind before a colon."""
        ...


class Renames(Storage, Protocol):
    """A storage on which a rename is one step."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder in one step, never over another one, into a folder that is there."""
        ...

    def same_file(self, one: str, other: str) -> bool:
        """Whether two names are one file, as a rename may leave it that a process died in."""
        ...


class Objects(Storage, Protocol):
    """A storage that makes each object whole, and only where there is none, in one step for all processes."""

    def require_conditions(self, path: str) -> None:
        """Check that it does, by an object that is made for it.

        Raises:
            ActionRequiredError: it doesn't.
        """
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Make an object in place of the one that is there."""
        ...

    def copy(self, files: Iterable[tuple[str, str, int]], tag: str) -> None:
        """Copy objects, each given with its source, target and size; a copy carries the tag.

        Raises:
            FileNotFoundError: a source is not there; others may have been copied.
        """
        ...

    def is_copy(self, path: str, size: int, tag: str) -> bool | None:
        """Whether an object is a copy of that size and tag; None if there is no object."""
        ...


_LOCAL = "file://"


def local_folder(path: str) -> Path | None:
    """A table's folder on this machine, None if it is elsewhere."""
    return Path(path.removeprefix(_LOCAL)) if path.startswith(_LOCAL) else None


class LocalStorage:
    """A folder of this machine's, or one that all machines mount at the same path.

    Not by Hadoop: its local file system looks whether a target is there, and renames over one that came meanwhile.
    A hard link is refused where there is a file of that name, whoever made it, and when.
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
        """See `Storage`. It is on the disk when this returns."""
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
                "Somebody still writes to a folder that is being deleted.",
                next_step="the step is retried; a write job that goes on after its interval ends by itself.",
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
        """Where a file is."""
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
            if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):  # a folder renamed onto one, or onto a file
                raise FileExistsError(path) from error
            raise _classed(error, str(self._at(path))) from error


def _classed(error: OSError, path: str) -> ActionRequiredError | RetryableError:
    if error.errno in _NO_PERMISSION:
        return ActionRequiredError(
            "The table's folder may not be written.",
            next_step="give the user of Airflow's workers and of Spark the right to read and write it; the disk must "
            "not be mounted for reading only, and must have hard links.",
            path=path,
            reason=error.strerror,
        )
    if error.errno in _FULL:
        return ActionRequiredError(
            "The table's disk is full, or its quota is.",
            next_step="make room. Nothing of the interval is visible, and the next one sweeps up what it has written.",
            path=path,
            reason=error.strerror,
        )
    return RetryableError(
        "The table's file system failed.", next_step="the step is retried.", path=path, reason=error.strerror
    )


def _size(file: Path) -> int | None:
    """A file's size, None if there is none: another process may delete it at any time."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _unless_gone(_call: object, _path: str, failed: tuple[object, BaseException, object]) -> None:
    """Go on deleting where another process was faster."""
    if not isinstance(failed[1], FileNotFoundError):
        raise failed[1]


def _to_disk(folder: Path) -> None:
    """Have a folder's names outlive a power cut."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def lost_jvm(path: str) -> RetryableError:
    """The error of a call to a JVM that is gone."""
    return RetryableError(
        "The JVM that writes to the table's file system was lost.",
        next_step="the step is retried; if it comes back, look for an out-of-memory kill on the worker.",
        path=path,
    )


def in_the_way(path: str) -> ActionRequiredError:
    """The error of a folder that can't be made."""
    return ActionRequiredError(
        "A folder of the table can't be made: there is a file of its name, or of one above it.",
        next_step="give the pipeline a path of its own, or move that file away.",
        path=path,
    )


def is_data(name: str) -> bool:
    """Whether a file is one of a writer's, and not a checksum or a mark beside it."""
    return not name.startswith((".", "_"))
