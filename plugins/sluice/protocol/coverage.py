"""Sets of offsets of one partition, as sorted `[start, end)` pairs that neither overlap nor touch.

A table's coverage is all its committed offsets, in any order: the schedule reads on from its position, a backfill reads
before or after it, and neither may read the other's offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

Coverage = tuple[tuple[int, int], ...]


def add(coverage: Iterable[tuple[int, int]], *ranges: tuple[int, int]) -> Coverage:
    """The coverage with further ranges added; empty ones add nothing."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(r for r in (*coverage, *ranges) if r[0] < r[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def missing(coverage: Coverage, start: int, end: int) -> Coverage:
    """The parts of `[start, end)` that are not covered."""
    found, position = [], start
    for covered_start, covered_end in coverage:
        if covered_end <= position:
            continue
        if covered_start >= end:
            break
        if covered_start > position:
            found.append((position, covered_start))
        position = covered_end
    if position < end:
        found.append((position, end))
    return tuple(found)


def first_missing(coverage: Coverage, offset: int) -> int:
    """The first offset that is not covered, from the given one on."""
    for start, end in coverage:
        if start <= offset < end:
            return end
    return offset


def before(coverage: Coverage, offset: int) -> Coverage:
    """The part of a coverage before an offset."""
    return tuple((start, min(end, offset)) for start, end in coverage if start < offset)


def size(coverage: Iterable[tuple[int, int]]) -> int:
    """How many offsets a coverage has."""
    return sum(end - start for start, end in coverage)
