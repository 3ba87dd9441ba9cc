"""The audit, and what a transaction's statuses add up to."""

from __future__ import annotations

import pytest
from protocol_messages import TABLE, TIME, WRITER, abort, ack, end, planned, start, status

from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol.audit import audit, audit_again
from sluice.protocol.messages import LostOffsets
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition
from sluice.protocol.settlement import (
    committed_statuses,
    may_have_written_anywhere,
    missing_error,
    moved_offsets,
    positions_after,
    require_ours,
    table_partitions,
    transaction_at,
    valid_through,
)
from sluice.protocol.transaction import TableLog

FIRST = TopicPartition("kafka", "t", 0)


def log(*messages):
    return TableLog(TABLE).extend(enumerate(messages))


def test_the_audit_passes_what_adds_up():
    audit(start("1"), 0, status("1"))
    audit(
        start("1"),
        0,
        status(
            "1", records_written=5, records_deleted=1, records_quarantined=2, records_filtered=1, records_skipped=1,
            stats=({"numWrites": 5, "numDeletes": 1},), quarantine_stats=({"numWrites": 2},),
        ),
    )  # fmt: skip


def test_rows_that_moved_or_were_truncated_are_deletes_of_the_sink():
    moved = {"rows_moved": 2, "rows_truncated": 3, "stats": ({"numWrites": 10, "numDeletes": 5},)}
    audit(start("1"), 0, status("1", **moved))
    with pytest.raises(IntervalError, match="audit failed"):
        audit(start("1"), 0, status("1", **moved | {"rows_moved": 1}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"records_written": 9},
        {"records_read": 11},
        {"stats": ({"numWrites": 9},)},
        {"stats": ({"numWrites": 10, "totalWriteErrors": 1},)},
        {"records_skipped": 1},
        {"records_filtered": 1},
        {"records_written": 9, "records_deleted": 1, "stats": ({"numWrites": 9},)},
        {"records_written": 9, "records_quarantined": 1, "stats": ({"numWrites": 9},)},
        {"quarantine_stats": ({"numWrites": 1},)},
        {"partitions": ()},
    ],
    ids=str,
)
def test_the_audit_refuses_what_does_not(wrong):
    with pytest.raises(IntervalError, match="audit failed"):
        audit(start("1"), 0, status("1", **wrong))


def test_the_audit_refuses_a_range_that_was_not_read_to_its_end():
    short = status("1").partitions[0].model_copy(update={"next_offset": 9})
    with pytest.raises(IntervalError, match="planned end"):
        audit(start("1"), 0, status("1", partitions=(short,)))


def _again(operation="append", before=(10,), **more):
    writer = WRITER.model_copy(update={"operation": operation})
    return start("2", kind="replay", replays="1", records_before=before).model_copy(update={"writer": writer, **more})


def _read(records: int, number: int = 0):
    result = status("2", number).partitions[0].model_copy(update={"records_read": records})
    return status("2", number, partitions=(result,))


@pytest.mark.parametrize("operation", ["append", "upsert"])
@pytest.mark.parametrize("records", [9, 10, 11])
def test_a_replay_reads_the_records_that_the_interval_had(operation, records):
    """An upsert's takes no row away, so it may have fewer; compaction leaves the newest of each key."""
    if records == 10 or (operation == "upsert" and records < 10):
        audit_again(_again(operation), {0: _read(records)})
        return
    with pytest.raises(ActionRequiredError, match="not the records that the interval had"):
        audit_again(_again(operation), {0: _read(records)})


def test_a_replays_records_are_counted_by_range_where_they_are_known():
    ranges = ((planned(0), planned(1)),)
    reported = {0: _read(9), 1: _read(11, 1)}
    audit_again(_again(before=(20,), ranges=ranges), reported)  # of an interval whose note has the sum alone
    with pytest.raises(ActionRequiredError, match="not the records") as caught:
        audit_again(_again(before=(10, 10), ranges=ranges), reported)
    assert (caught.value.where["records"], caught.value.where["records_before"]) == (9, 10)
    audit_again(_again(before=()), {0: _read(3)})  # a START of a release that didn't count


def test_a_missing_ranges_own_error_is_told_with_its_class():
    failed = status("1", error="A record can't be loaded. [offset=3] Next step: correct it.", recovery="act")
    error = missing_error(log(start("1"), failed).transactions["1"], (0,))
    assert isinstance(error, ActionRequiredError)
    assert "offset=3" in str(error)
    assert str(error).count("Next step") == 1


