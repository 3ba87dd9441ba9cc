"""A folder of HDFS, listed and looked at by the client of Hadoop's DistributedFileSystem.

The listing comes in pages, each with one call to the name node. It has each file's inode, and with the places of its
blocks whether it is open for writing, which no status of a file says. A page is decoded from the message that name node
and client exchange: https://github.com/apache/hadoop/blob/rel/release-3.3.4/hadoop-hdfs-project/hadoop-hdfs-client/src/main/proto/hdfs.proto
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import ActionRequiredError
from sluice.jvm.causes import causes, lost_jvm
from sluice.sources.files.entries import IGNORED, Found, is_read, path_of
from sluice.sources.files.s3 import SETTING, of_source
from sluice.sources.files.varint import varint
from sluice.storages import storage_error

_ENTRIES, _REMAINING = 1, 2  # fields of DirectoryListingProto
_TYPE, _NAME, _LENGTH, _MODIFIED, _BLOCKS, _ID = 1, 2, 3, 7, 12, 13  # of HdfsFileStatusProto
_IS_OPEN = 3  # of LocatedBlocksProto
_FOLDER, _FILE = 1, 2  # of FileType
_GONE = ("FileNotFoundException", "ParentNotDirectoryException")
_FIXED = {1: 8, 5: 4}  # bytes, by Protobuf's type on the wire
_NUMBER, _BYTES = 0, 2


class _Status(NamedTuple):
    """A file or folder as the name node lists it; a file that was asked for by its path has no name."""

    name: str
    is_folder: bool
    is_file: bool
    size: int
    modified: int
    id: int
    is_open: bool


def uri_of(name_node: str, path: str) -> str:
    """The URI of an absolute path, as Hadoop's paths take it."""
    return name_node + quote(path, safe="/")


class Hdfs:
    """Looks at the files of one HDFS, as `sluice.sources.files.entries.Storage`.

    Args:
        jvm: Py4J's view of a JVM with Hadoop's client.
        configuration: Hadoop's configuration.
        name_node: the file system, as hdfs://host:port.

    Raises:
        ActionRequiredError, RetryableError: it can't be reached.
    """

    def __init__(self, jvm: Any, configuration: Any, name_node: str) -> None:
        self._name_node = name_node
        self._messages = jvm.org.apache.hadoop.hdfs.protocolPB.PBHelperClient
        with self._errors("/"):
            root = jvm.java.net.URI.create(f"{name_node}/")
            self._client = jvm.org.apache.hadoop.fs.FileSystem.get(root, configuration).getClient()

    def listing(self, folder: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[Found]:
        """See `Storage`. A file that is open for writing isn't there yet: its length and time are those of before."""
        root = folder.removeprefix(self._name_node)  # a path of a pipeline file has no escapes
        waiting, above = [root], f"{root}/"
        while waiting:
            below = waiting.pop()
            pages = self._pages(below)
            if below == root:
                pages = _of_folder(pages, folder)
            for one in (each for page in pages for each in page if each.name):  # else a file has replaced a folder
                path = f"{below}/{one.name}"
                if one.is_folder and not one.name.startswith(IGNORED):
                    waiting.append(path)
                elif one.is_file and not one.is_open and is_read(one.name, path.removeprefix(above), include, exclude):
                    yield self._found(path, one)

    def look(self, uri: str) -> Found | None:
        """See `Storage`. A file that is open for writing isn't as it was listed."""
        path = path_of(uri)
        page = next(self._pages(path), [])
        return next((self._found(path, one) for one in page if one.is_file and not one.name), None)

    def _pages(self, path: str) -> Iterator[list[_Status]]:
        """What is in a folder, by name; of a file, itself; no page where there is nothing."""
        after, remaining = b"", 1
        while remaining:
            try:
                with self._errors(path):
                    listed = self._client.listPaths(path or "/", after, True)  # with the places of blocks
                    if listed is None:
                        return
                    message = bytes(self._messages.convert(listed).toByteArray())
                    after = bytes(listed.getLastName() or b"")
            except FileNotFoundError:
                return
            page, remaining = _decoded(message)
            yield page

    def _found(self, path: str, one: _Status) -> Found:
        known_by = f"{one.id}, open for writing" if one.is_open else str(one.id)
        return Found(uri_of(self._name_node, path), one.size, one.modified * 1000, known_by)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        where = self._name_node + path
        try:
            yield
        except Py4JJavaError as error:
            chain = causes(error.java_exception)
            if chain[0].startswith(_GONE):
                raise FileNotFoundError(where) from error
            raised = storage_error(chain, where, SETTING)
            raised.reword(of_source)
            raise raised from error
        except Py4JError as error:
            raise lost_jvm(where) from error


def _of_folder(pages: Iterator[list[_Status]], folder: str) -> Iterator[list[_Status]]:
    """The pages of a folder that a pipeline file names.

    Raises:
        ActionRequiredError: it isn't there, or is a file.
    """
    first = next(pages, None)
    if first is None or any(not one.name for one in first):
        raise ActionRequiredError(
            "The folder of the files doesn't exist.",
            next_step="create it, or correct the source's `path`.",
            path=folder,
        )
    yield first
    yield from pages


def _decoded(message: bytes) -> tuple[list[_Status], int]:
    """The files and folders of a DirectoryListingProto, and how many more are in the folder."""
    listed, remaining = [], 0
    for field, value in _fields(message):
        if field == _ENTRIES:
            listed.append(_status(dict(_fields(value))))
        elif field == _REMAINING:
            remaining = value
    return listed, remaining


def _status(fields: dict[int, Any]) -> _Status:
    is_open = bool(dict(_fields(fields.get(_BLOCKS, b""))).get(_IS_OPEN))
    kind, name = fields[_TYPE], fields[_NAME].decode()
    return _Status(name, kind == _FOLDER, kind == _FILE, fields[_LENGTH], fields[_MODIFIED], fields[_ID], is_open)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a Protobuf message, numbers or bytes; see https://protobuf.dev/programming-guides/encoding/."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        kind = tag & 7
        if kind == _NUMBER:
            value, at = _number(message, at)
            yield tag >> 3, value
        else:
            size, at = _number(message, at) if kind == _BYTES else (_FIXED[kind], at)
            yield tag >> 3, message[at : at + size]
            at += size


def _number(message: bytes, at: int) -> tuple[int, int]:
    found = varint(message, at)
    if found is None:
        raise ValueError(f"a message of the name node ends within a number, at byte {at}")
    return found
