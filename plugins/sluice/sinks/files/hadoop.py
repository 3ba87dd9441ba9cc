"""A folder on any of Hadoop's file systems, accessed through Hadoop's FileContext over Py4J.

FileContext, not FileSystem: FileSystem's rename returns False if the target exists, and moves a folder into the target
if the target is a folder. FileContext's rename throws an exception, and on HDFS it is one atomic step of the name node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.jvm.causes import causes, is_refused
from sluice.sinks.files.storage import in_the_way, is_data, lost_jvm

_MISSING = "FileNotFoundException"
_THERE = ("FileAlreadyExistsException", "ParentNotDirectoryException", "PathIsNotEmptyDirectoryException")
_FULL = ("QuotaExceededException", "could only be written to 0 of", "No space left on device", "Disk quota exceeded")
_WRONG = ("UnknownHostException", "UnsupportedFileSystemException", "No AbstractFileSystem", "InvalidPathException",
          "Incomplete HDFS URI")  # fmt: skip


def refusal(chain: list[str], where: str) -> ActionRequiredError | None:
    """The error, with its remedy, of a file system that refuses to write; None for any other exception.

    Args:
        chain: an exception and its causes, as returned by `sluice.jvm.causes`.
        where: the path, for the error.
    """
    text = " <- ".join(chain)
    if is_refused(text):
        return ActionRequiredError(
            "No permission on the table's folder.",
            next_step="grant the user of Airflow's workers and of Spark read and write access to it.",
            path=where,
            reason=chain[-1],
        )
    if any(sign in text for sign in _FULL):
        return ActionRequiredError(
            "The table's file system is full, or a quota of it is.",
            next_step="make room. Nothing of the interval is visible, and the next interval deletes its files.",
            path=where,
            reason=chain[-1],
        )
    return None


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
        first, text = chain[0], " <- ".join(chain)
        if first.startswith(_MISSING):
            return FileNotFoundError(where)
        if first.startswith(_THERE):
            return FileExistsError(where)
        refused = refusal(chain, where)
        if refused is not None:
            return refused
        if any(sign in text for sign in _WRONG):
            return ActionRequiredError(
                "The table's path can't be used.",
                next_step="correct sink.files.path, or the Hadoop settings of its file system.",
                path=where,
                reason=chain[-1],
            )
        return RetryableError(
            "The table's file system doesn't answer, or refuses the request.",
            next_step="the step is retried; if the error comes back, look at the reason: a name node may be in safe "
            "mode.",
            path=where,
            reason=text[:2000],
        )

    def _full(self, path: str) -> str:
        return path if path == self._root else f"{self._root}/{path}"
