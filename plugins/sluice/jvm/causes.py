"""What a JVM's exceptions say, and the error for a JVM that says nothing any more."""

from __future__ import annotations

from typing import Any

from sluice.errors import RetryableError


def causes(exception: Any) -> list[str]:
    """A Java exception and its causes, one line each: the name of its class, and the first line of its message.

    An exception that Hadoop's server has sent has the name that the server gave it.
    """
    lines: list[str] = []
    while exception is not None and len(lines) < 8:
        message = str(exception.getMessage() or "").strip().splitlines()
        name = str(exception.getClass().getSimpleName())
        if name == "RemoteException":
            name = str(exception.getClassName()).rpartition(".")[2].rpartition("$")[2]
        lines.append(f"{name}: {message[0] if message else ''}")
        exception = exception.getCause()
    return lines


def lost_jvm(path: str) -> RetryableError:
    """The error for a call to a JVM that has ended."""
    return RetryableError(
        "The JVM that reaches the file system was lost.",
        next_step="the step is retried; if the error comes back, look for an out-of-memory kill on the worker.",
        path=path,
    )
