"""Named points at which a test can stop a process for real, as `kill -9` or a long pause of the machine would.

Crash safety is tested by dying at each step of the protocol, not by mocking it. A point does nothing unless
`SLUICE_FAILPOINT` names it, as `point=kill` or `point=pause:/path/of/a/file` (until the file exists). Several are
separated by commas.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

VARIABLE = "SLUICE_FAILPOINT"


def reach(point: str) -> None:
    """Pass the point, or die or pause there if the environment asks for it."""
    for wanted in os.environ.get(VARIABLE, "").split(","):
        name, _, action = wanted.partition("=")
        if name != point:
            continue
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        _, _, flag = action.partition(":")
        reached = Path(f"{flag}.reached")
        reached.touch()
        while not Path(flag).exists():
            threading.Event().wait(0.05)
