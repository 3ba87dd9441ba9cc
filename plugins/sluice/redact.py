"""Removes secrets from shown options, by their names, and from texts that quote them.

Any text from elsewhere may hold a secret: an error of Spark's or of a driver, a typed reason, an option of Hudi's in
START-COMMIT. A name that sounds secret is enough: one value too many hidden costs less than one shown. So a value
without quotes ends at a blank, since a comma or a bracket may be part of it. Secrets of the connections that this
process uses are hidden wherever a text has them (`remember`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any

HIDDEN = "***"
_WORDS = (
    r"pass(?:word|wd|phrase)|pwd|secret|token|jaas(?:\.config)?|credentials?|user[._-]?info|key[._-]?pem|"
    r"(?:access|account|api|encryption|keystore|private|shared)[._-]?key"
)
_SECRET_NAME = re.compile(
    rf"{_WORDS}|credential|authorization|signature|(?<![a-z])(?:pass|sig|dsn)(?![a-z])", re.IGNORECASE
)
# The end of an option's name; Azure's names end with the account that they are for.
_SECRET_OPTION = re.compile(
    rf"(?:{_WORDS}|secret[._-]?key)(?:$|\.[\w-]+\.(?:dfs|blob)\.core\.windows\.net$)", re.IGNORECASE
)
_PRIVATE_KEY = re.compile(  # RFC 7468
    r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,20}PRIVATE KEY-----|\Z)", re.DOTALL
)
_CONTAINER = re.compile(r"(?:abfss?|wasbs?)\Z")  # in Azure's addresses a container is before the @
_WEBHOOK = re.compile(
    r"(https?://(?:hooks\.[\w.\-]{1,200}|[\w.\-]{0,100}webhook[\w.\-]{0,100}|[\w.\-]{1,200}/(?:api/)?webhooks?)/)"
    r"[^\s\"'<>]+",
    re.IGNORECASE,
)
# A name with its sign, `sasl.password=` or `"password": `; the name is looked into apart, so that the time is linear.
_NAME = re.compile(r"""(?<![\w.\-])([\w.\-]++)\\*["']?\s*+[=:]\s*""")
_QUOTE = re.compile(r"""(\\*)(["'])""")
_PLAIN = re.compile(r"""(?:(?:Bearer|Basic)\s+)?(?:(?!["'](?:[\s,;:}\])]|\Z))\S)+""", re.IGNORECASE)
_BEARER = re.compile(r"(?<![\w.\-])(Bearer\s+)[\w.~+/\-]{8,}=*", re.IGNORECASE)  # RFC 6750, section 2.1
_LINE = re.compile(r"[^\n]*")
_TO_ITS_END = re.compile(r"jaas|authorization", re.IGNORECASE)  # values with blanks and pairs inside
_SHORTEST = 8  # a shorter secret may be a part of words that aren't
_MOST = 500  # secrets that a long-lived process keeps in mind; rotated ones are the oldest
_remembering = Lock()
_known: tuple[str, ...] = ()  # the newest first
_to_hide: tuple[str, ...] = ()  # the same, the longest first: one may be a part of another


def remember(secrets: Iterable[str | None]) -> None:
    """Hide secrets from now on wherever a text has them, whatever their names; those of less than 8 characters stay.

    Args:
        secrets: values, such as a connection's password.
    """
    global _known, _to_hide
    fit = [s for s in secrets if s and len(s) >= _SHORTEST and not s.isspace() and not _SECRET_NAME.fullmatch(s)]
    if set(fit) <= set(_known):
        return
    with _remembering:
        _known = tuple(dict.fromkeys((*fit, *_known)))[:_MOST]
        _to_hide = tuple(sorted(_known, key=len, reverse=True))


def is_secret_name(name: str) -> bool:
    """Whether a setting's name sounds as if its value were secret: too many do rather than too few."""
    return _SECRET_NAME.search(name) is not None


def is_secret_option(name: str) -> bool:
    """Whether an option's value is secret, by its name: not where a word of secrets only qualifies another one.

    `spark.ssl.keyPassword` is, and `sasl.oauthbearer.token.endpoint.url` isn't.
    """
    return _SECRET_OPTION.search(name) is not None


def redact(value: Any) -> Any:
    """The same value with everything hidden whose name says that it is secret, also where texts quote such pairs."""
    if isinstance(value, dict):
        return {k: HIDDEN if is_secret_name(str(k)) and v is not None else redact(v) for k, v in value.items()}
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
            yield from secret_values(inner, hidden or is_secret_name(str(name)))
    elif isinstance(value, list):
        for inner in value:
            yield from secret_values(inner, hidden)
    elif hidden and value is not None and not isinstance(value, bool):
        yield str(value)


def redact_text(text: str) -> str:
    """A text without log-ins in addresses, private keys, values of names that sound secret, and known secrets."""
    for secret in _to_hide:
        text = text.replace(secret, HIDDEN)
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    shown, position = [], 0
    for found in _NAME.finditer(text):
        name = found.group(1)
        if found.start() < position or not is_secret_name(name):
            continue
        end = _end_of_value(text, found.end(), name)
        if end > found.end():
            shown += [text[position : found.end()], HIDDEN]
            position = end
    text = _BEARER.sub(rf"\1{HIDDEN}", "".join([*shown, text[position:]]))
    if "://" in text:
        text = _WEBHOOK.sub(rf"\1{HIDDEN}", re.sub(r"\S+", _without_login, text))
    return text


def _end_of_value(text: str, start: int, name: str) -> int:
    """Where a value ends that begins here; that of a quotation which is never closed, with the text."""
    opening = _QUOTE.match(text, start)
    if opening is None:
        value = (_LINE if _TO_ITS_END.search(name) else _PLAIN).match(text, start)
        return start if value is None else value.end()
    # A text within texts has its quotes after 1, 3, 7 … backslashes, and the quotes inside its value after more.
    depth, quote = len(opening[1]), opening[2]
    for closing in re.compile(rf"(\\*){quote}").finditer(text, opening.end()):
        if len(closing[1]) % (2 * (depth + 1)) == depth:
            return closing.end()
    return len(text)


def _without_login(found: re.Match[str]) -> str:
    """A word without what is between `://` and its last `@`: a password may have one, too."""
    word = found[0]
    end, start = word.rfind("@"), word.find("://") + 3
    while 3 <= start <= end:
        slash = word.find("/", start, end)
        colon = word.find(":", start, end if slash < 0 else slash)
        if colon >= 0 or slash < 0:
            is_container = colon < 0 and _CONTAINER.search(word, 0, start - 3) is not None
            return word if is_container else f"{word[:start]}{HIDDEN}{word[end:]}"
        start = word.find("://", start) + 3
    return word
