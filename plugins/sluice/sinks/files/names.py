"""Names of files and folders below a table's path, and what participants hand to the commit. Pure.

_sluice/log/<number>.json            the intervals that are committed: files, rows, checkpoint
_sluice/committed/<number>           an interval's files are all where readers look
_sluice/pending/<instant>/           the interval is under way; its record is written there, and renamed into the log
_sluice/aborting/<instant>/          the interval is being rolled back
_sluice/<instant>/<attempt>/         what participants have written
_sluice/<instant>/whole/             an interval's folder, before its one rename
<topics_dir>/...                     what readers see
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sluice.errors import IntervalError
from sluice.protocol.committable import Committable
from sluice.sinks.files.partitioning import escaped

Layout = Literal["interval", "connect"]
Format = Literal["avro", "parquet", "json", "csv"]
INNER: Final = "_sluice"
LOG: Final = f"{INNER}/log"
COMMITTED: Final = f"{INNER}/committed"
PENDING: Final = f"{INNER}/pending"
ABORTING: Final = f"{INNER}/aborting"
WHOLE: Final = "whole"
APART: Final = "apart"
"""An option of bad records' files: what a job writes at one time has a folder of its own, since it may write several
times of one stretch of offsets."""
_DIGITS: Final = 10  # as Kafka Connect pads offsets
_PACKED: Final = {"gzip": ".gz", "bzip2": ".bz2", "deflate": ".deflate"}


@dataclass(frozen=True)
class DataFile:
    """One file of an interval.

    Attributes:
        staged: where its participant has written it, below the table's path.
        path: where readers find it, likewise.
        bytes: its size.
        checksum: its content's, with the kind before a colon.
    """

    staged: str
    path: str
    bytes: int
    checksum: str


def log_entry(number: int) -> str:
    """The file of an interval in the log."""
    return f"{LOG}/{number:0{_DIGITS}d}.json"


def committed_mark(number: int) -> str:
    """The file that says that all of an interval's files are in their places."""
    return f"{COMMITTED}/{number:0{_DIGITS}d}"


def staging(instant: str) -> str:
    """Where an interval's participants write."""
    return f"{INNER}/{instant}"


def interval_folder(topics_dir: str, instant: str) -> str:
    """The folder of an interval under `layout: interval`."""
    return f"{topics_dir}/{instant}"


def topic_folder(topic: str) -> str:
    """The folder of a topic."""
    return escaped(topic)


def extension(data_format: str, codec: str) -> str:
    """The end of a file's name. Avro and Parquet say in the file itself how it is packed."""
    return f".{data_format}{_PACKED.get(codec, '') if data_format in ('json', 'csv') else ''}"


def file_name(topic: str, partition: int, start: int, end: int, ending: str) -> str:
    """The name of a file, as Kafka Connect's sinks give it.

    Args:
        topic: its records'.
        partition: Kafka's.
        start: the first offset of the stretch whose records it has.
        end: the last offset, inclusive.
        ending: what `extension` returns.
    """
    return f"{topic_folder(topic)}+{partition}+{start:0{_DIGITS}d}+{end:0{_DIGITS}d}{ending}"


def committable(folder: str, layout: Layout, files: Sequence[DataFile], rows: int) -> Committable:
    """What a participant hands to the commit.

    Args:
        folder: that has the files.
        layout: the table's.
        files: what it has written.
        rows: how many rows these have together.
    """
    payload = {"layout": layout, "files": [asdict(one) for one in files]}
    return Committable(rows=rows, bytes=sum(one.bytes for one in files), path=folder, payload=payload)


def files_of(committables: Iterable[Committable], instant: str, topics_dir: str, layout: Layout) -> list[DataFile]:
    """The files that participants name, each of them of this interval and inside of the table.

    Raises:
        IntervalError: they name others. Anyone who may write to the control topic could have sent that.
    """
    found = [one for c in committables for one in _of_payload(c.payload, layout)]
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


def _of_payload(payload: Mapping[str, Any], layout: Layout) -> Iterator[DataFile]:
    if payload.get("layout") != layout:
        raise _refused(
            "was written for another layout than the pipeline has now", layout=layout, written_for=payload.get("layout")
        )
    try:
        for one in payload["files"]:
            yield DataFile(str(one["staged"]), str(one["path"]), int(one["bytes"]), str(one["checksum"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _refused("doesn't say which files it has", reason=type(error).__name__) from error


def _refused(what: str, **where: Any) -> IntervalError:
    return IntervalError(
        f"A WRITE-STATUS {what}.",
        next_step="nothing was committed; the next interval reads the same offsets. If the pipeline file didn't change "
        "meanwhile, find who else writes to the control topic.",
        **where,
    )


def _is_below(path: str, folder: str) -> bool:
    parts = path.split("/")
    plain = not any(part in ("", ".", "..") for part in parts) and not any(ord(c) < 32 for c in path)
    return plain and path.startswith(folder)
