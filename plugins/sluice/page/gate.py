"""Few of a kind of request are served at a time, and the others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from sluice.errors import RetryableError


class Gate:
    """Lets some requests through at a time.

    A request doesn't wait for its turn: it would hold one of the few threads that Airflow's own requests need, too.

    Args:
        places: how many may be inside at a time.
        what: what the error says where all places are taken.
        next_step: what it advises.
    """

    def __init__(self, places: int, what: str, next_step: str) -> None:
        self._places = BoundedSemaphore(places)
        self._what, self._next_step = what, next_step

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the places, for as long as the block.

        Raises:
            RetryableError: all are taken.
        """
        if not self._places.acquire(blocking=False):
            raise RetryableError(self._what, next_step=self._next_step)
        try:
            yield
        finally:
            self._places.release()
