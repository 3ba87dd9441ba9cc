"""The quarantine table, committed right after the table itself, under the same instant.

Its instant is opened by the commit: participants write their files under an instant that the quarantine's timeline
doesn't have yet, so that no reader sees them, and an interval without bad records costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from sluice.connectors.sink import Ended, Publishes, Table, quarantine_of
from sluice.coordinator.dead_letters import prepare_dead_letters, send_dead_letters
from sluice.coordinator.fence import keep_first_completions
from sluice.coordinator.mending import mend
from sluice.coordinator.session import Session
from sluice.errors import ActionRequiredError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.protocol.commit_note import CommitNote
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import (
    day_of,
    may_have_left_files,
    quarantine_path,
    registered_files,
    set_aside,
)
from sluice.protocol.transaction import State, Transaction


class Quarantine:
    """The quarantine of one pipeline, seen by its coordinator."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def prepare(self, table: Table, writer: TableSpec) -> TableSpec | None:
        """See that the quarantine is there, for START-COMMIT to name it; None where bad records stop the interval.

        Raises:
            ActionRequiredError: at its path is another table, or the dead-letter topic can't be used.
            RetryableError: Kafka doesn't say.
        """
        errors = self._session.pipeline.errors
        if errors.tolerance == "none":
            return None
        prepare_dead_letters(self._session)
        pinned = quarantine_of(self._session.sink).pin_quarantine(table, writer)
        keep_first_completions(quarantine_of(self._session.sink).open_quarantine(table, pinned))
        return pinned

    def commit(self, table: Table, transaction: Transaction) -> None:
        """Commit the bad records of an interval that is committed, and send them to the dead-letter topic.

        Both look first whether they were done.
        """
        quarantine = self._open(table, transaction)
        committables = [c for _, status in sorted(set_aside(transaction).items()) for c in status.quarantine_stats]
        if quarantine.state_of(transaction.id) != "completed":
            reach("coordinator.before_quarantine_commit")
            mend(quarantine)
            quarantine.open(transaction.id)
            start = transaction.start
            note = CommitNote(instant=transaction.id, table=start.table, dag_id=start.dag_id, run_id=start.run_id)
            quarantine.commit(transaction.id, committables, note.metadata())
            log.info("quarantine committed", instant=transaction.id, quarantine=quarantine.writer.path)
        if isinstance(quarantine, Publishes):
            quarantine.publish(transaction.id)
        reach("coordinator.after_quarantine_commit")
        send_dead_letters(self._session, transaction, [c.path for c in committables])
        reach("coordinator.after_dead_letters")

    def clear(self, table: Table, transactions: Iterable[Transaction]) -> list[str]:
        """Delete what attempts of transactions that have ended left in the quarantine, but what their commit named.

        Returns:
            The files that were deleted.
        """
        path = quarantine_path(self._session.table_id, self._session.pipeline.errors)
        ended = []
        for transaction in transactions:
            pinned = transaction.start.quarantine
            if pinned is None or not may_have_left_files(transaction):
                continue
            if pinned.path == path:
                ended.append(transaction)
            else:
                log.info("not the pipeline's quarantine, left as it is", quarantine=pinned.path, instant=transaction.id)
        if not ended:
            return []
        quarantine = self._open(table, ended[-1])
        left, committed = quarantine.leftovers(), dict[str, set[str]]()
        for t in ended:
            stands = t.state is State.COMMITTED or (t.id in left and quarantine.state_of(t.id) != "absent")
            committed[t.id] = registered_files(t) if stands else set()
        return [f"{path}/{file}" for file in quarantine.sweep(Ended(committed, {day_of(t.id) for t in ended}))]

    def _open(self, table: Table, transaction: Transaction) -> Table:
        """The pipeline's quarantine, which has to be the one that a transaction's START-COMMIT names.

        Raises:
            ActionRequiredError: it names another one.
        """
        pinned = quarantine_of(self._session.sink).pin_quarantine(table, table.writer)
        named = transaction.start.quarantine
        assert named is not None
        if named.path != pinned.path:
            raise ActionRequiredError(
                "The interval that is to be finished has set its bad records aside in another quarantine.",
                next_step="set errors.quarantine back until that interval is finished; then change it again.",
                quarantine=named.path,
                in_pipeline=pinned.path,
                instant=transaction.id,
            )
        quarantine: Table = quarantine_of(self._session.sink).open_quarantine(table, pinned)
        return quarantine
