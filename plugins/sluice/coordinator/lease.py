"""How old a lease on a commit is, measured by monotonic clocks wherever possible.

The holder counts from before it sent END-COMMIT, every other process from when it first saw the message, which is
later. So a lease expires for its holder first. A process that has just started hasn't seen it for long: it goes by the
time in END-COMMIT, and allows for the clock difference that the pipeline configures.
"""

from __future__ import annotations

from datetime import timedelta

from sluice.coordinator.machine import THIS_MACHINE, Machine
from sluice.protocol.messages import EndCommit


class Leases:
    """What one process knows of the leases on one table.

    Args:
        table: the table's id in messages.
        timeout: how long a lease lasts.
        skew: how much the clocks of two machines may differ.
        machine: the machine that this process runs on.
    """

    def __init__(self, table: str, timeout: timedelta, skew: timedelta, machine: Machine = THIS_MACHINE) -> None:
        self._table = table
        self._timeout = timeout
        self._skew = skew
        self._machine = machine
        self._own: dict[int, float] = {}

    def sent(self, offset: int, before: float) -> None:
        """Note that this process sent the END-COMMIT at an offset; `before` is the time before it did."""
        self._own[offset] = before

    def is_held_here(self, offset: int) -> bool:
        """Whether the lease is this process's own and has not expired."""
        return offset in self._own and self._machine.steady() - self._own[offset] < self._timeout.total_seconds()

    def is_free(self, offset: int, lease: EndCommit) -> bool:
        """Whether another process's lease may be taken over: released, its holder dead, or expired."""
        now = self._machine.steady()
        seen = now - self._machine.seen.setdefault((self._table, offset, lease.time), now)
        age = self._machine.now() - lease.time
        ran_out = seen >= self._timeout.total_seconds() or age >= self._timeout + self._skew
        return lease.released or ran_out or self._machine.is_gone(lease.holder)
