"""The service `table_version` on a table that can't be read, since an attempt at changing its version was interrupted.

Everything that a service asks of the timeline to begin is asked of the control topic alone then, from the START-COMMIT
on that the note in the table's settings names: that one counted, so a fold that begins there comes to the verdict of
all (`sluice.protocol.transaction`). No other transaction has been planned since, because none opens such a table.
"""

from __future__ import annotations

from sluice.connectors.sink import VersionChange
from sluice.control.service_lease import ServiceLease
from sluice.coordinator.lease import Leases
from sluice.coordinator.session import Run, Session
from sluice.coordinator.turns import Turns
from sluice.errors import RetryableError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.protocol.messages import StartCommit
from sluice.protocol.transaction import State, TableLog, Transaction
from sluice.protocol.version_change import BegunChange


class VersionChanges:
    """The changes of one table's version that one run makes.

    Args:
        session: whose table it is.
        turns: who else is at the table.
        run: the run.
    """

    def __init__(self, session: Session, turns: Turns, run: Run) -> None:
        self._session = session
        self._turns = turns
        self._run = run
        self._begun: BegunChange | None = None

    def try_continue(self, change: VersionChange) -> ServiceLease | Transaction | None:
        """A lease on a table whose change was interrupted, or the transaction that holds it; None to look again.

        Raises:
            RetryableError: the process that has begun it may still be at it, or Kafka or the storage don't answer.
            ActionRequiredError: it was begun on another control topic.
        """
        session = self._session
        read_position = session.control.end()  # before the note is read, as else before the timeline
        begun = self._begun = change.begun()
        if begun is None:
            return None
        table_log = session.log_of_change(begun)
        holder = self._turns.held_by_another(table_log, self._run)
        if holder is not None:
            return holder
        if self._end_left(change, table_log):
            return None
        before = table_log.at(begun.control_offset)
        oldest = table_log.oldest_unsettled(read_position)
        start = StartCommit(
            **session.envelope(change.new_instant(), max(table_log.highest_epoch(), begun.epoch) + 1, self._run),
            kind="service",
            service="table_version",
            read_position=read_position,
            oldest_unsettled=min(oldest, before.start.oldest_unsettled) if before is not None else oldest,
            ranges=(),
            source=session.pipeline.source.name,
            sink=session.pipeline.sink.name,
            writer=change.writer,
            process=self._run.process,
        )
        offset = session.control.send(start)
        transaction = session.control.extend(table_log).get(start.transaction)
        if transaction is None or transaction.start_offset != offset or transaction.state is not State.OPEN:
            return None
        reach("service.after_start_commit")
        log.info("START-COMMIT", service=start.service, table=session.table_id, control_offset=offset)
        return ServiceLease(session.control, table_log, transaction, session.machine.now)

    def _end_left(self, change: VersionChange, table_log: TableLog) -> bool:
        """End the attempt that was left after its END-COMMIT; whether there was one."""
        left = table_log.unfinished()
        if left is None:
            return False
        session, control = self._session, self._session.pipeline.control
        leases = Leases(session.table_id, control.commit_timeout, control.clock_wait, session.machine)
        if left.lease is not None and not leases.is_free(left.lease_offset, left.lease):
            raise RetryableError(
                "Another process is changing the table's version just now.",
                next_step="wait for it, or end it; after control.commit_timeout without a sign of it, running the "
                "service again completes the change.",
                table=session.table_id,
                holder=left.lease.holder,
            )
        lease = ServiceLease(session.control, table_log, left, session.machine.now)
        lease.end_left(change.process, f"left by its process; completed by {self._run.run_id}")
        return True

    def note(self, change: VersionChange, lease: ServiceLease) -> BegunChange:
        """The note for the table's settings: of the change to complete, or of the one that the pipeline wants.

        Raises:
            RetryableError: the storage doesn't answer.
        """
        session, begun = self._session, self._begun
        if begun is not None:
            schema, to, signed_from = begun.schema_avro, begun.to, begun.signed_from
        else:
            schema, to = change.writer.schema_avro, change.to
            signed_from = session.signed_from(session.committed(change.table).note)
        return BegunChange(
            to=to,
            schema_avro=schema,
            known_as=session.table_id,
            control_topic=session.control.topic,
            control_topic_id=session.control.topic_id,
            control_offset=lease.transaction.start_offset,
            epoch=lease.transaction.start.epoch,
            signed_from=signed_from,
        )
