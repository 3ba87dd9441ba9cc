"""Takes secrets out of what is shown: of options by their names, and out of texts that quote them. Pure.

What others say may hold one: an error of Spark's or of a driver, a reason that somebody typed, an option of Hudi's in
START-COMMIT. A name that sounds secret is enough; one too many hidden costs less than one shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|pwd|secret|token|jaas|credential|authorization|user[._-]?info|api[._-]?key|"
    r"access[._-]?key|private[._-]?key|account[._-]?key|shared[._-]?key|signature",
    re.IGNORECASE,
)
# A log-in ends at an @ before the host. In Azure's addresses a container stands there.
_LOGIN = re.compile(r"(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)(://)(?:[^\s@/:]{0,200}:[^\s@]{0,400}|[^/\s@]{1,400})@")
# A name with its sign, `sasl.password=` or `"password": `; the name is looked into apart, so that the time is linear.
_NAME = re.compile(r"""(?<![\w.\-])([\w.\-]++)\\*["']?\s*+[=:]\s*""")
_VALUE = re.compile(r"""\\*"[^"]*"|\\*'[^']*'|(?:(?:Bearer|Basic)\s+)?[^\s,;&}\])"']+""", re.IGNORECASE)
_JAAS_VALUE = re.compile(r"[^;\n]*;?")  # it has pairs of its own


def redact(value: Any) -> Any:
    """The same value with everything hidden whose name says that it is secret, also where texts quote such pairs."""
    if isinstance(value, dict):
        return {k: HIDDEN if _SECRET_NAME.search(str(k)) and v is not None else redact(v) for k, v in value.items()}
    if isinstance(value, list):
        return [redact(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def secret_values(value: Any, hidden: bool = False) -> Iterator[str]:
    """The texts in a value, however deep, that `redact` would hide since a name around them says that they are secret.

    Args:
        value: dictionaries and lists of JSON.
        hidden: whether a name around the value says so.
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from secret_values(inner, hidden or _SECRET_NAME.search(str(name)) is not None)
    elif isinstance(value, list):
        for inner in value:
            yield from secret_values(inner, hidden)
    elif hidden and value is not None and not isinstance(value, bool):
        yield str(value)


def redact_text(text: str) -> str:
    """A text without log-ins in addresses, and without the values of names that sound secret."""
    shown, position = [], 0
    for found in _NAME.finditer(text):
        name = found.group(1)
        if found.start() < position or _SECRET_NAME.search(name) is None:
            continue
        value = (_JAAS_VALUE if "jaas" in name.lower() else _VALUE).match(text, found.end())
        if value is not None:
            shown += [text[position : found.end()], HIDDEN]
            position = value.end()
    return _LOGIN.sub(rf"\1{HIDDEN}@", "".join([*shown, text[position:]]))
