"""Ranges that were gathered are counted one by one, and all together once more when they are written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import planned

from sluice.connectors.data import Delivered, Gathered
from sluice.errors import IntervalError
from sluice.rows.reading import counted_gathered, partition_results, tasks_of

GATHERED = (
    Gathered(
        "frame",
        2,
        (Delivered(planned(0), 2, 20, 9, 5000, 0), Delivered(planned(4)), Delivered(planned(1), 1, 7, 3, -1, 1)),
    ),
    Gathered("frame", 1, (Delivered(planned(2), 3, 30, 4, 7000, 0),)),
)


def _dataset(*records: int) -> Any:
    rows = {f"sluice_gathered_{i}": SimpleNamespace(getAs=lambda _, n=n: n) for i, n in enumerate(records)}
    metrics = SimpleNamespace(contains=rows.__contains__, apply=rows.__getitem__)
    return SimpleNamespace(queryExecution=lambda: SimpleNamespace(observedMetrics=lambda: metrics))


def test_each_range_has_its_own_records_and_gaps_and_the_file_groups_of_its_task():
    counts = counted_gathered(_dataset(3, 3), GATHERED)
    ranges = [d.planned for one in GATHERED for d in one.delivered]
    tasks = tasks_of(ranges, counts)
    assert [list(t) for t in tasks] == [[0], [], [1], [2]]
    results = partition_results(ranges, counts, {0: ["g0"], 2: ["g1"], 3: ["g2"]})
    assert counts["records"] == 6
    assert [(r.partition, r.records_read, r.gaps, r.bytes_read, r.file_groups) for r in results] == [
        (0, 2, 8, 20, ("g0",)),
        (4, 0, 10, 0, ()),
        (1, 1, 9, 7, ("g1",)),
        (2, 3, 7, 30, ("g2",)),
    ]
    assert [r.max_timestamp and r.max_timestamp.timestamp() for r in results] == [5, None, -0.001, 7]


def test_a_run_of_fewer_records_than_were_gathered_counts_for_nothing():
    with pytest.raises(IntervalError, match="Spark counted other records"):
        counted_gathered(_dataset(3, 2), GATHERED)
