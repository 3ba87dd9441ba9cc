"""Taking turns on a table: whose transaction holds it, and waiting until that has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sluice.connectors.sink import VersionChangingError
from sluice.coordinator.lease import Leases
from sluice.coordinator.session import Run, Session
from sluice.logs import log
from sluice.pipeline.services import TableServices
from sluice.protocol.services import PLANNED
from sluice.protocol.transaction import State, TableLog, Transaction

IsRunning = Callable[[str, str], bool]
_ENDS_WITHIN = 5.0  # seconds: a JVM ends a moment after the process that started it
_LOOK_AGAIN = 10.0  # seconds between two looks at whether the run that is waited for still runs


class Turns:
    """Who else is at the table.

    Airflow's word on what runs decides only about waiting; what may commit is decided by the control topic alone.

    Args:
        session: whose table it is.
        is_running: whether a DAG run, by its DAG's and its own id, still runs.
    """

    def __init__(self, session: Session, is_running: IsRunning) -> None:
        self._session = session
        self._is_running = is_running
        self._longest_service = (session.pipeline.table_services or TableServices()).timeout

    def held_by_another(self, table_log: TableLog, run: Run) -> Transaction | None:
        """The transaction that holds the table, if it is of another run that still runs, and may still hold it.

        Backfills and table services go beside the schedule's runs: superseding each other, none would get on. What an
        earlier task or attempt of the same run has left is not waited for. Nor is a table service that has had the
        table for longer than `table_services.timeout`: its process may hang, and its run count as running for good. Nor
        is one whose process has certainly ended: no scheduler knows of a run by hand that it has.
        """
        holder = table_log.holder()
        if holder is None or (holder.start.dag_id, holder.start.run_id) == (run.dag_id, run.run_id):
            return None
        if self._has_overstayed(holder):
            log.warning(
                "a table service has had the table for too long: it is superseded",
                instant=holder.id,
                service=holder.start.service,
                since=str(holder.start.time),
                timeout=str(self._longest_service),
            )
            return None
        return holder if self._may_go_on(holder, _ENDS_WITHIN) else None

    def changing_version(self, error: VersionChangingError, run: Run) -> Transaction | None:
        """The service that is changing the table's version just now; None where the change was left.

        Raises:
            ActionRequiredError: it was begun on another control topic.
        """
        return self.held_by_another(self._session.log_of_change(error.begun), run)

    def _may_go_on(self, holder: Transaction, wait: float) -> bool:
        if self._is_left(holder, wait):
            log.warning(
                "the process of a table service has ended, and left its transaction open",
                instant=holder.id,
                service=holder.start.service,
            )
            return False
        return self._is_running(holder.start.dag_id, holder.start.run_id)

    def _is_left(self, holder: Transaction, wait: float) -> bool:
        """Whether the process that carries a table service out has certainly ended, or its lease has run out."""
        start, lease, machine = holder.start, holder.lease, self._session.machine
        if start.service is None:
            return False
        if lease is None:
            return start.process is not None and machine.is_gone(start.process, wait)
        if start.service in PLANNED:  # its job doesn't renew the lease
            return lease.released or machine.is_gone(lease.holder, wait)
        control = self._session.pipeline.control
        leases = Leases(self._session.table_id, control.commit_timeout, control.clock_wait, machine)
        return leases.is_free(holder.lease_offset, lease, wait)

    def _has_overstayed(self, holder: Transaction) -> bool:
        """By two machines' clocks, which may differ: one that is superseded too early completes nothing, either."""
        start = holder.start
        return start.service is not None and self._session.machine.now() - start.time >= self._longest_service

    def wait_for(self, held: Transaction, until: float | None = None) -> None:
        """Follow the control topic until the transaction has ended, its run has without ending it, or its time is up.

        Args:
            held: what `held_by_another` named.
            until: when to stop waiting all the same, by the machine's steady clock.
        """
        start = held.start
        what = start.service or start.kind
        log.info("waiting for who holds the table", instant=held.id, what=what, dag=start.dag_id, run=start.run_id)
        table_log = self._session.control.table_log(self._session.table_id, held.start_offset)
        look = self._session.machine.steady() + _LOOK_AGAIN
        for _ in self._session.control.follow(table_log, threading.Event()):
            transaction = table_log.get(held.id)
            if transaction is None or transaction.state not in (State.OPEN, State.DECIDED):
                return
            now = self._session.machine.steady()
            if (until is not None and now >= until) or self._has_overstayed(held):
                return
            if now >= look:
                if not self._may_go_on(transaction, 0):
                    return
                look = now + _LOOK_AGAIN
