"""Confines control messages to their table: they may name nothing outside of it. Pure, so that all readers agree.

Otherwise write access to the topic would be enough to delete files, to write to other tables, or to choose Hudi's
options. Three rules confine a message to its table:

- each reader checks each message with `refusal`: instants, file names, file groups and table partitions must be names
  inside the table, and a write stat has no fields but Hudi's (`STAT_FIELDS`). A message that names anything else
  doesn't count, as if it were not there;
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
from sluice.protocol.committable import COUNTS, Committable
from sluice.protocol.messages import AbortCommit, ControlMessage, EndCommit, StartCommit, TableSpec, WriteStatus

_INSTANT = re.compile(r"\d{14,17}")
_SCHEME = re.compile(r"[A-Za-z][\w+.\-]*:/")
_FILE_GROUP = re.compile(r"[\w.\-]{1,200}")
_BASE_FILE = re.compile(r"(?P<group>[\w.\-]+)_\d+-\d+-\d+_(?P<instant>\d{14,17})\.\w+")
_LOG_FILE = re.compile(r"\.(?P<group>[\w.\-]+)_\d{14,17}\.log\.\d+(?:_\d+-\d+-\d+)?(?:[.-]cdc)?")
_FILE_FIELDS = ("baseFile", "prevBaseFile")
_NO_COMMIT = "null"  # Hudi's word for the previous commit of a file that has none
_TIMES = frozenset({"totalScanTime", "totalUpsertTime", "totalCreateTime"})
_NUMBERS = COUNTS | frozenset(
    {
        "numInserts", "numUpdates", "numUpdateWrites", "fileSizeInBytes", "minEventTime",
        "maxEventTime", "logVersion", "logOffset",
        "totalLogReadTimeMs", "totalLogRecords", "totalLogFilesCompacted", "totalLogSizeCompacted",
        "totalUpdatedRecordsCompacted", "totalLogBlocks", "totalValidLogBlocks", "totalLogBlocksSize",
        "totalLogBlocksScanTimeMs", "totalCorruptLogBlock", "totalRollbackBlocks",
    }
)  # fmt: skip
_TEXTS = frozenset({"fileId", "path", "partitionPath", "prevCommit", "tempPath", *_FILE_FIELDS})
STAT_FIELDS = _NUMBERS | _TEXTS | {"cdcStats", "logFiles", "runtimeStats"}
"""The fields of HoodieDeltaWriteStat in Hudi 1.2 as its JSON has them. Fields that aren't here are refused, since a
later release of Hudi may take them for a path."""
_IGNORED = "recordsStats"  # statistics of columns, which Hudi keeps out of its JSON and doesn't read from it
_INNER_FOLDERS = (".hoodie", ".hoodie_partition_metadata")


def refusal(message: ControlMessage, table: str) -> str | None:
    """Why a message doesn't count; None if it names nothing outside its table.

    Args:
        message: the message.
        table: the message's key.
    """
    return next(_refusals(message, table), None)


def is_inside(partition: str) -> bool:
    """Whether a table partition's path is below the table, and not a folder of Hudi's metadata."""
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
    """Check the fields of one of Hudi's write stats: all of them become part of Hudi's commit."""
    yield from _of_fields(stat)
    group = str(stat.get("fileId") or "")
    changes = stat.get("cdcStats") or {}
    for cdc in changes if isinstance(changes, Mapping) else ():
        folder, _, name = str(cdc).rpartition("/")
        found = _LOG_FILE.fullmatch(name)
        if folder != partition or found is None or found["group"] != group:
            yield f"{cdc!r} is no file of the file group {group!r} in the partition {partition!r}"
    others = [str(stat[field]) for field in _FILE_FIELDS if stat.get(field)]
    logs = stat.get("logFiles") or ()
    for other in (*others, *map(str, logs if isinstance(logs, list | tuple) else ())):
        if "/" in other or (_BASE_FILE.fullmatch(other) is None and _LOG_FILE.fullmatch(other) is None):
            yield f"{other!r} is no name of a file"
    if not path and not partition and not group:
        return  # it names no file of the interval; the audit or Hudi will judge the rest
    folder, _, name = path.rpartition("/")
    base, log = _BASE_FILE.fullmatch(name), _LOG_FILE.fullmatch(name)
    found = base or log
    if folder != partition or found is None or found["group"] != group:
        yield f"{path!r} is no file of the file group {group!r} in the partition {partition!r}"
    elif base and base["instant"] != instant:
        yield f"{path!r} is of another instant"


def _of_fields(stat: Mapping[str, Any]) -> Iterator[str]:
    """Check that Hudi has a write stat's fields, and that each has a value of its kind."""
    for name, value in stat.items():
        if name not in STAT_FIELDS and name != _IGNORED:
            yield f"Hudi's write stats have no field {name[:100]!r}"
        elif value is not None and not _is_of_kind(name, value):
            yield f"{name} of a write stat can't be {str(value)[:100]!r}"


def _is_of_kind(name: str, value: Any) -> bool:
    if name in _NUMBERS:
        return _is_number(value)
    if name == "prevCommit":
        return isinstance(value, str) and (value in ("", _NO_COMMIT) or _INSTANT.fullmatch(value) is not None)
    if name == "tempPath":
        return bool(value == "")  # Hudi's writers don't set it, and its commit deletes nothing by it
    if name in _TEXTS:
        return isinstance(value, str)
    if name == "logFiles":
        return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    if not isinstance(value, Mapping):
        return False
    if name == "cdcStats":
        return all(_is_number(size) for size in value.values())
    return name == _IGNORED or all(time in _TIMES and _is_number(spent) for time, spent in value.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def start_digest(start: StartCommit) -> str:
    """SHA-256 in hex of a START-COMMIT's content without defaults, however it is packed."""
    said = start.model_dump(exclude_defaults=True, exclude_none=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def require_digest(start: StartCommit, digest: str | None) -> None:
    """Check that the START-COMMIT is the coordinator's.

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

    Rows missing in an interval are deleted only if both agree: it may have been planned before the file was changed.
    """
    settings = own.mirroring(own.mirrors and start.mirrors)
    return settings.model_copy(update={"schema_ddl": start.schema_ddl, "schema_avro": start.schema_avro})
