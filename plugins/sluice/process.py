"""The process that carries a commit out, so that others on its machine notice its end at once.

A process number says something only within one PID namespace of one running kernel: containers may share a host name,
and a restarted machine keeps it. So the name of a process holds the boot, the namespaces that number and time belong
to, and its start in ticks since the boot, which no setting of the clock moves.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBERS = Path("/proc/self/ns/pid")
_TIME = Path("/proc/self/ns/time")  # since Linux 5.6
_STATE, _START = 0, 19  # fields 3 and 22 of /proc/PID/stat, counted from behind the command's name
_DEAD = ("Z", "X")
_PARTS = 5


def identity(pid: int) -> str:
    """The unique name of a process of this machine: host, number, boot, namespaces, and start in ticks.

    A part that the system doesn't provide (macOS) is left empty, and the process is never considered gone.
    """
    state_and_start = _state_and_start(pid)
    start = state_and_start[1] if state_and_start is not None else ""
    return f"{socket.gethostname()}/{pid}/{_boot()}/{_namespaces()}/{start}"


def is_gone(holder: str, wait: float = 5.0) -> bool:
    """Whether a process has certainly ended. A process of another machine never counts as ended.

    Args:
        holder: a result of `identity`, or of an earlier release's, which has too few parts to be trusted.
        wait: seconds to wait for its end: a JVM ends a moment after the process that started it.
    """
    parts = holder.split("/")
    if len(parts) != _PARTS or not all(parts):
        return False
    host, number, boot, namespaces, start = parts
    if (host, boot, namespaces) != (socket.gethostname(), _boot(), _namespaces()):
        return False
    pid = int(number)
    return not _runs(pid, start) or _ends_within(pid, wait) or not _runs(pid, start)


def _runs(pid: int, start: str) -> bool:
    found = _state_and_start(pid)
    return found is not None and found[1] == start and found[0] not in _DEAD


def _ends_within(pid: int, seconds: float) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # a kernel before 5.3, or a sandbox, has nothing to wait with
        return False
    try:
        ended = select.poll()  # not select(), which refuses descriptors from 1,024 on
        ended.register(descriptor, select.POLLIN)
        return bool(ended.poll(seconds * 1000))  # readable once it has ended
    finally:
        os.close(descriptor)


def _state_and_start(pid: int) -> tuple[str, str] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[_STATE], fields[_START]


def _boot() -> str:
    with suppress(FileNotFoundError):
        return _BOOT.read_text().strip()
    return ""


def _namespaces() -> str:
    with suppress(FileNotFoundError):
        numbers = _NUMBERS.stat().st_ino
        return f"{numbers}-{_TIME.stat().st_ino}" if _TIME.exists() else str(numbers)
    return ""
