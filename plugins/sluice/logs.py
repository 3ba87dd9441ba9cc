"""Logs that read as a story: one line a step, through structlog, with the values that name the place."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import structlog

log = structlog.get_logger("sluice")


class _Heard(structlog.PrintLogger):
    """Prints for a parent process, as long as there is one.

    A Spark driver's Python prints through its JVM. When that is lost, the Python continues: it reports by the control
    topic, and must not end for want of a reader of its lines.
    """

    def msg(self, message: str) -> None:
        """Print a line."""
        with suppress(BrokenPipeError):
            super().msg(message)

    debug = info = warning = error = critical = exception = msg


def leave_the_time_to_the_parent() -> None:
    """For a process whose output another one logs, line by line and with its own times, as Airflow does Spark's."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, pad_level=False, sort_keys=False),
        ],
        logger_factory=_heard,
    )


def _heard(*_: Any) -> _Heard:
    return _Heard()
