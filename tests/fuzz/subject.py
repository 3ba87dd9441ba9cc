"""A subject of the campaign: what it is given, how each example is judged, and the bounds of time and memory."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis.strategies import SearchStrategy

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_HANGS = 4  # times the bound, after which an example is broken off


class ViolationError(AssertionError):
    """Something that must not happen, whatever the input is."""


@dataclass(frozen=True)
class Subject:
    """What is tried.

    Attributes:
        name: by which `--only` and a replay name it.
        inputs: the examples.
        check: raises whatever the subject must not raise.
        seconds: the most CPU time of an example, on any machine of the last ten years.
        mebibytes: the most memory that an example may take beyond what the process has.
        share: of the campaign's time, beside the others' 1.
    """

    name: str
    inputs: SearchStrategy[Any]
    check: Callable[[Any], None]
    seconds: float = 2
    mebibytes: int = 256
    share: float = 1

    def judge(self, example: Any) -> None:
        """Try an example.

        Raises:
            ViolationError: it takes too long, or too much memory.
            Exception: whatever `check` raises.
        """
        with _within(self.seconds, self.mebibytes):
            self.check(example)


@contextmanager
def _within(seconds: float, mebibytes: int) -> Iterator[None]:
    """Bounds of what is done in it, by CPU time: other processes of the machine don't count."""
    previous = signal.signal(signal.SIGPROF, _break_off)
    before = _peak()
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds * _HANGS, 0.5)  # again, where the first was raised in a callback
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    took, more = time.process_time() - began, _peak(anew=False) - before
    if took > seconds:
        raise ViolationError(f"it takes {took:.1f} s of CPU time, and may take {seconds:g}")
    if more > mebibytes:
        raise ViolationError(f"it takes {more} MiB of memory, and may take {mebibytes}")


def _break_off(_: int, frame: FrameType | None) -> None:
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "somewhere"
    raise ViolationError(f"it is far from an end after {_HANGS} times the bound of CPU time, at {where}")


def _peak(*, anew: bool = True) -> int:
    """The process's present memory, or with `anew=False` its peak since, in MiB; 0 where Linux doesn't tell."""
    if not _CLEAR.exists():
        return 0
    if anew:
        _CLEAR.write_text("5")  # the peak begins anew with what there is now
    line = next(one for one in _STATUS.read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) // 1024
