"""The plan: which offsets an interval reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, OffsetRange, TopicCheckpoint, TopicPartition
from sluice.protocol.plan import Grouping, IntervalPlan, Limits, plan_again, plan_interval, plan_window
from sluice.protocol.state import ClusterState, PartitionBounds, Remark, summarize

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition("kafka", topic, partition)


def state(*bounds: tuple[int, int, int], topic_id: str = "id", cluster_id: str = "c") -> ClusterState:
    """Bounds as (partition, log start, log end)."""
    partitions = [PartitionBounds(tp(p), start, end, end, NOW, end) for p, start, end in bounds]
    return ClusterState(partitions, {"kafka": cluster_id}, {("kafka", "t"): topic_id})


def checkpoint(**partitions: int) -> Checkpoint:
    topic = TopicCheckpoint(topic_id="id", partitions={int(p[1:]): o for p, o in partitions.items()})
    return Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id="c", topics={"t": topic})})


def plan(committed: Checkpoint, now: ClusterState, *, ranges=1, limit=1000, loss="fail", starting=None) -> IntervalPlan:
    return plan_interval(
        committed,
        now,
        starting=starting or {},
        limits=Limits(limit),
        grouping=ranges if isinstance(ranges, Grouping) else Grouping(ranges),
        on_offset_loss=loss,
        table="table",
    )


def spans(made: IntervalPlan) -> dict[int, tuple[int, int]]:
    return {r.topic_partition.partition: (r.start, r.end) for r in made.offset_ranges}


def test_a_first_interval_starts_at_the_earliest_offset():
    assert spans(plan(Checkpoint(), state((0, 3, 10), (1, 0, 5)))) == {0: (3, 10), 1: (0, 5)}


def test_an_interval_continues_where_the_last_one_ended():
    assert spans(plan(checkpoint(p0=7), state((0, 0, 10)))) == {0: (7, 10)}


def test_nothing_new_is_an_empty_plan():
    made = plan(checkpoint(p0=10), state((0, 0, 10)))
    assert made.is_empty
    assert [str(r) for r in made.idle] == ["t[0] [10, 10)"]


def test_a_partition_that_appears_starts_at_its_earliest_offset_even_if_the_topic_was_started_at_latest():
    made = plan(checkpoint(p0=10), state((0, 0, 10), (1, 2, 6)), starting={tp(1): "latest"})
    assert spans(made) == {1: (2, 6)}


def test_starting_at_latest_with_nothing_to_read_must_still_record_its_position():
    made = plan(Checkpoint(), state((0, 0, 10)), starting={tp(0): "latest"})
    assert made.moves
    assert not made.is_empty
    assert made.ranges == ()


@pytest.mark.parametrize(
    ("committed", "bounds", "reason"),
    [(2, (0, 5, 10), "retention"), (20, (0, 0, 10), "truncated at 10")],
)
def test_lost_offsets_stop_the_interval(committed, bounds, reason):
    with pytest.raises(ActionRequiredError, match=reason) as caught:
        plan(checkpoint(p0=committed), state(bounds))
    assert caught.value.where["partition"] == 0
    assert caught.value.where["committed_offset"] == committed


def _truncated(at: int, end: int = 10) -> ClusterState:
    return replace(state((0, 0, end)), truncated={tp(0): at})


@pytest.mark.parametrize(("policy", "resumed"), [("earliest", 5), ("latest", 10)])
@pytest.mark.parametrize("seen", [_truncated(5), state((0, 0, 5))])
def test_a_truncated_log_is_never_loaded_again(policy, resumed, seen):
    """What is left of it is in the table; what came in place of the rest isn't, though its offsets were read once."""
    made = plan(checkpoint(p0=8), seen, loss=policy)
    (loss,) = made.losses
    end = seen.partitions[0].log_end
    assert (loss.committed, loss.resumed_at, loss.truncated_at) == (8, min(resumed, end), 5)
    assert spans(made) == ({0: (5, 10)} if policy == "earliest" and end == 10 else {})


