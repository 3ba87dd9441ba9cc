"""Converts instants to times, and waits for this machine's clock to pass a table's last instant."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from sluice.errors import RetryableError

_FORM, _LENGTH = "%Y%m%d%H%M%S%f", 17


def instant_now() -> str:
    """This machine's time as an instant, in milliseconds, UTC."""
    return datetime.now(UTC).strftime(_FORM)[:_LENGTH]


def time_of(instant: str) -> datetime:
    """An instant's time; milliseconds are 0 if the instant has none."""
    return datetime.strptime(instant[:_LENGTH].ljust(_LENGTH, "0"), _FORM).replace(tzinfo=UTC)


def await_clock(last: str, longest: timedelta, table: str) -> None:
    """Wait until this machine's clock is later than a table's last instant, so that no time is given twice.

    Args:
        last: the latest instant, or completion time, on the table; empty if there is none.
        longest: the longest wait.
        table: the table's name, for the error.

    Raises:
        RetryableError: the clock is behind by more than `longest`.
    """
    behind = time_of(last) - datetime.now(UTC) if last else timedelta()
    if behind > longest:
        raise RetryableError(
            "This machine's clock is behind the table's last interval.",
            next_step="synchronize the clocks of all machines that write this table (NTP); until then the step fails.",
            table=table,
            last_instant=last,
            behind=str(behind),
            longest_wait=str(longest),
        )
    threading.Event().wait(max(behind.total_seconds(), 0) + 0.002)  # also past an instant that isn't on the table yet
