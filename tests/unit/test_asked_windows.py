"""From what a person asks for to offsets: partitions and topics by name, windows by times, intervals to read again."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, TIME

from sluice.coordinator.planning import Planner
from sluice.errors import ActionRequiredError
from sluice.protocol.commit_note import CommitNote, RangeRead
from sluice.protocol.offsets import (
    Checkpoint,
    ClusterCheckpoint,
    OffsetRange,
    TopicCheckpoint,
    TopicPartition,
    in_words,
)
from sluice.protocol.plan import IntervalPlan
from sluice.protocol.request import Request
from sluice.protocol.state import ClusterState, PartitionBounds

EAST, WEST = TopicPartition("east", "t", 0), TopicPartition("west", "t", 0)
OTHER = TopicPartition("west", "u", 1)


def _planner(*, names: tuple[str, ...] = ("east", "west"), **capabilities: bool) -> Planner:
    can = {"upsert": False, "replaces_interval": True, "keeps_newer": False, **capabilities}
    session: Any = SimpleNamespace(
        table_id=TABLE,
        followed=None,
        pipeline=SimpleNamespace(sink=SimpleNamespace(capabilities=SimpleNamespace(**can), place="a lake")),
        sources=SimpleNamespace(names=names),
    )
    return Planner(session)


def _bounds(tp: TopicPartition, **more: int) -> PartitionBounds:
    fields = {"log_start": 2, "log_end": 20, "window_end": 20, **more}
    return PartitionBounds(tp, valid_through=TIME, high_watermark=fields["log_end"], **fields)


def _state(*bounds: PartitionBounds, leaderless: tuple[TopicPartition, ...] = ()) -> ClusterState:
    topics = {(tp.cluster, tp.topic): "id" for tp in (*(b.topic_partition for b in bounds), *leaderless)}
    return ClusterState(partitions=bounds, cluster_ids={}, topic_ids=topics, leaderless=leaderless)


# Windows


def test_offsets_are_those_that_were_asked_for_of_the_topic_that_has_the_name():
    request = Request(kind="range", offsets={"west/t": {0: (3, 5)}, "u": {1: (0, 9)}})
    assert _planner()._asked_for(request, _state(_bounds(EAST), _bounds(WEST), _bounds(OTHER))) == {
        WEST: (3, 5),
        OTHER: (0, 9),
    }


def test_a_name_that_topics_of_two_clusters_have_is_refused_and_one_of_none_is_left_to_the_plan():
    state = _state(_bounds(EAST), _bounds(WEST))
    with pytest.raises(ActionRequiredError, match="Several clusters") as caught:
        _planner()._log_named("t", state)
    assert "east/t, west/t" in caught.value.next_step
    assert _planner()._log_named("nowhere", state) == ("east", "nowhere")
    assert _planner(names=())._log_named("nowhere", state) == ("", "nowhere")


def test_a_window_by_times_begins_within_the_log_and_has_the_partitions_that_were_asked_for():
    state = _state(
        _bounds(EAST, window_start=5, window_end=9), _bounds(WEST, window_start=0, window_end=1), _bounds(OTHER)
    )
    planner = _planner()
    assert planner._asked_for(Request(kind="range", from_time=TIME, partitions=("t",)), state) == {
        EAST: (5, 9),
        WEST: (2, 1),
    }
    assert set(planner._asked_for(Request(kind="range", from_time=TIME), state)) == {EAST, WEST, OTHER}


@pytest.mark.parametrize(
    ("name", "is_known"), [("t", True), ("west/t", True), ("t[0]", True), ("t[1]", False), ("v", False)]
)
def test_a_partition_that_is_not_read_is_refused_by_its_name_and_one_without_a_leader_is_not(name, is_known):
    state = _state(_bounds(EAST), leaderless=(WEST,))
    refused = nullcontext() if is_known else pytest.raises(ActionRequiredError, match="reads no partition")
    with refused:
        _planner()._asked_for(Request(kind="range", from_time=TIME, partitions=(name, "t[0]")), state)


# Rows out of their order


PLAN = IntervalPlan(ranges=((OffsetRange(EAST, 0, 5),),))


@pytest.mark.parametrize(
    ("kind", "out_of_order", "capabilities", "expected"),
    [
        ("continue", False, {"upsert": False}, (False, set())),
        ("continue", True, {"upsert": False}, (False, set())),
        ("continue", False, {"upsert": True}, (False, set())),
        ("continue", True, {"upsert": True}, None),
        ("backfill", False, {"upsert": True}, None),
        ("replay", False, {"upsert": True}, None),
        ("continue", True, {"upsert": True, "keeps_newer": True}, (True, {EAST})),
        ("backfill", False, {"upsert": True, "keeps_newer": True}, (False, set())),
        ("replay", True, {"upsert": True, "keeps_newer": True}, (True, set())),
    ],
)
def test_an_upsert_that_may_read_older_versions_keeps_newer_rows_or_is_refused(
    kind, out_of_order, capabilities, expected
):
    plan = IntervalPlan(ranges=PLAN.ranges, out_of_order=frozenset([EAST]) if out_of_order else frozenset())
    planner = _planner(**capabilities)
    if expected is None:
        with pytest.raises(ActionRequiredError, match="out of their order"):
            planner._task_of(plan, kind)
    else:
        task = planner._task_of(plan, kind)
        assert (task.keep_newer, set(task.out_of_order)) == expected


def test_a_window_without_records_puts_nothing_out_of_order():
    assert not _planner(upsert=True)._task_of(IntervalPlan(ranges=()), "backfill").keep_newer


# Intervals to be read again


def _replayed(planner: Planner, table: Any) -> Any:
    committed: Any = SimpleNamespace(checkpoint=Checkpoint())
    return planner._replay(Request(kind="replay", instant=INSTANT), committed, _state(_bounds(EAST)), table)


def _written(cluster: str) -> Any:
    topic = TopicCheckpoint(topic_id="id", partitions={0: 5})
    checkpoint = Checkpoint(clusters={cluster: ClusterCheckpoint(topics={"t": topic})})
    note = CommitNote(instant=INSTANT, ranges=(RangeRead(cluster=cluster, topic="t", partition=0, start=0, end=5),))
    return SimpleNamespace(instant=INSTANT, checkpoint=checkpoint, note=note, file_groups={})


@pytest.mark.parametrize(
    ("table", "capabilities", "says"),
    [
        (None, {}, "no committed interval"),
        (SimpleNamespace(written_by=lambda _: None), {}, "no committed interval"),
        (None, {"replaces_interval": False}, "nothing can be replayed"),
    ],
    ids=["no table", "another instant", "a sink that replaces nothing"],
)
def test_only_an_interval_of_the_table_is_read_again_and_only_where_its_rows_can_be_replaced(table, capabilities, says):
    with pytest.raises(ActionRequiredError, match=says):
        _replayed(_planner(**capabilities), table)


def test_an_interval_of_a_cluster_that_is_not_read_any_more_is_not_read_again():
    ranges = [OffsetRange(EAST, 0, 5), OffsetRange(WEST, 0, 5)]
    _planner()._refuse_left_clusters(ranges, INSTANT)
    with pytest.raises(ActionRequiredError, match="records are on west,"):
        _planner(names=("east",))._refuse_left_clusters(ranges, INSTANT)


def test_a_replay_looks_whether_the_interval_s_clusters_are_still_read(monkeypatch):
    planner = _planner(names=("east",))
    looked: list[Any] = []

    def refuse(ranges: Any, instant: str) -> None:
        looked.append((ranges, instant))
        raise ActionRequiredError("left", next_step="-")

    monkeypatch.setattr(planner, "_refuse_left_clusters", refuse)
    with pytest.raises(ActionRequiredError, match="left"):
        _replayed(planner, SimpleNamespace(written_by=lambda _: _written("east")))
    assert looked == [([OffsetRange(EAST, 0, 5)], INSTANT)]


# Words


def test_offsets_are_named_with_their_cluster_where_these_differ_and_only_so_many():
    east, west = OffsetRange(EAST, 0, 5), OffsetRange(WEST, 0, 5)
    assert in_words([east]) == "t[0] [0, 5)"
    assert in_words([east], by_cluster=True) == "east/t[0] [0, 5)"
    assert in_words([east, west]) == "east/t[0] [0, 5), west/t[0] [0, 5)"
    assert in_words([east] * 3, most=2) == "t[0] [0, 5), t[0] [0, 5) and 1 more"
    assert in_words([east] * 2, most=2) == "t[0] [0, 5), t[0] [0, 5)"
