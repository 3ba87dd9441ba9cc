"""Keyed digests of control messages: write access to the topic is worth nothing without the secret. Pure.

Each Kafka record carries HMAC-SHA256 over its topic, key and value in a header; where the broker gives topics ids
(KIP-516), also over the topic's id, so that a copy in another topic of the same name doesn't count: one that was made
again, or one of another cluster with the same secret. If a secret is configured, a record with a wrong digest doesn't
count.

What a table's records must have only ever rises (`Signed`): a record without a digest counts only before the table's
first signed record, and one without the topic's id in its digest only before the first one with it. Such records are
from the time before there was a secret, or ids, and no writer can insert records into the past. Once those first
records have left the topic, the last commit's note says from which offsets signatures are required. A reader that
begins in the middle, and knows no such offset, can't know what was signed before: for it only records count that are
signed as it would sign them.

Sending a signed record again has no effect: a repeated START is void, a repeated END names a lease that isn't the last
one, and only a range's first status counts. A repeated MAPPING-SEEN has what was mapped then read on once more.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

HEADER = "sluice-hmac"
Headers = Sequence[tuple[str, bytes | str | None]]

TopicIdOf = Callable[[bool], str | None]
"""Gives Kafka's id of the topic, None where the broker has none; asks for it anew if it is called with True."""


class Signed(IntEnum):
    """How a record is signed; the greater, the more its digest names."""

    NOT = 0
    BY_NAME = 1
    BY_LOG = 2  # the topic's id is in it


class Signatures:
    """Signs and checks the records of one control topic.

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
        self._topic = topic.encode()
        self._secrets = [secret.encode() for secret in secrets]
        self._tell = tell
        self._topic_id = topic_id
        self._judged_by: str | None = None
        self._required_from: dict[Signed, dict[bytes, int]] = {Signed.BY_NAME: {}, Signed.BY_LOG: {}}
        self._always_required = False
        self.refused: set[int] = set()

    @property
    def asked_for(self) -> bool:
        """Whether records are signed and must be."""
        return bool(self._secrets)

    @property
    def topic_id(self) -> str | None:
        """The topic's id by which records are signed; None where there is none, or no secret."""
        return self._topic_id(False) if self._secrets else None

    @property
    def signs(self) -> Signed:
        """How records to send are signed."""
        if not self._secrets:
            return Signed.NOT
        return Signed.BY_NAME if self.topic_id is None else Signed.BY_LOG

    def headers(self, key: bytes, value: bytes) -> list[tuple[str, bytes]]:
        """The headers for a record to send."""
        return [(HEADER, self._digest(self._secrets[0], key, value, self.topic_id))] if self._secrets else []

    def require(self, table: str, after: int, signed: Signed = Signed.BY_NAME) -> None:
        """Require of all of a table's records after an offset that they are signed so, or better."""
        self._require(table.encode(), after, signed)

    def _require(self, key: bytes, after: int, signed: Signed) -> None:
        for level, required_from in self._required_from.items():
            if level <= signed:
                required_from[key] = min(after, required_from.get(key, after))

    def require_all(self) -> None:
        """Require signatures on all records of all tables, where there is a secret: reading begins in the middle."""
        self._always_required = True

    def are_required(self, table: str, at: int) -> bool:
        """Whether a record of a table that counts at an offset must have been signed."""
        required_from = self._required_from[Signed.BY_NAME].get(table.encode())
        return (self._always_required and self.asked_for) or (required_from is not None and at >= required_from)

    def counts(self, offset: int, key: bytes, value: bytes, headers: Iterable[tuple[str, bytes | str | None]]) -> bool:
        """Whether a record counts, judged by its signature."""
        return self.judge(offset, key, value, headers) is not None

    def judge(
        self, offset: int, key: bytes, value: bytes, headers: Iterable[tuple[str, bytes | str | None]]
    ) -> Signed | None:
        """How a record that counts is signed; None if it doesn't count."""
        if not self._secrets:
            return Signed.NOT
        self._look()
        given = [v.encode() if isinstance(v, str) else v or b"" for name, v in headers if name == HEADER]
        signed = self._signed(key, value, given[-1]) if given else Signed.NOT
        if signed is None:
            self._refuse(offset, "its signature is wrong")
            return None
        if signed < self._required(key, offset):
            missing = "it isn't signed" if signed is Signed.NOT else "its signature doesn't name the topic's id"
            self._refuse(offset, missing)
            return None
        if signed is not Signed.NOT:
            self._require(key, offset, signed)
        return signed

    def _required(self, key: bytes, offset: int) -> Signed:
        if self._always_required:
            return self.signs
        after = (level for level, required in self._required_from.items() if offset > required.get(key, offset))
        return max(after, default=Signed.NOT)

    def _signed(self, key: bytes, value: bytes, given: bytes) -> Signed | None:
        """How a record is signed; None if the signature is wrong."""
        found = self._found(key, value, given)
        if found is None and self._look(anew=True):
            found = self._found(key, value, given)
        return found

    def _look(self, anew: bool = False) -> bool:
        """Whether the topic is another one than it was, or its id wasn't known."""
        topic_id = self._topic_id(anew)
        if topic_id == self._judged_by:
            return False
        if self._judged_by is not None:  # a topic that was made again: all of its records are younger
            self._required_from = {signed: dict.fromkeys(of, -1) for signed, of in self._required_from.items()}
            self.refused.clear()
        self._judged_by = topic_id
        return True

    def _found(self, key: bytes, value: bytes, given: bytes) -> Signed | None:
        ways: list[tuple[Signed, str | None]] = [(Signed.BY_NAME, None)]
        if self._judged_by is not None:
            ways.insert(0, (Signed.BY_LOG, self._judged_by))
        for signed, topic_id in ways:
            if any(hmac.compare_digest(given, self._digest(s, key, value, topic_id)) for s in self._secrets):
                return signed
        return None

    def is_by_present(self, key: bytes, value: bytes, headers: Headers) -> bool:
        """Whether a record is signed as it would be now: it counts when the previous secret is gone."""
        return [v for name, v in headers if name == HEADER][-1:] == [v for _, v in self.headers(key, value)]

    def _refuse(self, offset: int, reason: str) -> None:
        if offset not in self.refused:
            self.refused.add(offset)
            self._tell(offset, reason)

    def _digest(self, secret: bytes, key: bytes, value: bytes, topic_id: str | None) -> bytes:
        what, parts = b"sluice-control\x00", [self._topic, key]
        if topic_id is not None:
            what, parts = b"sluice-control-log\x00", [self._topic, topic_id.encode(), key]
        lengths = b"".join(len(part).to_bytes(8, "big") for part in parts)
        return hmac.new(secret, what + lengths + b"".join(parts) + value, hashlib.sha256).hexdigest().encode()
