"""How many tests to run beside each other: `python -m tests.cores` prints 3, or less where the cores are shared.

A virtual machine has less of its cores than it can see, if its host gives them to others, too. While a loop looks at
the clock, the time that it missed is what others had.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_LOOK = 5.0  # seconds
_INTERRUPTED = 0.0005  # seconds between two looks: the loop itself takes less than a thousandth of it


def missed(seconds: float, clock: Callable[[], float] = time.monotonic) -> float:
    """The part of a core's time that a loop of so many seconds doesn't get: 0 is none of it, 1 all."""
    began = last = clock()
    lost = 0.0
    while last < began + seconds:
        now = clock()
        if now - last > _INTERRUPTED:
            lost += now - last
        last = now
    return lost / (last - began)


def beside_each_other(lost: float) -> int:
    """How many tests keep two cores busy, of which others have taken a part, with no test waiting for another."""
    if lost < 0.25:
        return 3
    return 2 if lost < 0.5 else 1


if __name__ == "__main__":
    sys.stdout.write(f"{beside_each_other(missed(_LOOK))}\n")
