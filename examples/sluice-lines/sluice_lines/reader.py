"""What a write job reads: the planned lines, each range in a separate Spark task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sluice.errors import ActionRequiredError, SluiceError
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice_lines.source import complete_lines, local

_COLUMNS = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary"
)
_HEADERS = "headers array<struct<key: string, value: binary>>"
_GONE = "planned lines are gone"


class LinesReader:
    """Reads files that every executor sees at the same path; see `sluice.connectors.data.SourceReader`."""

    def __init__(self, spark: SparkSession, settings: Any) -> None:
        self._spark = spark

    def read(self, ranges: Sequence[PlannedRange], isolation_level: str, *, headers: bool = False) -> DataFrame:
        """A line is a record's value. It has no key and no time, and no producer sends lines in transactions."""
        tasks = self._spark.sparkContext.parallelize(ranges, len(ranges))
        records = tasks.flatMap(_records)
        if headers:
            return self._spark.createDataFrame(records.map(lambda record: (*record, None)), f"{_COLUMNS}, {_HEADERS}")
        return self._spark.createDataFrame(records, _COLUMNS)

    def classified(self, error: Exception, start: StartCommit, ranges: Sequence[PlannedRange]) -> SluiceError | None:
        """A file that has become shorter needs a person."""
        if _GONE not in str(error):
            return None
        return ActionRequiredError(
            "A file is shorter than when the interval was planned.",
            next_step="put the file back.",
            offsets=", ".join(map(str, ranges)),
            table=start.table,
            instant=start.transaction,
        )


def planned_lines(planned: PlannedRange) -> list[str]:
    """The lines of a range.

    Raises:
        RuntimeError: some of them are gone. Sluice would take them for offsets that hold no record.
    """
    lines = complete_lines(local(planned.cluster) / planned.topic)[planned.start : planned.end]
    if len(lines) != planned.end - planned.start:
        raise RuntimeError(f"{_GONE}: {planned}")
    return lines


def _records(planned: PlannedRange) -> Iterator[tuple[str, int, int, datetime | None, int, None, bytes]]:
    for offset, line in enumerate(planned_lines(planned), planned.start):
        yield planned.topic, planned.partition, offset, None, 0, None, line.encode()
