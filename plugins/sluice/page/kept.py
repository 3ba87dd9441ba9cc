"""A value that is read anew in the background when it is asked for and has grown old: the last known one stays."""

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
# So many read at a time. Each may wait for a broker or a file system that is down.
_readers = threading.BoundedSemaphore(8)


@dataclass(frozen=True)
class Known(Generic[T]):
    """The last value that could be read and when, and why it could not be read since; None where all is well."""

    value: T | None
    at: datetime | None
    error: str | None


class Kept(Generic[T]):
    """Keeps what `read` returned.

    Args:
        what: what it is, for the log.
        read: reads it; a SluiceError says to people why it can't be read.
        lasts: seconds for which a value is young enough not to be read again.
    """

    def __init__(self, what: str, read: Callable[[], T], lasts: float) -> None:
        self._what = what
        self._read = read
        self._lasts = lasts
        self._known: Known[T] = Known(None, None, None)
        self._tried = float("-inf")
        self._reading: Future[None] | None = None
        self._lock = threading.Lock()

    @property
    def known(self) -> Known[T]:
        """The last value; never waits."""
        return self._known

    def refresh(self) -> Future[None] | None:
        """Begin to read it again if it is old. What is being read is worth waiting for, unless it failed before."""
        with self._lock:
            if self._reading is None and time.monotonic() - self._tried >= self._lasts:
                self._reading = Future()
                # A daemon, unlike a pool's thread: the API server doesn't wait for a broker before it stops.
                threading.Thread(target=self._read_again, args=(self._reading,), daemon=True).start()
            return self._reading if self._known.error is None else None

    def _read_again(self, reading: Future[None]) -> None:
        try:
            with _readers:
                self._known = Known(self._read(), datetime.now(UTC), None)
        except SluiceError as error:
            self._failed(str(error))
        except Exception:  # told in the log; what a library says isn't shown, since it may name secrets
            _log.exception("%s could not be read", self._what)
            self._failed(f"{self._what} could not be read; the API server's log says why.")
        finally:
            with self._lock:
                self._tried = time.monotonic()
                self._reading = None
            reading.set_result(None)

    def _failed(self, why: str) -> None:
        self._known = Known(self._known.value, self._known.at, why)


def refresh_all(kept: Iterable[Kept[Any]], wait: float = 1.5) -> None:
    """Begin to read again all that is old, and wait for it, though not longer than `wait` seconds in all."""
    reading = [future for one in kept if (future := one.refresh()) is not None]
    wait_for(reading, timeout=wait)
