"""Keyed digests of control messages: write access to the topic is worth nothing without the secret. Pure.

Each Kafka record carries HMAC-SHA256 over its topic, key and value in a header. If a secret is configured, a record
with a wrong digest doesn't count. One without a digest counts only before the table's first signed record: it is from
the time before there was a secret, and no writer can insert records into the past. Once that first signed record has
left the topic, the last commit's note says from which offset signatures are required. A reader that begins in the
middle, and knows no such offset, can't know what was signed before: for it no unsigned record counts at all.

Sending a signed record again has no effect: a repeated START is void, a repeated END names a lease that isn't the last
one, and only a range's first status counts.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence

HEADER = "sluice-hmac"
Headers = Sequence[tuple[str, bytes | str | None]]


class Signatures:
    """Signs and checks the records of one control topic.

    Args:
        topic: its name.
        secrets: the present secret, and the previous one while it is being replaced; empty if nothing is signed.
        tell: called with the offset of each record that doesn't count, and the reason.
    """

    def __init__(self, topic: str, secrets: Sequence[str], tell: Callable[[int, str], None]) -> None:
        self._topic = topic.encode()
        self._secrets = [secret.encode() for secret in secrets]
        self._tell = tell
        self._required_from: dict[bytes, int] = {}
        self._always_required = False
        self.refused: set[int] = set()

    @property
    def asked_for(self) -> bool:
        """Whether records are signed and must be."""
        return bool(self._secrets)

    def headers(self, key: bytes, value: bytes) -> list[tuple[str, bytes]]:
        """The headers for a record to send."""
        return [(HEADER, self._digest(self._secrets[0], key, value))] if self._secrets else []

    def require(self, table: str, after: int) -> None:
        """Require signatures on all of a table's records after an offset."""
        key = table.encode()
        self._required_from[key] = min(after, self._required_from.get(key, after))

    def require_all(self) -> None:
        """Require signatures on all records of all tables, where there is a secret: reading begins in the middle."""
        self._always_required = True

    def are_required(self, table: str, at: int) -> bool:
        """Whether a record of a table that counts at an offset must have been signed."""
        required_from = self._required_from.get(table.encode())
        return self._always_required_here or (required_from is not None and at >= required_from)

    @property
    def _always_required_here(self) -> bool:
        return self._always_required and self.asked_for

    def counts(self, offset: int, key: bytes, value: bytes, headers: Iterable[tuple[str, bytes | str | None]]) -> bool:
        """Whether a record counts, judged by its signature."""
        if not self._secrets:
            return True
        given = [v.encode() if isinstance(v, str) else v or b"" for name, v in headers if name == HEADER]
        if given:
            right = any(hmac.compare_digest(given[-1], self._digest(s, key, value)) for s in self._secrets)
            if right:
                self.require(key.decode(errors="replace"), offset)
            return right or self._refuse(offset, "its signature is wrong")
        required_from = self._required_from.get(key)
        if not self._always_required and (required_from is None or offset <= required_from):
            return True
        return self._refuse(offset, "it isn't signed")

    def is_by_present(self, key: bytes, value: bytes, headers: Headers) -> bool:
        """Whether a record is signed with the present secret: it counts when the previous one is gone."""
        return [v for name, v in headers if name == HEADER][-1:] == [v for _, v in self.headers(key, value)]

    def _refuse(self, offset: int, reason: str) -> bool:
        if offset not in self.refused:
            self.refused.add(offset)
            self._tell(offset, reason)
        return False

    def _digest(self, secret: bytes, key: bytes, value: bytes) -> bytes:
        lengths = b"".join(len(part).to_bytes(8, "big") for part in (self._topic, key))
        content = b"sluice-control\x00" + lengths + self._topic + key + value
        return hmac.new(secret, content, hashlib.sha256).hexdigest().encode()
