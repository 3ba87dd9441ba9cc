"""Sets of offsets: what is covered, what is missing, and that the two always make up the whole."""

from __future__ import annotations

import itertools
import random

import pytest

from sluice.protocol import coverage


def offsets(ranges) -> set[int]:
    return {offset for start, end in ranges for offset in range(start, end)}


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        ((), (0, 5), ((0, 5),)),
        (((0, 5),), (5, 9), ((0, 9),)),
        (((0, 5),), (7, 9), ((0, 5), (7, 9))),
        (((0, 5), (7, 9)), (5, 7), ((0, 9),)),
        (((0, 5),), (2, 3), ((0, 5),)),
        (((3, 5),), (4, 4), ((3, 5),)),
    ],
)
def test_ranges_that_touch_become_one(before, added, after):
    assert coverage.add(before, added) == after


@pytest.mark.parametrize("seed", range(50))
def test_covered_and_missing_make_up_the_window(seed):
    chance = random.Random(seed)
    ranges = [
        (start, start + chance.randrange(6)) for start in (chance.randrange(40) for _ in range(chance.randrange(8)))
    ]
    covered = coverage.add((), *ranges)
    assert offsets(covered) == offsets(ranges)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(covered))
    start = chance.randrange(40)
    end = start + chance.randrange(20)
    missing = coverage.missing(covered, start, end)
    assert offsets(missing) == set(range(start, end)) - offsets(covered)
    first = coverage.first_missing(covered, start)
    assert first not in offsets(covered)
    assert set(range(start, first)) <= offsets(covered)
    assert coverage.size(covered) == len(offsets(covered))


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(3, ()), (4, ((3, 4),)), (5, ((3, 5),)), (7, ((3, 5),)), (8, ((3, 5), (7, 8))), (99, ((3, 5), (7, 9)))],
)
def test_what_is_before_an_offset_has_no_empty_parts(offset, expected):
    assert coverage.before(((3, 5), (7, 9)), offset) == expected


@pytest.mark.parametrize(("offset", "expected"), [(2, 2), (3, 5), (4, 5), (5, 5), (6, 6), (7, 9), (9, 9)])
def test_the_first_that_is_missing_from_an_offset_on(offset, expected):
    assert coverage.first_missing(((3, 5), (7, 9)), offset) == expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 3, ((0, 3),)),
        (3, 5, ()),
        (5, 7, ((5, 7),)),
        (4, 8, ((5, 7),)),
        (0, 12, ((0, 3), (5, 7), (9, 12))),
        (9, 9, ()),
        (10, 4, ()),
    ],
)
def test_what_is_missing_has_no_empty_parts(start, end, expected):
    assert coverage.missing(((3, 5), (7, 9)), start, end) == expected
