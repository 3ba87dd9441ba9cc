"""Which partitions are read and counted together: few at a time, so that no record is looked at for all of them."""

from __future__ import annotations

import pytest
from protocol_messages import planned

from sluice.rows.bad_records import BadSpan, spans
from sluice.rows.reading import _AT_A_TIME, _batches


@pytest.mark.parametrize("partitions", [1, 10, 16, 17, 1000])
def test_what_a_record_costs_does_not_grow_with_partitions(partitions):
    ranges = [planned(i) for i in range(partitions)]
    batches = _batches(ranges)
    assert max(map(len, batches)) <= _AT_A_TIME
    assert sorted(i for batch in batches for i in batch) == list(range(partitions))


def test_two_stretches_of_a_partition_are_in_different_batches():
    ranges = [planned(p, start, start + 5) for start in (0, 10, 20) for p in range(40 if start else 3)]
    batches = _batches(ranges)
    assert sorted(i for batch in batches for i in batch) == list(range(len(ranges)))
    for batch in batches:
        assert len({ranges[i].topic_partition for i in batch}) == len(batch)


class _Seq:
    """Scala's sequence of rows, as Py4J shows it."""

    def __init__(self, *rows: tuple[str, int, int]) -> None:
        self._rows = rows

    def size(self) -> int:
        return len(self._rows)

    def apply(self, i: int) -> _Seq:
        return _Seq(*self._rows[i])

    def get(self, i: int):
        return self._rows[i]


def test_of_many_ranges_it_is_known_about_where_bad_records_are():
    ranges = [planned(i, 5, 1000) for i in range(100)]
    size = 128  # of the longest range an eighth or less
    counted = [{"bad": 3, "places": _Seq(("t", 7, 0), ("t", 7, 2))}, {"bad": 1, "places": _Seq(("t", 9, 7))}]
    assert spans(ranges, counted) == (
        BadSpan(ranges[7], 5, 3 * size - 1, exact=size - 5),
        BadSpan(ranges[9], 7 * size, 999, exact=size),
    )
    first = spans(ranges, counted)[0]
    assert (first.narrowed().start, first.narrowed().end) == (5, 384)
    assert (first.only_first().start, first.only_first().end) == (5, 128)
