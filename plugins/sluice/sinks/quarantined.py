"""Reads bad records from Parquet files without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

from sluice.protocol.identity import LogId
from sluice.protocol.quarantine import Quarantined

IN_SHORT: Final = (  # all but the record itself
    *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "reason", "stage"),
    *("range_number", "run_id", "kafka_topic_id", "kafka_cluster_id"),
)
_ROWS = 1000  # at a time; fewer if rows are large
_BYTES = 16 << 20  # of rows at a time, approximately
_BUFFER = 1 << 20  # bytes of a column at a time; by default PyArrow reads a whole row group


def rows_in(file: BinaryIO, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """The rows of a file as dictionaries; at most a thousand, or 16 MB of them, are in memory at a time.

    Args:
        file: the file.
        columns: the columns to read; all if None. Columns missing from the file are left out of its rows.
    """
    import pyarrow.parquet as pq  # takes a tenth of a second to import, and only quarantined records need it

    found = pq.ParquetFile(file, buffer_size=_BUFFER)
    for batch in found.iter_batches(batch_size=_rows_at_a_time(found.metadata), columns=columns):
        yield from batch.to_pylist()


def quarantined(row: dict[str, Any], instant: str) -> Quarantined:
    """A row as a quarantined record."""
    return Quarantined(
        instant=instant,
        topic=row["kafka_topic"],
        partition=row["kafka_partition"],
        offset=row["kafka_offset"],
        reason=row["reason"],
        stage=row["stage"],
        range_number=row["range_number"],
        run_id=row["run_id"],
        # Files of earlier releases don't identify the log.
        log=LogId(row.get("kafka_cluster_id"), row.get("kafka_topic_id")),
        timestamp=row["kafka_timestamp"],
        key=row.get("kafka_key"),
        value=row.get("kafka_value"),
        headers=tuple((h["key"], h["value"]) for h in row.get("kafka_headers") or ()),
    )


def _rows_at_a_time(metadata: Any) -> int:
    """How many rows to read at a time, by the largest average row size of the file's row groups."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    largest = max((g.total_byte_size // max(1, g.num_rows) for g in groups), default=0)
    return max(1, min(_ROWS, _BYTES // max(1, largest)))
