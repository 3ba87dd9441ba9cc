"""Writes rows into a database's table over some time, in small transactions, as an application does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sluice.local.demo.databases import Database
from sluice.local.demo.flights import Stream
from sluice.local.demo.replay import share
from sluice.local.errors import LocalRuntimeError

_TICK = 0.5  # seconds between two transactions
_MOST = 5_000  # rows of one


class Writer(threading.Thread):
    """Inserts one stream's rows.

    Args:
        database: where.
        stream: the rows, as records of JSON.
        columns: the columns of the table that have a value of theirs.
        seconds: how long the steady part takes.
    """

    def __init__(self, database: Database, stream: Stream, columns: Sequence[str], seconds: float) -> None:
        super().__init__(name="writer", daemon=True)
        self.inserted = 0
        self._database, self._stream, self._columns, self._seconds = database, stream, columns, seconds
        self._rest = threading.Event()
        self._failure: BaseException | None = None

    def write_rest(self) -> None:
        """No longer hold anything back."""
        self._rest.set()

    def check(self) -> None:
        """Raise what went wrong, if anything did.

        Raises:
            LocalRuntimeError: a row was not inserted.
        """
        if self._failure is not None:
            raise LocalRuntimeError(
                f"Writing to the table {self._database.source} failed: {self._failure}.",
                next_step="see whether the database runs, and run the demo again.",
            ) from self._failure

    def run(self) -> None:
        """The thread's own part; use `start`."""
        try:
            self._write()
        except BaseException as error:
            self._failure = error

    def _write(self) -> None:
        total, began = self._stream.total, time.monotonic()
        while self.inserted < total:
            share_now = 1.0 if self._rest.is_set() else share(time.monotonic() - began, self._seconds)
            until = min(int(total * share_now), self.inserted + _MOST)
            if until > self.inserted:
                self._database.insert([self._row(r.value) for r in self._stream.slice(self.inserted, until)])
                self.inserted = until
            else:
                self._rest.wait(_TICK)

    def _row(self, value: bytes) -> tuple[Any, ...]:
        found: Mapping[str, Any] = json.loads(value)
        return tuple(found[name] for name in self._columns)
