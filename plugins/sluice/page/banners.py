"""The page's banners: what can't be read, why, and how old the data shown instead is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sluice.control.continued import Progress
from sluice.errors import PipelineFileError
from sluice.page.cache import Snapshot
from sluice.page.catalogue import Entry
from sluice.page.present import Json
from sluice.redact import redact

_OLD = 15.0  # seconds after which data counts as old


def banner(level: str, text: str, since: datetime | None = None) -> Json:
    """One banner; `since` is the time of the data shown."""
    return {"level": level, "text": redact(text), "since": since.isoformat() if since is not None else None}


def file_banner(error: PipelineFileError) -> Json:
    """A pipeline file can't be loaded."""
    return banner("error", str(error))


def read_banner(what: str, snapshot: Snapshot[Any]) -> list[Json]:
    """Data couldn't be read in the background, or hasn't been yet; no banner otherwise."""
    if snapshot.error is not None:
        return [banner("error", snapshot.error, snapshot.at)]
    if snapshot.at is None:
        return [banner("info", f"{what}: being read.")]
    return []


def topic_banner(entry: Entry, snapshot: Snapshot[Progress], progress: Progress | None) -> list[Json]:
    """The control topic can't be read, is being read, or no longer answers."""
    name = entry.control.topic if entry.control else ""
    if snapshot.error is not None:
        return [banner("error", snapshot.error, snapshot.at)]
    if progress is None or not progress.complete:
        read = f"{progress.position - progress.first:,} of {progress.end - progress.first:,}" if progress else "none"
        return [banner("info", f"The control topic {name} is being read: {read} messages so far.")]
    if snapshot.at is not None and (datetime.now(UTC) - snapshot.at).total_seconds() > _OLD:
        return [banner("warning", f"The control topic {name} doesn't answer.", snapshot.at)]
    return []


def each_once(banners: Iterable[Json]) -> list[Json]:
    """The banners without duplicates, in order."""
    return list({(b["level"], b["text"]): b for b in banners}.values())
