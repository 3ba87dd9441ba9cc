"""What a write job writes: rows in files that no manifest names yet."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession

from sluice.connectors.data import SinkWriter, Written
from sluice.protocol.messages import StartCommit
from sluice.rows.records import KAFKA_COLUMNS
from sluice_lines.sink import write_file


class JsonLinesWriter(SinkWriter):
    """One attempt's files; it deletes nothing. Rows come to the driver: it is an example."""

    def __init__(self, spark: SparkSession, start: StartCommit, attempt: str) -> None:
        self._table, self._instant, self._attempt = start.writer.path, start.transaction, attempt
        self._files = 0

    def write(self, rows: DataFrame, emptied_at: str | None = None, *, truncates: bool = False) -> Written:
        """Write a file. The frame is run once, and is the one that is returned: Sluice counts its records by it."""
        columns = rows.drop(*KAFKA_COLUMNS)
        lines = [json.dumps(row.asDict(recursive=True), default=str) for row in columns.collect()]
        self._files += 1  # very wide ranges are written part by part
        return Written((write_file(self._table, self._instant, f"{self._attempt}-{self._files}", lines),), columns._jdf)
