"""Names of files and folders below a table's path, and the participants' committables. Pure.

_sluice/log/<number>.json            a committed interval: files, rows, checkpoint
_sluice/committed/<number>           all files of the interval are visible to readers
_sluice/pending/<instant>/           the interval is pending; its record is written here, and renamed into the log
_sluice/aborting/<instant>/          the interval is being rolled back
_sluice/<instant>/<attempt>/         the participants' files
_sluice/<instant>/whole/             an interval's folder, before the rename that makes it visible
<topics_dir>/...                     the files that readers see
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict, TypeAdapter

from sluice.errors import IntervalError
from sluice.protocol.committable import Committable
from sluice.sinks.files.options.partitioning import escaped

Layout = Literal["interval", "connect"]
Format = Literal["avro", "parquet", "json", "csv"]
INNER: Final = "_sluice"
LOG: Final = f"{INNER}/log"
COMMITTED: Final = f"{INNER}/committed"
PENDING: Final = f"{INNER}/pending"
ABORTING: Final = f"{INNER}/aborting"
WHOLE: Final = "whole"
_DIGITS: Final = 10  # as Kafka Connect pads offsets
_PACKED: Final = {"gzip": ".gz", "bzip2": ".bz2", "deflate": ".deflate"}


@dataclass(frozen=True)
class DataFile:
    """One file of an interval.

    Attributes:
        staged: the path, below the table's, to which its participant wrote it.
        path: the path, below the table's, at which readers find it.
        bytes: its size.
        checksum: its content's checksum, prefixed with its kind and a colon.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    staged: str
    path: str
    bytes: int
    checksum: str


@dataclass(frozen=True)
class _Payload:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)

    layout: str
    files: tuple[DataFile, ...]


_PAYLOAD: Final = TypeAdapter(_Payload)


def log_entry(number: int) -> str:
    """The file of an interval in the log."""
    return f"{LOG}/{number:0{_DIGITS}d}.json"


def committed_mark(number: int) -> str:
    """The file that marks all of an interval's files as visible."""
    return f"{COMMITTED}/{number:0{_DIGITS}d}"


def staging(instant: str) -> str:
    """The folder to which an interval's participants write."""
    return f"{INNER}/{instant}"


def interval_folder(topics_dir: str, instant: str) -> str:
    """The folder of an interval under `layout: interval`."""
    return f"{topics_dir}/{instant}"


def topic_folder(topic: str) -> str:
    """The folder of a topic."""
    return escaped(topic)


def extension(data_format: str, codec: str) -> str:
    """The extension of a file's name. Avro and Parquet name the codec inside the file."""
    return f".{data_format}{_PACKED.get(codec, '') if data_format in ('json', 'csv') else ''}"


def file_name(topic: str, partition: int, start: int, end: int, ending: str) -> str:
    """The name of a file, in the form of Kafka Connect's sinks.

    Args:
        topic: the topic of its records.
        partition: their Kafka partition.
        start: the first offset of the stretch that the file covers.
        end: the last offset, inclusive.
        ending: the extension, as returned by `extension`.
    """
    return f"{topic_folder(topic)}+{partition}+{start:0{_DIGITS}d}+{end:0{_DIGITS}d}{ending}"


def committable(folder: str, layout: Layout, files: Sequence[DataFile], rows: int) -> Committable:
    """A participant's result, for the commit.

    Args:
        folder: the folder with the files.
        layout: the table's layout.
        files: the files that the participant wrote.
        rows: the number of rows in all of them.
    """
    payload = {"layout": layout, "files": [asdict(one) for one in files]}
    return Committable(rows=rows, bytes=sum(one.bytes for one in files), path=folder, payload=payload)


def files_of(committables: Iterable[Committable], instant: str, topics_dir: str, layout: Layout) -> list[DataFile]:
    """The files that participants name, after checking that each belongs to this interval and is inside the table.

    Raises:
        IntervalError: a participant names another file. Any process with write access to the control topic could have
            sent that.
    """
    found = [one for c in committables for one in _of_payload(c, layout)]
    own, shown = f"{staging(instant)}/", f"{topics_dir}/"
    if layout == "interval":
        shown = f"{interval_folder(topics_dir, instant)}/"
    for one in found:
        if not (_is_below(one.staged, own) and _is_below(one.path, shown)):
            raise _refused("names a file that is none of this interval's", path=one.path, staged=one.staged)
    paths = [one.path for one in found]
    twice = sorted({path for path in paths if paths.count(path) > 1}) if len(set(paths)) < len(paths) else []
    if twice:
        raise _refused("gives two files one name", path=twice[0])
    return found


def _of_payload(one: Committable, layout: Layout) -> tuple[DataFile, ...]:
    if one.payload.get("layout") != layout:
        raise _refused(
            "was written for another layout than the pipeline's", layout=layout, written_for=one.payload.get("layout")
        )
    return one.read_payload(_PAYLOAD).files


def _refused(what: str, **where: Any) -> IntervalError:
    return IntervalError(
        f"A WRITE-STATUS {what}.",
        next_step="nothing was committed; the next interval reads the same offsets. If the pipeline file didn't change "
        "meanwhile, find out which other program writes to the control topic.",
        **where,
    )


def _is_below(path: str, folder: str) -> bool:
    parts = path.split("/")
    plain = not any(part in ("", ".", "..") for part in parts) and not any(ord(c) < 32 for c in path)
    return plain and path.startswith(folder)
