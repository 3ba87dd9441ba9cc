"""Reads a quarantine's files without a JVM: what was set aside, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import fsspec

from sluice.errors import RetryableError
from sluice.protocol.identity import LogId
from sluice.protocol.quarantine import Quarantined
from sluice.sinks.hudi.timeline import TimelineFiles, file_url

_ROWS = 1000  # at a time, and fewer where rows are large
_BYTES = 16 << 20  # of rows at a time, about
_IN_SHORT = (  # all but the record itself
    *("_hoodie_commit_time", "kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "reason", "stage"),
    *("range_number", "run_id", "kafka_topic_id", "kafka_cluster_id"),
)
_BUFFER = 1 << 20  # of a column's file at a time; PyArrow's own way is a whole row group


class QuarantineFiles:
    """The files of the quarantine at a path or URI; credentials are those of the process's environment.

    Raises (all methods):
        RetryableError, ActionRequiredError: the file system can't be read from this process.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._url = file_url(path)

    def committed(self, instants: Iterable[str] = ()) -> dict[str, list[str]]:
        """The committed files by instant, relative to the table; of all instants if none is named."""
        timeline = TimelineFiles(self.path)
        found = timeline.read()
        if found is None:
            return {}
        wanted = set(instants)
        files: dict[str, list[str]] = {}
        for path, instant in self._data_files():
            if (not wanted or instant in wanted) and found.standing(instant) in ("completed", "archived"):
                files.setdefault(instant, []).append(path)
        for instant, paths in files.items():
            if found.standing(instant) == "completed":  # a file that a zombie finished late is not among them
                named = timeline.paths(found.instants[instant])
                files[instant] = [path for path in paths if path in named]
        return dict(sorted(files.items()))

    def _data_files(self) -> Iterator[tuple[str, str]]:
        from sluice.sinks.hudi.strays import instant_in

        try:
            file_system, root = fsspec.core.url_to_fs(self._url)
            file_system.invalidate_cache()
            found = file_system.glob(f"{root}/*/*.parquet")
        except Exception as error:  # each file system has its own kinds
            raise self._failed(error) from error
        for path in sorted(found):
            relative = "/".join(str(path).rsplit("/", 2)[-2:])
            instant = instant_in(relative.rpartition("/")[2])
            if instant is not None and not relative.startswith("."):
                yield relative, instant

    def records(self, paths: Sequence[str], *, whole: bool = True) -> Iterator[Quarantined]:
        """The records of files; see `sluice.connectors.views.QuarantineReader`."""
        for row in self._rows(paths, None if whole else _IN_SHORT):
            yield Quarantined(
                instant=row["_hoodie_commit_time"],
                topic=row["kafka_topic"],
                partition=row["kafka_partition"],
                offset=row["kafka_offset"],
                reason=row["reason"],
                stage=row["stage"],
                range_number=row["range_number"],
                run_id=row["run_id"],
                # Files of earlier releases don't say the log.
                log=LogId(row.get("kafka_cluster_id"), row.get("kafka_topic_id")),
                timestamp=row["kafka_timestamp"],
                key=row.get("kafka_key"),
                value=row.get("kafka_value"),
                headers=tuple((h["key"], h["value"]) for h in row.get("kafka_headers") or ()),
            )

    def _rows(self, paths: Sequence[str], columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
        """The rows of files, by column; a thousand are in memory at a time, or 16 MB of them.

        A column that a file lacks isn't in its rows.
        """
        try:
            file_system, root = fsspec.core.url_to_fs(self._url)
            for path in paths:
                with file_system.open(f"{root}/{path}", "rb") as file:
                    import pyarrow.parquet as pq  # a tenth of a second that only quarantined records need

                    found = pq.ParquetFile(file, buffer_size=_BUFFER)
                    for batch in found.iter_batches(batch_size=_rows_at_a_time(found.metadata), columns=columns):
                        yield from batch.to_pylist()
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> Exception:
        if isinstance(error, ImportError | PermissionError):
            return TimelineFiles(self.path).failed(error)
        return RetryableError(
            f"The quarantine can't be read: {type(error).__name__}.",
            next_step="check that its file system can be reached from here, and the credentials.",
            quarantine=self.path,
        )


def _rows_at_a_time(metadata: Any) -> int:
    """By the average row of the file's largest row group."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    largest = max((g.total_byte_size // max(1, g.num_rows) for g in groups), default=0)
    return max(1, min(_ROWS, _BYTES // max(1, largest)))
