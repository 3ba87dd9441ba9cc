"""A range of very many partitions is written by several Spark jobs, and reported as if it had been one."""

from __future__ import annotations

from decimal import Decimal

import pytest
from protocol_messages import planned, start

from sluice.connectors.data import VoidChanges
from sluice.participant.parts import (
    AT_ONCE,
    FEW,
    THIN,
    TOPICS,
    Part,
    can_be_gathered,
    joined,
    parted,
    per_task,
    thin,
    topics_at_once,
)
from sluice.protocol.messages import PartitionResult
from sluice.protocol.placement import KeyPlacement, Misplaced, PlacedKeys
from sluice.rows.bad_records import BadSpan
from sluice.rows.changes import ChangeCounts
from sluice.rows.records import Counted

HASHED = KeyPlacement(kind="hashed", partitions={"t": AT_ONCE + 1}, buckets=4)
UPSERT = {"table_type": "MERGE_ON_READ", "operation": "upsert", "record_key": ("id",)}


def upsert(**more):
    message = start("1", **more)
    return message.model_copy(update={"writer": message.writer.model_copy(update=UPSERT)})


@pytest.mark.parametrize("message", [start("1"), upsert(), upsert(emptied_at="1")])
@pytest.mark.parametrize("partitions", [1, AT_ONCE, AT_ONCE + 1, 3000])
def test_what_a_task_carries_does_not_grow_with_partitions(message, partitions):
    ranges = [planned(i) for i in range(partitions)]
    parts = parted(message, ranges, cores=2)
    assert max(map(len, parts)) <= AT_ONCE
    assert len(parts) == -(-partitions // AT_ONCE)
    assert [r for part in parts for r in part] == ranges


def test_a_job_has_work_for_all_cores():
    ranges = [planned(i) for i in range(4 * AT_ONCE)]
    assert [len(part) for part in parted(start("1"), ranges, cores=3 * AT_ONCE)] == [3 * AT_ONCE, AT_ONCE]


def test_stretches_of_one_partition_are_one_jobs():
    ranges = [planned(p, at, at + 5) for at in (0, 10, 20) for p in range(AT_ONCE)]
    parts = parted(upsert(), ranges, cores=2)
    seen = [{r.partition for r in part} for part in parts]
    assert sum(map(len, seen)) == AT_ONCE
    assert sorted(map(str, (r for part in parts for r in part))) == sorted(map(str, ranges))
    assert max(map(len, parts)) <= AT_ONCE


def test_jobs_that_would_share_file_groups_or_read_the_table_are_one():
    ranges = [planned(i) for i in range(AT_ONCE + 1)]
    for message in (upsert(placement=HASHED), upsert(keep_newer=True), upsert(later=(planned(0),))):
        assert parted(message, ranges, cores=2) == [tuple(ranges)]


MANY = [planned(i, 5, 7) for i in range(FEW + 1)]


def appends(**more):
    return start("1", **{"records_per_task": 100_000, **more})


def test_many_ranges_of_few_offsets_are_thin_and_a_hot_one_among_them_is_not():
    largest, hot = planned(98, 0, THIN), planned(99, 0, THIN + 1)
    assert thin([*MANY, hot, largest]) == [*MANY, largest]
    assert thin(MANY[1:]) == []
    assert thin([*MANY[1:], hot]) == []


def test_stretches_of_one_partition_are_not_thin_since_a_client_is_at_one_place_of_it():
    assert thin([*MANY, planned(0, 9, 12)]) == []
    assert thin([*MANY, planned(99, 0, 1), planned(0, 9, 12)]) == [*MANY[1:], planned(99, 0, 1)]


@pytest.mark.parametrize(
    "message",
    [
        upsert(records_per_task=100_000, keep_newer=True),
        upsert(records_per_task=100_000, placement=HASHED),
    ],
    ids=["the table is read", "keys are hashed"],
)
def test_what_is_written_by_one_job_shares_tasks_if_it_is_held_at_once(message):
    fat = [planned(i, 0, THIN) for i in range(51)]
    assert can_be_gathered(message, MANY)
    assert can_be_gathered(message, [*fat[1:], planned(98, 0, THIN + 1)])  # which isn't gathered
    assert not can_be_gathered(message, fat)


def test_an_earlier_coordinator_was_promised_a_task_for_each_range():
    assert can_be_gathered(appends(), MANY)
    assert not can_be_gathered(appends(records_per_task=None), MANY)


def test_keys_are_compared_with_so_many_topics_at_once_and_no_more():
    checked = KeyPlacement(kind="checked", partitions={"t": 9})
    assert topics_at_once(upsert(placement=checked)) == TOPICS
    assert topics_at_once(upsert(placement=HASHED)) is topics_at_once(upsert()) is None
    many = [planned(0).model_copy(update={"topic": f"t{i}"}) for i in range(TOPICS + 1)]
    one_job = upsert(placement=checked, keep_newer=True, records_per_task=100_000)
    assert can_be_gathered(one_job, many[:TOPICS])
    assert not can_be_gathered(one_job, many)
    assert can_be_gathered(upsert(placement=checked, records_per_task=100_000), many)


def test_all_cores_have_work_where_it_is_worth_a_task():
    assert per_task(MANY, cores=8) == 10_000
    assert per_task([planned(i, 0, 1000) for i in range(40)], cores=2) == 20_000
    assert per_task([planned(i, 0, 1000) for i in range(3000)], cores=2) == 25_000  # of what is held at once


def result(partition: int) -> PartitionResult:
    return PartitionResult(
        cluster="kafka", topic="t", partition=partition, start=0, next_offset=10, records_read=9, gaps=1, bytes_read=1
    )


def test_what_jobs_have_counted_is_the_ranges():
    one = Part(
        10, 6, ({"numWrites": 6},),
        Counted(
            1, 2, (BadSpan(planned(0), 3, 4),), 5, 1, ChangeCounts(1, ("t", 7, 4), Decimal(8), {"t": misplaced(2, 5)})
        ),
        (PlacedKeys(topic="t", keyless=misplaced(1, 9), misplaced={"crc32": misplaced(4, 2)}),), (result(0),),
        skipped=1, void=VoidChanges(3, 2, 1), truncated=4,
    )  # fmt: skip
    two = Part(
        20, 12, ({"numWrites": 12},),
        Counted(
            10, 20, (BadSpan(planned(1), 0, 9),), 50, 10,
            ChangeCounts(2, ("t", 1, 3), Decimal(6), {"u": misplaced(1, 1)}),
        ),
        (PlacedKeys(topic="t", keyless=misplaced(2, 4), misplaced={"murmur2_random": misplaced(3, 3)}),), (result(1),),
        skipped=10, void=VoidChanges(30, 20, 10), truncated=40,
    )  # fmt: skip
    assert joined([one]) is one
    assert joined([one, two]) == Part(
        30, 18, ({"numWrites": 6}, {"numWrites": 12}),
        Counted(
            11, 22, (BadSpan(planned(0), 3, 4), BadSpan(planned(1), 0, 9)), 55, 11,
            ChangeCounts(3, ("t", 1, 3), Decimal(8), {"t": misplaced(2, 5), "u": misplaced(1, 1)}),
        ),
        (PlacedKeys(
            topic="t", keyless=misplaced(3, 4), misplaced={"crc32": misplaced(4, 2), "murmur2_random": misplaced(3, 3)}
        ),),
        (result(0), result(1)),
        skipped=11, void=VoidChanges(33, 22, 11), truncated=44,
    )  # fmt: skip


def misplaced(records: int, offset: int) -> Misplaced:
    return Misplaced(records=records, offset=offset, partition=0)
