"""Numbers of variable length as Avro and Protobuf have them: seven bits a byte, the lowest first. Pure."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 10
"""The bytes of the longest number, of 64 bits."""
_MORE: Final = 0x80  # is set in each byte but the last


def varint(data: bytes, at: int = 0) -> tuple[int, int] | None:
    """A number, without a sign, and where it ends; None if it doesn't end.

    Args:
        data: the bytes.
        at: where the number begins.
    """
    found = 0
    for i in range(min(LONGEST, len(data) - at)):
        byte = data[at + i]
        found |= (byte & ~_MORE) << (7 * i)
        if byte < _MORE:
            return found, at + i + 1
    return None
