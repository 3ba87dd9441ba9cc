"""Follows control topics: the histories of all their tables, cached in memory and read further on request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sluice.control.continued import ContinuedReader, Progress
from sluice.control.reader import ControlReader
from sluice.kafka.config import KafkaSettings
from sluice.page.cache import Cached
from sluice.protocol.history import TableHistory, TransactionSummary, fold

_LASTS = 2.0  # seconds between two reads of a topic
# Limits for all tables together in each API server process, and lower ones for each table. Dropped details are read
# again on request.
_REMEMBERED = 60_000
_PARTITIONS = 300_000
_REMEMBERED_OF_TABLE = 20_000
_PARTITIONS_OF_TABLE = 50_000
_FEWEST = 50
_MESSAGES = 200  # at most in one response
_MESSAGE_BYTES = 16 * 1024 * 1024


class MemoryBudget:
    """How much all followers of a process may keep, so that more tables take no more memory.

    Each table has the same share; what a table with few transactions doesn't need of it, the others have.
    """

    def __init__(self) -> None:
        self._tables: dict[object, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def of_each(self, follower: object, tables: Iterable[int]) -> tuple[int, int]:
        """How many transactions and per-partition values each table may keep.

        Args:
            follower: who asks.
            tables: of each of its tables how many transactions it has now.
        """
        with self._lock:
            self._tables[follower] = tuple(tables)
            have = sorted(number for of in self._tables.values() for number in of)
        remembers = max(_FEWEST, min(_REMEMBERED_OF_TABLE, _share(have, _REMEMBERED)))
        return remembers, min(_PARTITIONS_OF_TABLE, _PARTITIONS // max(1, len(have)))


def _share(have: Sequence[int], most: int) -> int:
    """The largest number that each may have so that all together have at most so many; the smallest come first."""
    left = most
    for i, number in enumerate(have):
        share = left // (len(have) - i)
        if number > share:
            return share
        left -= number
    return most


class ControlFollower:
    """One control topic.

    Args:
        settings: returns the cluster's settings, which may change in Airflow.
        topic: the control topic.
        budget: shared with all other followers.
    """

    def __init__(self, settings: Callable[[], KafkaSettings], topic: str, budget: MemoryBudget) -> None:
        self._settings = settings
        self._budget = budget
        self._topic = topic
        self._tables: dict[str, TableHistory] = {}
        self._continued = ContinuedReader(topic)
        self._lock = threading.Lock()
        self.cached = Cached(f"The control topic {topic}", self._read_on, _LASTS)

    @property
    def progress(self) -> Progress | None:
        """How far it has been read, also during reading; None before the first read."""
        return self._continued.progress

    @contextmanager
    def tables(self) -> Iterator[dict[str, TableHistory]]:
        """The histories by table; they don't change inside the block."""
        with self._lock:
            yield self._tables

    def messages(self, transaction: TransactionSummary) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """A transaction's messages, read again from the topic, and how many were left out because of the limit.

        Raises:
            RetryableError, ActionRequiredError: the topic can't be read.
        """
        reader = ControlReader(self._settings(), self._topic)
        first = reader.bounds().first
        offsets = [offset for offset in transaction.offsets if offset >= first]
        if not offsets:
            return [], 0
        return reader.messages(offsets, transaction.table, most=_MESSAGES, most_bytes=_MESSAGE_BYTES)

    def _read_on(self) -> Progress:
        if self._continued.look(self._settings()):
            with self._lock:
                self._tables = {}
        for batch in self._continued.batches():
            with self._lock:
                fold(batch, self._tables)
                self._apply_budget()
        with self._lock:
            self._apply_budget()  # other followers may have more tables by now
        assert self._continued.progress is not None
        return self._continued.progress

    def _apply_budget(self) -> None:
        have = (len(history.transactions) for history in self._tables.values())
        remembers, partitions = self._budget.of_each(self, have)
        for history in self._tables.values():
            history.keep(remembers, partitions)
