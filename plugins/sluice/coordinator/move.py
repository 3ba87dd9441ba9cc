"""A table's way from one control topic to another, taken by the first step that begins a transaction on the new one.

Transactions on the old topic are settled there: decided ones are finished, and a MOVED message, which counts by the
turn rule as a START-COMMIT does, supersedes open ones. From then on nothing can be begun or committed by way of the
old topic, whichever process still has it in its configuration. Each part is safe to run again: until the first commit
that notes the new topic, every start goes through them.
"""

from __future__ import annotations

from collections.abc import Callable

from sluice.connectors.sink import Table
from sluice.coordinator.commit import Committer
from sluice.coordinator.session import Committed, Run, Session
from sluice.coordinator.turns import IsRunning, Turns
from sluice.errors import ActionRequiredError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.protocol.messages import Moved
from sluice.protocol.transaction import TableLog

EndSuperseded = Callable[[Session, Table, TableLog, Committed, str], None]


class Mover:
    """Moves one pipeline's table to the pipeline's control topic.

    Args:
        session: the pipeline, on its own control topic.
        is_running: whether a DAG run still runs.
        end_superseded: rolls back and sweeps up what intervals on the old topic left, as START does.
    """

    def __init__(self, session: Session, is_running: IsRunning, end_superseded: EndSuperseded) -> None:
        self._session = session
        self._is_running = is_running
        self._end_superseded = end_superseded

    def settle(self, table: Table, run: Run, committed: Committed) -> bool:
        """Settle the table on the topic of its last commit, if that isn't the pipeline's; False to look again.

        Raises:
            ActionRequiredError: the table has left the pipeline's topic for another one.
            RetryableError: another process is committing, or Kafka or Hudi don't answer.
        """
        if committed.elsewhere is None:
            return True
        self._refuse_to_go_back()
        old = self._session.on_control_topic(committed.elsewhere)
        if not old.control.exists():
            return True
        read_position = old.control.end()  # before the timeline is read: see protocol/transaction.py
        committed = self._session.committed(table)
        if committed.elsewhere != old.control.topic:
            return False
        table_log = old.control.table_log(old.table_id, committed.note.started_at[0])
        if Committer(old).fence.repair(table, table_log):
            return False
        if not table_log.transactions and table_log.moved is None and not committed.note.is_ours:
            return True  # the table was never there
        if table_log.moved is None:
            return self._leave(table, run, old, table_log, read_position)
        if table_log.moved.to != self._session.control.topic:
            raise self._gone(old.control.topic, table_log.moved.to)
        self._end_superseded(old, table, table_log, committed, table_log.moved.transaction)
        return True

    def _leave(self, table: Table, run: Run, old: Session, table_log: TableLog, read_position: int) -> bool:
        turns = Turns(old, self._is_running)
        held = turns.held_by_another(table_log, run)
        if held is not None:
            turns.wait_for(held)
            return False
        if Committer(old).resolve_unfinished(table, table_log):
            return False
        envelope = old.envelope(table.new_instant(), table_log.highest_epoch() + 1, run)
        reach("coordinator.before_moved")
        old.control.send(Moved(**envelope, read_position=read_position, to=self._session.control.topic))
        reach("coordinator.after_moved")
        moved = old.control.extend(table_log).moved
        if moved is not None:
            log.info("MOVED", table=old.table_id, from_topic=old.control.topic, to=moved.to)
        return False  # the next look finishes what follows from it, or finds whose message came first

    def _refuse_to_go_back(self) -> None:
        """A topic that the table has left stays closed: two configurations would move it to and fro."""
        self.require_here(self._session.control.table_log(self._session.table_id, 0))

    def require_here(self, table_log: TableLog) -> None:
        """Check that the table hasn't left the pipeline's control topic.

        Raises:
            ActionRequiredError: it has.
        """
        if table_log.moved is not None:
            raise self._gone(self._session.control.topic, table_log.moved.to)

    def _gone(self, left: str, to: str) -> ActionRequiredError:
        return ActionRequiredError(
            f"The table's messages have moved from the control topic {left} to {to}.",
            next_step=f"set control.topic to {to} in this pipeline file, or leave it out where that is the pipeline's "
            "own; a topic that was left isn't taken up again.",
            table=self._session.table_id,
        )
