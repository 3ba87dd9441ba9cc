"""Packed bytes in messages, unpacked within bounds: ten kilobytes can be made to unpack to gigabytes. Pure."""

from __future__ import annotations

import lzma

LARGEST = 32 * 1024 * 1024
"""The most bytes that something packed may hold."""
_MEMORY = 128 * 1024 * 1024  # bytes for the decoder itself, whose dictionary the packed bytes ask for


def pack(content: bytes, largest: int = LARGEST, *, fast: bool = False) -> bytes:
    """The bytes in xz's form.

    Args:
        content: the bytes to pack.
        largest: the reader's limit, in unpacked bytes.
        fast: a twentieth of the time for a fifth more bytes.

    Raises:
        ValueError: there are more of them than `unpack` would take.
    """
    if len(content) > largest:
        raise ValueError(f"{len(content)} bytes are more than a message may hold ({_in_words(largest)})")
    return lzma.compress(content, preset=0 if fast else None)


def unpack(packed: bytes, largest: int = LARGEST) -> bytes:
    """What `pack` was given.

    Raises:
        ValueError: it is not packed as a whole, or holds more than `largest` bytes; no more are made of it to see that.
    """
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        content = decoder.decompress(packed, max_length=largest + 1)
    except (lzma.LZMAError, MemoryError) as error:
        raise ValueError(f"it can't be unpacked: {error}") from error
    if len(content) > largest:
        raise ValueError(f"it unpacks to more than {_in_words(largest)}")
    if not decoder.eof or decoder.unused_data:
        raise ValueError("it can't be unpacked: it isn't whole, or something follows on it")
    return content


def _in_words(size: int) -> str:
    return f"{size // 1024**2} MiB"
