"""What all tests of the simulation share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from .campaign import quiet


@pytest.fixture(autouse=True)
def no_log_lines() -> Iterator[None]:
    before = structlog.get_config()
    quiet()
    yield
    structlog.configure(**before)
