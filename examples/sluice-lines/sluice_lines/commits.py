"""What the page shows of a folder of JSON lines: its manifests."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from sluice.connectors.views import CommitFacts, Instant, Timeline
from sluice_lines.sink import LOG
from sluice_lines.source import local


class JsonLinesCommits:
    """One folder's; see `sluice.connectors.views.CommitLog`. Nothing is ever archived."""

    def __init__(self, table: str) -> None:
        self._folder = local(table)

    def read(self) -> Timeline | None:
        """An interval that has begun and has no manifest is under way."""
        log = self._folder / LOG
        if not log.is_dir():
            return None
        instants: dict[str, Instant] = {}
        for file in sorted(log.glob("[0-9]*")):  # of one instant, .begun comes before .json
            time = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            instants[file.stem] = Instant(file.stem, None, "manifest", file.suffix != ".json", file.name, time)
        return Timeline(instants, archives=False)

    def facts(self, instant: Instant) -> CommitFacts:
        """A manifest's files, counted: it doesn't say how many rows they have."""
        manifest = json.loads((self._folder / LOG / instant.name).read_text())
        files = [self._folder / path for path in manifest["files"]]
        return CommitFacts(
            operation="append",
            rows=sum(file.read_bytes().count(b"\n") for file in files),
            bytes_written=sum(file.stat().st_size for file in files),
            files=len(files),
            table_partitions=1,
            extra=tuple(sorted(manifest["extra"])),
        )
