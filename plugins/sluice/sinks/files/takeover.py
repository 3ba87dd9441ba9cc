"""Where Kafka Connect's HDFS sink has stopped, by the names of the files that it has left. Pure.

A name has topic, Kafka partition, and the first and last offset of its records:
https://docs.confluent.io/kafka-connectors/hdfs/current/overview.html#exactly-once-delivery
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from sluice.errors import ActionRequiredError

_NAME = re.compile(r"(?P<topic>[\w.\-]+)\+(?P<partition>\d+)\+(?P<start>\d+)\+(?P<end>\d+)(\.[\w.]+)?", re.ASCII)
_SHOWN = 5  # gaps and overlaps that an error names


def next_offsets(files: Iterable[str], topic: str, folder: str) -> dict[int, int]:
    """The offset after the last one that files have, by Kafka partition.

    Args:
        files: paths of files below the topic's folder. Of others than Connect's, nothing is read.
        topic: whose records they have.
        folder: where they lie, for errors.

    Raises:
        ActionRequiredError: files of one partition overlap, or offsets between them are missing, so that the last
            offset doesn't say what was loaded.
    """
    ranges: dict[int, list[tuple[int, int, str]]] = {}
    for path in files:
        found = _NAME.fullmatch(path.rpartition("/")[2])
        if found is not None and found["topic"] == topic:
            one = (int(found["start"]), int(found["end"]), path)
            ranges.setdefault(int(found["partition"]), []).append(one)
    wrong: list[str] = []
    for partition, of_one in sorted(ranges.items()):
        of_one.sort()
        wrong += (f"{topic}[{partition}]: {text}" for text in _unconnected(of_one))
    positions = {partition: max(end for _, end, _ in of_one) + 1 for partition, of_one in ranges.items()}
    if wrong:
        raise ActionRequiredError(
            "The files that Kafka Connect has left don't say up to which offset all records are loaded.",
            next_step="look at the offsets that are named. Those in between may have no record (a compacted topic, "
            "or markers of transactions), and files may overlap where a partitioner spreads them over folders. If "
            "everything is there, leave `takeover` out and set starting_offsets; the offsets after the last files are "
            "below. If not, load what is missing first.",
            folder=folder,
            found="; ".join(wrong[:_SHOWN]) + (f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""),
            starting_offsets=f"{{{topic}: {dict(sorted(positions.items()))}}}",
        )
    return positions


def _unconnected(files: list[tuple[int, int, str]]) -> Iterable[str]:
    """What of a partition's files, in the order of their offsets, doesn't follow each other."""
    for start, end, path in files:
        if end < start:
            yield f"the name {path} ends before it begins"
    for (_, end, before), (start, _, path) in pairwise(files):
        if start > end + 1:
            yield f"offsets [{end + 1}, {start}) are missing between {before} and {path}"
        elif start <= end:
            yield f"offsets from {start} on are in both {before} and {path}"
