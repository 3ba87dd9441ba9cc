"""The blocks of an Avro file, as its specification has them.

Avro's own reader takes it for the end of the rows if a block has none, or is longer than the file.
"""

from __future__ import annotations

from typing import BinaryIO

MARKER = 16
"""Bytes of the sync marker, which ends a file's header and each of its blocks."""
_LONGEST = 10  # bytes of a number


def fault(file: BinaryIO, begin: int, size: int) -> str | None:
    """Why the rows of a file would not all be read, in words; None for a whole file.

    Args:
        file: its bytes.
        begin: the end of its header.
        size: its bytes.
    """
    file.seek(begin - MARKER)
    marker, at = file.read(MARKER), begin
    while at < size:
        file.seek(at)
        head = file.read(2 * _LONGEST)
        rows, first = _number(head)
        length, second = _number(head[first:])
        end = at + first + second + length + MARKER
        if not second or length < 0 or end > size:
            return f"its block at byte {at} isn't whole"
        if rows <= 0:
            return f"its block at byte {at} has no rows"
        file.seek(end - MARKER)
        if file.read(MARKER) != marker:
            return f"its block at byte {at} doesn't end with the file's sync marker"
        at = end
    return None


def _number(data: bytes) -> tuple[int, int]:
    """A number in Avro's variable length, and of how many bytes it is; 0 of none where it doesn't end."""
    found = 0
    for i, byte in enumerate(data[:_LONGEST]):
        found |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), i + 1
    return 0, 0
