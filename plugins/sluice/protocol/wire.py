"""Messages as stored in the control topic: readable JSON if small, otherwise packed and split into parts.

A message of more than `READABLE` bytes is packed: its envelope stays JSON, with the whole message under `packed`,
compressed by xz and in base64. If it would still exceed the topic's message limit, it is sent in numbered parts.

Parts keep the topic's order and need no state in the fold: a message *is* its last part. It counts at the last part's
offset, and names the offsets of the earlier parts, which a reader fetches only when it meets the last one. So a message
in parts counts at one offset, like any other, whatever is between its parts, and a reader that starts in the middle
reaches the same verdict as one that started before. A sender that dies before the last part has sent nothing.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from sluice.packed import pack, unpack
from sluice.protocol.messages import ControlMessage, decode_members
from sluice.protocol.messages import decode as decode_whole
from sluice.protocol.messages import encode as encode_whole
from sluice.untrusted import Untrusted, members, model_of, require_within_bounds

READABLE = 50_000
"""Bytes up to which a message is stored as plain JSON."""
LARGEST = 64 * 1024 * 1024
"""The most bytes of JSON in a message, however it is packed: a reader unpacks no more."""
MOST_PARTS = 256
_OFFSET = 20  # characters of an offset and its comma
_ENVELOPE = ("version", "table", "transaction", "epoch", "dag_id", "run_id", "sender", "time", "type")


class Packed(Untrusted):
    """The part of a packed message that is in one record of the topic.

    Attributes:
        xz: base64 of the xz-compressed message; in a part, its slice of that.
        part, parts: the part's number, from 0, and the number of parts.
        earlier: in the last part, the control-topic offsets of the earlier ones, in order.
        sha256: on the last part, of the base64 of all parts.
    """

    xz: str
    part: int = 0
    parts: int = 1
    earlier: tuple[int, ...] = Field(default=(), max_length=MOST_PARTS)
    sha256: str | None = None


class MessagePart(Untrusted):
    """One part of a message sent in several; its envelope identifies the message for people."""

    type: Literal["START-COMMIT", "WRITE-STATUS", "END-COMMIT", "ACK-COMMIT", "ABORT-COMMIT", "MAPPING-SEEN"]
    table: str
    transaction: str
    time: datetime
    packed: Packed

    @property
    def is_last_part(self) -> bool:
        """Whether this is the last part, whose offset is the message's."""
        return self.packed.part == self.packed.parts - 1

    def offsets_before(self, offset: int) -> tuple[int, ...]:
        """The offsets of the parts before this last one, which itself is at `offset`.

        Raises:
            ValueError: it names none, or offsets that can't be theirs.
        """
        earlier = self.packed.earlier
        if not earlier or list(earlier) != sorted({o for o in earlier if 0 <= o < offset}):
            raise ValueError("the last part names no offsets, or such as can't hold the parts before it")
        return earlier


@dataclass(frozen=True)
class Encoded:
    """A message ready to be sent: first `earlier`, and once these are acknowledged, `last` with their offsets."""

    earlier: tuple[bytes, ...]
    _last: Callable[[Sequence[int]], bytes]

    def last(self, offsets: Sequence[int]) -> bytes:
        """The value of the last part, with which the message counts.

        Args:
            offsets: the earlier parts' offsets, in order.
        """
        return self._last(offsets)


def encode(message: ControlMessage, limit: int) -> Encoded:
    """The message as values of at most `limit` bytes.

    Raises:
        ValueError: it is too large to be sent in any number of parts, or the limit leaves no room for one.
    """
    plain = encode_whole(message)
    if len(plain) <= min(READABLE, limit):
        return Encoded((), lambda _: plain)
    if len(plain) > LARGEST:
        raise ValueError(f"it has {len(plain)} bytes, and a message may have {LARGEST}")
    require_within_bounds([plain])
    envelope = message.model_dump(mode="json", include=set(_ENVELOPE))
    text = b64encode(pack(plain, LARGEST, fast=True)).decode()
    whole = _value(envelope, Packed(xz=text))
    if len(whole) <= limit:
        return Encoded((), lambda _: whole)
    return _in_parts(envelope, text, limit)


def _in_parts(envelope: dict[str, Any], text: str, limit: int) -> Encoded:
    digest = hashlib.sha256(text.encode()).hexdigest()
    frame = len(_value(envelope, Packed(xz="", part=MOST_PARTS, parts=MOST_PARTS, sha256=digest)))
    room = limit - frame
    parts = 2
    while room - parts * _OFFSET > 0 and parts * (room - parts * _OFFSET) < len(text):
        parts += 1
    if room - parts * _OFFSET <= 0 or parts > MOST_PARTS:
        raise ValueError(f"its {len(text)} bytes, packed, don't fit into {MOST_PARTS} parts of {limit} bytes")
    size = -(-len(text) // parts)
    *earlier, last = (Packed(xz=text[i * size : (i + 1) * size], part=i, parts=parts) for i in range(parts))

    def with_offsets(offsets: Sequence[int]) -> bytes:
        if len(offsets) != len(earlier):
            raise RuntimeError(f"{len(earlier)} parts precede the last, at {len(offsets)} offsets")
        return _value(envelope, last.model_copy(update={"earlier": tuple(offsets), "sha256": digest}))

    return Encoded(tuple(_value(envelope, part) for part in earlier), with_offsets)


def _value(envelope: dict[str, Any], packed: Packed) -> bytes:
    given = packed.model_dump(exclude_defaults=True)
    return json.dumps({**envelope, "packed": given}, separators=(",", ":")).encode()


def decode(value: bytes) -> ControlMessage | MessagePart:
    """Decode the value at one offset: a message, or one part of a message.

    Raises:
        ValueError: it isn't one of Sluice's, or is too large; no other error, whatever the value is.
    """
    fields = members(value)
    if "packed" not in fields:
        return decode_members(fields)
    part = model_of(MessagePart, fields)
    if part.packed.parts > 1:
        return part
    return _opened(part, part.packed.xz)


def assemble(last: MessagePart, earlier: Sequence[bytes]) -> ControlMessage:
    """The whole message.

    Args:
        last: its last part.
        earlier: the values at the offsets that it names.

    Raises:
        ValueError: they are not parts of this message.
    """
    parts = [decode(value) for value in earlier]
    numbers = []
    text = ""
    for part in parts:
        if not isinstance(part, MessagePart) or (part.table, part.transaction) != (last.table, last.transaction):
            raise ValueError("an offset that the last part names holds no part of it")
        numbers.append(part.packed.part)
        text += part.packed.xz
    text += last.packed.xz
    whole = numbers == list(range(last.packed.parts - 1))
    if not whole or hashlib.sha256(text.encode()).hexdigest() != last.packed.sha256:
        raise ValueError("the parts are not those of one message")
    return _opened(last, text)


def _opened(part: MessagePart, text: str) -> ControlMessage:
    message = decode_whole(unpack(b64decode(text, validate=True), LARGEST))
    if (message.type, message.table, message.transaction) != (part.type, part.table, part.transaction):
        raise ValueError("the packed message is another one than its envelope says")
    return message
