"""Bad records in Parquet files, as a process without a JVM reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

from sluice.protocol.identity import LogId
from sluice.protocol.quarantine import Quarantined

IN_SHORT: Final = (  # all but the record itself
    *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "reason", "stage"),
    *("range_number", "run_id", "kafka_topic_id", "kafka_cluster_id"),
)
_ROWS = 1000  # at a time, and fewer where rows are large
_BYTES = 16 << 20  # of rows at a time, about
_BUFFER = 1 << 20  # of a column's file at a time; PyArrow's own way is a whole row group


def rows_in(file: BinaryIO, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """The rows of a file, by column; a thousand are in memory at a time, or 16 MB of them.

    Args:
        file: the file.
        columns: those that are read, all by default. One that the file lacks isn't in its rows.
    """
    import pyarrow.parquet as pq  # a tenth of a second that only quarantined records need

    found = pq.ParquetFile(file, buffer_size=_BUFFER)
    for batch in found.iter_batches(batch_size=_rows_at_a_time(found.metadata), columns=columns):
        yield from batch.to_pylist()


def quarantined(row: dict[str, Any], instant: str) -> Quarantined:
    """A row as the record that it is of."""
    return Quarantined(
        instant=instant,
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


def _rows_at_a_time(metadata: Any) -> int:
    """By the average row of the file's largest row group."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    largest = max((g.total_byte_size // max(1, g.num_rows) for g in groups), default=0)
    return max(1, min(_ROWS, _BYTES // max(1, largest)))
