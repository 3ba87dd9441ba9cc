"""A run of tests that ends in time: `make test-thorough ARGS="--minutes 40"`.

A test that would begin later is skipped, and the summary says how many were. The shortest files come first.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

_KEY = "ends_at"
_WHY = "not run: the time of this run was over"


class Minutes:
    """Skips what begins too late. The process that starts the workers sets the end, and each worker is given it."""

    def __init__(self, config: pytest.Config) -> None:
        given: dict[str, Any] = getattr(config, "workerinput", {})
        self._ends_at: float = given.get(_KEY) or time.time() + 60 * config.getoption("--minutes")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_KEY] = self._ends_at

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.time() > self._ends_at:
            pytest.skip(_WHY)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        skipped = terminalreporter.stats.get("skipped", [])
        late = sum(_WHY in str(report.longrepr) for report in skipped)
        late_ones = f"{late} tests NOT RUN, as the time was over"
        terminalreporter.section(late_ones if late else "there was time for all tests")
