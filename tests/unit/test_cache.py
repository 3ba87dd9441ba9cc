"""A value that is kept, and read again in the background."""

from __future__ import annotations

import threading

from sluice.errors import RetryableError
from sluice.page.cache import Cached, refresh_all


def test_it_is_read_when_it_is_asked_for_and_only_once_while_it_is_young():
    reads = []
    cached = Cached("it", lambda: reads.append(1) or len(reads), lasts=60)
    assert cached.latest.value is None
    for _ in range(3):
        refresh_all([cached])
    assert (cached.latest.value, cached.latest.error, len(reads)) == (1, None, 1)


def test_what_was_known_stays_with_its_age_and_the_reason():
    answers = iter([7])

    def read() -> int:
        value = next(answers, None)
        if value is None:
            raise RetryableError("The broker is down.", next_step="start it.")
        return value

    cached = Cached("it", read, lasts=0)
    refresh_all([cached])
    first = cached.latest
    refresh_all([cached])
    assert (cached.latest.value, cached.latest.at) == (7, first.at)
    assert cached.latest.error == "The broker is down. Next step: start it."


def test_nobody_waits_longer_than_he_wants_nor_again_after_a_failure():
    go, has_read = threading.Event(), threading.Event()

    def read() -> int:
        go.wait()
        has_read.set()
        raise RetryableError("The broker is down.", next_step="start it.")

    cached = Cached("it", read, lasts=0)
    refresh_all([cached], wait=0.1)
    assert not has_read.is_set()
    go.set()
    reading = cached.refresh()
    assert reading is not None
    reading.result(30)
    go.clear()
    assert cached.refresh() is None  # it is tried again, but nobody waits for it
    go.set()


def test_what_a_library_says_is_logged_and_not_shown(caplog):
    cached = Cached("The table", lambda: 1 // 0, lasts=60)
    refresh_all([cached])
    assert cached.latest.error == "The table could not be read; the API server's log says why."
    assert "ZeroDivisionError" in caplog.text
