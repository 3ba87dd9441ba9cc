"""What has to be true of a transaction for it to be committed: looked at before END-COMMIT, and under the lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sluice.connectors.sink import SharedTimeline, Table
from sluice.coordinator.session import Committed, Session
from sluice.errors import ActionRequiredError, IntervalError, RetryableError
from sluice.protocol.audit import audit, audit_again
from sluice.protocol.bad_records import audit_bad_records
from sluice.protocol.identity import LogIds, present_names
from sluice.protocol.messages import PlannedRange, WriteStatus
from sluice.protocol.offsets import OffsetRange, TopicPartition
from sluice.protocol.placement import fitting_partitioners
from sluice.protocol.settlement import leader_epochs, missing_error
from sluice.protocol.transaction import Transaction


class _RewrittenSoonError(RetryableError):
    """What a replay would replace is in another writer's plan: seen again where the table is held, it is given up."""


def audited(transaction: Transaction) -> tuple[dict[int, WriteStatus], tuple[int, ...]]:
    """The statuses that count, each audited, by range; and the ranges that are missing.

    Raises:
        SluiceError: what the missing ranges say, where none may be missing or none is there.
        IntervalError: a count doesn't add up.
    """
    missing = transaction.end.missing if transaction.end else transaction.missing_ranges()
    in_part = transaction.start.policy.commits_in_part and transaction.start.on_missing_range == "commit"
    if missing and not in_part:
        raise missing_error(transaction, missing)
    reported: dict[int, WriteStatus] = {}
    for number in range(len(transaction.start.ranges)):
        status = transaction.status_of(number)
        if number not in missing and status is not None:
            audit(transaction.start, number, status)
            reported[number] = status
    if missing and not reported:
        raise missing_error(transaction, missing)
    audit_bad_records(transaction.start, reported)
    audit_again(transaction.start, reported)
    return reported, missing


def refuse_other_records(session: Session, transaction: Transaction) -> None:
    """Another cluster, a topic made again, or an election, while the interval ran, has other records where it has read.

    Raises:
        IntervalError: it has. Nothing was committed.
    """
    start = transaction.start
    present = session.sources.cluster_ids()
    names = present_names(start.cluster_ids, present, one_place=start.streams is None)
    _refuse_other_logs(session, transaction, names, present)
    epochs = {
        tp._replace(cluster=names.get(tp.cluster, tp.cluster)): epoch for tp, epoch in leader_epochs(start).items()
    }
    read = (*start.offset_ranges, *start.passed_over)
    ranges = [r.model_copy(update={"cluster": names.get(r.cluster, r.cluster)}) for r in read]
    truncated = truncated_since_read(session, ranges, epochs.get)
    if not truncated and epochs and start.policy.reads == "again":
        truncated = _perhaps_truncated(session, ranges, epochs)
    for tp, at in truncated:
        raise IntervalError(
            f"The log was truncated at {at} while the interval ran, by an election of a replica that lacked what "
            "came after it.",
            next_step="nothing was committed; the next interval says what is lost and obeys on_offset_loss.",
            table=session.table_id,
            **tp._asdict(),
            instant=transaction.id,
        )


def _refuse_other_logs(
    session: Session, transaction: Transaction, names: Mapping[str, str], present: Mapping[str, str | None]
) -> None:
    planned = transaction.start.log_ids
    here = LogIds(present, session.sources.topic_ids((names.get(c, c), topic) for c, topic in planned.topics))
    for cluster, topic in planned.topics:
        was, now = planned.of(cluster, topic), here.of(names.get(cluster, cluster), topic)
        reason = was.other_than(now)
        if reason is None and was.topic and not now.topic:
            reason = "the brokers have ceased to give the topic's id"
        if reason is not None:
            raise IntervalError(
                f"{reason[0].upper()}{reason[1:]} while the interval ran.",
                next_step="nothing was committed; the next interval says what is lost and obeys on_offset_loss.",
                table=session.table_id,
                cluster=names.get(cluster, cluster),
                topic=topic,
                instant=transaction.id,
            )


