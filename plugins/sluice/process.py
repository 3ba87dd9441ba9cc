"""Which process carries a commit out, so that others on its machine can tell at once that it is gone."""

from __future__ import annotations

import socket

import psutil


def identity(pid: int) -> str:
    """A process of this machine, told from a later one that gets the same number."""
    return f"{socket.gethostname()}/{pid}/{psutil.Process(pid).create_time():.2f}"


def is_gone(holder: str, wait: float = 5.0) -> bool:
    """Whether a process has ended for certain. One of another machine never has, as far as can be told from here.

    Args:
        holder: what `identity` returned.
        wait: seconds to wait for its end: a JVM ends a moment after the process that started it.
    """
    host, number, created = holder.rsplit("/", 2)
    if host != socket.gethostname():
        return False
    try:
        process = psutil.Process(int(number))
        if f"{process.create_time():.2f}" != created or process.status() == psutil.STATUS_ZOMBIE:
            return True
        process.wait(wait)
    except (psutil.NoSuchProcess, ValueError):
        return True
    except psutil.TimeoutExpired:
        return process.status() == psutil.STATUS_ZOMBIE
    return True
