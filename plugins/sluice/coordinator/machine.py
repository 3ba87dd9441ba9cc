"""What a process knows by its machine: the time, by two clocks, and which processes have ended."""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Protocol

from sluice import process

Lease = tuple[str, int, datetime]
"""One lease: the table, the control-topic offset of its END-COMMIT, and that message's time."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # counts while the machine is suspended, too


class Machine(Protocol):
    """The machine that a process runs on.

    Attributes:
        seen: when this process first saw each lease, by `steady`. All parts of a process share it.
    """

    @property
    def seen(self) -> MutableMapping[Lease, float]: ...  # noqa: D102

    def steady(self) -> float:
        """Seconds on a clock that is never set, and that counts while the machine is suspended."""
        ...

    def now(self) -> datetime:
        """The time of the wall clock, which can be set."""
        ...

    def is_gone(self, holder: str, wait: float = 5.0) -> bool:
        """Whether a process has ended for certain, by its name (`sluice.process.identity`).

        Args:
            holder: its name.
            wait: seconds to wait for its end.
        """
        ...


class ThisMachine:
    """The machine that this process runs on."""

    def __init__(self) -> None:
        self.seen: MutableMapping[Lease, float] = {}

    def steady(self) -> float:
        """See `Machine`."""
        return time.clock_gettime(_CLOCK)

    def now(self) -> datetime:
        """See `Machine`."""
        return datetime.now(UTC)

    def is_gone(self, holder: str, wait: float = 5.0) -> bool:
        """See `Machine`."""
        return process.is_gone(holder, wait)


THIS_MACHINE = ThisMachine()
