"""Cells of a table that is tried in full by `make test-thorough` alone: `make test` has others of each guarantee.

A test with no table has the marker itself, `pytest.mark.thorough`, where others of its file tell more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def also(*cells: Any) -> list[Any]:
    """Values of a parameter, or tuples of several, for `make test-thorough`."""
    return [_marked(cell) for cell in cells]


def some_of(cells: Iterable[tuple[Any, ...]], tried: Iterable[tuple[Any, ...]]) -> list[Any]:
    """All cells, of which `make test` tries some, and `make test-thorough` the others."""
    chosen = list(tried)
    return [cell if cell in chosen else _marked(cell) for cell in cells]


def _marked(cell: Any) -> Any:
    return pytest.param(*(cell if isinstance(cell, tuple) else (cell,)), marks=pytest.mark.thorough)
