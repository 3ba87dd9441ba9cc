"""The audit before the commit: every record delivered is accounted for, and every range was read to its end."""

from __future__ import annotations

from sluice.errors import IntervalError
from sluice.protocol.messages import StartCommit, WriteStatus


def audit(start: StartCommit, number: int, status: WriteStatus) -> None:
    """Check one range's status against its plan.

    The rule is `read = written + deleted + quarantined + filtered + skipped`, Hudi's own write stats agree with
    `written`, `deleted` and `quarantined` and name no error, and each partition's next offset is its planned end.

    Hudi counts as deletes also the rows that moved out of a table partition, and those that a truncate took away; the
    latter as writes where deletes are soft.

    Raises:
        IntervalError: they differ; the interval must not be committed.
    """
    accounted = status.records_written + status.records_deleted + status.records_quarantined
    accounted += status.records_filtered + status.records_skipped
    in_stats = sum(int(s.get("numWrites", 0)) for s in status.stats)
    deletes_in_stats = sum(int(s.get("numDeletes", 0)) for s in status.stats)
    in_quarantine = sum(int(s.get("numWrites", 0)) for s in status.quarantine_stats)
    write_errors = sum(int(s.get("totalWriteErrors", 0)) for s in (*status.stats, *status.quarantine_stats))
    soft = start.records.changes is not None and start.records.changes.delete == "soft"
    writes = status.records_written + (status.rows_truncated if soft else 0)
    deletes = status.records_deleted + status.rows_moved + (0 if soft else status.rows_truncated)
    by_partition = sum(p.records_read for p in status.partitions)
    told = (in_stats, deletes_in_stats, in_quarantine)
    differs = told != (writes, deletes, status.records_quarantined)
    if write_errors or accounted != status.records_read or differs:
        raise IntervalError(
            "The audit failed: records read are not all accounted for.",
            next_step="nothing was committed; run the interval again, and report it if it comes back.",
            table=start.table,
            instant=start.transaction,
            range=number,
            read=status.records_read,
            written=status.records_written,
            deleted=status.records_deleted,
            quarantined=status.records_quarantined,
            filtered=status.records_filtered,
            skipped=status.records_skipped,
            moved=status.rows_moved or None,
            truncated=status.rows_truncated or None,
            in_write_stats=in_stats,
            deletes_in_write_stats=deletes_in_stats,
            in_quarantine=in_quarantine,
            write_errors=write_errors,
        )
    reached = {(p.topic_partition, p.start): p.next_offset for p in status.partitions}
    for planned in start.ranges[number]:
        if reached.get((planned.topic_partition, planned.start)) != planned.end or by_partition != status.records_read:
            raise IntervalError(
                "The audit failed: a partition was not read to its planned end.",
                next_step="nothing was committed; run the interval again, and report it if it comes back.",
                table=start.table,
                instant=start.transaction,
                topic=planned.topic,
                partition=planned.partition,
                planned_end=planned.end,
                next_offset=reached.get((planned.topic_partition, planned.start)),
            )
