"""How a transaction ends: which statuses count, what they add up to, and the error if it can't be committed.

Pure functions of the control topic's messages; the coordinator acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from sluice.errors import IntervalError, SluiceError, from_report
from sluice.protocol import coverage
from sluice.protocol.messages import COUNTS, StartCommit, WriteStatus
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition
from sluice.protocol.transaction import State, TableLog, Transaction

REMEMBERED_INTERVALS = 20
"""How many committed intervals back START searches for files of zombies."""


def transaction_at(table_log: TableLog, control_offset: int, instant: str | None = None) -> Transaction:
    """The transaction whose START-COMMIT is at the control-topic offset.

    Raises:
        IntervalError: there is none.
    """
    transaction = table_log.at(control_offset)
    if transaction is not None and instant in (None, transaction.id):
        return transaction
    raise IntervalError(
        "The control topic holds no START-COMMIT of this table at that offset.",
        next_step="start a new interval; the control topic was recreated or its retention has passed.",
        table=table_log.table,
        control_offset=control_offset,
    )


def require_ours(transaction: Transaction) -> None:
    """Check that the transaction may still be committed.

    Raises:
        IntervalError: it was superseded, aborted, or void from the start.
    """
    if transaction.state in (State.OPEN, State.DECIDED, State.COMMITTED):
        return
    raise IntervalError(
        f"This transaction can't be committed any more: it is {transaction.state.value}.",
        next_step="none: a later run took over from the same offsets, or this one was aborted; nothing is lost.",
        table=transaction.start.table,
        instant=transaction.id,
        epoch=transaction.start.epoch,
        reason=transaction.reason,
    )


def instant_gone(transaction: Transaction) -> IntervalError:
    """The error for an instant that another writer removed from the timeline."""
    return IntervalError(
        "The instant is not on the timeline any more: something rolled it back.",
        next_step="start a new interval; check that no other writer cleans up failed writes of this table.",
        table=transaction.start.table,
        instant=transaction.id,
    )


def service_left(transaction: Transaction) -> IntervalError:
    """The error for a table service whose process ended without reporting whether it was done."""
    return IntervalError(
        "The table service ended before its ACK-COMMIT; its completed work is kept, and its next run does the rest.",
        next_step="none; look at that run's log if it comes back.",
        table=transaction.start.table,
        service=transaction.start.service,
        run=transaction.start.run_id,
    )


def missing_error(transaction: Transaction, missing: tuple[int, ...]) -> SluiceError:
    """The error for a transaction whose ranges did not all report: the first failed range's own error, if any."""
    for number in missing:
        failure = transaction.failure_of(number)
        if failure is not None:
            return from_report(failure.recovery or "fail_run", failure.error or "")
    planned = [str(r) for number in missing for r in transaction.start.ranges[number]]
    return IntervalError(
        "Ranges did not report a WRITE-STATUS.",
        next_step="read the logs of their write tasks; the next interval starts from the same offsets.",
        table=transaction.start.table,
        instant=transaction.id,
        missing=planned,
    )


def abort_reason(transaction: Transaction) -> str:
    """Why a transaction is aborted, in a sentence for ABORT-COMMIT."""
    missing = transaction.missing_ranges()
    return str(missing_error(transaction, missing)) if missing else "the commit did not finish; see its task's log."


def committed_statuses(transaction: Transaction) -> dict[int, WriteStatus]:
    """The statuses that were committed: those named by END-COMMIT, so that a late one changes nothing."""
    numbers = transaction.end.reported if transaction.end else range(len(transaction.start.ranges))
    found = {number: transaction.status_of(number) for number in numbers}
    return {number: status for number, status in found.items() if status is not None}


def committed_ranges(reported: Mapping[int, WriteStatus]) -> list[OffsetRange]:
    """The offsets that the reported ranges have read, each up to its last read position."""
    return [
        OffsetRange(p.topic_partition, p.start, p.next_offset)
        for _, status in sorted(reported.items())
        for p in status.partitions
    ]


def positions_after(start: StartCommit, reported: Mapping[int, WriteStatus]) -> dict[TopicPartition, int]:
    """Where the schedule continues after the commit: at a planned end, or at the start if its range did not report.

    Only an interval that reads on moves positions by itself. Otherwise a position moves if committed or passed-over
    offsets adjoin it, which `Checkpoint.advance` handles.
    """
    if start.policy.moves_positions != "planned":
        return {}
    offsets = {r.topic_partition: r.start for r in (*start.offset_ranges, *start.idle)}
    for status in reported.values():
        offsets |= {p.topic_partition: p.next_offset for p in status.partitions}
    return offsets


def forgotten_partitions(start: StartCommit) -> set[TopicPartition]:
    """Partitions whose log differs from the one that the table has read."""
    return {loss.topic_partition for loss in start.losses if loss.another_log}


