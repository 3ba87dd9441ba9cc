"""Java's `.properties` files, by the rules of `java.util.Properties.load`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")
_BLANK = " \t\f"


def properties(text: str) -> dict[str, str]:
    """Keys and values; of a duplicate key the last value counts.

    Raises:
        ValueError: an escape of a character's number isn't followed by four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _end_of_key(line)
        rest = line[end:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        found[_unescaped(line[:end])] = _unescaped(rest)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Logical lines without comments and blanks: a backslash at the end joins the next line."""
    whole: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANK)
        if whole is None and (not line or line[0] in "#!"):
            continue
        whole = line if whole is None else whole + line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1]
            continue
        yield whole
        whole = None
    if whole:
        yield whole


def _end_of_key(line: str) -> int:
    place = 0
    while place < len(line) and line[place] not in "=:" + _BLANK:
        place += 2 if line[place] == "\\" else 1
    return min(place, len(line))


def _unescaped(text: str) -> str:
    parts, place = [], 0
    while place < len(text):
        if text[place] != "\\" or place + 1 == len(text):
            parts.append(text[place].rstrip("\\"))
            place += 1
            continue
        letter = text[place + 1]
        place += 2
        if letter == "u":
            digits = _UNICODE.match(text, place)
            if digits is None:
                raise ValueError("an escape \\u isn't followed by four hexadecimal digits")
            parts.append(chr(int(digits.group(), 16)))
            place += 4
        else:
            parts.append(_ESCAPES.get(letter, letter))
    # Two escapes may be the surrogates of one character.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
