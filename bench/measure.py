"""Runs one command to its end and says what its whole process tree cost.

`measure.py RESULT.json TIMEOUT_S LOG -- argv…`

It is a separate process because of orphans. `python` leaves behind the JVM that PySpark or Py4J started
for it, without waiting: the kernel then charges that JVM's time to no process that the harness could ask. This
process makes itself the sub-reaper (prctl(2)), so orphans become its children; it waits for every one of
them and sums their rusage, which on Linux includes the descendants that each had waited for.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
DRAIN_SECONDS = 60.0
POLL_SECONDS = 0.01


def become_subreaper() -> None:
    """Makes orphaned descendants children of this process. Linux only; raises OSError elsewhere."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) was refused")


def machine_busy_seconds() -> float:
    """CPU seconds that all processes of this machine have used since it started (user, nice, system, irq)."""
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def children() -> list[int]:
    return [int(p) for p in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def measure(argv: list[str], timeout: float, log: Path) -> dict[str, float | int]:
    """Runs argv and reaps until no descendant is left.

    `wall` ends when argv itself has exited; `drained` when its last descendant has. Whatever outlives argv by
    DRAIN_SECONDS, or the timeout, is killed, and counted in `killed`.
    """
    become_subreaper()
    busy, began = machine_busy_seconds(), time.monotonic()
    with log.open("ab") as out:
        main = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    user = system = 0.0
    rss_kib = exit_code = killed = reaped = 0
    wall: float | None = None
    deadline = timeout
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            break
        now = time.monotonic() - began
        if pid:
            reaped += 1
            user, system = user + usage.ru_utime, system + usage.ru_stime
            rss_kib = max(rss_kib, usage.ru_maxrss)
            if pid == main.pid:
                wall, exit_code = now, os.waitstatus_to_exitcode(status)
                main.returncode = exit_code
                deadline = min(deadline, now + DRAIN_SECONDS)
            continue
        if now > deadline:
            for child in children():
                os.kill(child, signal.SIGKILL)
                killed += 1
        time.sleep(POLL_SECONDS)
    drained = time.monotonic() - began
    return {
        "wall": wall if wall is not None else drained,
        "drained": drained,
        "user": user,
        "system": system,
        "cpu": user + system,
        "others_cpu": max(0.0, machine_busy_seconds() - busy - user - system),
        "max_rss_mib": rss_kib // 1024,
        "exit_code": exit_code,
        "killed": killed,
        "reaped": reaped,
    }


if __name__ == "__main__":
    result, limit, log_file, dashes, *command = sys.argv[1:]
    if dashes != "--" or not command:
        sys.exit(__doc__)
    Path(result).write_text(json.dumps(measure(command, float(limit), Path(log_file))))
