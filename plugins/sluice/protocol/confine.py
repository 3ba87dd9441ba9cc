"""What a message of the control topic may name: nothing outside of its table. Pure, so that all readers agree.

Otherwise anyone with write access to the topic could have files deleted, other tables written, or Hudi's options
chosen. Three rules confine a message to its table:

- each reader checks each message with `refusal`: instants, file names, file groups and table partitions must be names
  inside the table. A message that names anything else doesn't count, as if it were not there;
- `start_digest` travels from the coordinator to its write jobs outside the topic, so that they take the plan, the
  schema and Hudi's options from that START-COMMIT and no other;
- a coordinator takes the paths and options of table and quarantine from its pipeline, and only the schema from a START.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sluice.errors import IntervalError
from sluice.protocol.committable import Committable
from sluice.protocol.messages import AbortCommit, ControlMessage, EndCommit, StartCommit, TableSpec, WriteStatus

_INSTANT = re.compile(r"\d{14,17}")
_SCHEME = re.compile(r"[A-Za-z][\w+.\-]*:/")
_FILE_GROUP = re.compile(r"[\w.\-]{1,200}")
_BASE_FILE = re.compile(r"(?P<group>[\w.\-]+)_\d+-\d+-\d+_(?P<instant>\d{14,17})\.\w+")
_LOG_FILE = re.compile(r"\.(?P<group>[\w.\-]+)_\d{14,17}\.log\.\d+(?:_\d+-\d+-\d+)?(?:\.cdc)?")
_FILE_FIELDS = ("baseFile", "prevBaseFile")
_INNER_FOLDERS = (".hoodie", ".hoodie_partition_metadata")


def refusal(message: ControlMessage, table: str) -> str | None:
    """Why a message doesn't count; None if it names nothing outside its table.

    Args:
        message: the message.
        table: the message's key.
    """
    return next(_refusals(message, table), None)


def is_inside(partition: str) -> bool:
    """Whether a table partition's path is below the table, and not one of Hudi's own folders."""
    parts = partition.split("/")
    plain = not any(part in (".", "..") for part in parts) and not any(ord(c) < 32 for c in partition)
    return plain and not partition.startswith("/") and not _SCHEME.match(partition) and parts[0] not in _INNER_FOLDERS


def _refusals(message: ControlMessage, table: str) -> Iterator[str]:
    if message.table != table:
        yield f"it is keyed by {table} and says that it is of {message.table}"
    if not _INSTANT.fullmatch(message.transaction):
        yield f"{message.transaction!r} is no instant"
    if isinstance(message, StartCommit):
        yield from _of_start(message)
    elif isinstance(message, AbortCommit | EndCommit):
        yield from _of_partitions(message.table_partitions)
    elif isinstance(message, WriteStatus):
        for one in (*message.stats, *message.quarantine_stats):
            yield from _of_committable(one, message.transaction)


def _of_start(start: StartCommit) -> Iterator[str]:
    if start.writer.path != start.table:
        yield f"it would write to {start.writer.path}"
    if start.replays is not None and not _INSTANT.fullmatch(start.replays):
        yield f"{start.replays!r} is no instant"
    yield from _of_partitions(start.replaced_file_groups)
    for groups in start.replaced_file_groups.values():
        yield from (f"{group!r} is no file group" for group in groups if not _FILE_GROUP.fullmatch(group))


def _of_partitions(partitions: Iterable[str]) -> Iterator[str]:
    return (f"{partition!r} is no partition of the table" for partition in partitions if not is_inside(partition))


def _of_committable(one: Committable, instant: str) -> Iterator[str]:
    yield from _of_partitions([one.partition])
    if one.inline:
        yield from _of_stat(one.path, one.partition, one.payload, instant)
    elif one.path and not is_inside(one.path):
        yield f"{one.path!r} is no file of the table"


def _of_stat(path: str, partition: str, stat: Mapping[str, Any], instant: str) -> Iterator[str]:
    """Check the file names in one of Hudi's write stats, which names several files."""
    group = str(stat.get("fileId") or "")
    if not path and not partition and not group:
        return  # it names no files; the audit or Hudi will judge the rest
    folder, _, name = path.rpartition("/")
    base, log = _BASE_FILE.fullmatch(name), _LOG_FILE.fullmatch(name)
    found = base or log
    if folder != partition or found is None or found["group"] != group:
        yield f"{path!r} is no file of the file group {group!r} in the partition {partition!r}"
    elif base and base["instant"] != instant:
        yield f"{path!r} is of another instant"
    others = [str(stat[field]) for field in _FILE_FIELDS if stat.get(field)]
    for other in (*others, *map(str, stat.get("logFiles") or ())):
        if "/" in other or (_BASE_FILE.fullmatch(other) is None and _LOG_FILE.fullmatch(other) is None):
            yield f"{other!r} is no name of a file"


def start_digest(start: StartCommit) -> str:
    """SHA-256 in hex of a START-COMMIT's content without defaults, however it is packed."""
    said = start.model_dump(exclude_defaults=True, exclude_none=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def require_digest(start: StartCommit, digest: str | None) -> None:
    """Check that the START-COMMIT is the one that the coordinator sent.

    Args:
        start: the message in the control topic.
        digest: the coordinator's digest; None from an earlier release, which had none.

    Raises:
        IntervalError: it is another one.
    """
    if digest is not None and start_digest(start) != digest:
        raise IntervalError(
            "The START-COMMIT in the control topic is not the one that this interval's start_commit has sent.",
            next_step="run it anew; if all of its tasks ran on one release, find who else writes to the control topic.",
            table=start.table,
            instant=start.transaction,
        )


def with_schema_of(start: TableSpec, own: TableSpec) -> TableSpec:
    """The pipeline's own table settings, with the schema that a START-COMMIT pinned.

    Rows that an interval hasn't are deleted only where both say so: it may have been planned before the file did.
    """
    settings = own.mirroring(own.mirrors and start.mirrors)
    return settings.model_copy(update={"schema_ddl": start.schema_ddl, "schema_avro": start.schema_avro})