def test_what_was_read_ahead_of_the_position_is_read_again_where_the_log_was_cut_off():
    known = TopicCheckpoint(topic_id="id", partitions={0: 3}, covered={0: ((0, 3), (6, 9))})
    before = Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id="c", topics={"t": known})})
    made = plan(before, _truncated(7), loss="latest")
    assert made.losses[0].resumed_at == 3
    assert spans(made) == {0: (3, 6)}  # the next one goes on behind 6
    after = before.advance(
        {tp(0): 6}, {}, {}, committed=made.offset_ranges, truncated={tp(0): 7}, leader_epochs={tp(0): 4}
    )
    assert after.covered(tp(0)) == ((0, 7),)
    assert (after.next_offset(tp(0)), after.leader_epoch(tp(0))) == (7, 4)


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_what_a_backfill_alone_has_read_is_read_again_where_the_log_was_cut_off(starting):
    """There is no position then that could be past the log's end."""
    known = TopicCheckpoint(topic_id="id", covered={0: ((2, 6),)})
    before = Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id="c", topics={"t": known})})
    with pytest.raises(ActionRequiredError, match="truncated at 4"):
        plan(before, _truncated(4), starting={tp(0): starting})
    made = plan(before, _truncated(4), loss="earliest", starting={tp(0): starting})
    (loss,) = made.losses
    start = 0 if starting == "earliest" else 10
    assert (loss.committed, loss.resumed_at, loss.truncated_at) == (6, start, 4)
    assert spans(made) == ({0: (0, 2)} if starting == "earliest" else {})
    after = before.advance({tp(0): 2}, {}, {}, committed=made.offset_ranges, truncated={tp(0): 4})
    assert after.next_offset(tp(0)) == 4 or starting == "latest"


def test_without_ids_an_end_before_the_position_is_not_loaded_again():
    """It may be another log, of which nothing is known, or the same one, of which everything is."""
    nameless = Checkpoint(clusters={"kafka": ClusterCheckpoint(topics={"t": TopicCheckpoint(partitions={0: 20})})})
    with pytest.raises(ActionRequiredError, match="is unknown whether the log is another one"):
        plan(nameless, state((0, 0, 10)), loss="earliest")
    assert plan(nameless, state((0, 0, 10)), loss="latest").losses[0].resumed_at == 10


def test_partitions_without_a_leader_keep_their_position_and_hold_nobody_up():
    now = replace(state((0, 0, 10)), leaderless=(tp(1),), remarks=(Remark(tp(1), "no leader"),))
    made = plan(checkpoint(p0=4, p1=7), now)
    assert spans(made) == {0: (4, 10)}
    assert [str(r) for r in made.idle] == ["t[1] [7, 7)"]
    assert [str(r) for r in made.remarks] == ["t[1]: no leader"]
    earlier = NOW - timedelta(hours=1)
    assert (now.valid_through(earlier), now.valid_through(None), state((0, 0, 1)).valid_through(None)) == (
        earlier,
        None,
        NOW,
    )


def test_a_first_interval_waits_for_all_partitions_of_its_topic():
    with pytest.raises(RetryableError, match="no leader"):
        plan(Checkpoint(), replace(state((0, 0, 10)), leaderless=(tp(1),)))


def test_the_first_interval_of_a_cluster_that_does_not_answer_holds_nobody_up_though_a_backfill_has_read_of_it():
    other = TopicPartition("far", "t", 0)
    far = ClusterCheckpoint(topics={"t": TopicCheckpoint(covered={0: ((4, 10),)})})
    known = checkpoint(p0=4)
    known = known.model_copy(update={"clusters": {**known.clusters, "far": far}})
    now = replace(state((0, 0, 10)), leaderless=(other,))
    with pytest.raises(RetryableError, match="no leader"):
        plan(known, now)
    made = plan(known, replace(now, skipped=("far",), unread=("far",)))
    assert spans(made) == {0: (4, 10)}
    assert made.idle == ()
    assert replace(now, skipped=("far",), unread=("far",)).valid_through(NOW) is None


def test_what_the_table_has_come_past_is_told_no_more():
    now = replace(state((0, 0, 10)), remarks=(Remark(tp(0), "dated 2099", 5),))
    assert plan(checkpoint(p0=5), now).remarks != ()
    assert plan(checkpoint(p0=6), now).remarks == ()
    many = [Remark(tp(p), "no leader") for p in range(100)]
    assert len(summarize(many)) == 21


def test_a_recreated_topic_stops_the_interval_even_if_its_offsets_would_fit():
    with pytest.raises(ActionRequiredError, match="created again"):
        plan(checkpoint(p0=7), state((0, 0, 10), topic_id="another"))


def test_a_connection_that_leads_to_another_cluster_stops_the_interval():
    with pytest.raises(ActionRequiredError, match="another cluster"):
        plan(checkpoint(p0=7), state((0, 0, 10), cluster_id="another"))


