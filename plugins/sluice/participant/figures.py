"""What a worker has written since it began, counted for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, ProcessCollector, Summary, disable_created_metrics

from sluice.protocol.messages import COUNTS, WriteStatus

if TYPE_CHECKING:
    from sluice.participant.claiming import ServedTable

_TABLE = ("pipeline", "table")
_OUTCOMES = tuple(name.removeprefix("records_") for name in COUNTS if name != "records_read")

disable_created_metrics()  # type: ignore[no-untyped-call]  # a further series for each counter: when it was made


class Figures:
    """Counters of a worker, by pipeline and table. Thread-safe.

    Attributes:
        registry: what `/metrics` exposes.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._claims = self._counter("claims", "Claims that counted, without renewals.")
        self._ranges = self._counter("ranges_written", "Ranges that it has written.")
        self._failures = self._counter("range_failures", "Ranges that it could not write, by class of error.", "error")
        self._read = self._counter("records_read", "Records of ranges written, by cluster.", "cluster")
        self._read_bytes = self._counter("read_bytes", "Bytes of these records' values, by cluster.", "cluster")
        self._records = self._counter("records", "The same records by what became of them.", "outcome")
        self._written_bytes = self._counter("written_bytes", "Bytes of the files of ranges written.")
        self._seconds = Summary(
            "sluice_worker_write_seconds", "Time that ranges written took.", _TABLE, registry=self.registry
        )

    def claimed(self, served: ServedTable) -> None:
        """Count a claim that counts."""
        self._claims.labels(served.pipeline, served.name).inc()

    def wrote(self, served: ServedTable, status: WriteStatus, seconds: float) -> None:
        """Count a range that was written and reported.

        Args:
            served: its table.
            status: its WRITE-STATUS.
            seconds: how long it took, from its beginning to its report.
        """
        table = served.pipeline, served.name
        self._ranges.labels(*table).inc()
        self._seconds.labels(*table).observe(seconds)
        for outcome in _OUTCOMES:
            self._records.labels(*table, outcome).inc(getattr(status, f"records_{outcome}"))
        for partition in status.partitions:
            self._read.labels(*table, partition.cluster).inc(partition.records_read)
            self._read_bytes.labels(*table, partition.cluster).inc(partition.bytes_read)
        self._written_bytes.labels(*table).inc(sum(one.bytes for one in (*status.stats, *status.quarantine_stats)))

    def failed(self, served: ServedTable, error: Exception) -> None:
        """Count a range that could not be written."""
        self._failures.labels(served.pipeline, served.name, type(error).__name__).inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"sluice_worker_{name}", text, (*_TABLE, *labels), registry=self.registry)
