"""Topics of notes that Sluice reads back: which of their records count. Pure.

A note may be signed as a control message is (`sluice.protocol.signing`). The secret may be younger than the topic, so
what isn't signed counts before the first record that is, and never behind it; likewise what is signed without the
topic's id. The first signed record of a compacted
topic may be gone: a reader that knows by other means that all its notes are signed requires it of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from sluice.protocol.signing import Headers, Signatures, Signed, TopicIdOf

_Note = TypeVar("_Note", bound=BaseModel)


class SignedNotes:
    """Signs the notes of one topic, and judges what is read of it from its start, in the order of its offsets.

    Args:
        topic: its name.
        secrets: the present secret, and the previous one while it is being replaced; empty if nothing is signed.
        tell: called with the offset of each record that doesn't count, and the reason.
        topic_id: gives the topic's id. It is not called without a secret.

    Raises (all methods that sign or check): what `topic_id` raises.
    """

    def __init__(
        self,
        topic: str,
        secrets: Sequence[str],
        tell: Callable[[int, str], None],
        topic_id: TopicIdOf = lambda _: None,
    ) -> None:
        self._signatures = Signatures(topic, secrets, tell, topic_id)
        self._tell = tell
        self._reached = Signed.NOT

    @property
    def asked_for(self) -> bool:
        """Whether notes are signed and must be."""
        return self._signatures.asked_for

    @property
    def have_begun(self) -> bool:
        """Whether a note was read that is signed as well as one to send: behind it none that is signed less counts."""
        return self._reached >= self._signatures.signs

    def require_all(self) -> None:
        """Require signatures on all notes, where there is a secret."""
        self._signatures.require_all()

    def headers(self, key: bytes, value: bytes | None) -> list[tuple[str, bytes]]:
        """The headers of a note to send; one without a value is signed as an empty one."""
        return self._signatures.headers(key, value or b"")

    def is_by_present(self, key: bytes, value: bytes | None, headers: Headers) -> bool:
        """Whether a note is signed as it would be now: it counts when the previous secret is gone."""
        return self._signatures.is_by_present(key, value or b"", headers)

    def counts(self, offset: int, key: bytes, value: bytes | None, headers: Headers) -> bool:
        """Whether a record counts, judged by its signature."""
        signed = self._signatures.judge(offset, key, value or b"", headers)
        if signed is None:
            return False
        if signed < self._reached:
            self._tell(offset, "it isn't signed as records before it are")
            return False
        self._reached = signed
        return True


def note_of(kind: type[_Note], value: str | bytes | None) -> _Note | None:
    """A note as an object; None for a value of another kind, which can't have come from Sluice."""
    try:
        return kind.model_validate_json(value or b"")
    except ValidationError:
        return None
