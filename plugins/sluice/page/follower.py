"""Follows control topics: the histories of all their tables, kept in memory and read on when somebody asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sluice.kafka.config import KafkaSettings
from sluice.kafka.control_reader import ControlReader
from sluice.page.kept import Kept
from sluice.protocol.history import TableHistory, TransactionSummary, fold

_LASTS = 2.0  # seconds between two looks into a topic
# Of each table, in each API server process: some 50 MB at most. What is thinned is read again when somebody looks.
_REMEMBERED = 20_000
_PARTITIONS = 50_000


class Progress(NamedTuple):
    """How far the topic is read: up to `position` of `[first, end)`, and how many messages there aren't Sluice's."""

    first: int
    position: int
    end: int
    unreadable: int

    @property
    def complete(self) -> bool:
        """Everything that stood in the topic at the last look has been read."""
        return self.position >= self.end


class ControlFollower:
    """One control topic.

    Args:
        settings: gives the cluster's settings, which may have been changed in Airflow since.
        topic: the control topic.
    """

    def __init__(self, settings: Callable[[], KafkaSettings], topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._tables: dict[str, TableHistory] = {}
        self._topic_id: str | None = None
        self._reader: ControlReader | None = None
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self.kept = Kept(f"The control topic {topic}", self._read_on, _LASTS)

    @property
    def progress(self) -> Progress | None:
        """How far it is read, also while it is being read; None before the first look."""
        return self._progress

    @contextmanager
    def tables(self) -> Iterator[dict[str, TableHistory]]:
        """The histories by table; nothing is folded into them inside the block."""
        with self._lock:
            yield self._tables

    def messages(self, transaction: TransactionSummary) -> list[tuple[int, dict[str, Any]]]:
        """A transaction's messages, read again from the topic.

        Raises:
            RetryableError, ActionRequiredError: the topic can't be read.
        """
        reader = ControlReader(self._settings(), self._topic)
        first = reader.bounds().first
        offsets = [offset for offset in transaction.offsets if offset >= first]
        return reader.messages(offsets, transaction.table) if offsets else []

    def _read_on(self) -> Progress:
        settings = self._settings()
        if self._reader is None or self._reader.settings != settings:
            self._reader = ControlReader(settings, self._topic)
        bounds = self._reader.bounds()
        position = self._progress.position if self._progress else 0
        if bounds.topic_id != self._topic_id or position > bounds.end:  # another topic of the same name
            with self._lock:
                self._tables, self._topic_id, position = {}, bounds.topic_id, 0
        position = max(position, bounds.first)
        self._progress = Progress(bounds.first, position, bounds.end, self._reader.unreadable)
        if position < bounds.end:
            for batch in self._reader.read(position, bounds.end):
                with self._lock:
                    fold(batch, self._tables, remembers=_REMEMBERED, partitions=_PARTITIONS)
                position = batch[-1][0] + 1 if batch else position
                self._progress = Progress(bounds.first, position, bounds.end, self._reader.unreadable)
        self._progress = Progress(bounds.first, bounds.end, bounds.end, self._reader.unreadable)
        return self._progress
