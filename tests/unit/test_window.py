"""Where a window by time ends, with records in the log that are dated in the future."""

from __future__ import annotations

import random

import pytest

from sluice.protocol.window import find_all, first_past

_FAR = 10**9  # a time of no well-dated record


def _search(times: list[int], start: int, bound: int) -> tuple[int, int]:
    """The bound that is found, and how many questions it took."""
    questions = 0

    def ask(offsets):
        nonlocal questions
        questions += 1
        well_dated = (t for t in times[offsets["p"] :] if t < _FAR)
        return {"p": next((t >= bound for t in well_dated), False)}

    return find_all({"p": first_past(start, len(times))}, ask)["p"], questions


@pytest.mark.parametrize("seed", range(200))
def test_of_rising_times_it_is_the_first_record_past_the_bound(seed):
    rng = random.Random(seed)
    times = sorted(rng.choices(range(100), k=rng.randrange(1, 60)))
    for _ in range(rng.randrange(5)):
        times.insert(rng.randrange(len(times) + 1), _FAR)
    bound, start = rng.randrange(-5, 110), rng.randrange(len(times) + 1)
    found, questions = _search(times, start, bound)
    before, after = times[start:found], times[found:]
    assert all(t < bound or t == _FAR for t in before)
    first = next((t for t in after if t < _FAR), None)
    assert first is None or first >= bound
    assert questions <= 2 * len(times).bit_length() + 2


def test_records_that_are_all_of_the_future_are_taken_by_their_offsets():
    assert _search([_FAR] * 40, 0, 50)[0] == 40


def test_searches_of_many_partitions_share_their_questions():
    calls = []

    def ask(offsets):
        calls.append(dict(offsets))
        return {name: offset >= 500 for name, offset in offsets.items()}

    found = find_all({name: first_past(0, 1000) for name in range(50)}, ask)
    assert found == dict.fromkeys(range(50), 500)
    assert len(calls) < 25


def test_nothing_to_search():
    assert find_all({}, lambda _: {}) == {}
    assert _search([1, 2], 2, 0)[0] == 2
