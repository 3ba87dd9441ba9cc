"""The offsets at which Kafka Connect's HDFS sink stopped, by the names of its files. Pure.

A name consists of topic, Kafka partition, and the first and last offset of the file's records:
https://docs.confluent.io/kafka-connectors/hdfs/current/overview.html#exactly-once-delivery
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from sluice.errors import ActionRequiredError

_NAME = re.compile(
    r"(?P<topic>[\w.\-]+)\+(?P<partition>\d{1,10})\+(?P<start>\d{1,19})\+(?P<end>\d{1,19})(\.[\w.]+)?", re.ASCII
)
_SHOWN = 5  # how many gaps and overlaps an error names


def next_offsets(files: Iterable[str], topic: str, folder: str) -> dict[int, int]:
    """The offset after the last one in the files, by Kafka partition.

    Args:
        files: paths of files below the topic's folder. Files with other names than Connect's are ignored.
        topic: the topic of their records.
        folder: the topic's folder, for errors.

    Raises:
        ActionRequiredError: files of one partition overlap, or offsets between them are missing, so that the last
            offset doesn't say which records were loaded.
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
            "Kafka Connect's files don't say up to which offset all records are loaded.",
            next_step="look at the offsets below. Missing offsets may have no record (a compacted topic, or "
            "transaction markers), and files may overlap if a partitioner spreads them over folders. If all records "
            "are loaded, leave `takeover` out and set starting_offsets to the offsets after the last files, given "
            "below. If not, load the missing records first.",
            folder=folder,
            found="; ".join(wrong[:_SHOWN]) + (f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""),
            starting_offsets=f"{{{topic}: {dict(sorted(positions.items()))}}}",
        )
    return positions


def _unconnected(files: list[tuple[int, int, str]]) -> Iterable[str]:
    """The gaps and overlaps between a partition's files, which are given in the order of their offsets."""
    for start, end, path in files:
        if end < start:
            yield f"the name {path} ends before it begins"
    for (_, end, before), (start, _, path) in pairwise(files):
        if start > end + 1:
            yield f"offsets [{end + 1}, {start}) are missing between {before} and {path}"
        elif start <= end:
            yield f"offsets from {start} on are in both {before} and {path}"
