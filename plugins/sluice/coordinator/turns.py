"""Taking turns on a table: whose transaction holds it, and waiting until that has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sluice.coordinator.session import Run, Session
from sluice.logs import log
from sluice.pipeline.services import TableServices
from sluice.protocol.transaction import State, TableLog, Transaction

IsRunning = Callable[[str, str], bool]
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
        table for longer than `table_services.timeout`: its process may hang, and its run count as running for good.
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
        return holder if self._is_running(holder.start.dag_id, holder.start.run_id) else None

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
                if not self._is_running(start.dag_id, start.run_id):
                    return
                look = now + _LOOK_AGAIN
