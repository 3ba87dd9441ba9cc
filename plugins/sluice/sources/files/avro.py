"""The blocks of an Avro file, as its specification has them.

Avro's own reader takes it for the end of the rows if a block has none, or is longer than the file.
"""

from __future__ import annotations

from typing import BinaryIO

from sluice.sources.files.varint import LONGEST, varint

MARKER = 16
"""Bytes of the sync marker, which ends a file's header and each of its blocks."""


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
        rows, length, begins = _block(file.read(2 * LONGEST)) or (0, -1, 0)
        end = at + begins + length + MARKER
        if length < 0 or end > size:
            return f"its block at byte {at} isn't whole"
        if rows <= 0:
            return f"its block at byte {at} has no rows"
        file.seek(end - MARKER)
        if file.read(MARKER) != marker:
            return f"its block at byte {at} doesn't end with the file's sync marker"
        at = end
    return None


def _block(head: bytes) -> tuple[int, int, int] | None:
    """The rows and the bytes that a block says it has, and where the bytes begin; None if it doesn't say."""
    rows = varint(head)
    length = varint(head, rows[1]) if rows is not None else None
    return None if rows is None or length is None else (_signed(rows[0]), _signed(length[0]), length[1])


def _signed(number: int) -> int:
    """Avro's zigzag: 0, -1, 1, -2 for 0, 1, 2, 3."""
    return (number >> 1) ^ -(number & 1)
