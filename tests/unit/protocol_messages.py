"""Messages for tests of the pure rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sluice.protocol.messages import (
    AbortCommit,
    AckCommit,
    Claim,
    EndCommit,
    PartitionResult,
    PlannedRange,
    StartCommit,
    TableSpec,
    WriteStatus,
)

TABLE = "file:///lake/t"
INSTANT = "20260101000000000"
TIME = datetime(2026, 1, 1, tzinfo=UTC)
WRITER = TableSpec(
    path=TABLE, name="t", table_type="COPY_ON_WRITE", operation="append", record_key=(), partition_fields=(),
    ordering_fields=(), schema_ddl="id BIGINT", schema_avro="{}", options={},
)  # fmt: skip


def envelope(transaction: str, run: str = "run") -> dict[str, Any]:
    fields = {"table": TABLE, "transaction": transaction, "epoch": 1, "dag_id": "dag", "run_id": run}
    return {**fields, "sender": "test", "time": TIME}


def planned(partition: int, start: int = 0, end: int = 10, behind: bool = False) -> PlannedRange:
    return PlannedRange(cluster="kafka", topic="t", partition=partition, start=start, end=end, behind=behind)


def start(transaction: str, read_position: int = 0, ranges: int = 1, **more: Any) -> StartCommit:
    groups = tuple((planned(i),) for i in range(ranges))
    fields = {"valid_through": TIME + timedelta(hours=1), "ranges": groups, **more}
    return StartCommit(**envelope(transaction), read_position=read_position, writer=WRITER, **fields)


def status(transaction: str, number: int = 0, attempt: str = "a", **more: Any) -> WriteStatus:
    result = PartitionResult(
        cluster="kafka", topic="t", partition=number, start=0, next_offset=10, records_read=10, gaps=0, bytes_read=100,
        max_timestamp=TIME,
    )  # fmt: skip
    fields = {"records_read": 10, "records_written": 10, "partitions": (result,), "stats": ({"numWrites": 10},), **more}
    return WriteStatus(**envelope(transaction), range=number, attempt=attempt, **fields)


def claim(worker: str = "a", takes_over: int = -1, transaction: str = INSTANT, **more: Any) -> Claim:
    fields = {"range": 0, "lease": 30.0, **more}
    return Claim(**envelope(transaction), worker=worker, takes_over=takes_over, **fields)


def end(transaction: str, reported=(0,), missing=(), takes_over: int = -1, **more: Any) -> EndCommit:
    return EndCommit(**envelope(transaction), reported=reported, missing=missing, takes_over=takes_over, **more)


def ack(transaction: str) -> AckCommit:
    counts = {"records_read": 10, "records_written": 10, "records_quarantined": 0, "records_skipped": 0}
    return AckCommit(**envelope(transaction), offsets=(), valid_through=None, **counts)


def abort(transaction: str, lease_offset: int = -1) -> AbortCommit:
    return AbortCommit(**envelope(transaction), reason="why", lease_offset=lease_offset)
