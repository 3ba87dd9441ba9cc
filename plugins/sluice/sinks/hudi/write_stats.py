"""Hudi's write stats in a WRITE-STATUS: the fields that they have, and the files that they may name. Pure.

A stat becomes part of Hudi's commit whole, so no field of it may name what is outside its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sluice.protocol.committable import COUNTS, Committable
from sluice.protocol.confine import INSTANT, Confinement

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


def refusals(one: Committable, instant: str) -> Iterator[str]:
    """Why a write stat doesn't count; nothing if it names nothing outside its table.

    Args:
        one: the committable; its payload is the stat.
        instant: the transaction's id.
    """
    path, partition, stat = one.path, one.partition, one.payload
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
        return isinstance(value, str) and (value in ("", _NO_COMMIT) or INSTANT.fullmatch(value) is not None)
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


CONFINEMENT = Confinement(frozenset({".hoodie", ".hoodie_partition_metadata"}), refusals)
"""Hudi's rules, by the protocol's name for them (`sluice.connectors.registry.confinement`)."""
