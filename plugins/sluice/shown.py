"""Texts with words of others in them, as terminals, Airflow's notes and chats may show them. Pure.

An error may quote what a producer, a database or another writer has chosen. A terminal obeys control characters,
Airflow shows a run's note as Markdown, and chats have links and mentions: the functions here take these apart.
"""

from __future__ import annotations

import re

_LAID_OUT = frozenset("\n\t")
# A link or an image of Markdown's; a mention or a link of Slack's.
_LINK = re.compile(r"\](?=[(\[])|<(?=[!@#]|(?:https?|mailto|ftp|tel|file|javascript|data):)", re.IGNORECASE)


def plain(text: str) -> str:
    """A text with escapes for unprintable characters, such as the beginning of a control sequence."""
    return "".join(
        one if one in _LAID_OUT or one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )


def without_markup(text: str) -> str:
    """The same where a text may be shown as markup: nothing in it is an image, a mention, or a link under other words.

    A blank behind the bracket is enough, so that people read the text as it was.
    """
    return _LINK.sub(r"\g<0> ", plain(text))
