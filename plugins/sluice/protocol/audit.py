"""The audit before a commit: every delivered record is accounted for, and every range was read to its end."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol.messages import StartCommit, WriteStatus


def audit(start: StartCommit, number: int, status: WriteStatus) -> None:
    """Check one range's status against its plan.

    The rule is `read = written + deleted + quarantined + filtered + skipped`, the committables agree with
    `written`, `deleted` and `quarantined` and name no error, and each partition's next offset is its planned end.

    A sink also counts as deletes rows that moved out of a table partition, and rows that a truncate removed; the latter
    count as writes if deletes are soft.

    Raises:
        IntervalError: they differ; the interval must not be committed.
    """
    accounted = status.records_written + status.records_deleted + status.records_quarantined
    accounted += status.records_filtered + status.records_skipped
    rows = sum(c.rows for c in status.stats)
    deleted = sum(c.deletes for c in status.stats)
    in_quarantine = sum(c.rows for c in status.quarantine_stats)
    write_errors = sum(c.errors for c in (*status.stats, *status.quarantine_stats))
    soft = start.records.changes is not None and start.records.changes.delete == "soft"
    writes = status.records_written + (status.rows_truncated if soft else 0)
    deletes = status.records_deleted + status.rows_moved + (0 if soft else status.rows_truncated)
    by_partition = sum(p.records_read for p in status.partitions)
    told = (rows, deleted, in_quarantine)
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
            rows_to_commit=rows,
            deletes_to_commit=deleted,
            in_quarantine=in_quarantine,
            write_errors=write_errors,
        )
    strange = {c.table for c in status.stats} - {"", *(table.writer.name for table in start.tables)}
    if strange:
        raise IntervalError(
            "The audit failed: a write job has written to a table that isn't the interval's.",
            next_step="find who else writes to the control topic; the next interval reads the same offsets.",
            table=start.table,
            instant=start.transaction,
            named=", ".join(sorted(strange)),
        )
    reached = {(p.topic_partition, p.start): p.next_offset for p in status.partitions}
    for planned in start.ranges[number]:
        if reached.get((planned.topic_partition, planned.start)) != planned.end or by_partition != status.records_read:
            raise IntervalError(
                "The audit failed: a partition was not read to its planned end.",
                next_step="nothing was committed; run the interval again, and report it if it comes back.",
                table=start.table,
                instant=start.transaction,
                **planned.topic_partition._asdict(),
                planned_end=planned.end,
                next_offset=reached.get((planned.topic_partition, planned.start)),
            )


def audit_again(start: StartCommit, reported: Mapping[int, WriteStatus]) -> None:
    """Check that an interval that was read again had as many records as before.

    The bounds of its offsets are right even if compaction has removed records between them, or if aborted records were
    read before and aren't now. An append's replay removes the old rows, so rows would be lost if it read fewer records.
    An upsert's replay removes no rows: rows that it doesn't read again stay. If there are more records than before,
    they are from another log, or outside of the plan.

    Raises:
        ActionRequiredError: the number differs.
    """
    if not start.policy.records_as_before or not start.records_before:
        return
    read = {(p.topic_partition, p.start): p.records_read for status in reported.values() for p in status.partitions}
    counts = [read.get((r.topic_partition, r.start), 0) for r in start.offset_ranges]
    if len(counts) != len(start.records_before):
        counts = [sum(counts)]
    for number, (records, before) in enumerate(zip(counts, start.records_before, strict=True)):
        if records > before or (records < before and start.replaces_files):
            raise ActionRequiredError(
                "What the source has of these offsets now is not the records that the interval had.",
                next_step="leave the table's rows as they are, if compaction has taken records, or if rows of a "
                "database have changed since; or set the source's `isolation_level` for the replay to what it was for "
                "the interval.",
                table=start.table,
                instant=start.replays,
                of=start.offset_ranges[number] if len(counts) == len(start.offset_ranges) else None,
                records=records,
                records_before=before,
            )
