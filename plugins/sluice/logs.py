"""Logs that read as a story: one line a step, through structlog, with the values that name the place."""

from __future__ import annotations

import structlog

log = structlog.get_logger("sluice")


def leave_the_time_to_the_parent() -> None:
    """For a process whose output another one logs, line by line and with times of its own, as Airflow does Spark's."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, pad_level=False, sort_keys=False),
        ]
    )
