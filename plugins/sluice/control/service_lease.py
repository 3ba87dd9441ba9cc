"""A table service's lease on its table: a transaction without ranges, which the control topic orders like any other.

While it is open, a starting interval waits for it, or supersedes it if its run has ended. A superseded service can't
get past `decide`; anything that changes the table for good comes after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sluice.connectors.log import ControlLog
from sluice.errors import IntervalError, SluiceError
from sluice.logs import log
from sluice.protocol.messages import COUNTS, AbortCommit, AckCommit, EndCommit
from sluice.protocol.settlement import transaction_at
from sluice.protocol.transaction import State, TableLog, Transaction
from sluice.redact import redact_text


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class ServiceLease:
    """One service's transaction, and the table's log that it is in.

    Attributes:
        now: the machine's time, with which messages are stamped.
    """

    control: ControlLog
    table_log: TableLog
    transaction: Transaction
    now: Callable[[], datetime] = _now
    _turn: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    @classmethod
    def at(
        cls, control: ControlLog, table: str, control_offset: int, now: Callable[[], datetime] = _now
    ) -> ServiceLease:
        """The lease whose START-COMMIT is at that offset, for a process that didn't send it.

        Raises:
            IntervalError: there is none.
        """
        table_log = control.table_log(table, control_offset)
        return cls(control, table_log, transaction_at(table_log, control_offset), now)

    def decide(self, holder: str) -> None:
        """Send END-COMMIT: from now on no other process plans or commits until the service has ended.

        Args:
            holder: the process that carries the service out, as returned by `sluice.process.identity`.

        Raises:
            IntervalError: the service was superseded or aborted meanwhile; it must not complete.
        """
        self.require_open()
        if not self._send_lease(holder):
            raise self.lost()

    def require_open(self) -> None:
        """Check again that the service still holds the table, before it touches a plan.

        A plan has no message: each attempt first deletes the files of earlier attempts, so that a superseded attempt
        would delete the files of its successor.

        Raises:
            IntervalError: it was superseded or aborted meanwhile.
        """
        self.control.extend(self.table_log)
        if self.transaction.state is not State.OPEN:
            raise self.lost()

    def require_held(self, holder: str) -> None:
        """Check again that the service still holds the table, before a step after `decide`.

        Args:
            holder: as for `decide`.

        Raises:
            IntervalError: another process has ended it, or taken its lease over.
        """
        with self._turn:
            self.control.extend(self.table_log)
            lease = self.transaction.lease
            is_held = self.transaction.state is State.DECIDED and lease is not None and lease.holder == holder
        if not is_held:
            raise self.lost()

    def end_left(self, holder: str, reason: str) -> None:
        """Take the lease over from a process that has left it, and end its service, whose work is to be done again.

        Args:
            holder: the process that does so.
            reason: for ABORT-COMMIT.
        """
        if self._send_lease(holder, takes_over=True):
            self.give_up(reason)

    def lost(self) -> IntervalError:
        """The error of a service whose transaction no longer holds the table."""
        return IntervalError(
            f"The table service lost its hold on the table: its transaction is {self.transaction.state.value}.",
            next_step="none: nothing of it is seen, and the service's next run does the work.",
            table=self.table_log.table,
            service=self.transaction.start.service,
            reason=self.transaction.reason,
        )

    @contextmanager
    def renewed(self, holder: str, every: float, longest: timedelta) -> Iterator[None]:
        """Renew the lease while the block runs: a first cleaning may take longer than a lease lasts.

        A hanging service doesn't keep the table: after `longest` the lease is left to expire.

        Args:
            holder: as for `decide`.
            every: seconds between renewals; several must fit into `control.commit_timeout`.
            longest: how long after START-COMMIT it is renewed.
        """
        stop = threading.Event()
        given = (holder, every, longest, stop)
        thread = threading.Thread(target=self._renew, args=given, name="sluice-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _renew(self, holder: str, every: float, longest: timedelta, stop: threading.Event) -> None:
        while not stop.wait(every):
            if self.now() - self.transaction.start.time >= longest:
                log.warning(
                    "the lease on the table isn't renewed any more: the service has taken too long",
                    service=self.transaction.start.service,
                    timeout=str(longest),
                )
                return
            try:
                if not self._send_lease(holder):
                    log.warning("the lease on the table is lost", service=self.transaction.start.service)
                    return
            except SluiceError as error:  # there is time for another try before the lease expires
                log.warning("the lease on the table was not renewed", reason=str(error))

    def _send_lease(self, holder: str, *, takes_over: bool = False) -> bool:
        """Send END-COMMIT, replacing the holder's last one or, to take over, another's; returns whether it counts."""
        with self._turn:
            lease = self.transaction.lease
            if lease is not None and lease.holder != holder and not takes_over:
                return False  # `require_held` has seen it
            envelope, last = self._envelope(), self.transaction.lease_offset
            offset = self.control.send(EndCommit(**envelope, reported=(), holder=holder, takes_over=last))
            self.control.extend(self.table_log)
            return self.transaction.lease_offset == offset

    def acknowledge(self) -> None:
        """Send ACK-COMMIT: the service has ended, and the next transaction may have the table."""
        nothing = dict.fromkeys(COUNTS, 0)
        envelope: dict[str, Any] = {**self._envelope(), **nothing}
        self.control.send(AckCommit(**envelope, offsets=()))
        self.control.extend(self.table_log)

    def give_up(self, reason: str) -> None:
        """Send ABORT-COMMIT; the service's next run finishes or removes its instants on the timeline."""
        lease = self.transaction.lease_offset
        self.control.send(AbortCommit(**self._envelope(), reason=redact_text(reason), lease_offset=lease))
        self.control.extend(self.table_log)

    def _envelope(self) -> Mapping[str, Any]:
        start = self.transaction.start
        same = start.model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id", "sender"})
        return {**same, "time": self.now()}
