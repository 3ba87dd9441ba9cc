"""Plays histories, and tells one."""

from __future__ import annotations

import structlog

from .history import History
from .world import Faults, ViolationError


def quiet() -> None:
    """No log lines: a history has a story of its own."""
    structlog.configure(processors=[_nothing], cache_logger_on_first_use=False)


def _nothing(*_: object) -> None:
    raise structlog.DropEvent


def play(seed: int, *, tell: bool = False, faults: Faults | None = None) -> tuple[str | None, list[str]]:
    """Play the history of a seed; what it violated, if anything, and its story if it is to be told."""
    history = History(seed, faults)
    story: list[str] = []
    if tell:
        history.world.story = story
    try:
        history.play()
    except ViolationError as error:
        return str(error), story
    return None, story
