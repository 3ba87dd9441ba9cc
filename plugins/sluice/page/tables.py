"""What is read of a table and its topics beside the control topic: the Hudi timeline and the logs' ends, cached."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache, partial
from threading import Lock

from sluice.airflow.connections import kafka_settings
from sluice.control.reader import log_ends
from sluice.page.cache import Cached
from sluice.protocol.offsets import TopicPartition
from sluice.sinks.hudi.timeline import CommitFacts, Instant, Timeline, TimelineFiles

_LASTS = 5.0  # seconds for which a log's end or a timeline is shown before it is asked for again
_REMEMBERED = 2000  # commits whose metadata is cached; what is completed never changes

LogEnds = dict[TopicPartition, int]


class Tables:
    """One for each API server process."""

    def __init__(self) -> None:
        self._timelines: dict[str, Cached[Timeline | None]] = {}
        self._ends: dict[tuple[str, frozenset[str], str], Cached[LogEnds]] = {}
        self._lock = Lock()

    def timeline(self, table: str) -> Cached[Timeline | None]:
        """The table's active timeline; None in it where there is no table yet."""
        with self._lock:
            if table not in self._timelines:
                read = TimelineFiles(table).read
                self._timelines[table] = Cached(f"The timeline of {table}", read, _LASTS)
            return self._timelines[table]

    def log_ends(self, connection: str, topics: Collection[str], isolation_level: str) -> Cached[LogEnds]:
        """Where the logs of a cluster's topics end."""
        key = (connection, frozenset(topics), isolation_level)
        with self._lock:
            if key not in self._ends:
                read = partial(_log_ends, connection, frozenset(topics), isolation_level)
                self._ends[key] = Cached(f"The logs' ends of {', '.join(sorted(topics))}", read, _LASTS)
            return self._ends[key]


def _log_ends(connection: str, topics: frozenset[str], isolation_level: str) -> LogEnds:
    return log_ends(kafka_settings(connection), topics, isolation_level)


@lru_cache(maxsize=_REMEMBERED)
def commit_facts(table: str, instant: Instant) -> CommitFacts:
    """What a completed commit's metadata says.

    Raises:
        RetryableError, ActionRequiredError: it can't be read.
    """
    return TimelineFiles(table).facts(instant)
