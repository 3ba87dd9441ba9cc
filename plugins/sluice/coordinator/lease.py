"""How old a lease on a commit is, by clocks that nobody sets wherever that is possible.

Its holder counts from before it sent END-COMMIT; everybody else from when they first saw it, which is later. So a lease
has run out for its holder before it has for anybody else. A process that has just begun has seen nothing for long: it
goes by the time in END-COMMIT, and allows for as much difference between the clocks as the pipeline says.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from sluice.process import is_gone
from sluice.protocol.messages import EndCommit

_SEEN: dict[tuple[str, int, datetime], float] = {}  # when this process first saw a lease on a table
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # counts while the machine is suspended, too


def now() -> float:
    """Seconds on a clock of this machine that nobody sets."""
    return time.clock_gettime(_CLOCK)


class Leases:
    """What one process knows of the leases on one table.

    Args:
        table: as the messages name it.
        timeout: for how long a lease is given.
        skew: by how much the clocks of two machines may differ.
    """

    def __init__(self, table: str, timeout: timedelta, skew: timedelta) -> None:
        self._table = table
        self._timeout = timeout
        self._skew = skew
        self._own: dict[int, float] = {}

    def sent(self, offset: int, before: float) -> None:
        """This process has sent the END-COMMIT that stands at the offset; `before` is what `now` said before it did."""
        self._own[offset] = before

    def is_held_here(self, offset: int) -> bool:
        """Whether the lease is this process's own, and has not run out."""
        return offset in self._own and now() - self._own[offset] < self._timeout.total_seconds()

    def is_free(self, offset: int, lease: EndCommit) -> bool:
        """Whether another process's lease may be taken over: given back, left by a dead process, or run out."""
        seen = now() - _SEEN.setdefault((self._table, offset, lease.time), now())
        age = datetime.now(UTC) - lease.time
        ran_out = seen >= self._timeout.total_seconds() or age >= self._timeout + self._skew
        return lease.released or ran_out or is_gone(lease.holder)
