"""What is read of a table and its topics beside the control topic: its timeline and the logs' ends, cached."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache, partial
from threading import Lock
from typing import NamedTuple

from sluice.airflow.connections import kafka_settings
from sluice.connectors.views import CommitFacts, Instant, Timeline, commit_log_of, shows_commits
from sluice.control.reader import log_ends
from sluice.page.cache import Cached
from sluice.protocol.offsets import TopicPartition

_LASTS = 5.0  # seconds until a log's end or a timeline is read again
_REMEMBERED = 2000  # commits whose metadata is cached; a completed one never changes

LogEnds = dict[TopicPartition, int]


class Cluster(NamedTuple):
    """A cluster by its name in offsets, and how it is reached."""

    name: str
    connection: str
    bootstrap_servers: str | None = None


class Tables:
    """One for each API server process."""

    def __init__(self) -> None:
        self._timelines: dict[tuple[str, str], Cached[Timeline | None] | None] = {}
        self._ends: dict[tuple[Cluster, frozenset[str], str], Cached[LogEnds]] = {}
        self._lock = Lock()

    def timeline(self, sink: str, table: str) -> Cached[Timeline | None] | None:
        """The table's active timeline, None in it where there is no table yet; None where its sink shows none."""
        with self._lock:
            if (sink, table) not in self._timelines:
                cached = Cached(f"The timeline of {table}", partial(_timeline, sink, table), _LASTS)
                self._timelines[sink, table] = cached if shows_commits(sink) else None
            return self._timelines[sink, table]

    def log_ends(self, cluster: Cluster, topics: Collection[str], isolation_level: str) -> Cached[LogEnds]:
        """The log ends of a cluster's topics."""
        key = (cluster, frozenset(topics), isolation_level)
        with self._lock:
            if key not in self._ends:
                read = partial(_log_ends, cluster, frozenset(topics), isolation_level)
                self._ends[key] = Cached(f"The logs' ends of {', '.join(sorted(topics))}", read, _LASTS)
            return self._ends[key]


def _timeline(sink: str, table: str) -> Timeline | None:
    return commit_log_of(sink, table).read()


def _log_ends(cluster: Cluster, topics: frozenset[str], isolation_level: str) -> LogEnds:
    settings = kafka_settings(cluster.connection).at(cluster.name, cluster.bootstrap_servers)
    return log_ends(settings, topics, isolation_level)


@lru_cache(maxsize=_REMEMBERED)
def commit_facts(sink: str, table: str, instant: Instant) -> CommitFacts:
    """A summary of a completed commit's metadata.

    Raises:
        RetryableError, ActionRequiredError: it can't be read.
    """
    return commit_log_of(sink, table).facts(instant)
