"""CSV as RFC 4180 has it, for Spark's parsers: of records, and of a sample of them. Pure.

https://www.rfc-editor.org/rfc/rfc4180
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_ESCAPES: Final = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\"": '"', r"\'": "'", "\\\\": "\\"}
"""How Spark lets a separator be written."""


def rfc_4180(given: Mapping[str, str]) -> dict[str, str]:
    """The user's options of Spark's CSV; unless they say otherwise, a quote in a value is written twice."""
    named = {name.lower(): value for name, value in given.items()}
    quote = named.get("quote") or '"'
    if named.get("escape", quote) != quote:
        return dict(given)
    # Without the second, Spark's parser leaves a character of code 0 out of a value if a quote comes before it.
    return {"escape": quote, "charToEscapeQuoteEscaping": quote, **given}


def separator(given: Mapping[str, str]) -> str:
    """The separator of values, as Spark finds it among the user's options."""
    named = {name.lower(): value for name, value in given.items()}
    said = named.get("sep", named.get("delimiter", ","))
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found.group(), found.group()), said)


def break_outside_quotes(given: Mapping[str, str]) -> str:
    """A regular expression that finds nothing but a text with an end of line outside of its quotes.

    Args:
        given: the user's options.
    """
    named = {name.lower(): value for name, value in rfc_4180(given).items()}
    quote, escape = (re.escape(named.get(name, default)) for name, default in (("quote", '"'), ("escape", "")))
    if not quote:
        return r"[\r\n]"
    pair = f"{quote}{quote}" if escape == quote else f"{escape}[\\s\\S]"
    inside = f"[^{quote}{escape}]++|{pair}" if escape else f"[^{quote}]++"
    return rf"^(?:[^{quote}\r\n]++|{quote}(?:{inside})*+{quote}?+)*+[\r\n]"
