"""A process that dies at one of its calls, with the effects of its earlier ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest

When = Literal["before", "after"]
FILE_CALLS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("link", "mkdir", "remove", "rename", "replace", "rmdir", "unlink")),
    *((Path, name) for name in ("touch", "write_bytes", "write_text")),
)
"""Calls that change a file system of this machine's."""


class Death(BaseException):
    """The process dies here: no `except Exception` keeps it alive, and its later calls change nothing."""


def deaths(calls: Sequence[tuple[Any, str]]) -> Iterator[int]:
    """The calls at which to die, the first being 1; the test is skipped where none are named."""
    if not calls:
        pytest.skip("its calls are another process's: it dies between the steps alone")
    return iter(range(1, 1000))


@contextmanager
def dying(calls: Sequence[tuple[Any, str]], number: int, when: When) -> Iterator[list[str]]:
    """The process dies at a call, counted from 1; the list names the call, and is empty if there were fewer.

    Args:
        calls: the counted calls, as (object, name).
        number: the call's number.
        when: before it has its effect, or after.
    """
    died: list[str] = []
    left = number

    def mortal(real: Any, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if died:  # a dead process doesn't run its `finally` blocks
                raise Death(name)
            left -= 1
            mine = left == 0
            if not mine:
                return real(*args, **kwargs)
            if when == "after":
                with suppress(Exception):  # a call that is refused is one, too
                    real(*args, **kwargs)
            died.append(name)
            raise Death(name)

        return call

    patches = [mock.patch.object(owner, name, mortal(getattr(owner, name), name)) for owner, name in calls]
    for patch in patches:
        patch.start()
    try:
        yield died
    except Death:
        pass
    finally:
        for patch in reversed(patches):
            patch.stop()
