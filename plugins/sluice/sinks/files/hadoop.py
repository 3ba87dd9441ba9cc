"""A folder on any of Hadoop's file systems, accessed through Hadoop's FileContext over Py4J.

FileContext, not FileSystem: FileSystem's rename returns False if the target exists, and moves a folder into the target
if the target is a folder. FileContext's rename throws an exception, and on HDFS it is one atomic step of the name node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import SluiceError
from sluice.jvm.causes import causes, lost_jvm
from sluice.sinks.files.storage import in_the_way, is_data
from sluice.storages import storage_error

SETTING = "sink.files.path"
_MISSING = "FileNotFoundException"
_THERE = ("FileAlreadyExistsException", "ParentNotDirectoryException", "PathIsNotEmptyDirectoryException")


class HadoopStorage:
    """One table's folder; see `sluice.sinks.files.storage.Renames`.

    Args:
        jvm: Py4J's view of a JVM with Hadoop's client.
        configuration: Hadoop's configuration.
        root: the folder, with its scheme.
    """

    def __init__(self, jvm: Any, configuration: Any, root: str) -> None:
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop
        self._root = root
        with self._errors(root):
            uri = self._hadoop.fs.Path(root).toUri()
            self._context = self._hadoop.fs.FileContext.getFileContext(uri, configuration)
        self._no_options = self._array("org.apache.hadoop.fs.Options$Rename")
        self._create_options = getattr(jvm, "org.apache.hadoop.fs.Options$CreateOpts")

    def exists(self, path: str) -> bool:
        """See `Storage`."""
        with self._errors(path):
            return bool(self._context.util().exists(self._at(path)))

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        try:
            with self._errors(path):
                status = self._context.getFileStatus(self._at(path))
                return int(status.getLen()) if status.isFile() else None
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        with self._errors(path):
            stream = self._context.open(self._at(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def names(self, path: str) -> list[str]:
        """See `Storage`."""
        try:
            with self._errors(path):
                found = self._context.util().listStatus(self._at(path))
                return sorted(str(status.getPath().getName()) for status in found)
        except FileNotFoundError:
            return []

    def files(self, path: str) -> dict[str, int]:
        """See `Storage`."""
        found: dict[str, int] = {}
        try:
            with self._errors(path):
                folder = str(self._context.makeQualified(self._at(path)).toString())
                listing = self._context.util().listFiles(self._at(path), True)
                while listing.hasNext():
                    status = listing.next()
                    if is_data(str(status.getPath().getName())):
                        name = str(status.getPath().toString()).removeprefix(f"{folder}/")
                        found[name] = int(status.getLen())
        except FileNotFoundError:
            return {}
        return found

    def make_folder(self, path: str) -> None:
        """See `Storage`."""
        permission = self._hadoop.fs.permission.FsPermission.getDirDefault()
        try:
            with self._errors(path):
                self._context.mkdir(self._at(path), permission, True)
        except FileExistsError as error:
            raise in_the_way(self._full(path)) from error

    def create(self, path: str, content: bytes) -> None:
        """See `Storage`. It is on the data nodes' disks when this returns."""
        flags = self._jvm.java.util.EnumSet.of(self._hadoop.fs.CreateFlag.CREATE)
        options = self._array("org.apache.hadoop.fs.Options$CreateOpts", self._create_options.donotCreateParent())
        with self._errors(path):
            stream = self._context.create(self._at(path), flags, options)
            try:
                stream.write(content)
                stream.hsync()
            finally:
                stream.close()

    def rename(self, source: str, target: str) -> None:
        """See `Storage`."""
        with self._errors(target):
            self._context.rename(self._at(source), self._at(target), self._no_options)

    def same_file(self, one: str, other: str) -> bool:
        """Only if the names are equal: a rename is one step, or at least never leaves a file with two names."""
        return one == other

    def delete(self, path: str) -> bool:
        """See `Storage`."""
        try:
            with self._errors(path):
                return bool(self._context.delete(self._at(path), True))
        except FileNotFoundError:
            return False

    def checksum(self, path: str) -> str:
        """See `Storage`. HDFS combines the checksums that its data nodes keep, without reading the file again."""
        with self._errors(path):
            found = self._context.getFileChecksum(self._at(path))
            if found is None:
                return "none:"
            value = bytes(found.getBytes()).hex()
            return f"{str(found.getAlgorithmName()).lower()}:{value}"

    def _at(self, path: str) -> Any:
        return self._hadoop.fs.Path(f"{self._root}/{path}")

    def _array(self, name: str, *elements: Any) -> Any:
        reflect = self._jvm.java.lang.reflect.Array
        made = reflect.newInstance(self._jvm.java.lang.Class.forName(name), len(elements))
        for i, element in enumerate(elements):
            made[i] = element
        return made

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise self._classed(causes(error.java_exception), path) from error
        except Py4JError as error:
            raise lost_jvm(self._full(path)) from error

    def _classed(self, chain: list[str], path: str) -> OSError | SluiceError:
        where = self._full(path)
        if chain[0].startswith(_MISSING):
            return FileNotFoundError(where)
        if chain[0].startswith(_THERE):
            return FileExistsError(where)
        return storage_error(chain, where, SETTING)

    def _full(self, path: str) -> str:
        return path if path == self._root else f"{self._root}/{path}"
