"""Logs that read as a story: one line a step, through structlog, with the values that name the place."""

from __future__ import annotations

import structlog

log = structlog.get_logger("sluice")
