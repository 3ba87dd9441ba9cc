"""Reads a table's timeline from its files, without a JVM: its instants, and the metadata of commits.

Tables of version 8 and later keep instants in `.hoodie/timeline` as `<requested>_<completed>.<action>`, with Avro as
content; older tables in `.hoodie` as `<requested>.<action>`, with JSON. Archived instants aren't read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

import fastavro
from pydantic import BaseModel, Field

from sluice.connectors.views import CommitFacts, Instant, Timeline
from sluice.errors import ActionRequiredError, RetryableError
from sluice.sinks.reading import failed, file_system, modified
from sluice.untrusted import json_of

_NAME = re.compile(r"(\d{14,17})(?:_(\d{14,17}))?\.(?:([a-z]+)\.(requested|inflight)|([a-z]+))")
_AVRO = b"Obj\x01"
# Commits of rows, and table services that replace files.
COMMITS = ("commit", "deltacommit", "replacecommit")


class TimelineFiles:
    """Reads the timeline of the table at a path or URI; credentials are those of the process's environment.

    Raises (all methods):
        ActionRequiredError: no table can be at the path, or this process lacks a package or a permission for it.
        RetryableError: the file system doesn't answer.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Timeline | None:
        """List the active timeline; None if the table doesn't exist yet."""
        found = self._list()
        return None if found is None else Timeline(_newest_of_each(_parse(entry) for entry in found))

    def facts(self, instant: Instant) -> CommitFacts:
        """A completed commit's facts, from its metadata."""
        return _facts(self._metadata(instant))

    def _metadata(self, instant: Instant) -> _Metadata:
        try:
            files, root = file_system(self.path)
            folder = f"{root}/.hoodie/timeline" if instant.completed else f"{root}/.hoodie"
            content = files.cat_file(f"{folder}/{instant.name}")
        except Exception as error:
            raise self.failed(error) from error
        return _decode(content, instant.name)

    def paths(self, instant: Instant) -> set[str]:
        """The files that a completed commit names, relative to the table."""
        by_partition = self._metadata(instant).stats or {}
        return {stat.path for group in by_partition.values() for stat in group if stat.path}

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
        """The error for an exception of fsspec; see `sluice.sinks.reading.failed`."""
        return failed(error, self.path, ".hoodie")


def _parse(entry: Mapping[str, Any]) -> Instant | None:
    name = str(entry["name"]).rstrip("/").rpartition("/")[2]
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    requested, completed, action, state, done = match.groups()
    if done == "inflight":  # a plain commit, for which Hudi leaves out the action
        action, state = "commit", "inflight"
    action = action or done
    return Instant(requested, completed, action, state is not None, name, modified(entry), action in COMMITS)


def _newest_of_each(found: Iterable[Instant | None]) -> dict[str, Instant]:
    """The newest state of each instant, which has a file for each of its states; a completed one takes precedence."""
    instants: dict[str, Instant] = {}
    for instant in found:
        if instant is not None and (instant.requested not in instants or not instant.pending):
            instants[instant.requested] = instant
    return dict(sorted(instants.items()))


class _Stat(BaseModel):
    """The fields read from Hudi's write stats."""

    path: str | None = None
    rows: int | None = Field(None, alias="numWrites")
    size: int | None = Field(None, alias="totalWriteBytes")


class _Metadata(BaseModel):
    """The fields read from a commit's metadata."""

    operation: str | None = Field(None, alias="operationType")
    stats: dict[str, list[_Stat]] | None = Field(None, alias="partitionToWriteStats")
    extra: dict[str, Any] | None = Field(None, alias="extraMetadata")


def _decode(content: bytes, name: str) -> _Metadata:
    """A commit's metadata, which may be invalid, since other programs may write to the timeline's folder.

    Raises:
        ActionRequiredError: it can't be read.
    """
    try:
        if content.startswith(_AVRO):
            decoded = next(iter(fastavro.reader(BytesIO(content))), None)
        else:
            decoded = json_of(content or b"{}")
        return _Metadata.model_validate(decoded if isinstance(decoded, dict) else {})
    except Exception as error:  # for invalid bytes, Avro's reader may raise any exception
        raise ActionRequiredError(
            "A commit's metadata in the table's timeline can't be read.",
            next_step="check whether the file is complete, and which other programs write to `.hoodie`.",
            file=name,
            reason=type(error).__name__,
        ) from error


def _facts(metadata: _Metadata) -> CommitFacts:
    by_partition = metadata.stats or {}
    stats = [stat for group in by_partition.values() for stat in group]
    return CommitFacts(
        operation=metadata.operation or None,
        rows=sum(stat.rows or 0 for stat in stats),
        bytes_written=sum(stat.size or 0 for stat in stats),
        files=len(stats),
        table_partitions=len(by_partition),
        extra=tuple(sorted(metadata.extra or {})),
    )
