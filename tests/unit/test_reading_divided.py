"""Into how many Spark tasks a job's ranges are divided, and which of them have read a range."""

from __future__ import annotations

import pytest
from protocol_messages import planned

from sluice.protocol.committable import Committable
from sluice.protocol.messages import PlannedRange
from sluice.rows.reading import _batches, divided, tasks_of
from sluice.sinks.hudi.writer import HudiWritten, file_group_of


def _ranges(*spans: int) -> list[PlannedRange]:
    return [PlannedRange(cluster="c", topic="t", partition=p, start=7, end=7 + span) for p, span in enumerate(spans)]


@pytest.mark.parametrize(
    ("spans", "cores", "tasks"),
    [
        ((2000,), 2, (2,)),
        ((2000,), 1, (1,)),  # nothing is gained where one task runs at a time
        ((99,), 8, (1,)),
        ((2000,), 64, (20,)),  # a stretch is worth a task
        ((1000, 1000), 2, (1, 1)),
        ((1000, 1100), 2, (1, 1)),  # a small rest isn't
        ((2000, 500, 500), 2, (2, 1, 1)),
        ((9000, 1000), 10, (9, 1)),
        ((1, 1, 1), 2, (1, 1, 1)),
    ],
)
def test_a_range_that_is_more_than_a_core_s_share_is_divided(spans, cores, tasks):
    assert divided(_ranges(*spans), cores, 100) == tasks


def test_a_range_that_is_divided_is_a_read_of_its_own():
    ranges = _ranges(10, 20, 30, 10)
    assert _batches(ranges, ()) == [[0, 1, 2, 3]]
    assert _batches(ranges, (1, 2, 3, 1)) == [[0, 3], [1], [2]]


def test_the_file_groups_of_a_range_are_those_of_all_its_tasks():
    counts = {"task_0": 0, "task_1": 3, "first_task_1": 1, "task_2": None, "first_task_2": None}
    tasks = tasks_of(_ranges(1, 30, 30), counts)
    assert [list(t) for t in tasks] == [[0], [1, 2, 3], []]
    files = [
        Committable.of_wire({"fileId": f"g{task}-0", "path": f"g{task}-0_{task}-5-9_1.parquet", "numWrites": 1})
        for task in (0, 1, 3, 4)
    ]
    written = HudiWritten(tuple(files), None, named_by="task")
    assert written.file_groups(_ranges(1, 30, 30), tasks) == {0: ["g0-0"], 1: ["g1-0", "g3-0"], 2: []}


def test_the_file_groups_of_an_upsert_are_those_of_a_topic_s_own_partition():
    """Two topics have a partition of the same number, and one of them two table partitions."""
    ranges = [planned(7), planned(7).model_copy(update={"topic": "u"}), planned(8)]
    groups = [file_group_of(topic, 7, path) for topic, path in (("t", "day=1"), ("t", "day=2"), ("u", "day=1"))]
    assert len(set(groups)) == 3
    assert all(group.startswith("00000007-") for group in groups)
    files = [
        Committable.of_wire({"fileId": group, "path": f"{path}/.{group}_1.log.1_0-1-2", "partitionPath": path})
        for group, path in zip(groups, ("day=1", "day=2", "day=1"), strict=True)
    ]
    written = HudiWritten(tuple(files), None, named_by="partition")
    assert written.file_groups(ranges, [[0], [0], [0]]) == {0: groups[:2], 1: groups[2:], 2: []}
    assert HudiWritten(tuple(files), None).file_groups(ranges, []) == {}
