"""A table's timeline read from its files, without a JVM: which instants there are, and what a commit's metadata says.

Table version 8 and later keep instants in `.hoodie/timeline` as `<requested>_<completed>.<action>`, their content as
Avro; older ones in `.hoodie` as `<requested>.<action>`, their content as JSON. What Hudi has archived isn't read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

import fastavro

from sluice.connectors.views import CommitFacts, Instant, Timeline
from sluice.errors import ActionRequiredError, RetryableError
from sluice.sinks.reading import failed, file_system, modified

_NAME = re.compile(r"(\d{14,17})(?:_(\d{14,17}))?\.(?:([a-z]+)\.(requested|inflight)|([a-z]+))")
_AVRO = b"Obj\x01"
# Commits of rows, and the table services that put files in place of others.
COMMITS = ("commit", "deltacommit", "replacecommit")


class TimelineFiles:
    """Reads the timeline of the table at a path or URI; credentials are those of the process's environment.

    Raises (all methods):
        ActionRequiredError: it is no path of a table, or this process lacks a package or a permission for it.
        RetryableError: it doesn't answer.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Timeline | None:
        """List the active timeline; None where there is no table yet."""
        found = self._list()
        return None if found is None else Timeline(_newest_of_each(_parse(entry) for entry in found))

    def facts(self, instant: Instant) -> CommitFacts:
        """What a completed commit's metadata says."""
        return _facts(self._metadata(instant))

    def _metadata(self, instant: Instant) -> Mapping[str, Any]:
        try:
            files, root = file_system(self.path)
            folder = f"{root}/.hoodie/timeline" if instant.completed else f"{root}/.hoodie"
            content = files.cat_file(f"{folder}/{instant.name}")
        except Exception as error:
            raise self.failed(error) from error
        return _decode(content)

    def paths(self, instant: Instant) -> set[str]:
        """The files that a completed commit names, relative to the table."""
        by_partition = self._metadata(instant).get("partitionToWriteStats") or {}
        return {str(stat["path"]) for group in by_partition.values() for stat in group if stat.get("path")}

    def _list(self) -> list[dict[str, Any]] | None:
        try:
            files, root = file_system(self.path)
            files.invalidate_cache()
            for folder in (f"{root}/.hoodie/timeline", f"{root}/.hoodie"):
                try:
                    return list(files.ls(folder, detail=True))
                except FileNotFoundError:
                    continue
        except Exception as error:  # each file system has its own kinds
            raise self.failed(error) from error
        return None

    def failed(self, error: Exception) -> ActionRequiredError | RetryableError:
        """The error for what fsspec has raised; see `sluice.sinks.reading.failed`."""
        return failed(error, self.path, ".hoodie")


def _parse(entry: Mapping[str, Any]) -> Instant | None:
    name = str(entry["name"]).rstrip("/").rpartition("/")[2]
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    requested, completed, action, state, done = match.groups()
    if done == "inflight":  # of a plain commit, for which Hudi leaves the action out
        action, state = "commit", "inflight"
    action = action or done
    return Instant(requested, completed, action, state is not None, name, modified(entry), action in COMMITS)


def _newest_of_each(found: Iterable[Instant | None]) -> dict[str, Instant]:
    """An instant has a file for each state that it went through: the completed one wins."""
    instants: dict[str, Instant] = {}
    for instant in found:
        if instant is not None and (instant.requested not in instants or not instant.pending):
            instants[instant.requested] = instant
    return dict(sorted(instants.items()))


def _decode(content: bytes) -> Mapping[str, Any]:
    if not content.startswith(_AVRO):
        decoded = json.loads(content or b"{}")
        return decoded if isinstance(decoded, dict) else {}
    record = next(iter(fastavro.reader(BytesIO(content))), None)
    return record if isinstance(record, dict) else {}


def _facts(metadata: Mapping[str, Any]) -> CommitFacts:
    by_partition = metadata.get("partitionToWriteStats") or {}
    stats = [stat for group in by_partition.values() for stat in group]
    operation = metadata.get("operationType")
    return CommitFacts(
        operation=str(operation) if operation else None,
        rows=sum(int(stat.get("numWrites") or 0) for stat in stats),
        bytes_written=sum(int(stat.get("totalWriteBytes") or 0) for stat in stats),
        files=len(stats),
        table_partitions=len(by_partition),
        extra=tuple(sorted(metadata.get("extraMetadata") or {})),
    )
