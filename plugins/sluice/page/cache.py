"""A cached value: asking for it reads it again in the background once it is old, and the last good value stays."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from sluice.errors import SluiceError

T = TypeVar("T")
_log = logging.getLogger(__name__)
# Reads at a time: each may wait for a broker or a file system that is down.
_readers = threading.BoundedSemaphore(8)


@dataclass(frozen=True)
class Snapshot(Generic[T]):
    """The last good value and its time, and why the latest read failed; `error` is None if it did not."""

    value: T | None
    at: datetime | None
    error: str | None


class Cached(Generic[T]):
    """The last result of `read`, refreshed in the background.

    Args:
        what: names the value in the log.
        read: reads it; the text of a SluiceError is shown to people.
        lasts: seconds until a value is old.
    """

    def __init__(self, what: str, read: Callable[[], T], lasts: float) -> None:
        self._what = what
        self._read = read
        self._lasts = lasts
        self._latest: Snapshot[T] = Snapshot(None, None, None)
        self._tried = float("-inf")
        self._reading: Future[None] | None = None
        self._lock = threading.Lock()

    @property
    def latest(self) -> Snapshot[T]:
        """The last value; never waits."""
        return self._latest

    def refresh(self) -> Future[None] | None:
        """Start reading again if the value is old; the future of a running read, None where the last one failed."""
        with self._lock:
            if self._reading is None and time.monotonic() - self._tried >= self._lasts:
                self._reading = Future()
                # A daemon, unlike a pool's thread: the API server doesn't wait for a broker before it stops.
                threading.Thread(target=self._read_again, args=(self._reading,), daemon=True).start()
            return self._reading if self._latest.error is None else None

    def _read_again(self, reading: Future[None]) -> None:
        try:
            with _readers:
                self._latest = Snapshot(self._read(), datetime.now(UTC), None)
        except SluiceError as error:
            self._failed(str(error))
        except Exception:  # in the log only; a library's message isn't shown, since it may name secrets
            _log.exception("%s could not be read", self._what)
            self._failed(f"{self._what} could not be read; the API server's log says why.")
        finally:
            with self._lock:
                self._tried = time.monotonic()
                self._reading = None
            reading.set_result(None)

    def _failed(self, why: str) -> None:
        self._latest = Snapshot(self._latest.value, self._latest.at, why)


def refresh_all(cached: Iterable[Cached[Any]], wait: float = 1.5) -> None:
    """Start reading all old values again, and wait for them up to `wait` seconds in all."""
    reading = [future for one in cached if (future := one.refresh()) is not None]
    wait_for(reading, timeout=wait)
