"""A table's time, behind which no machine's clock may be.

Hudi assigns a log file to a file slice by its commit's completion time, taken from the clock of the machine that
completed it. If one machine's clock is ahead when it compacts the metadata table, another machine's next commit would
be completed "before" that compaction: its record would be in a slice that is no longer read, and its rows would be
invisible, although their offsets are committed. So nothing is requested or completed before the clock has passed every
instant on the timelines of the table and its metadata table. Hudi's solution, a lock provider shared by all machines,
waits for a skew that must be known in advance.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sluice.connectors.clock import time_of
from sluice.errors import RetryableError
from sluice.logs import log

LONGEST_WAIT = timedelta(minutes=5)
_LAYOUT_WITH_COMPLETION_TIMES = 2  # since table version 8; before, completion times are the storage's file times


class TableClock:
    """The clock of the JVM's machine, compared with the timelines of one table.

    Args:
        jvm: Py4J's view of the JVM in which Hudi works.
        metas: Hudi's meta clients of the table and of its metadata table, if it has one.
        path: the table's path.
        longest: the longest wait for the clock to pass the timelines.
    """

    def __init__(self, jvm: Any, metas: Iterable[Any], path: str, longest: timedelta = LONGEST_WAIT) -> None:
        self._jvm = jvm
        self._metas = list(metas)
        self._path = path
        self._longest = longest

    def wait(self) -> None:
        """Wait until this machine's clock is later than every time on the table's timelines.

        Raises:
            RetryableError: it is too far behind to wait for.
        """
        last = max((_last_of(meta) for meta in self._metas), default="")
        until = time.monotonic() + self._longest.total_seconds()
        told = False
        while (behind := self._behind(last)) >= timedelta():
            where = {"table": self._path, "last_instant": last, "behind": str(behind), "machine": socket.gethostname()}
            if behind.total_seconds() > until - time.monotonic():
                raise RetryableError(
                    "This machine's clock is behind the table's last instant: readers would not see anything that is "
                    "completed now.",
                    next_step="synchronize the clocks of all machines that write this table (NTP): this machine's is "
                    "behind, or that of the last instant's machine was ahead. Until the clock has passed that instant, "
                    "the step fails.",
                    longest_wait=str(self._longest),
                    **where,
                )
            if not told:
                log.warning("waiting for this machine's clock to pass the table's last instant", **where)
                told = True
            threading.Event().wait(behind.total_seconds() + 0.001)

    def _behind(self, last: str) -> timedelta:
        if not last:
            return timedelta(-1)
        generator = self._jvm.org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator
        now = str(generator.formatDateBasedOnTimeZone(self._jvm.java.util.Date()))  # as Hudi makes completion times
        return time_of(last) - time_of(now)


def _last_of(meta: Any) -> str:
    """The latest time at which an instant was requested or completed; "" on an empty timeline."""
    timeline = meta.reloadActiveTimeline()
    requested = timeline.lastInstant()
    last = str(requested.get().requestedTime()) if requested.isPresent() else ""
    if int(meta.getTimelineLayoutVersion().getVersion()) >= _LAYOUT_WITH_COMPLETION_TIMES:
        completed = timeline.getLatestCompletionTime()
        last = max(last, str(completed.get()) if completed.isPresent() else "")
    return last
