"""Tables of what another system can answer, by what to do next. Pure.

Each connector has one: its code goes by the table, and docs/guarantees/errors.md shows it (`tools/answers.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from sluice.errors import ActionRequiredError, RetryableError, SluiceError

Means = Literal["retry", "act", "record"]
"""What an answer means: the step is retried, a person has to act, or records are bad, which a person corrects."""
MEANINGS: Final[dict[Means, str]] = {"retry": "retried", "act": "a person acts", "record": "bad records"}

CERTIFICATE: Final = (
    "PKIX path building failed",
    "SSLHandshakeException",
    "SSLPeerUnverifiedException",
    "CertificateException",
    "could not be verified by hostnameverifier",
    "doesn't correspond to certificate",
    "CERTIFICATE_VERIFY_FAILED",
)
"""The signs of a certificate that isn't accepted, from Java, from JDBC drivers, and from Python."""


@dataclass(frozen=True)
class Answer:
    """A row of a table: answers that mean the same.

    Attributes:
        means: what to do next.
        signs: the answers: error codes, names of exceptions, or fixed words of their messages.
        what: what happened, as a sentence without its full stop.
        next_step: one sentence on what to do now.
    """

    means: Means
    signs: tuple[str, ...]
    what: str
    next_step: str

    def is_in(self, text: str) -> bool:
        """Whether an exception's text, with those of its causes, has one of the signs as a whole word."""
        return has_sign(text, self.signs)

    def error(self, doing: str = "", words: dict[str, str] | None = None, **where: Any) -> SluiceError:
        """The error that says it.

        Args:
            doing: what was being done.
            words: what the next step names in braces, such as a setting of the pipeline file.
            where: the place.
        """
        kind = RetryableError if self.means == "retry" else ActionRequiredError
        next_step = self.next_step.format(**words) if words else self.next_step
        return kind(f"{self.what}{f' ({doing})' if doing else ''}.", next_step=next_step, **where)


def has_sign(text: str, signs: Iterable[str]) -> bool:
    """Whether a text has one of the signs as a whole word."""
    return re.search(rf"(?<!\w)(?:{'|'.join(map(re.escape, signs))})(?!\w)", text) is not None


def answer_in(text: str, table: Iterable[Answer]) -> Answer | None:
    """The first row of a table that has a sign in a text; None if none has: such an answer is retried."""
    return next((row for row in table if row.is_in(text)), None)
