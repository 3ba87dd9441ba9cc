"""Plays histories, and tells one."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import structlog

from sluice.coordinator import sources, streams
from sluice.participant import participant
from sluice.sinks.kafka import table as kafka_table

from .broker import asked_in
from .history import History
from .kafka_sink import SimStaged
from .mapping import Mapped, OneAfterTheOther, SimService
from .world import Faults, ViolationError, World


class _NoThread:
    """A participant's watch: it would see nothing here, since a participant looks itself before it reports."""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        pass

    join = start


_WITHOUT_THREADS = SimpleNamespace(Event=threading.Event, Thread=_NoThread)


def quiet() -> None:
    """No log lines: a history has a story of its own. And little collecting of garbage, of which there is much."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    structlog.configure(processors=[_nothing], cache_logger_on_first_use=False)


def _nothing(*_: object) -> None:
    raise structlog.DropEvent


@contextmanager
def in_its_world(world: World) -> Iterator[None]:
    """Let the table of a topic find what is staged, a source its records, and both the time, in a world."""
    with (
        mock.patch.object(kafka_table, "Staged", SimStaged),
        mock.patch.object(kafka_table, "instant_now", world.now),
        asked_in(world),
    ):
        yield


@contextmanager
def patched(history: History) -> Iterator[None]:
    """Let the code under test have no threads, and a metadata service in memory."""
    service = SimService(history.world, history.mapped or Mapped())
    with (
        mock.patch.object(participant, "threading", _WITHOUT_THREADS),
        mock.patch.object(sources, "ThreadPoolExecutor", OneAfterTheOther),
        mock.patch.object(streams, "ThreadPoolExecutor", OneAfterTheOther),
        mock.patch.object(streams, "metadata_service", return_value=service),
    ):
        yield


def play(seed: int, *, tell: bool = False, faults: Faults | None = None) -> tuple[str | None, list[str]]:
    """Play the history of a seed; what it violated, if anything, and its story if it is to be told."""
    history = History(seed, faults)
    story: list[str] = []
    if tell:
        history.world.story = story
    try:
        with patched(history), in_its_world(history.world):
            history.play()
    except ViolationError as error:
        return str(error), story
    return None, story
