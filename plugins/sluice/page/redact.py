"""Takes secrets out of what is shown: Hudi options travel in START-COMMIT, and one of them may be a password. Pure."""

from __future__ import annotations

import re
from typing import Any

_SECRET_NAME = re.compile(
    r"password|passwd|secret|token|jaas|credential|access[._-]?key|private[._-]?key", re.IGNORECASE
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
HIDDEN = "***"


def redact(value: Any) -> Any:
    """The same value with everything hidden whose name says that it is secret, and log-ins taken out of addresses."""
    if isinstance(value, dict):
        return {k: HIDDEN if _SECRET_NAME.search(str(k)) and v is not None else redact(v) for k, v in value.items()}
    if isinstance(value, list):
        return [redact(item) for item in value]
    return _LOGIN.sub(f"{HIDDEN}@", value) if isinstance(value, str) else value