@pytest.mark.parametrize(("policy", "resumed"), [("earliest", 5), ("latest", 10)])
def test_a_loss_is_resumed_as_the_policy_says_and_recorded(policy, resumed):
    made = plan(checkpoint(p0=2), state((0, 5, 10)), loss=policy)
    assert made.losses[0].committed == 2
    assert made.losses[0].resumed_at == resumed
    assert made.moves


def test_one_lost_partition_does_not_rewind_the_others():
    made = plan(checkpoint(p0=2, p1=4), state((0, 5, 10), (1, 0, 10)), loss="earliest")
    assert spans(made) == {0: (5, 10), 1: (4, 10)}


def test_an_open_kafka_transaction_is_no_loss():
    """Under read_committed the log ends at the last stable offset, which may lie before what was read uncommitted."""
    bounds = PartitionBounds(tp(0), 0, 5, 5, NOW, high_watermark=9)
    made = plan(checkpoint(p0=8), ClusterState([bounds], {"kafka": "c"}, {("kafka", "t"): "id"}))
    assert made.is_empty


def test_the_limit_is_shared_by_backlog_and_says_who_is_behind():
    made = plan(checkpoint(p0=0, p1=0), state((0, 0, 300), (1, 0, 100)), limit=40)
    assert spans(made) == {0: (0, 30), 1: (0, 10)}
    assert made.behind == {tp(0), tp(1)}


@pytest.mark.parametrize("limit", range(1, 40))
def test_the_limit_is_used_in_full_and_never_passed(limit):
    made = plan(checkpoint(p0=0, p1=0, p2=0), state((0, 0, 7), (1, 0, 23), (2, 0, 5)), limit=limit)
    assert sum(r.span for r in made.offset_ranges) == min(limit, 35)


def test_a_small_backlog_beside_a_large_one_is_read_on_in_each_interval():
    """By proportion alone its share would be rounded to nothing, for ever."""
    assert spans(plan(Checkpoint(), state((0, 0, 1_000_000), (1, 0, 3), (2, 0, 0)), limit=10)) == {0: (0, 9), 1: (0, 1)}


def test_the_byte_limit_goes_by_the_last_average():
    assert Limits(10_000, max_bytes=1000, average_record_bytes=100).records() == 10
    assert Limits(5, max_bytes=1000, average_record_bytes=100).records() == 5
    assert Limits(5, max_bytes=1, average_record_bytes=100).records() == 1


def test_ranges_are_balanced_and_hold_each_partition_once():
    made = plan(Checkpoint(), state((0, 0, 100), (1, 0, 60), (2, 0, 50), (3, 0, 10)), ranges=2)
    assert [sum(r.span for r in group) for group in made.ranges] == [110, 110]
    assert sorted(spans(made)) == [0, 1, 2, 3]


def test_no_range_is_empty():
    assert len(plan(Checkpoint(), state((0, 0, 5)), ranges=8).ranges) == 1


def test_the_largest_range_comes_first():
    made = plan(Checkpoint(), state((0, 0, 10), (1, 0, 60), (2, 0, 50)), ranges=3)
    assert [sum(r.span for r in group) for group in made.ranges] == [60, 50, 10]


BY_WORK = Grouping(at_most=4, records=100)


@pytest.mark.parametrize(
    ("backlog", "number"),
    [((5, 5, 5), 1), ((50, 50), 1), ((50, 51), 2), ((90, 90, 90), 3), ((90,) * 9, 4), ((300,), 1), ((300, 20, 20), 2)],
    ids=["little", "just one", "more than one", "three", "the most", "one partition", "a hot partition"],
)
def test_by_work_there_are_as_many_ranges_as_the_backlog_needs(backlog, number):
    now = state(*((p, 0, span) for p, span in enumerate(backlog)))
    assert len(plan(Checkpoint(), now, ranges=BY_WORK).ranges) == number


