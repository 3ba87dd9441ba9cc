"""The control log, which orders a table's messages across all senders."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

from sluice.protocol.messages import ControlMessage
from sluice.protocol.signing import Signatures
from sluice.protocol.transaction import TableLog


class ControlLog(Protocol):
    """One log of control messages, whose offsets give them the same order for every reader (RFC-32's control topic).

    Raises (all methods):
        RetryableError: the log can't be reached in time. A message may have been appended all the same.
        ActionRequiredError: the log is missing, or may not be used.
    """

    topic: str
    signatures: Signatures

    @property
    def topic_id(self) -> str | None:
        """Kafka's id of the topic that has the name now; None where brokers have no topic ids."""
        ...

    def exists(self) -> bool:
        """Whether the log exists."""
        ...

    def ensure(self) -> None:
        """Create the log on first use, and check that it has one partition."""
        ...

    def expect_to_send(self) -> None:
        """Prepare for sending in the background."""
        ...

    def end(self) -> int:
        """The log's end: the next message will get this offset or a later one."""
        ...

    def send(self, message: ControlMessage) -> int:
        """Append a message, and return its offset once it is durable."""
        ...

    def table_log(self, table: str, start: int) -> TableLog:
        """Fold all of a table's messages from an offset to the log's present end."""
        ...

    def extend(self, table_log: TableLog, start: int | None = None) -> TableLog:
        """Read on from where a fold ended, or from `start`, to the log's present end."""
        ...

    def follow(self, table_log: TableLog, stop: threading.Event) -> Iterator[TableLog]:
        """Yield the fold whenever a message has been added, and from time to time, until `stop` is set."""
        ...
