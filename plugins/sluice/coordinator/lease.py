"""The age of a lease on a commit, by steady clocks wherever that is possible.

The holder counts from before it sent END-COMMIT; every other process from when it first saw the message, which is
later. So a lease has expired for its holder before it has for any other process. A process that has just begun goes by
the time in END-COMMIT, and allows for as much difference between clocks as the pipeline says.
"""

from __future__ import annotations

from datetime import timedelta

from sluice.coordinator.machine import THIS_MACHINE, Machine
from sluice.protocol.messages import EndCommit


class Leases:
    """What one process knows of the leases on one table.

    Args:
        table: as the messages name it.
        timeout: for how long a lease is given.
        skew: by how much the clocks of two machines may differ.
        machine: that of the process.
    """

    def __init__(self, table: str, timeout: timedelta, skew: timedelta, machine: Machine = THIS_MACHINE) -> None:
        self._table = table
        self._timeout = timeout
        self._skew = skew
        self._machine = machine
        self._own: dict[int, float] = {}

    def sent(self, offset: int, before: float) -> None:
        """This process has sent the END-COMMIT with that offset; `before`: when it began to."""
        self._own[offset] = before

    def is_held_here(self, offset: int) -> bool:
        """Whether the lease is this process's own, and has not run out."""
        return offset in self._own and self._machine.steady() - self._own[offset] < self._timeout.total_seconds()

    def is_free(self, offset: int, lease: EndCommit, wait: float = 5.0) -> bool:
        """Whether another process's lease may be taken over: given back, left by a dead process, or run out.

        Args:
            offset: of the END-COMMIT with which it was taken.
            lease: that message.
            wait: seconds to wait for the process's end.
        """
        now = self._machine.steady()
        seen = now - self._machine.seen.setdefault((self._table, offset, lease.time), now)
        age = self._machine.now() - lease.time
        ran_out = seen >= self._timeout.total_seconds() or age >= self._timeout + self._skew
        return lease.released or ran_out or self._machine.is_gone(lease.holder, wait)
