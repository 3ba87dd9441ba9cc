"""Instants as times of a machine's clock: how they are written, and how a table waits until its last one has passed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta

from sluice.errors import RetryableError
from sluice.protocol.messages import TableSpec

_FORM, _LENGTH = "%Y%m%d%H%M%S%f", 17


def instant_now() -> str:
    """This machine's time as an instant, in milliseconds, UTC."""
    return datetime.now(UTC).strftime(_FORM)[:_LENGTH]


def time_of(instant: str) -> datetime:
    """An instant's time; milliseconds are 0 if the instant has none."""
    return datetime.strptime(instant[:_LENGTH].ljust(_LENGTH, "0"), _FORM).replace(tzinfo=UTC)


class TimedByMachine(ABC):
    """A table whose instants are times of the machine that makes them; see `sluice.connectors.sink.Table`.

    Attributes:
        writer: the settings for writing the table.
        clock_wait: how long to wait for this machine's clock to pass the table's last instant.
    """

    writer: TableSpec
    clock_wait: timedelta

    @abstractmethod
    def newest_time(self) -> str:
        """The latest instant, or time of a commit, on the table; empty if there is none."""

    def await_clock(self) -> None:
        """Wait until this machine's clock is later than the table's newest time, so that no time is given twice.

        Raises:
            RetryableError: the clock is behind by more than `clock_wait`.
        """
        last = self.newest_time()
        behind = time_of(last) - datetime.now(UTC) if last else timedelta()
        if behind > self.clock_wait:
            raise RetryableError(
                "This machine's clock is behind the table's last interval.",
                next_step="synchronize the clocks of all machines that write this table (NTP); until then the step "
                "fails.",
                table=self.writer.path,
                last_instant=last,
                behind=str(behind),
                longest_wait=str(self.clock_wait),
            )
        threading.Event().wait(max(behind.total_seconds(), 0) + 0.002)  # also past an instant that isn't there yet

    def new_instant(self) -> str:
        """See `Table`. The time in milliseconds."""
        self.await_clock()
        return instant_now()
