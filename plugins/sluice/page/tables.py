"""What is read of a table and its topics beside the control topic: its timeline and the logs' ends, cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from functools import lru_cache, partial
from threading import Lock
from typing import NamedTuple, TypeVar

from sluice.airflow.connections import kafka_settings, source_connections
from sluice.connectors.connections import given
from sluice.connectors.views import CommitFacts, Instant, Timeline, commit_log_of, shows_commits
from sluice.control.reader import log_ends
from sluice.page.cache import Cached
from sluice.protocol.offsets import TopicPartition

_LASTS = 5.0  # seconds until a log's end or a timeline is read again
_REMEMBERED = 2000  # commits whose metadata is cached, a completed one never changes; likewise tables and topics

LogEnds = dict[TopicPartition, int]
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Shown(NamedTuple):
    """A table whose own commits are shown.

    Attributes:
        sink: its sink's name.
        table: its id.
        connections: ids of the Airflow connections by which it is read; of a pipeline file alone, never of a message.
    """

    sink: str
    table: str
    connections: tuple[str, ...] = ()


class Cluster(NamedTuple):
    """A cluster by its name in offsets, and how it is reached."""

    name: str
    connection: str
    bootstrap_servers: str | None = None


class Tables:
    """One for each API server process."""

    def __init__(self) -> None:
        self._timelines: OrderedDict[Shown, Cached[Timeline | None] | None] = OrderedDict()
        self._ends: OrderedDict[tuple[Cluster, frozenset[str], str], Cached[LogEnds]] = OrderedDict()
        self._lock = Lock()

    def timeline(self, shown: Shown) -> Cached[Timeline | None] | None:
        """The table's active timeline, None in it where there is no table yet; None where its sink shows none."""
        with self._lock:
            if shown not in self._timelines:
                cached = Cached(f"The timeline of {shown.table}", partial(_timeline, shown), _LASTS)
                self._timelines[shown] = cached if shows_commits(shown.sink) else None
            return _latest(self._timelines, shown)

    def log_ends(self, cluster: Cluster, topics: Collection[str], isolation_level: str) -> Cached[LogEnds]:
        """The log ends of a cluster's topics."""
        key = (cluster, frozenset(topics), isolation_level)
        with self._lock:
            if key not in self._ends:
                read = partial(_log_ends, cluster, frozenset(topics), isolation_level)
                self._ends[key] = Cached(f"The logs' ends of {', '.join(sorted(topics))}", read, _LASTS)
            return _latest(self._ends, key)


def _latest(kept: OrderedDict[_K, _V], key: _K) -> _V:
    """A value, and no more of the others than are remembered: messages name tables and topics, as many as they like."""
    kept.move_to_end(key)
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)
    return kept[key]


def _timeline(shown: Shown) -> Timeline | None:
    with given(source_connections(shown.connections)):
        return commit_log_of(shown.sink, shown.table).read()


def _log_ends(cluster: Cluster, topics: frozenset[str], isolation_level: str) -> LogEnds:
    settings = kafka_settings(cluster.connection).at(cluster.name, cluster.bootstrap_servers)
    return log_ends(settings, topics, isolation_level)


@lru_cache(maxsize=_REMEMBERED)
def commit_facts(shown: Shown, instant: Instant) -> CommitFacts:
    """A summary of a completed commit's metadata.

    Raises:
        RetryableError, ActionRequiredError: it can't be read.
    """
    with given(source_connections(shown.connections)):
        return commit_log_of(shown.sink, shown.table).facts(instant)
