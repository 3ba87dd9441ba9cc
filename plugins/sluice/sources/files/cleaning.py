"""Files of a disk that are committed, and are taken out of their folder.

A writer may put another file under the name at any moment, and that one is unread. So a file is moved aside first, to a
path that no process uses twice, is looked at there, and only then deleted or archived. START puts back what a process
that died has left aside.
"""

from __future__ import annotations

import ctypes
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sources.files.disk import Disk, folder_of, place_of, uri_of
from sluice.sources.files.entries import Found, is_read

_ASIDE = ".sluice-cleaning"  # a folder that no listing reads
_AT_CWD, _NO_REPLACE = -100, 1  # of renameat2(2)
_NOT_HERE = (errno.ENOSYS, errno.EINVAL)  # of a kernel or file system that doesn't have renameat2(2)
_A_PERSON = {
    errno.EACCES: "grant the user of the task to write there",
    errno.EPERM: "grant the user of the task to write there",
    errno.EROFS: "mount it so that it can be written to",
    errno.EXDEV: "have folder and archive on the same file system, with nothing mounted within the folder",
    errno.ENOSPC: "make room on the disk",
}


class Cleaning:
    """Takes files out of one folder.

    Args:
        folder: the source's, as its `path` says.
        archive: where they go; None deletes them.
        include: the source's patterns, as `sluice.sources.files.entries.is_read` has them.
        exclude: likewise.

    Raises (all methods):
        ActionRequiredError: access is denied, or the folders are on different file systems.
        RetryableError: the disk doesn't do as asked.
    """

    def __init__(
        self, folder: str, archive: str | None, include: tuple[str, ...] = ("*",), exclude: tuple[str, ...] = ()
    ) -> None:
        self._folder = folder_of(folder)
        self._aside = self._folder / _ASIDE
        self._archive = folder_of(archive) if archive is not None else None
        self._patterns = include, exclude
        self._disk = Disk()

    def require_separate(self) -> None:
        """Check that folder and archive are separate by whichever way they are reached.

        Raises:
            ActionRequiredError: one is within the other, so that archived files would be read again.
        """
        if self._archive is None:
            return
        folder, archive = self._folder.resolve(), self._archive.resolve()
        if folder.is_relative_to(archive) or archive.is_relative_to(folder):
            raise ActionRequiredError(
                "The archive of committed files is within their folder, or the folder in the archive.",
                next_step="no file was moved. Name another folder in the source's `archive_path`.",
                path=str(folder),
                archive_path=str(archive),
            )

    def clean(self, found: Found) -> bool:
        """Take a file out of the folder; whether it was there, and as it was found. A link stays."""
        place = place_of(found.path)
        aside = self._aside / uuid.uuid4().hex / place.relative_to(self._folder)
        with _errors(place):
            if place.is_symlink():
                return False
            aside.parent.mkdir(parents=True)
            try:
                place.rename(aside)
            except OSError as error:
                self._prune(aside.parent)
                if isinstance(error, FileNotFoundError):
                    return False
                raise
        if self._disk.look(uri_of(str(aside))) == found._replace(path=uri_of(str(aside))):
            self._finish(aside)
            return True
        self._put_back(aside, place, is_known=False)
        return False

    def finish(self, is_committed: Callable[[Found], bool]) -> None:
        """Delete or archive committed files that a process which has died had moved aside."""
        for aside, place in self._left_aside():
            if self._is(aside, place, is_committed):
                self._finish(aside)

    def restore(self, is_listed: Callable[[Found], bool]) -> list[str]:
        """Put back what a process which has died had moved aside, for START to list it.

        Args:
            is_listed: whether the log has an entry of a file as it was found; it waits where its name is taken.

        Returns:
            The paths of files that aren't listed and can't get a name that the source reads.
        """
        return [
            str(aside)
            for aside, place in self._left_aside()
            if not self._put_back(aside, place, is_known=self._is(aside, place, is_listed))
        ]

    def _left_aside(self) -> Iterator[tuple[Path, Path]]:
        """The files aside, each with its place."""
        for folder, _, names in os.walk(self._aside, topdown=False):
            for name in names:
                aside = Path(folder) / name
                yield aside, self._folder / self._below(aside)
            self._prune(Path(folder))

    def _below(self, aside: Path) -> Path:
        """The path below the folder of a file that was moved aside."""
        return Path(*aside.relative_to(self._aside).parts[1:])

    def _is(self, aside: Path, place: Path, what: Callable[[Found], bool]) -> bool:
        now = self._disk.look(uri_of(str(aside)))
        return now is not None and what(now._replace(path=uri_of(str(place))))

    def _finish(self, aside: Path) -> None:
        with _errors(aside):
            if self._archive is None:
                aside.unlink(missing_ok=True)
            else:
                target = self._archive / self._below(aside)
                target.parent.mkdir(parents=True, exist_ok=True)
                next(name for name in _names(target) if _moved(aside, name))
        self._prune(aside.parent)

    def _put_back(self, aside: Path, place: Path, *, is_known: bool) -> bool:
        """To its name; to a free one beside it where another file has the name now, and both are to be read."""
        with _errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            for name in _names(place):
                if name != place and is_known:
                    return True
                if not is_read(name.name, str(name.relative_to(self._folder)), *self._patterns):
                    return False
                if _moved(aside, name):
                    break
        self._prune(aside.parent)
        return True

    def _prune(self, folder: Path) -> None:
        """Remove folders that were made for a file moved aside, up to the first one that isn't empty."""
        while folder.is_relative_to(self._aside):
            try:
                folder.rmdir()
            except OSError:  # not empty, or gone
                return
            folder = folder.parent


def _names(target: Path) -> Iterator[Path]:
    """A name, and others for a file whose name is taken: with a number before its endings."""
    yield target
    stem, dot, endings = target.name.partition(".")
    for number in count(1):
        yield target.with_name(f"{stem}-{number}{dot}{endings}")


def _moved(source: Path, target: Path) -> bool:
    """Whether a file got a name, which it may have got already; not if another file has that."""
    try:
        _rename(source, target)
    except FileExistsError:
        if not os.path.samestat(source.lstat(), target.lstat()):
            return False
        source.unlink()  # a process that died has linked it
    return True


def _rename(source: Path, target: Path) -> None:
    """Rename a file unless the name is taken, which `os.rename` doesn't look at.

    Raises:
        FileExistsError: it is taken.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        given = os.fsencode(source), os.fsencode(target)
        if renameat2(_AT_CWD, given[0], _AT_CWD, given[1], _NO_REPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in _NOT_HERE:
            raise OSError(number, os.strerror(number), str(source), None, str(target))
    os.link(source, target, follow_symlinks=False)
    source.unlink()


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = _A_PERSON.get(error.errno or 0)
        what = "A file of the source can't be taken out of its folder, or put back."
        where = {"path": str(path), "reason": error.strerror}
        if remedy is not None:
            raise ActionRequiredError(
                what, next_step=f"{remedy}; or set the source's `clean_source: keep`.", **where
            ) from error
        raise RetryableError(what, next_step="check the disk or the mount; it is tried again.", **where) from error
