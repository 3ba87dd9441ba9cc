"""The entries of a files' log, and which ones a folder's files need. Pure.

An entry is a stretch of one file; its number is its offset in the log. A record's offset is the number of its entry and
the number of its line in the stretch, so offsets say file and line, and a checkpoint of a million files is one number.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from sluice.errors import ActionRequiredError
from sluice.sources.files.options import OBJECTS

BITS = 32
"""Of an offset's 63 bits, those of the line: a stretch has less than 4 thousand million lines."""
EDGE = 4096
"""Bytes at either end of a stretch whose digest recognizes a file that grows."""
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
"""Names that Hadoop's codecs decompress."""
IGNORED = ("_", ".")
"""How names of files and folders begin that are never read."""
_COPYING = (".tmp", "._COPYING_")


class Found(NamedTuple):
    """A file as a listing shows it.

    Attributes:
        path: its URI.
        size: its bytes.
        modified: when it was changed, in microseconds since 1970; an object, in whole seconds.
        id: what the storage knows it by: the number of its inode, whatever it is called; an object's ETag. A file of
            HDFS that is open for writing has another one.
    """

    path: str
    size: int
    modified: int
    id: str


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of a file, from byte `start` up to `end`.

    Attributes:
        size: the file's size when it was listed; likewise `modified` and `id`, as of `Found`.
        head: the digest of its first bytes, of a file that grows.
        tail: the digest of the bytes before `end`.
        header: its first line, which is no record.
    """

    path: str
    size: int
    modified: int
    id: str
    start: int
    end: int
    head: str = ""
    tail: str = ""
    header: str = ""

    @property
    def grows(self) -> bool:
        """Whether the file may have become longer since."""
        return bool(self.head)

    @property
    def is_object(self) -> bool:
        """Whether it is in a bucket."""
        return self.path.startswith(OBJECTS)

    def is_still(self, found: Found) -> bool:
        """Whether a file is as it was listed; of one that grows its edges have to be compared as well.

        An object with the same ETag has the same bytes. A time can't be given back to it, so another time is no change.
        """
        if self.is_object:
            return (self.size, self.id) == (found.size, found.id)
        if self.grows:
            return self.id == found.id and self.end <= found.size
        return (self.size, self.modified, self.id) == (found.size, found.modified, found.id)


class Logged(NamedTuple):
    """An entry in its log.

    Attributes:
        partition: the log's.
        number: the entry's, in its partition.
        listed: when it was added, in milliseconds since 1970.
    """

    partition: int
    number: int
    listed: int
    entry: Entry


class Storage(Protocol):
    """Where a folder's files are.

    Raises (all methods):
        ActionRequiredError: access is denied.
        RetryableError: the storage doesn't answer.
    """

    def listing(self, folder: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[Found]:
        """The files below a folder that a source reads, one by one.

        Raises:
            ActionRequiredError: there is no such folder.
        """
        ...

    def look(self, uri: str) -> Found | None:
        """A file as it is now; None if there is none."""
        ...


class Content(Protocol):
    """What is to be known of the bytes of a file that grows.

    Raises (all methods):
        FileNotFoundError: it is gone.
    """

    def end_of_lines(self, path: str, size: int) -> int:
        """The end of the last line that ends, within `size` bytes."""
        ...

    def edges(self, path: str, end: int) -> tuple[str, str]:
        """The digests of the first bytes and of those before `end`."""
        ...


def encoded(entry: Entry) -> bytes:
    """The entry as a record's value."""
    return msgspec.json.encode(entry)


_DECODER = msgspec.json.Decoder(Entry)


def decoded(value: bytes | str | None, number: int) -> Entry:
    """The entry of a record's value.

    Raises:
        ActionRequiredError: it is none: another writer has the topic.
    """
    try:
        return _DECODER.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ActionRequiredError(
            "The files' log has a record that is no entry: another program writes to that topic.",
            next_step="name a topic in the source's `log` that has no other writer.",
            offset=number,
        ) from error


def is_read(name: str, path: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    """Whether a file is one of the source's.

    Args:
        name: the file's name.
        path: its path below the folder.
        include: patterns, one of which has to match: the name, or the path where the pattern has a slash.
        exclude: patterns of which none may match.
    """

    def matches(pattern: str) -> bool:
        return fnmatchcase(path if "/" in pattern else name, pattern)

    if name.startswith(IGNORED) or name.endswith(_COPYING):
        return False
    return any(map(matches, include)) and not any(map(matches, exclude))


def root_of(uri: str) -> str:
    """A URI without its path: the file system or bucket."""
    scheme, separator, rest = uri.partition("://")
    return scheme + separator + rest.partition("/")[0]


def path_of(uri: str) -> str:
    """A file's path, from its URI."""
    return unquote(uri.removeprefix(root_of(uri)))


def require_rows(found: Found, kind: str) -> None:
    """Check that a file may be one of rows, by its name: Parquet and Avro are compressed inside of a file.

    Raises:
        ActionRequiredError: it is compressed as a whole.
    """
    if found.path.endswith(COMPRESSED):
        raise ActionRequiredError(
            f"A file is compressed as a whole by its name, and such a file can't be read as {kind}.",
            next_step="nothing was read. Decompress it; the format itself compresses rows. Or leave it out by the "
            "source's `exclude`.",
            file=found.path,
        )


def whole_file(found: Found, header: str | None) -> Entry:
    """The entry of a file that is read as a whole."""
    return Entry(*found, start=0, end=found.size, header=header or "")


def new_lines(found: Found, before: Entry | None, content: Content, header: str | None) -> Entry | None:
    """The entry for what a file that grows has beyond an earlier one; None where no further line ends.

    Raises:
        ActionRequiredError: it is compressed, so that its bytes aren't its lines.
    """
    if found.path.endswith(COMPRESSED):
        raise ActionRequiredError(
            "A compressed file is among the files that grow, and may have the lines of one that was read.",
            next_step="leave it out by the source's `exclude`, or read it by a pipeline without `grows`.",
            file=found.path,
        )
    start = before.end if before is not None else 0
    end = content.end_of_lines(found.path, found.size)
    if end <= start:
        return None
    head, tail = content.edges(found.path, end)
    return Entry(*found, start=start, end=end, head=head, tail=tail, header=header or "")


def changed(found: Found, before: Entry) -> ActionRequiredError:
    """The error for a file that was replaced under its name."""
    return ActionRequiredError(
        "A file was replaced under its name: it isn't the one that was listed before.",
        next_step="nothing of the new content was read. Give new content a new name; or set the source's `on_change` "
        "to reread, so that all of a replaced file is read, or to ignore.",
        file=found.path,
        was=_shown(before),
        now=_shown(found),
    )


def _shown(one: Found | Entry) -> str:
    return f"{one.size} bytes, changed at {one.modified / 1e6:.6f}, id {one.id}"
