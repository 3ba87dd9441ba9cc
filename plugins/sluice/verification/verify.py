"""Compares a topic with its table: every record of the committed offsets, interval by interval where that can be.

An append's row has the instant of the interval that wrote it, so each interval is compared by itself, and those whose
records Kafka still has can be compared after retention has taken others. An upsert's rows are what the last version of
each key comes to, which takes all committed offsets.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sluice.coordinator import Position
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.launch.submit import driver_environment, spark_submit
from sluice.pipeline.model import Pipeline
from sluice.protocol.history import TableHistory, TransactionSummary
from sluice.protocol.messages import PlannedRange, TableSpec
from sluice.protocol.offsets import OffsetRange
from sluice.protocol.transaction import State
from sluice.records.plan import RecordPlan

APPLICATION = Path(__file__).resolve().parents[3] / "spark_jobs" / "verify_table.py"
WHOLE_TABLE = "all"


@dataclass(frozen=True)
class Compared:
    """One interval, or the whole table: how many rows either side has, and whether all are the same."""

    instant: str
    in_topic: int
    in_table: int
    same: bool


@dataclass(frozen=True)
class Verification:
    """What was compared, and what could not be: intervals whose records Kafka doesn't have any more."""

    intervals: tuple[Compared, ...]
    not_in_topic: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Every row that could be compared is in the table once, and no other."""
        return all(i.same for i in self.intervals)

    def in_words(self) -> str:
        """The verdict, as a sentence."""
        rows = sum(i.in_table for i in self.intervals)
        left_out = f" {len(self.not_in_topic)} intervals are not in Kafka any more." if self.not_in_topic else ""
        if self.same:
            return f"Topic and table are the same, row for row: {rows:,} rows.{left_out}"
        wrong = [i.instant for i in self.intervals if not i.same]
        return f"Topic and table DIFFER in {len(wrong)} of {len(self.intervals)}: {', '.join(wrong[:5])}.{left_out}"


@dataclass(frozen=True)
class Interval:
    """The offsets whose rows bear an instant."""

    instant: str
    ranges: tuple[OffsetRange, ...]


def committed_intervals(history: TableHistory) -> list[Interval]:
    """The intervals whose rows an append table has: those that are committed and were not replaced by a replay."""
    return [
        Interval(t.instant, _read_by(t))
        for t in history.transactions.values()
        if t.state is State.COMMITTED and not history.replayed_by.get(t.instant) and _read_by(t)
    ]


def _read_by(transaction: TransactionSummary) -> tuple[OffsetRange, ...]:
    return tuple(
        OffsetRange(p.topic_partition, p.start, p.end)
        for r in transaction.ranges
        if r.counting is not None
        for p in r.planned
    )


def require_comparable(pipeline: Pipeline) -> None:
    """Check that the sink's rows can be read for a comparison.

    Raises:
        ActionRequiredError: its section names nothing that reads them.
    """
    if not pipeline.sink.options.table_rows:
        raise ActionRequiredError(
            f"Topic and table can't be compared: {pipeline.sink.place} has nothing that reads its rows for it.",
            next_step="compare the table with its source by other means; `sluice transactions` says what each interval "
            f"has read and written. Whoever makes {pipeline.sink.place} adds `table_rows` to its section, as "
            "CONTRIBUTING.md says under `Add a sink`.",
            table=pipeline.table_id,
        )


def verify_table(
    pipeline: Pipeline,
    position: Position,
    rows: tuple[RecordPlan, TableSpec],
    history: TableHistory,
    source: KafkaSettings,
    control: KafkaSettings,
    *,
    master: str,
) -> Verification:
    """Compare in a Spark job, and say what it found.

    Raises:
        ActionRequiredError: the sink can't be compared, or Kafka has lost records of an upsert table.
        RetryableError: the Spark job failed.
    """
    require_comparable(pipeline)
    log_start = {b.topic_partition: b.log_start for b in position.state.partitions}

    def is_there(interval: Interval) -> bool:
        return all(log_start.get(r.topic_partition, r.end) <= r.start for r in interval.ranges)

    intervals = committed_intervals(history)
    if pipeline.sink.capabilities.upsert:
        covered = tuple(OffsetRange(tp, *span) for tp in log_start for span in position.checkpoint.covered(tp))
        intervals = [Interval(WHOLE_TABLE, covered)]
        if not is_there(intervals[0]):
            raise ActionRequiredError(
                "An upsert table can be compared only while Kafka has every record that it was loaded from.",
                next_step="compare it with the system that produced the records.",
                table=pipeline.table_id,
            )
    there = [i for i in intervals if is_there(i)]
    gone = tuple(i.instant for i in intervals if not is_there(i))
    compared = _compare(pipeline, rows, there, source, control, master) if there else ()
    return Verification(compared, gone)


def _compare(
    pipeline: Pipeline,
    rows: tuple[RecordPlan, TableSpec],
    intervals: Sequence[Interval],
    source: KafkaSettings,
    control: KafkaSettings,
    master: str,
) -> tuple[Compared, ...]:
    task = {
        "source": pipeline.source.name,
        "sink": pipeline.sink.name,
        "records": rows[0].model_dump(mode="json", exclude_none=True),
        "writer": rows[1].model_dump(mode="json"),
        "record_key": pipeline.sink.options.record_key if pipeline.sink.capabilities.upsert else (),
        "isolation_level": pipeline.source.options.read_isolation,
        "intervals": [
            {"instant": i.instant, "ranges": [PlannedRange.of(r).model_dump() for r in i.ranges]} for i in intervals
        ],
    }
    with tempfile.TemporaryDirectory(prefix="sluice-verify-") as folder:
        given, answer = Path(folder) / "task.json", Path(folder) / "answer.json"
        given.write_text(json.dumps(task))
        command = spark_submit(pipeline, master, APPLICATION, [str(given), str(answer)])
        done = subprocess.run(command, env=driver_environment(source, control, master), capture_output=True, text=True)
        if done.returncode != 0 or not answer.exists():
            raise RetryableError(
                "The Spark job that compares topic and table failed.",
                next_step="read the end of its log here, and try again.",
                table=pipeline.table_id,
                log="\n".join((done.stdout + done.stderr).strip().splitlines()[-15:]),
            )
        return tuple(Compared(**found) for found in json.loads(answer.read_text()))


def as_json(compared: Sequence[Compared]) -> str:
    """The answer of the Spark job."""
    return json.dumps([asdict(c) for c in compared])
