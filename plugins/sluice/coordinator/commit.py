"""END-COMMIT, Hudi's commit and ACK-COMMIT; and the lease under which one process at a time carries them out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

from sluice.connectors.registry import confinement
from sluice.connectors.sink import ForbidsCommits, Publishes, Table, shared_timeline_of
from sluice.coordinator.checks import (
    audited,
    fitting,
    refuse_other_records,
    require_replaceable,
)
from sluice.coordinator.fence import Fence
from sluice.coordinator.lease import Leases
from sluice.coordinator.mending import opened_in
from sluice.coordinator.quarantine import Quarantine
from sluice.coordinator.session import Committed, Outcome, Session
from sluice.errors import IntervalError, RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.protocol.bad_records import first_bad
from sluice.protocol.commit_note import commit_note
from sluice.protocol.confine import require_digest, with_schema_of
from sluice.protocol.identity import present_names
from sluice.protocol.messages import AbortCommit, AckCommit, EndCommit, PlannedRange, StartCommit, TableSpec
from sluice.protocol.offsets import TopicPartition, in_words
from sluice.protocol.quarantine import set_aside
from sluice.protocol.settlement import (
    committed_ranges,
    committed_statuses,
    count_records,
    forgotten_partitions,
    instant_gone,
    leader_epochs,
    moved_offsets,
    positions_after,
    require_ours,
    service_left,
    transaction_at,
    truncated_partitions,
    valid_through,
)
from sluice.protocol.signing import Signed
from sluice.protocol.transaction import State, TableLog, Transaction
from sluice.redact import redact_text

_PARTITIONS_NAMED = (
    500  # table partitions in an END- or ABORT-COMMIT, which has to stay within the broker's message limit
)


class Committer:
    """The `commit` step, and whatever else settles a transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._quarantine = Quarantine(session)
        self.fence = Fence(session)
        control = session.pipeline.control
        self._leases = Leases(session.table_id, control.commit_timeout, control.clock_wait, session.machine)

    def commit(self, control_offset: int, instant: str | None, digest: str | None = None) -> Outcome:
        """Commit the transaction whose START-COMMIT has the given control-topic offset."""
        session = self._session
        table_log = session.control.table_log(session.table_id, control_offset)
        transaction = transaction_at(table_log, control_offset, instant)
        require_digest(transaction.start, digest)
        if transaction.state is State.COMMITTED:
            log.info("already committed: ACK-COMMIT was sent", instant=transaction.id)
            return self.outcome(transaction)
        require_ours(transaction)
        audited(transaction)
        remarks: list[str] = []
        with session.table() as table:
            if table.state_of(transaction.id) == "completed":
                log.info("the commit is on the timeline already; ACK-COMMIT is missing", instant=transaction.id)
            else:
                remarks = self._carry_out_or_give_up(table, table_log, transaction)
            if self.finish(table, table_log, transaction) and transaction.start.replays is None:
                self._clean_up(table)
        require_ours(transaction)
        reach("coordinator.after_ack_commit")
        for remark in remarks:
            log.warning(remark, instant=transaction.id, table=session.table_id)
        return self.outcome(transaction, remarks)

    def resolve_unfinished(self, table: Table, table_log: TableLog) -> bool:
        """Settle a commit that was decided by END-COMMIT but never acknowledged; True if there was one.

        Raises:
            RetryableError: the process that carries it out may still be at it.
        """
        unfinished = table_log.unfinished()
        if unfinished is None:
            return False
        if table.state_of(unfinished.id) != "completed":
            log.warning("finishing the commit that another coordinator decided and left", instant=unfinished.id)
            try:
                self._carry_out(table, table_log, unfinished)
            except IntervalError as error:  # no process can commit it any more
                self.give_up(table, table_log, unfinished, str(error))
                return True
        self.finish(table, table_log, unfinished)
        return True

    def _carry_out_or_give_up(self, table: Table, table_log: TableLog, transaction: Transaction) -> list[str]:
        try:
            return self._carry_out(table, table_log, transaction)
        except IntervalError as error:
            if transaction.state is State.DECIDED:
                self.give_up(table, table_log, transaction, str(error))
            raise

    def _carry_out(self, table: Table, table_log: TableLog, transaction: Transaction) -> list[str]:
        """Take the lease and commit; returns the table's remarks on its commit."""
        if transaction.state is State.OPEN:
            self._session.read_as(transaction.start)
            refuse_other_records(self._session, transaction)
            if transaction.start.placement is not None:  # else no key was looked at, and the timeline needn't be read
                reported, _ = audited(transaction)
                fitting(self._session, transaction, reported, self._session.committed(table))
        table.await_clock()  # before the lease, which is not for waiting
        reach("coordinator.before_end_commit")
        self.take_lease(table, table_log, transaction)
        try:
            if not transaction.start.policy.has_instant:
                raise service_left(transaction)
            if table.state_of(transaction.id) == "absent":
                raise instant_gone(transaction)
            reach("coordinator.before_hudi_commit")
            remarks = self._hudi_commit(table, transaction)
        except IntervalError:
            raise  # no process can commit it any more: the caller gives it up, for which it needs the lease
        except Exception:
            self._release_lease(transaction)
            raise
        reach("coordinator.after_hudi_commit")
        # This process may have been suspended inside Hudi's commit, and others have ended the transaction meanwhile.
        self._session.control.extend(table_log)
        self.fence.repair(table, table_log)
        if transaction.state is not State.COMMITTED:
            require_ours(transaction)
        return remarks

    # The lease -----------------------------------------------------------------------------------------------------

    def take_lease(self, table: Table, table_log: TableLog, transaction: Transaction) -> None:
        """Send END-COMMIT: it decides for commit, and makes this process the only one that carries the commit out.

        Raises:
            RetryableError: another process has the lease.
            IntervalError: the transaction was superseded or aborted, or the audit failed.
        """
        lease = transaction.lease
        if lease is not None and not self._leases.is_free(transaction.lease_offset, lease):
            raise self._busy(transaction, lease.holder)
        reported, missing = audited(transaction)
        end = EndCommit(
            **self._session.envelope_of(transaction),
            reported=tuple(sorted(reported)),
            missing=missing,
            table_partitions=_named(opened_in(table, transaction.id)) if missing else (),
            takes_over=transaction.lease_offset,
            holder=table.process,
        )
        before = self._session.machine.steady()
        offset = self._session.control.send(end)
        self._leases.sent(offset, before)
        log.info("END-COMMIT", instant=transaction.id, reported=sorted(reported), missing=list(missing))
        self._session.control.extend(table_log)
        require_ours(transaction)
        if transaction.lease_offset != offset:
            raise self._busy(transaction, transaction.lease.holder if transaction.lease else "")

    def _busy(self, transaction: Transaction, holder: str) -> RetryableError:
        return RetryableError(
            "Another process is committing this table just now.",
            next_step="this step is retried; after control.commit_timeout it finishes that commit itself.",
            table=self._session.table_id,
            instant=transaction.id,
            run=transaction.start.run_id,
            holder=holder,
        )

    def _release_lease(self, transaction: Transaction) -> None:
        """Say that this process has stopped, so that a retry need not wait for the lease to run out."""
        if transaction.end is None:
            return
        released = transaction.end.model_copy(
            update={"takes_over": transaction.lease_offset, "released": True, "time": self._session.machine.now()}
        )
        try:
            self._session.control.send(released)
        except SluiceError as error:  # the failure that led here is the one to tell
            log.warning("the lease was not released; it runs out by itself", reason=str(error))

    def _hudi_commit(self, table: Table, transaction: Transaction) -> list[str]:
        reported, _ = audited(transaction)
        start = transaction.start
        if not self._leases.is_held_here(transaction.lease_offset):
            raise self._busy(transaction, "the process that took the lease over, as this one was suspended for long")
        committed = self._session.committed(table, start.cluster_ids)
        next_offsets, moved = positions_after(start, reported), _moved_since(start, committed)
        if (moved or _came_since(start, committed)) and self._repaired(table, committed):
            committed = self._session.committed(table, start.cluster_ids)
            moved = _moved_since(start, committed)
        if moved and table.state_of(transaction.id) == "completed":
            return []  # it is this commit that moved them: the lease's previous holder has completed it after all
        if moved:
            raise IntervalError(
                "The table's offsets moved since this interval was planned: committing it would double or lose rows.",
                next_step="nothing was committed; the next interval starts from the table's present offsets.",
                table=self._session.table_id,
                instant=transaction.id,
                moved=moved,
            )
        planned = start.log_ids
        checkpoint = committed.checkpoint.advance(
            next_offsets,
            planned.clusters,
            planned.topics,
            committed=committed_ranges(reported),
            forgotten=forgotten_partitions(start),
            passed_over=[r.offset_range() for r in start.passed_over],
            truncated=truncated_partitions(start),
            leader_epochs=leader_epochs(start),
        )
        if start.replaces_files:
            require_replaceable(table, transaction)
        committables = [c for _, status in sorted(reported.items()) for c in status.stats]
        note = commit_note(
            transaction,
            reported,
            committed.recent_control_offsets if committed.note.is_ours else (start.oldest_unsettled,),
            fitting(self._session, transaction, reported, committed),
            self._session.control.topic,
            self._session.control.topic_id,
        )
        note = note.model_copy(update=self._signed_from(transaction, committed))
        extra = {**checkpoint.to_metadata(), **note.metadata()}
        table = table.written_as(with_schema_of(start.writer, table.writer), self._further_tables(transaction))
        if start.replaces_files:
            replaced = start.replaced_file_groups
            return shared_timeline_of(table).commit_replacing(transaction.id, committables, extra, replaced)
        return table.commit(transaction.id, committables, extra)

    def _further_tables(self, transaction: Transaction) -> list[TableSpec]:
        """The further tables that an interval has written, with the schemas that it pinned.

        Raises:
            IntervalError: the pipeline doesn't name one of them.
        """
        own = {one.table_id: one for _, one in self._session.pipeline.further_tables}
        written = {one.writer.path: one.writer for one in transaction.start.tables}
        strange = sorted(written.keys() - own.keys())
        if strange:
            raise IntervalError(
                f"The interval has written to a table that the pipeline doesn't name any more: {', '.join(strange)}.",
                next_step="nothing was committed; the next interval reads the same offsets by the present file.",
                table=self._session.table_id,
                instant=transaction.id,
            )
        return [with_schema_of(writer, own[path].writer()) for path, writer in written.items()]

    def _repaired(self, table: Table, committed: Committed) -> bool:
        """Whether the last commit was one that doesn't count; it is off the timeline now."""
        control, first = self._session.control, committed.recent_control_offsets[0]
        return self.fence.repair(table, control.table_log(self._session.table_id, first))

    def _signed_from(self, transaction: Transaction, committed: Committed) -> dict[str, Any]:
        """What the commit's note says of signatures.

        The control topic's offset after which each message of the table has to be signed, None where none has; where
        the broker gives ids, the offset from which the topic's is in the signatures.
        """
        signatures, note = self._session.control.signatures, committed.note
        if not signatures.asked_for:
            return {"signed_from": None}
        known = self._session.signed_from(note) if committed.elsewhere is None else {}
        found: dict[str, Any] = {"signed_from": known.get(Signed.BY_NAME, transaction.lease_offset)}
        if signatures.topic_id is not None:
            found["signed_by_log_from"] = known.get(Signed.BY_LOG, transaction.lease_offset)
        return found

    def finish(self, table: Table, table_log: TableLog, transaction: Transaction) -> bool:
        """What follows on the table's own commit: readers see it, the quarantine's, the dead letters, and ACK-COMMIT.

        Each part checks first whether it is done, so that the successor of a process that died continues where that one
        stopped. One process at a time publishes and commits the quarantine: the holder of the lease. Its next holder
        finds the commit, so a published interval is never aborted.

        Returns:
            Whether the transaction is committed; False where another process has given it up meanwhile.

        Raises:
            RetryableError: Kafka or Hudi don't answer, or another process is at it.
            ActionRequiredError: the quarantine or the dead-letter topic can't be used. The table is committed.
        """
        if transaction.state is State.COMMITTED:  # by another process, while this one was suspended
            return True
        if isinstance(table, Publishes) or set_aside(transaction):
            if not self._leases.is_held_here(transaction.lease_offset):
                self.take_lease(table, table_log, transaction)
            try:
                if isinstance(table, Publishes):
                    table.publish(transaction.id)
                if set_aside(transaction):
                    self._quarantine.commit(table, transaction)
            except Exception:
                self._release_lease(transaction)
                raise
        return self._acknowledge(table_log, transaction)

    def _acknowledge(self, table_log: TableLog, transaction: Transaction) -> bool:
        """Send ACK-COMMIT for a commit on the timeline, and copy the offsets to the consumer group.

        Returns:
            Whether it counts. It doesn't if another process has given the transaction up since this one looked.
        """
        reported = committed_statuses(transaction)
        counts = count_records(reported)
        start = transaction.start
        next_offsets = positions_after(start, reported)
        offsets = tuple(PlannedRange.of(r) for r in committed_ranges(reported))
        offsets += (*start.idle, *start.passed_over)
        through = valid_through(start, reported)
        reach("coordinator.before_ack_commit")
        envelope: dict[str, Any] = {**self._session.envelope_of(transaction), **counts}
        self._session.control.send(AckCommit(**envelope, offsets=offsets, valid_through=through))
        self._session.control.extend(table_log)
        if transaction.state is not State.COMMITTED:
            log.warning("ACK-COMMIT came after ABORT-COMMIT", instant=transaction.id, reason=transaction.reason)
            return False
        log.info(
            "ACK-COMMIT",
            instant=transaction.id,
            offsets=in_words(offsets, by_cluster=start.streams is not None),
            valid_through=str(through),
            **counts,
        )
        self._copy_to_groups(start, next_offsets)
        return True

    def _clean_up(self, table: Table) -> None:
        """Let sources take away what the table has; it is committed whatever comes of that."""
        for name, why in self._session.sources.clean_up(lambda: self._session.committed(table).checkpoint).items():
            log.warning("what is committed was not taken away", source=name, reason=str(why))

    def _copy_to_groups(self, start: StartCommit, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Copy offsets for lag monitors, to each cluster its own; the table is committed whatever comes of it."""
        group = self._session.pipeline.consumer_group
        try:
            self._session.read_as(start)
            followed = self._session.followed
            if followed is not None:  # START completes an earlier interval; clusters may have other names by now
                names = present_names(start.cluster_ids, followed.known.ids, one_place=False)
                next_offsets = {
                    tp._replace(cluster=names.get(tp.cluster, tp.cluster)): o for tp, o in next_offsets.items()
                }
            failed = self._session.sources.copy_to_group(group, next_offsets)
        except SluiceError as error:
            log.warning("offsets were not copied to the consumer group", group=group, reason=str(error))
            return
        for cluster, why in failed.items():
            log.warning("offsets were not copied to the consumer group", group=group, cluster=cluster, reason=str(why))

    def outcome(self, transaction: Transaction, remarks: Sequence[str] = ()) -> Outcome:
        """What was committed, in a sentence, and a further one for each remark."""
        start, counts = transaction.start, count_records(committed_statuses(transaction))
        by_cluster = start.streams is not None
        ranges = sorted(start.offset_ranges, key=attrgetter("topic_partition"))
        read = in_words(ranges, by_cluster=by_cluster) or "no records"
        what = f"{counts['records_written']} rows from {read}"
        if start.replays is not None:
            what += f", in place of what {start.replays} wrote"
        if counts["records_skipped"]:
            what += f"; {counts['records_skipped']} records were older than the table's rows"
        if counts["records_filtered"]:
            what += f"; {counts['records_filtered']} records were filtered out"
        if counts["records_quarantined"] and start.quarantine is not None:
            bad = first_bad(committed_statuses(transaction).values())
            first = f"; the first is {bad}" if bad is not None else ""
            number = counts["records_quarantined"]
            are = f"{number:,} bad record{' is' if number == 1 else 's are'} set aside"
            what += f"; {are} in {start.quarantine.path}{first}"
        if start.passed_over:
            what = f"passed over {in_words(start.passed_over, by_cluster=by_cluster)}"
        return Outcome(
            "committed",
            " ".join((f"Committed instant {start.transaction}: {what}.", *(f"{remark}." for remark in remarks))),
            start.transaction,
            counts["records_written"],
            remarks=tuple(remarks),
        )

    # ABORT-COMMIT --------------------------------------------------------------------------------------------------

    def give_up(self, table: Table, table_log: TableLog, transaction: Transaction, reason: str) -> bool:
        """Send ABORT-COMMIT and roll back, in this order; False where a commit was decided or completed first.

        A decided transaction is given up only by the holder of its lease.
        """
        # Its last holder may be suspended just before its commit, which nothing could take back from such a table.
        decided = transaction.state is State.DECIDED and transaction.start.policy.has_instant
        if decided and isinstance(table, ForbidsCommits) and not table.forbid_commit(transaction.id):
            return False
        if transaction.state is not State.ABORTED:
            self.send_abort(transaction, reason, opened_in(table, transaction.id))
            self._session.control.extend(table_log)
        if transaction.state is not State.ABORTED:
            return False
        reach("coordinator.after_abort_commit")
        table.rollback(transaction.id)
        self.fence.repair(table, table_log)
        self._quarantine.clear(table, [transaction])
        log.warning("ABORT-COMMIT", instant=transaction.id, reason=reason)
        return True

    def send_abort(self, transaction: Transaction, reason: str, opened_in: Collection[str] = ()) -> None:
        """Send ABORT-COMMIT with the offsets that remain valid, and the table partitions in which files were opened."""
        standing = tuple(
            r.model_copy(update={"end": r.start}) for r in (*transaction.start.offset_ranges, *transaction.start.idle)
        )
        envelope = self._session.envelope_of(transaction)
        lease = transaction.lease_offset
        self._session.control.send(
            AbortCommit(
                **envelope,
                reason=redact_text(reason),
                standing_offsets=standing,
                lease_offset=lease,
                table_partitions=_named(opened_in),
            )
        )


def _named(partitions: Collection[str]) -> tuple[str, ...]:
    """Table partitions as a message names them."""
    return tuple(sorted(filter(confinement().is_inside, partitions)))[:_PARTITIONS_NAMED]


def _moved_since(start: StartCommit, committed: Committed) -> list[str]:
    """What has changed since an interval was planned: the table's offsets, or the commit that the plan rests on.

    An aborted commit may have been on the timeline for a moment, just when START read it, and is off it by now. Offsets
    alone don't always show that: before its first commit, a table has none that a plan could differ from.
    """
    moved = moved_offsets(start, committed.checkpoint)
    if start.planned_on is not None and _came_since(start, committed):  # an earlier release didn't name it
        moved.append(f"planned on {start.planned_on}, and on {committed.note.instant} now")
    return moved


def _came_since(start: StartCommit, committed: Committed) -> bool:
    """Whether the last commit isn't the one that START's plan rests on.

    It may be one that was aborted, and completed by a process that had been suspended: its offsets would remain in this
    commit's for good, though that commit is to be taken off the timeline.
    """
    return committed.note.instant != start.planned_on