def test_large_records_make_more_ranges():
    assert Grouping.by_work(8, 1000, 10_000, 100).records == 100
    assert Grouping.by_work(8, 1000, 10_000, 1).records == 1000
    assert Grouping.by_work(8, 1000, 1, 100).records == 1


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 1500) | st.none(),
    st.randoms(use_true_random=False),
)
def test_any_grouping_holds_each_partition_once_in_ranges_of_about_the_same_work(backlog, at_most, records, random):
    """By the bound of the longest-first rule (Graham 1969): no group exceeds its share by more than one partition."""
    bounds = [(p, 0, span) for p, span in enumerate(backlog)]
    made = plan(Checkpoint(), state(*bounds), ranges=Grouping(at_most, records), limit=10**6)
    assert sorted(made.offset_ranges) == [OffsetRange(tp(p), 0, span) for p, _, span in bounds if span]
    works = [sum(r.span for r in group) for group in made.ranges]
    assert len(works) <= at_most
    assert works == sorted(works, reverse=True)
    assert all(works)
    if works:
        assert works[0] <= sum(backlog) / len(works) + max(backlog)
    if records is not None and len(works) < at_most:
        assert max(works, default=0) < 2 * max(records, *backlog)
    random.shuffle(bounds)  # whatever order a cluster names its partitions in, a repeated START plans the same
    assert plan(Checkpoint(), state(*bounds), ranges=Grouping(at_most, records), limit=10**6).ranges == made.ranges


def known(partitions=None, covered=None, passed_over=None) -> Checkpoint:
    topic = TopicCheckpoint(
        topic_id="id", partitions=partitions or {}, covered=covered or {}, passed_over=passed_over or {}
    )
    return Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id="c", topics={"t": topic})})


def window(committed: Checkpoint, now: ClusterState, asked, *, by_hand: bool = False) -> IntervalPlan:
    windows = {tp(p): span for p, span in asked.items()}
    return plan_window(committed, now.partitions, windows, with_passed_over=by_hand, grouping=Grouping(), table="table")


@pytest.mark.parametrize(("policy", "spans_now", "resumed"), [("earliest", {0: (6, 10)}, 6), ("latest", {}, 10)])
def test_a_log_that_was_shortened_from_both_ends(policy, spans_now, resumed):
    """A window had been read ahead of the position; retention took what was between, and an election the window."""
    before = known({0: 1}, {0: ((0, 1), (6, 7))})
    now = replace(state((0, 6, 10)), truncated={tp(0): 6})
    with pytest.raises(ActionRequiredError, match=r"retention .* truncated at 6"):
        plan(before, now)
    made = plan(before, now, loss=policy)
    (loss,) = made.losses
    assert (spans(made), loss.committed, loss.resumed_at, loss.truncated_at) == (spans_now, 1, resumed, 6)
    after = before.advance({tp(0): 10}, {}, {}, committed=made.offset_ranges, truncated={tp(0): 6})
    assert after.covered(tp(0)) == ((0, 1), *spans_now.values())


def test_an_interval_ends_where_a_backfill_has_read_already():
    made = plan(known({0: 10, 1: 10}, {0: ((0, 10), (20, 30))}), state((0, 0, 50), (1, 0, 50)))
    assert spans(made) == {0: (10, 20), 1: (10, 50)}
    assert made.behind == {tp(0)}
    assert made.out_of_order == {tp(0)}


def test_what_was_passed_over_puts_nothing_out_of_order():
    made = plan(known({0: 10}, {0: ((0, 10),)}, {0: ((15, 16),)}), state((0, 0, 50)))
    assert spans(made) == {0: (10, 15)}
    assert made.out_of_order == frozenset()


def test_a_window_reads_what_was_passed_over_only_by_hand():
    committed = known({0: 10}, {0: ((0, 10),)}, {0: ((15, 16),)})
    made = window(committed, state((0, 0, 50)), {0: (12, 20)})
    assert [(r.start, r.end) for r in made.offset_ranges] == [(12, 15), (16, 20)]
    assert made.out_of_order == frozenset()
    made = window(committed, state((0, 0, 50)), {0: (12, 20)}, by_hand=True)
    assert [(r.start, r.end) for r in made.offset_ranges] == [(12, 20)]


def test_a_window_is_what_is_missing_of_it():
    made = window(known(covered={0: ((3, 5), (8, 20))}), state((0, 0, 10)), {0: (0, 99)})
    assert [(r.start, r.end) for r in made.offset_ranges] == [(0, 3), (5, 8)]
    assert made.covered == 4
    assert made.out_of_order == {tp(0)}


def test_what_an_interval_goes_round_is_said():
    """The commit looks whether the table still has it."""
    made = plan(known(covered={0: ((0, 3),)}, passed_over={1: ((5, 8),)}), state((0, 0, 10), (1, 0, 10)))
    assert made.rests_on == {tp(0): 0}
    assert [(r.start, r.end) for r in made.offset_ranges if r.topic_partition == tp(0)] == [(3, 10)]
    after = plan(known(partitions={1: 5}, passed_over={1: ((5, 8),)}), state((1, 0, 10)))
    assert after.rests_on == {tp(1): 5}