def truncated_partitions(start: StartCommit) -> dict[TopicPartition, int]:
    """Partitions whose log was truncated below the table's position, with the offset."""
    return {loss.topic_partition: loss.truncated_at for loss in start.losses if loss.truncated_at is not None}


def leader_epochs(start: StartCommit) -> dict[TopicPartition, int]:
    """The leader epochs of the plan's partitions, as far as they are known."""
    planned = (*start.offset_ranges, *start.idle, *start.passed_over)
    return {r.topic_partition: r.leader_epoch for r in planned if r.leader_epoch is not None}


def valid_through(start: StartCommit, reported: Mapping[int, WriteStatus]) -> datetime | None:
    """The time up to which the table is complete, if record times rise with offsets; None if unknown.

    A partition that was read to the window's end is complete up to the plan's time; one in which the limits left
    records, up to its last record's time.
    """
    claims = start.policy.claims_completeness
    if not claims or len(reported) < len(start.ranges) or start.valid_through is None:
        return None
    last = {p.topic_partition: p.max_timestamp for status in reported.values() for p in status.partitions}
    through = start.valid_through
    for planned in (*start.offset_ranges, *start.idle):
        if planned.behind:
            time = last.get(planned.topic_partition)
            if time is None or time > start.time:  # dated in the future: it gives no bound for earlier records
                return None
            through = min(through, time)
    return through


def moved_offsets(start: StartCommit, checkpoint: Checkpoint) -> list[str]:
    """Partitions in which the table's position has changed since this interval was planned.

    An interval that reads on must start at the table's position, unless a loss was resumed, and the offsets that it
    skips must still be in the table: a commit about to be taken off may still have been there when it was planned. A
    window's offsets must still be missing in the table; a replay's must still be there; a correction reads nothing.
    """
    reads = start.policy.reads
    if reads == "window":
        return [
            f"{r.topic_partition} [{r.start}, {r.end}) was read by another run meanwhile"
            for r in start.offset_ranges
            if coverage.missing(checkpoint.covered(r.topic_partition), r.start, r.end) != ((r.start, r.end),)
        ]
    if reads == "again":
        return [
            f"{r.topic_partition} [{r.start}, {r.end}) is not in the table any more"
            for r in start.offset_ranges
            if coverage.missing(checkpoint.covered(r.topic_partition), r.start, r.end)
        ]
    if reads == "nothing":
        return []
    lost = {loss.topic_partition: loss.committed for loss in start.losses}
    gone = [
        f"{r.topic_partition} [{r.rests_on}, {r.start}) is not in the table any more"
        for r in (*start.offset_ranges, *start.idle)
        if r.rests_on is not None and coverage.missing(checkpoint.settled(r.topic_partition), r.rests_on, r.start)
    ]
    return gone + [
        f"{r.topic_partition} planned from {r.start}, now {checkpoint.next_offset(r.topic_partition)}"
        for r in start.offset_ranges
        if checkpoint.next_offset(r.topic_partition) not in (None, lost.get(r.topic_partition, r.start))
    ]


def count_records(reported: Mapping[int, WriteStatus]) -> dict[str, int]:
    """Records read, written, deleted, quarantined, filtered and skipped, over all ranges."""
    return {name: sum(getattr(status, name) for status in reported.values()) for name in COUNTS}


def emptied_at(start: StartCommit, reported: Mapping[int, WriteStatus]) -> str | None:
    """The position of the last truncate that the table has applied; None if there was none."""
    found = [start.emptied_at, *(status.emptied_at for status in reported.values())]
    return max((p for p in found if p is not None), key=Decimal, default=None)


def registered_paths(transaction: Transaction) -> set[str]:
    """The files that a committed transaction's commit registered, relative to the table."""
    return {c.path for status in committed_statuses(transaction).values() for c in status.stats}


def table_partitions(transaction: Transaction) -> set[str]:
    """Table partitions in which attempts of the transaction have written or may still write."""
    written = {c.partition for status in transaction.statuses for c in status.stats}
    return written | transaction.opened_in


def may_have_written_anywhere(transaction: Transaction, *, committed: bool) -> bool:
    """Whether late attempts of an ended transaction may have files in table partitions that no message names.

    A suspended attempt may open files after its markers were listed for END- or ABORT-COMMIT, but before the commit or
    roll-back deletes the markers. The records determine the table partitions. So all of them are known if another
    attempt's files were committed, and also if an aborted interval read on, since the next one reads the same records.
    That leaves ranges that are missing from a commit, and windows and replays that may never be requested again.

    Args:
        transaction: the ended transaction.
        committed: whether its commit is on the timeline.
    """
    if committed:
        return transaction.end is not None and bool(transaction.end.missing)
    return transaction.start.policy.reads in ("window", "again") and bool(transaction.start.ranges)
