"""What is known after a restore of intervals that the table doesn't have any more."""

from __future__ import annotations

import pytest
from protocol_messages import TABLE, ack, end, planned, start, status

from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, OffsetRange, TopicCheckpoint, TopicPartition
from sluice.protocol.plan import IntervalPlan
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState
from sluice.protocol.taken_back import TakenBack, taken_back
from sluice.protocol.transaction import TableLog

LOG = TopicPartition("kafka", "t", 0)


def _log(*starts, quarantined: int = 0) -> TableLog:
    """Intervals that are committed one after the other; each takes four messages."""
    log, at = TableLog(TABLE), 0
    for message in starts:
        name = message.transaction
        sent = [message, status(name, records_quarantined=quarantined), end(name), ack(name)]
        log.extend(enumerate(sent, at))
        at += len(sent)
    return log


def _start(number: int, first: int, last: int, **more):
    topic_ids = {"kafka": {"t": "id"}}
    ranges = ((planned(0, first, last),),) if first < last else ()
    fields = {"cluster_ids": {"kafka": "K"}, "topic_ids": topic_ids, **more, "ranges": ranges}
    fields.pop("ranges")
    made = start(f"2026010100000{number}000", read_position=4 * number, ranges=0, **fields)
    return made.model_copy(update={"ranges": ranges})


def _gone(log: TableLog, standing, *covered: tuple[int, int], position: int, topic_id: str = "id") -> TakenBack:
    topic = TopicCheckpoint(topic_id=topic_id, partitions={0: position}, covered={0: covered})
    checkpoint = Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id="K", topics={"t": topic})})
    state = ClusterState(partitions=(), cluster_ids={"kafka": "K"}, topic_ids={("kafka", "t"): topic_id})
    return TakenBack(taken_back(log, standing), checkpoint, state, one_place=True)


def _plan(first: int, last: int) -> IntervalPlan:
    return IntervalPlan(ranges=((OffsetRange(LOG, first, last),),), idle=(), losses=())


def test_a_committed_interval_without_a_commit_of_the_table_is_found():
    log = _log(_start(0, 10, 20), _start(1, 0, 10, kind="range"), _start(2, 20, 30))
    assert [t.start_offset for t in taken_back(log, [0])] == [4, 8]
    assert taken_back(log, [0, 4, 8]) == ()


def test_what_the_schedule_reads_again_and_what_not():
    passed_over = {"kind": "correction", "passed_over": (planned(0, 25, 27),), "reason": "why"}
    log = _log(_start(0, 10, 20), _start(1, 0, 10, kind="range"), _start(2, 0, 0, **passed_over), _start(3, 20, 30))
    gone = _gone(log, [0], (10, 20), position=20)
    assert gone.not_read_again(_plan(20, 30)) == [OffsetRange(LOG, 0, 10)]
    assert len(gone.remarks(_plan(20, 30), 0, by_cluster=False)) == 3
    later = gone.remarks(_plan(30, 40), 12, by_cluster=False)  # it was read again since, and the range was not
    assert len(later) == 1
    assert "t[0] [0, 10)" in _gone(log, [0], (10, 30), position=30).remarks(_plan(30, 40), 12, by_cluster=False)[0]
    assert _gone(log, [0], (0, 30), position=30).remarks(_plan(30, 40), 12, by_cluster=False) == ()


def test_offsets_that_a_run_had_loaded_although_they_were_passed_over_are_named_once():
    """The restored table passes over them again, so the schedule never reads them (simulation, seed 785)."""
    log = _log(_start(0, 10, 20), _start(1, 22, 26, kind="range"), _start(2, 30, 40))
    topic = TopicCheckpoint(topic_id="id", partitions={0: 30}, covered={0: ((10, 20), (24, 30))})
    topic = topic.model_copy(update={"passed_over": {0: ((20, 24),)}})
    gone = _gone(log, [0], position=0)
    checkpoint = Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id="K", topics={"t": topic})})
    gone = TakenBack(gone.intervals, checkpoint, gone.state, one_place=True)
    assert gone.passed_over_again(0) == [OffsetRange(LOG, 22, 24)]
    said = gone.remarks(_plan(30, 40), 0, by_cluster=False)
    assert [remark for remark in said if "passed over again: t[0] [22, 24)" in remark]
    assert gone.passed_over_again(8) == []


def test_offsets_of_a_topic_that_was_made_again_are_those_of_other_records():
    log = _log(_start(0, 10, 20), _start(1, 0, 10, kind="range"))
    assert _gone(log, [0], position=20, topic_id="another").not_read_again(_plan(20, 30)) == []


def test_a_record_is_read_at_both_places_only_while_the_table_settles_neither():
    places = Places()
    places.add(("t", 0, 21), "id")
    places.add(("t", 0, 22), "another")
    places.add(("t", 0, 40), "id")
    log = _log(_start(0, 10, 20), _start(1, 20, 30), quarantined=1)
    assert _gone(log, [0], (10, 20), position=20).sent_again(_plan(20, 50), places) == [("t", 0, 21)]
    assert _gone(log, [0], (10, 22), position=22).sent_again(_plan(22, 50), places) == []
    none = _log(_start(0, 10, 20), _start(1, 20, 30))
    assert _gone(none, [0], (10, 20), position=20).sent_again(_plan(20, 50), places) == []


@pytest.mark.parametrize(("reads", "is_said"), [((5, 9), False), ((5, 10), True), ((14, 20), True), ((15, 20), False)])
def test_only_offsets_that_are_read_again_are_said_to_have_been_passed_over(reads, is_said):
    passed_over = {"kind": "correction", "passed_over": (planned(0, 9, 15),), "reason": "why"}
    gone = _gone(_log(_start(0, 0, 5), _start(1, 0, 0, **passed_over)), [0], (0, 5), position=5)
    said = " ".join(gone.remarks(_plan(*reads), 4, by_cluster=False))
    assert ("passed over before the table was restored" in said) is is_said
