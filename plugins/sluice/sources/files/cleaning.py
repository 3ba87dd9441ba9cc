"""Files of a disk that are committed, and are taken out of their folder.

A writer may put another file under the name at any moment, and that one is unread. So a file is moved aside first,
looked at there, and only then deleted or archived.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sources.files.disk import SCHEME, Disk, place_of, uri_of
from sluice.sources.files.entries import Found

_ASIDE = ".sluice-cleaning"  # a folder that no listing reads
_A_PERSON = {
    errno.EACCES: "grant the user of the task to write there",
    errno.EPERM: "grant the user of the task to write there",
    errno.EROFS: "mount it so that it can be written to",
    errno.EXDEV: "have folder and archive on the same file system, with nothing mounted within the folder",
    errno.ENOSPC: "make room on the disk",
}

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of file systems without hard links


class Cleaning:
    """Takes files out of one folder.

    Args:
        folder: the source's, as its `path` says.
        archive: where they go; None deletes them.

    Raises (all methods):
        ActionRequiredError: access is denied, or the folders are on different file systems.
        RetryableError: the disk doesn't do as asked.
    """

    def __init__(self, folder: str, archive: str | None) -> None:
        self._folder = Path(folder.removeprefix(SCHEME))
        self._aside = self._folder / _ASIDE
        self._archive = Path(archive.removeprefix(SCHEME)) if archive is not None else None
        self._disk = Disk()

    def clean(self, found: Found) -> bool:
        """Take a file out of the folder; whether it was there, and as it was found."""
        place = place_of(found.path)
        aside = self._aside / place.relative_to(self._folder)
        with _errors(place):
            aside.parent.mkdir(parents=True, exist_ok=True)
            try:
                place.rename(aside)
            except FileNotFoundError:
                self._prune(aside.parent)
                return False
            now = self._disk.look(uri_of(str(aside)))
            if now != found._replace(path=uri_of(str(aside))):
                self._put_back(aside, place)
                return False
        self._finish(aside)
        return True

    def finish(self, is_committed: Callable[[Found], bool]) -> None:
        """Finish with files that a process which has died had moved aside: files that aren't committed go back."""
        for folder, _, names in os.walk(self._aside, topdown=False):
            for name in names:
                aside = Path(folder) / name
                place = self._folder / aside.relative_to(self._aside)
                now = self._disk.look(uri_of(str(aside)))
                if now is not None and is_committed(now._replace(path=uri_of(str(place)))):
                    self._finish(aside)
                else:
                    self._put_back(aside, place)
            self._prune(Path(folder))

    def _finish(self, aside: Path) -> None:
        with _errors(aside):
            if self._archive is None:
                aside.unlink()
            else:
                _move(aside, self._archive / aside.relative_to(self._aside))
        self._prune(aside.parent)

    def _put_back(self, aside: Path, place: Path) -> None:
        """To its own name, or to a free one beside it if another file has the name now: both are to be read."""
        with _errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            _move(aside, place)
        self._prune(aside.parent)

    def _prune(self, folder: Path) -> None:
        """Remove folders that were made for a file moved aside, up to the first one that isn't empty."""
        while folder.is_relative_to(self._aside):
            try:
                folder.rmdir()
            except OSError:  # not empty, or gone
                return
            folder = folder.parent


def _move(source: Path, target: Path) -> None:
    """Move a file, never over another one: its name gets a number then, before its endings."""
    target.parent.mkdir(parents=True, exist_ok=True)
    stem, dot, endings = target.name.partition(".")
    number, wanted = 0, target
    while not _moved(source, wanted):
        number += 1
        wanted = target.with_name(f"{stem}-{number}{dot}{endings}")


def _moved(source: Path, target: Path) -> bool:
    """Whether a file got a name, which it may have got already; not if another file has that."""
    try:
        os.link(source, target, follow_symlinks=False)  # unlike a rename, it fails where the name is taken
    except FileExistsError:
        if not target.samefile(source):
            return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            return False
        source.rename(target)
        return True
    source.unlink()
    return True


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = _A_PERSON.get(error.errno or 0)
        what = "A file of the source that is committed can't be taken out of its folder."
        where = {"path": str(path), "reason": error.strerror}
        if remedy is not None:
            raise ActionRequiredError(
                what, next_step=f"{remedy}; or set the source's `clean_source: keep`.", **where
            ) from error
        raise RetryableError(what, next_step="check the disk or the mount; the step is retried.", **where) from error
