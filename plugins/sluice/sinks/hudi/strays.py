"""Finds and deletes stray files, which zombies finished after their interval had ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.connectors.sink import Ended

_MARKER = ".marker."  # between a data file's name and the kind of its marker
_GLOB = re.compile(r"[*?\[\]{}\\,]")
_FILE = re.compile(r"/([^/,{}\s]+), length=\d+, isDirectory=false,")  # a file's name in Hudi's StoragePathInfo as text
_MARKED = re.compile(r"/(\d{14,17}), length=\d+, isDirectory=true,")
_MOST = 64  # alternatives of a pattern, since each is compared with each file


class Strays:
    """The strays of one table.

    Args:
        hudi: the JVM's package `org.apache.hudi`.
        meta: the table's meta client.
        path: the table's path.
        registered_by: returns the files named by an instant's commit on the timeline; empty if it has no commit, None
            if the commit can no longer be read.
    """

    def __init__(self, hudi: Any, meta: Any, path: str, registered_by: Callable[[str], set[str] | None]) -> None:
        self._hudi = hudi
        self._meta = meta
        self._path = path
        self._registered_by = registered_by

    def sweep(self, ended: Ended) -> list[str]:
        """Delete files that zombies finished after their interval had ended, and markers that they created again.

        An instant's markers stay while one of the marked files is missing: a zombie may be suspended between creating a
        file's marker and the file, and only the marker says where to look for that file next time.

        A zombie computes its table partitions from the same records as the committed attempt, so the partitions that
        messages name are enough if all intervals were committed whole; else all that are on storage are listed.

        Args:
            ended: the intervals.

        Returns:
            The deleted files, relative to the table.
        """
        committed = ended.registered
        partitions = {*ended.partitions, *(self._partitions_on_storage() if ended.anywhere else ())}
        storage, path_class = self._meta.getStorage(), self._hudi.storage.StoragePath
        registered: dict[str, set[str] | None] = {}
        markers = {instant: self._markers(instant) for instant in self.marked() & committed.keys()}
        marked = {instant: _files(found) for instant, found in markers.items()}
        deleted, there = [], set()
        for partition in sorted(partitions.union(*map(_folders, marked.values()))) if committed else ():
            found = storage.globEntries(path_class(self._data_files(partition, committed)))
            for name in _FILE.findall(str(found.toString())):  # one call over the bridge, however many files there are
                relative = f"{partition}/{name}" if partition else name
                there.add(relative)
                instant = instant_in(name)
                if instant is not None and relative not in committed.get(instant, {relative}):
                    if instant not in registered:  # only for the few instants with files, since it reads the timeline
                        registered[instant] = self._registered_by(instant)
                    own = registered[instant]
                    if own is None or relative in own:
                        continue  # a message named the wrong files as committed
                    storage.deleteFile(path_class(f"{self._path}/{relative}"))
                    deleted.append(relative)
        for instant, files in marked.items():
            if files and files <= there:
                self._delete_markers(instant, markers[instant])
        return deleted

    def _delete_markers(self, instant: str, markers: Iterable[str]) -> None:
        """Delete markers of an instant one by one: a zombie may have created others since they were listed.

        Folders that become empty are deleted, too.
        """
        storage, path_class = self._meta.getStorage(), self._hudi.storage.StoragePath
        root = str(self._meta.getMarkerFolderPath(instant))
        folders: set[PurePosixPath] = set()
        for marker in markers:
            storage.deleteFile(path_class(f"{root}/{marker}"))
            folders.update(PurePosixPath(marker).parents)
        for folder in sorted(folders, key=lambda inside: len(inside.parts), reverse=True):
            path = path_class(f"{root}/{folder}" if folder.parts else root)
            try:
                storage.deleteFile(path)  # not recursive
            except Py4JJavaError:
                if storage.listDirectEntries(path).isEmpty():
                    raise

    def _data_files(self, partition: str, instants: Iterable[str]) -> str:
        """A pattern that matches the data files of some instants, so that the JVM filters out all others.

        A partition has the files of all intervals: transferring all names over the bridge would make START ever slower.
        For very many instants the pattern has their common prefixes: it may also match other instants between them.
        """
        folder = f"{self._path}/{partition}" if partition else self._path
        escaped = _GLOB.sub(r"\\\g<0>", folder)
        return f"{escaped}/*_{{{','.join(_beginnings(instants))}}}.*"

    def marker_partitions(self, instant: str) -> set[str]:
        """Table partitions in which files of an instant were opened; by a zombie, if the instant has ended."""
        return _folders(_files(self._markers(instant)))

    def _partitions_on_storage(self) -> set[str]:
        """The table's partitions on storage, including partitions that neither a commit nor a marker names.

        Uses Hudi's listing of folders: a writer creates the file that marks a folder as a partition before its first
        data file there.
        """
        context = self._hudi.client.common.HoodieJavaEngineContext(self._meta.getStorageConf())
        listing = self._hudi.metadata.FileSystemBackedTableMetadata(context, self._meta.getStorage(), self._path)
        return {str(partition) for partition in listing.getAllPartitionPaths()}

    def marked(self) -> set[str]:
        """The instants that have a folder of markers."""
        storage, folder = self._meta.getStorage(), self._hudi.storage.StoragePath(self._meta.getTempFolderPath())
        if not storage.exists(folder):
            return set()
        return set(_MARKED.findall(str(storage.listDirectEntries(folder).toString())))

    def _markers(self, instant: str) -> set[str]:
        """The markers of an instant, relative to their folder: one for each data file, whether it exists or not."""
        storage = self._meta.getStorage()
        folder = self._hudi.storage.StoragePath(self._meta.getMarkerFolderPath(instant))
        if not storage.exists(folder):
            return set()
        root = str(folder.toString())
        found = {str(info.getPath().toString()) for info in storage.listFiles(folder)}
        return {path.partition(root)[2].strip("/") for path in found if _MARKER in path}


def _beginnings(instants: Iterable[str]) -> list[str]:
    """Instants as alternatives of a pattern, or their common prefixes if there are very many."""
    whole = sorted(set(instants))
    if len(whole) <= _MOST:
        return whole
    found = whole
    while len(found) > _MOST:
        length = len(found[0]) - 1
        found = sorted({one[:length] for one in found})
    return [f"{one}*" for one in found]


def _files(markers: Iterable[str]) -> set[str]:
    """The data files of some markers, relative to the table."""
    return {marker.rpartition(_MARKER)[0] for marker in markers}


def _folders(files: Iterable[str]) -> set[str]:
    """The table partitions of some data files."""
    return {path.rpartition("/")[0] for path in files}


def instant_in(file_name: str) -> str | None:
    """The instant in a data file's name; None for other files.

    Base files are `<file id>_<write token>_<instant>.<extension>`, log files `.<file id>_<instant>.log.<version>_…`.
    """
    if file_name.startswith("."):
        head, found, _ = file_name.partition(".log.")
        return head.rpartition("_")[2] if found else None
    parts = file_name.partition(".")[0].split("_")
    return parts[-1] if len(parts) >= 3 and parts[-1].isdigit() else None
