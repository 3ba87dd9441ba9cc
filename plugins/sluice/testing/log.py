"""A control log in memory, for tests that play whole intervals in one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from sluice.protocol.messages import ControlMessage, decode, encode
from sluice.protocol.signing import Signatures
from sluice.protocol.transaction import TableLog

_UNSIGNED = Signatures("control", (), lambda _offset, _reason: None)


class MemoryLogs:
    """The control logs of a test, by topic; messages are in wire format."""

    def __init__(self) -> None:
        self.topics: dict[str, list[bytes]] = {}
        self.changed = threading.Condition()

    def __call__(self, topic: str) -> MemoryLog:
        """One of them, as `Parts.control` gives it to a coordinator."""
        return MemoryLog(self, topic)


class MemoryLog:
    """One control log; see `sluice.connectors.log.ControlLog`."""

    def __init__(self, logs: MemoryLogs, topic: str) -> None:
        self.topic = topic
        self.signatures = _UNSIGNED
        self._logs = logs

    @property
    def topic_id(self) -> str:
        """The id of the log, which is its name: in memory there is one log of a name."""
        return self.topic

    def exists(self) -> bool:
        """Whether anything was ever sent, or is about to be."""
        return self.topic in self._logs.topics

    def ensure(self) -> None:
        """Make it."""
        self._logs.topics.setdefault(self.topic, [])

    def expect_to_send(self) -> None:
        """Nothing has to be made ready."""

    def end(self) -> int:
        """How many messages there are."""
        return len(self._messages)

    def send(self, message: ControlMessage) -> int:
        """Append a message."""
        with self._logs.changed:
            self._messages.append(encode(message))
            self._logs.changed.notify_all()
            return len(self._messages) - 1

    def table_log(self, table: str, start: int) -> TableLog:
        """Fold all of a table's messages from an offset on."""
        return self.extend(TableLog(table), start)

    def extend(self, table_log: TableLog, start: int | None = None) -> TableLog:
        """Read on."""
        with self._logs.changed:
            first = table_log.position if start is None else start
            table_log.extend((offset, decode(self._messages[offset])) for offset in range(first, self.end()))
            table_log.position = max(table_log.position, self.end())
        return table_log

    def follow(self, table_log: TableLog, stop: threading.Event) -> Iterator[TableLog]:
        """Yield the fold when a message has come, and a few times a second, until `stop` is set."""
        while not stop.is_set():
            with self._logs.changed:
                self._logs.changed.wait_for(lambda: self.end() > table_log.position or stop.is_set(), timeout=0.2)
            yield self.extend(table_log)

    @property
    def _messages(self) -> list[bytes]:
        return self._logs.topics.setdefault(self.topic, [])
