"""Reads a control topic further each time it is asked to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sluice.control.reader import ControlReader
from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import ControlMessage


class Progress(NamedTuple):
    """How far the topic has been read: to `position` in `[first, end)`; `unreadable` counts foreign messages."""

    first: int
    position: int
    end: int
    unreadable: int

    @property
    def complete(self) -> bool:
        """Whether everything up to the end seen last has been read."""
        return self.position >= self.end


class ContinuedReader:
    """One control topic: what has come since the last time, or all of another topic that has its name now.

    Raises (all methods):
        RetryableError: the broker can't be reached in time.
        ActionRequiredError: the topic may not be read.

    Args:
        topic: the control topic.

    Attributes:
        progress: how far it has been read; None before the first look.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._topic_id: str | None = None
        self._reader: ControlReader | None = None
        self.progress: Progress | None = None

    def look(self, settings: KafkaSettings) -> bool:
        """Look how far the topic goes now.

        Args:
            settings: the cluster's, which may have changed.

        Returns:
            Whether it is another topic than at the last look: what was read of that one is void.
        """
        if self._reader is None or self._reader.settings != settings:
            self._reader = ControlReader(settings, self._topic)
        bounds = self._reader.bounds()
        position = self.progress.position if self.progress else 0
        another = bounds.topic_id != self._topic_id or position > bounds.end
        self._topic_id = bounds.topic_id
        start = max(0 if another else position, bounds.first)
        self.progress = Progress(bounds.first, start, bounds.end, self._reader.unreadable)
        return another

    def batches(self) -> Iterator[list[tuple[int, ControlMessage]]]:
        """The messages from there to the end that was seen, each with its offset.

        A batch counts as read when the next one is asked for: after an error it is read again.
        """
        reader, at = self._reader, self.progress
        if reader is None or at is None:
            raise ValueError("look comes first")
        if not at.complete:
            for batch in reader.read(at.position, at.end):
                yield batch
                position = batch[-1][0] + 1 if batch else at.position
                at = self.progress = at._replace(position=position, unreadable=reader.unreadable)
        self.progress = at._replace(position=at.end, unreadable=reader.unreadable)
