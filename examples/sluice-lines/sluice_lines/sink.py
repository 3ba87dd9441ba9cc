"""A folder of JSON lines with a log of manifests, as a table that is written in two phases.

rows/<instant>_<attempt>.jsonl   what participants have written; it counts once a manifest names it
log/<instant>.begun              the interval is under way
log/<instant>.json               the manifest: its files, and the checkpoint. It appears whole, or not at all.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from sluice import process
from sluice.connectors.intervals import IntervalTable, LoggedCommit
from sluice.connectors.sink import Completion, InstantState, Pinned
from sluice.errors import RetryableError
from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.protocol.committable import Committable
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import holds_checkpoint
from sluice.schemas.pinner import RecordPinner
from sluice.schemas.registry.config import Registries, registry_of_environment
from sluice_lines.source import local

ROWS, LOG = "rows", "log"


class _Typed(NamedTuple):
    """What is pinned; see `sluice.schemas.pinner.PinnedTable`."""

    writer: TableSpec
    columns: Any
    jvm: HudiJvm


def write_file(table: str, instant: str, attempt: str, lines: Iterable[str]) -> Committable:
    """Write rows of an interval where no reader looks yet; what its commit has to name."""
    path = f"{ROWS}/{instant}_{attempt}.jsonl"
    file = local(table) / path
    text = [f"{line}\n" for line in lines]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(text))
    return Committable(rows=len(text), bytes=file.stat().st_size, path=path)


def read(table: str) -> list[Any]:
    """All rows that are committed, interval by interval: what a reader of the table does."""
    folder = local(table)
    manifests = [json.loads(file.read_text()) for file in sorted((folder / LOG).glob("*.json"))]
    files = [folder / path for manifest in manifests for path in manifest["files"]]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


class JsonLinesSink:
    """One pipeline's folder; see `sluice.connectors.sink.Sink`. It keeps no bad records, and has no table services."""

    def __init__(self, pipeline: Any, jvm: Any = None, registries: Registries = registry_of_environment) -> None:
        self._pipeline, self._jvm, self._registries = pipeline, jvm or lean_jvm, registries

    @contextmanager
    def open(self) -> Iterator[JsonLinesTable]:
        """The table, made on first use."""
        yield JsonLinesTable(self._pipeline.writer(), self._pipeline.control.clock_wait)

    @contextmanager
    def look(self) -> Iterator[JsonLinesTable | None]:
        """The table, None where it was never written."""
        there = (local(self._pipeline.table_id) / LOG).is_dir()
        yield JsonLinesTable(self._pipeline.writer(), self._pipeline.control.clock_wait) if there else None

    def pin(self, table: JsonLinesTable, last: Pinned | None, clusters: Sequence[ClusterTopics]) -> Pinned:
        """As the pipeline's converter, transforms and schema say; files of earlier intervals ask for no column.

        Types are Spark's, so a JVM has to be asked about them.
        """
        with self._jvm() as jvm:
            pinner = RecordPinner(self._pipeline, clusters, self._registries)
            return pinner.pin(_Typed(table.writer, None, jvm), last.records if last else None)


class JsonLinesTable(IntervalTable):
    """The folder, opened by one process; see `sluice.connectors.sink.Table`. Commits are carried out in the process."""

    def __init__(self, writer: TableSpec, clock_wait: timedelta) -> None:
        self.writer = writer
        self.clock_wait = clock_wait
        self.process = process.identity(os.getpid())
        self._folder = local(writer.path)
        self._log, self._rows = self._folder / LOG, self._folder / ROWS
        for folder in (self._log, self._rows):
            folder.mkdir(parents=True, exist_ok=True)

    # The commits

    def last_checkpoint(self) -> dict[str, str] | None:
        """Of the newest manifest that holds one."""
        found = (self._manifest(instant)["extra"] for instant in sorted(self._completed(), reverse=True))
        return next((extra for extra in found if holds_checkpoint(extra)), None)

    def state_of(self, instant: str) -> InstantState:
        """A manifest outranks the mark that the interval has begun, which may be left behind."""
        if self._manifest_of(instant).exists():
            return "completed"
        return "pending" if self._begun(instant).exists() else "absent"

    def _committed(self, instant: str) -> LoggedCommit | None:
        """What a manifest says."""
        if not self._manifest_of(instant).exists():
            return None
        manifest = self._manifest(instant)
        return LoggedCommit(instant, manifest["extra"], {"": tuple(manifest["files"])})

    # The two phases of a commit

    def newest_time(self) -> str:
        """The last instant that the log has, for `await_clock` and `new_instant`."""
        instants = {file.name.partition(".")[0] for file in self._log.iterdir() if not file.name.startswith(".")}
        return max(instants, default="")

    def open(self, instant: str) -> None:
        """Say that the interval has begun."""
        self._begun(instant).touch()

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        """Make the manifest: written aside and linked to its name, which fails where there is one already."""
        if self.state_of(instant) != "pending":
            raise RetryableError(
                "The interval is not under way.", next_step="the task is retried.", state=self.state_of(instant)
            )
        files = [one.path for one in committables]
        aside = self._log / f".{instant}.{uuid.uuid4().hex}"
        aside.write_text(json.dumps({"files": files, "extra": dict(extra)}))
        try:
            os.link(aside, self._manifest_of(instant))
        except FileExistsError as error:
            raise RetryableError("Another process has committed the interval.", next_step="look again.") from error
        finally:
            aside.unlink()
        self._begun(instant).unlink(missing_ok=True)
        self._delete_staged(instant)
        return []

    def rollback(self, instant: str) -> bool:
        """Files first, the mark last: until it is gone the next process finds the interval, and does this again."""
        if self.state_of(instant) != "pending":
            return False
        self._delete_staged(instant)
        self._begun(instant).unlink(missing_ok=True)
        return True

    # The remains of processes that were suspended for too long

    def completions(self) -> dict[str, Completion]:
        """All manifests."""
        return {i: Completion("commit", [f"{i}.json"], self._begun(i).exists()) for i in self._completed()}

    def take_off(self, instant: str, files: list[str]) -> None:
        """Delete manifests."""
        for file in files:
            (self._log / file).unlink(missing_ok=True)

    def _pending(self) -> set[str]:
        return {file.stem for file in self._log.glob("*.begun")}

    def _staged(self) -> set[str]:
        """The intervals with files that no manifest names.

        It looks at all files. A table of very many intervals would have participants write to a folder that the commit
        empties.
        """
        return {file.name[:17] for file in self._rows.iterdir() if not self._is_named(file)}

    def _delete_staged(self, instant: str) -> list[str]:
        """Delete an interval's files that no manifest names."""
        gone = []
        for file in sorted(self._rows.glob(f"{instant}_*")):
            if not self._is_named(file):
                with suppress(FileNotFoundError):  # two processes may sweep at a time
                    file.unlink()
                gone.append(f"{ROWS}/{file.name}")
        return gone

    def _is_named(self, file: Path) -> bool:
        instant = file.name[:17]
        return self._manifest_of(instant).exists() and f"{ROWS}/{file.name}" in self._manifest(instant)["files"]

    def _completed(self) -> list[str]:
        return [file.stem for file in self._log.glob("*.json")]

    def _manifest(self, instant: str) -> Any:
        return json.loads(self._manifest_of(instant).read_text())

    def _manifest_of(self, instant: str) -> Path:
        return self._log / f"{instant}.json"

    def _begun(self, instant: str) -> Path:
        return self._log / f"{instant}.begun"
