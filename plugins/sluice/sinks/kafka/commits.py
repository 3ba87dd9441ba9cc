"""Reads the log of a table of topics without a JVM, for the page: the newest intervals, and all pending ones."""

from __future__ import annotations

from typing import Final

from sluice.connectors.clock import time_of
from sluice.connectors.views import CommitFacts, Instant, Timeline
from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.sinks.kafka.cluster import target_settings
from sluice.sinks.kafka.log import KEPT, Commit, TableLog
from sluice.sinks.kafka.offsets import Offsets
from sluice.sinks.kafka.options.names import log_of

READ: Final = 5_000
"""How many of the log's last offsets are read: a committed interval takes five, an aborted one four."""
_TIMEOUT: Final = 10.0


class TopicCommits:
    """One table's log; see `sluice.connectors.views.CommitLog`.

    Args:
        table: its id, `kafka://<connection>/<log topic>`.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def read(self) -> Timeline | None:
        """The newest intervals, and all pending ones; None if the log doesn't exist."""
        log = self._log()
        if log is None:
            return None
        instants = {one.instant: _done(one) for one in log.commits}
        for one in log.opened.values():
            instants.setdefault(one.instant, Instant(one.instant, None, "interval", True, one.instant, is_commit=False))
        forgets = len(log.commits) >= KEPT or not log.is_whole
        return Timeline(dict(sorted(instants.items())), archives=forgets)

    def facts(self, instant: Instant) -> CommitFacts:
        """A committed interval's facts, from the log; tombstones count as rows."""
        log = self._log()
        found = log.find(instant.requested) if log is not None else None
        if found is None:
            raise ActionRequiredError(
                "The interval is no longer in the sink's log.",
                next_step=f"the log keeps the last {KEPT} intervals; look for older ones in the control topic.",
                table=self._table,
                instant=instant.requested,
            )
        return CommitFacts(
            operation=None,
            rows=found.records + found.tombstones,
            bytes_written=found.bytes,
            files=0,
            table_partitions=0,
            extra=tuple(sorted(found.extra)),
        )

    def _log(self) -> TableLog | None:
        connection, topic = log_of(self._table)
        settings: KafkaSettings = target_settings(connection)
        if not Offsets(settings, _TIMEOUT).partitions([topic]):
            return None
        log = TableLog(settings, topic, patience=0, timeout=_TIMEOUT, newest=READ)
        try:
            return log.read()
        finally:
            log.close()


def _done(commit: Commit) -> Instant:
    completed = commit.completed
    return Instant(commit.instant, completed, "interval", False, commit.instant, time_of(completed))