def _perhaps_truncated(
    session: Session, ranges: Iterable[PlannedRange], epochs: Mapping[TopicPartition, int]
) -> list[tuple[TopicPartition, int]]:
    """A replay's partitions that had an election since they were read, without a trace of which records it cut off.

    An interval that only reads on commits the records that it has read. A replay also removes rows from the table.
    """
    state = session.sources.state(None)
    starts = {b.topic_partition: b.log_start for b in state.partitions}
    return sorted(
        (tp, starts[tp])
        for r in ranges
        for tp in (r.topic_partition,)
        if tp in starts and starts[tp] >= r.end and state.leader_epochs.get(tp) != epochs.get(tp)
    )


def truncated_since_read(
    session: Session, ranges: Iterable[OffsetRange | PlannedRange], epoch_of: Callable[[TopicPartition], int | None]
) -> list[tuple[TopicPartition, int]]:
    """The partitions whose log has lost records of ranges since they were read, each with where it was truncated.

    Args:
        session: whose source is asked.
        ranges: what was read.
        epoch_of: a partition's leader epoch before that; None where it isn't known, and nothing can be said.
    """
    read: dict[TopicPartition, tuple[int, int]] = {}
    for r in ranges:
        epoch = epoch_of(r.topic_partition)
        if epoch is not None:
            end, _ = read.get(r.topic_partition, (0, epoch))
            read[r.topic_partition] = (max(r.end, end), epoch)
    return sorted(session.sources.truncated_since(read).items())


def fitting(
    session: Session, transaction: Transaction, reported: Mapping[int, WriteStatus], committed: Committed
) -> dict[str, tuple[str, ...]]:
    """By topic, the partitioners that explain where all keys are, those of audited statuses among them.

    Raises:
        ActionRequiredError: there is none, so that a row may be doubled.
    """
    keys = [keys for _, status in sorted(reported.items()) for keys in status.keys]
    return fitting_partitioners(
        transaction.start.placement,
        keys,
        committed.note.placement,
        table=session.table_id,
        instant=transaction.id,
    )


def require_replaceable(table: Table, transaction: Transaction) -> None:
    """Check again that a replay still can take its rows off: a table service may have moved them since START.

    Raises:
        IntervalError: they were moved, or are about to be. The interval has to be given up, even if its commit is
            decided, since a process that waits here holds the table.
    """
    try:
        require_whole(table, str(transaction.start.replays))
    except (ActionRequiredError, _RewrittenSoonError) as error:
        raise IntervalError(error.what, next_step=error.next_step, **error.where) from error


def require_whole(table: Table, instant: str) -> None:
    """Check that the file groups of an append interval still hold its rows, and nothing else does or is about to.

    Raises:
        ActionRequiredError: clustering, an earlier replay or another writer has moved them.
        RetryableError: another writer's clustering is to move them. Its job would do so after a replay as well, from
            the files that the replay has replaced.
    """
    written = table.written_by(instant)
    if written is None or not isinstance(table, SharedTimeline):
        return
    planned, moved = table.planned_by_others(written), table.moved_file_groups(written)
    if not moved and planned:
        raise _RewrittenSoonError(
            "The interval can't be replaced as files: another writer's clustering is about to rewrite them.",
            next_step="let that clustering complete, or take its plan off the timeline with Hudi's own tools; then "
            "replay the interval. Once it has completed, the rows are in other file groups.",
            table=table.writer.path,
            instant=instant,
            planned_in=", ".join(sorted(set(planned.values()))),
            file_groups=len(planned),
        )
    if not moved:
        return
    by = sorted({i for i in moved.values() if i})
    ours = [i for i in by if table.written_by(i)]
    raise ActionRequiredError(
        "The interval can't be replaced as files: its rows are in other file groups now.",
        next_step=f"replay {ours[-1]} instead, which replaced it."
        if ours
        else "correct the rows with Hudi's own writer: they have this instant in `_hoodie_commit_time`, wherever "
        "clustering or another writer has put them.",
        table=table.writer.path,
        instant=instant,
        moved_by=", ".join(by) or "an instant that is archived",
        file_groups=len(moved),
    )
