"""Writes rows as files into a folder over some time, as an application does that exports what it has."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sluice.local.demo.flights import Stream
from sluice.local.demo.replay import share
from sluice.local.errors import LocalRuntimeError

_TICK = 0.5  # seconds between two files
_MOST = 5_000  # rows of one


class Writer(threading.Thread):
    """Writes one stream's rows as lines of JSON; a file appears whole, under a name that is used once.

    Args:
        folder: where.
        stream: the rows, as records of JSON.
        seconds: how long the steady part takes.
    """

    def __init__(self, folder: Path, stream: Stream, seconds: float) -> None:
        super().__init__(name="writer", daemon=True)
        self.written = 0
        self._folder, self._stream, self._seconds = folder, stream, seconds
        self._rest = threading.Event()
        self._failure: BaseException | None = None

    def write_rest(self) -> None:
        """No longer hold anything back."""
        self._rest.set()

    def check(self) -> None:
        """Raise what went wrong, if anything did.

        Raises:
            LocalRuntimeError: a row was not written.
        """
        if self._failure is not None:
            raise LocalRuntimeError(
                f"Writing files into {self._folder} failed: {self._failure}.",
                next_step="see whether the disk has space left, and run the demo again.",
            ) from self._failure

    def run(self) -> None:
        """The thread's own part; use `start`."""
        try:
            self._write()
        except BaseException as error:
            self._failure = error

    def _write(self) -> None:
        total, began = self._stream.total, time.monotonic()
        while self.written < total:
            share_now = 1.0 if self._rest.is_set() else share(time.monotonic() - began, self._seconds)
            until = min(int(total * share_now), self.written + _MOST)
            if until > self.written:
                self._file(b"".join(r.value + b"\n" for r in self._stream.slice(self.written, until)))
                self.written = until
            else:
                self._rest.wait(_TICK)

    def _file(self, content: bytes) -> None:
        file = self._folder / f"{time.time_ns()}.json"
        unfinished = file.with_suffix(".tmp")  # which sources of files leave out
        unfinished.write_bytes(content)
        unfinished.rename(file)


def lines(folder: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of all files that writers have left there."""
    for file in sorted(folder.glob("*.json")):
        with file.open("rb") as content:
            yield from map(json.loads, content)
