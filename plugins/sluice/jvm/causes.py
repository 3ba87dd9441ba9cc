"""A Java exception's messages, in lines."""

from __future__ import annotations

from typing import Any

_PERMISSION = ("AccessControlException", "AccessDeniedException", "Permission denied", "403 Forbidden")


def is_refused(text: str) -> bool:
    """Whether a Java exception's text says that permission is missing."""
    return any(sign in text for sign in _PERMISSION)


def causes(exception: Any) -> list[str]:
    """A Java exception and its causes, one line each."""
    lines: list[str] = []
    while exception is not None and len(lines) < 8:
        message = str(exception.getMessage() or "").strip().splitlines()
        lines.append(f"{exception.getClass().getSimpleName()}: {message[0] if message else ''}")
        exception = exception.getCause()
    return lines