def test_a_window_past_all_that_is_covered_is_in_order():
    assert not window(known(covered={0: ((0, 3),)}), state((0, 0, 10)), {0: (3, 10)}).out_of_order


def test_a_window_that_is_covered_is_empty():
    assert window(known(covered={0: ((0, 10),)}), state((0, 0, 10)), {0: (2, 8)}).is_empty


def test_a_window_past_the_log_s_end_is_empty_and_no_part_of_it_is_covered():
    made = window(known(covered={0: ((0, 5),)}), state((0, 0, 20)), {0: (30, 40)})
    assert (made.ranges, made.covered) == ((), 0)


def test_a_window_of_an_unknown_partition_is_refused():
    with pytest.raises(ActionRequiredError, match="don't have"):
        window(known(), state((0, 0, 10)), {7: (0, 5)})


def test_a_window_that_retention_has_shortened_is_refused_unless_the_table_has_it():
    with pytest.raises(ActionRequiredError, match="has removed offsets"):
        window(known(), state((0, 4, 10)), {0: (0, 5)})
    made = window(known(covered={0: ((0, 4),)}), state((0, 4, 10)), {0: (0, 6)})
    assert [(r.start, r.end) for r in made.offset_ranges] == [(4, 6)]


def test_offsets_are_read_again_only_while_kafka_has_them():
    ranges = [OffsetRange(tp(0), 2, 5)]

    def again(log_start: int, position: int = 10) -> IntervalPlan:
        now = state((0, log_start, 10)).partitions
        return plan_again(ranges, checkpoint(p0=position), now, grouping=Grouping(), table="t")

    assert again(2).offset_ranges == tuple(ranges)
    with pytest.raises(ActionRequiredError, match="doesn't have all"):
        again(3)
    with pytest.raises(ActionRequiredError, match="given up as lost"):
        again(2, position=4)


def test_offsets_of_a_topic_that_was_made_again_are_lost_whoever_knows_of_them():
    now = state((0, 0, 50), topic_id="new")
    backfilled = known(covered={0: ((5, 9),)})
    only_passed_over = known(passed_over={0: ((3, 4),)}, covered={0: ()})
    with_more_partitions = known({0: 7, 3: 8})
    for committed, losses in ((backfilled, [9]), (only_passed_over, [4]), (with_more_partitions, [8, 7])):
        with pytest.raises(ActionRequiredError, match="deleted and created again"):
            plan(committed, now)
        made = plan(committed, now, loss="earliest")
        assert [loss.committed for loss in made.losses] == losses
        assert spans(made) == {0: (0, 50)}
        assert made.out_of_order == frozenset()


def test_another_cluster_is_told_from_a_recreated_topic():
    with pytest.raises(ActionRequiredError, match="leads to another cluster"):
        plan(checkpoint(p0=7), state((0, 0, 10), topic_id="new", cluster_id="other"))


def test_what_is_unread_is_unknown_while_a_part_of_the_topics_is():
    known = state((0, 0, 10))
    at = {tp(0): 4}
    assert known.unread_after(at) == 6
    for left_out in ({"leaderless": (tp(1),)}, {"skipped": ("elsewhere",)}, {"waits": True}):
        assert replace(known, **left_out).unread_after(at) is None


def test_a_log_that_was_cut_off_at_the_position_has_lost_nothing_before_it():
    """What was read ahead of the position is lost, and nothing is skipped for it, whatever the policy is."""
    for policy in ("earliest", "latest"):
        made = plan(known({0: 3}, {0: ((0, 3), (6, 9))}), _truncated(3), loss=policy)
        assert (made.losses[0].resumed_at, made.losses[0].truncated_at) == (3, 3)
        assert spans(made) == {0: (3, 10)}


@pytest.mark.parametrize(
    ("wanted", "expected"), [(2, 3), (3, 3), (5, 5), (10, 10), (99, 10), ("earliest", 3), ("latest", 10)]
)
def test_a_first_interval_starts_within_the_log(wanted, expected):
    made = plan(Checkpoint(), state((0, 3, 10)), starting={tp(0): wanted})
    start = {r.topic_partition.partition: r.start for r in (*made.offset_ranges, *made.idle)}
    assert start == {0: expected}
    assert made.moves is (expected > 3 or wanted == "latest")