def test_a_range_that_said_nothing_is_named_by_its_offsets():
    assert "t[0] [0, 10)" in str(missing_error(log(start("1")).transactions["1"], (0,)))


def test_only_what_end_commit_names_is_committed():
    """A status that comes after the decision changes nothing."""
    messages = (start("1", ranges=2), status("1", 0), end("1", reported=(0,), missing=(1,)), status("1", 1))
    assert list(committed_statuses(log(*messages).transactions["1"])) == [0]


def test_a_range_that_did_not_report_stays_where_it_was():
    begun = start("1", ranges=2)
    after = positions_after(begun, {0: status("1", 0)})
    assert after == {FIRST: 10, TopicPartition("kafka", "t", 1): 0}


def test_offsets_that_moved_since_the_plan_are_noticed():
    assert moved_offsets(start("1"), Checkpoint()) == []
    assert moved_offsets(start("1"), Checkpoint().advance({FIRST: 0}, {}, {})) == []
    assert moved_offsets(start("1"), Checkpoint().advance({FIRST: 5}, {}, {})) == ["t[0] planned from 0, now 5"]


def test_what_a_plan_goes_round_must_still_be_there():
    """A commit that was being taken off may have stood for another moment when the interval was planned."""
    (group,) = start("1").ranges
    begun = start("1").model_copy(update={"ranges": ((group[0].model_copy(update={"start": 4, "rests_on": 2}),),)})
    window = Checkpoint().advance({}, {}, {}, committed=[OffsetRange(FIRST, 2, 4)])
    assert moved_offsets(begun, window) == []
    gone = ["t[0] [2, 4) is not in the table any more"]
    assert moved_offsets(begun, Checkpoint()) == gone
    idle = begun.model_copy(update={"ranges": (), "idle": begun.ranges[0]})
    assert (moved_offsets(idle, window), moved_offsets(idle, Checkpoint())) == ([], gone)


def test_a_resumed_loss_is_no_move_but_leaves_the_check_on_for_the_other_partitions():
    loss = LostOffsets(cluster="kafka", topic="t", partition=0, committed=3, resumed_at=0, reason="r")
    begun = start("1", ranges=2, losses=(loss,))
    second = TopicPartition("kafka", "t", 1)
    assert moved_offsets(begun, Checkpoint().advance({FIRST: 3, second: 0}, {}, {})) == []
    assert moved_offsets(begun, Checkpoint().advance({FIRST: 3, second: 4}, {}, {})) != []


def test_a_superseded_transaction_cannot_be_committed():
    superseded = log(start("1"), start("2", read_position=1)).transactions["1"]
    with pytest.raises(IntervalError, match="superseded"):
        require_ours(superseded)


def test_a_transaction_is_found_by_offset_and_instant():
    found = log(start("1"))
    assert transaction_at(found, 0, "1").id == "1"
    with pytest.raises(IntervalError):
        transaction_at(found, 0, "2")


def test_valid_through_is_the_plans_unless_limits_left_records():
    begun = start("1")
    assert valid_through(begun, {0: status("1")}) == begun.valid_through
    behind = start("1", ranges=0).model_copy(update={"ranges": ((planned(0, behind=True),),)})
    assert valid_through(behind, {0: status("1")}) == TIME
    waiting = start("1").model_copy(update={"idle": (planned(1, 5, 5, behind=True),)})
    assert valid_through(waiting, {0: status("1")}) is None
    assert valid_through(start("1", ranges=2), {0: status("1")}) is None


def test_an_abort_remembers_where_files_were_open():
    written = status("1", stats=({"numWrites": 10, "partitionPath": "a"},))
    aborted = abort("1").model_copy(update={"table_partitions": ("b", "c")})
    assert table_partitions(log(start("1"), written, aborted).transactions["1"]) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("kind", "ranges", "ended", "expected"),
    [
        ("continue", 2, ack("1"), False),
        ("continue", 2, end("1", (0, 1)), False),
        ("continue", 2, end("1", (0,), (1,)), True),
        ("continue", 2, abort("1"), False),
        ("backfill", 1, abort("1"), True),
        ("range", 1, abort("1"), True),
        ("range", 1, end("1"), False),
        ("replay", 1, abort("1"), True),
        ("correction", 0, abort("1"), False),
        ("service", 0, abort("1"), False),
    ],
)
def test_where_a_late_attempt_may_have_files_that_nothing_names(kind, ranges, ended, expected):
    transaction = log(start("1", ranges=ranges, kind=kind), ended).transactions["1"]
    assert may_have_written_anywhere(transaction, committed=transaction.end is not None) is expected
