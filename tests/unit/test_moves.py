"""Where a topic that moves changes hands: at offsets that belong together, and not before all of it can be asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import Stream, StreamMapping, mapping_of
from sluice.protocol.moves import exact_cut, settle_moves
from sluice.protocol.offsets import Checkpoint, OffsetSync, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.streams import Followed, Told, bounded, follow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = ("old", "orders"), ("new", "orders")


def mapping(**clusters: dict) -> StreamMapping:
    stream = Stream.model_validate(
        {"clusters": {name: {"topics": "orders", **said} for name, said in clusters.items()}}
    )
    return mapping_of({"orders": stream}, connection="kafka_default", starting="earliest", table="t")


def moved(**how: object) -> StreamMapping:
    return mapping(new={"moved_from": {"cluster": "old", **how}})


MIRRORED = moved(mirror="mirror_maker")


def known(position: int = 10) -> tuple[KnownStreams, Checkpoint]:
    """A table that has read partition 0 of the old topic up to there."""
    topics = {"topics": {"orders": {"partitions": {0: position}}}}
    return follow(None, mapping(old={}), "drain", "t").known, Checkpoint.model_validate({"clusters": {"old": topics}})


def state(*, leaderless: tuple[tuple[str, str], ...] = (), skipped: tuple[str, ...] = (), **ends: int) -> ClusterState:
    """Partition 0 of the topic on some clusters, from offset 0 to these ends."""
    bounds = [PartitionBounds(TopicPartition(name, "orders", 0), 0, end, end, NOW) for name, end in ends.items()]
    waiting = tuple(TopicPartition(*log, 0) for log in leaderless)
    return ClusterState(bounds, {}, {(name, "orders"): "id" for name in ends}, leaderless=waiting, skipped=skipped)


def told(*syncs: tuple[int, int], next_record: int = 0) -> Told:
    return Told([OffsetSync(*s) for s in syncs], next_record)


def settled(
    said: StreamMapping, found: ClusterState, *syncs: tuple[int, int], position: int = 10, now: datetime = NOW
) -> tuple[Followed, ClusterState]:
    before, checkpoint = known(position)
    followed = replace(follow(before, said, "drain", "t"), syncs={OLD: {0: told(*syncs)}} if syncs else {})
    return bounded(*settle_moves(followed, found, checkpoint, now, "t"), checkpoint, now)


@pytest.mark.parametrize(
    ("syncs", "position", "cut"),
    [
        ([(0, 0), (10, 7)], 10, (10, 7)),
        ([(0, 0), (9, 6)], 10, (10, 7)),
        ([(0, 0), (8, 6)], 10, None),
        ([(0, 0), (20, 15), (30, 25)], 10, (20, 15)),
        ([], 0, None),
        ([(0, 0), (20, 15), (18, 16), (25, 23)], 10, (18, 16)),
        ([(0, 0), (20, 15), (18, 16)], 20, None),
        ([(0, 0), (20, 15), (20, 16)], 20, (20, 16)),
        ([(0, 0), (20, 15), (20, 15), (22, 17)], 21, (21, 16)),
        ([(0, 0), (20, 15), (30, 3)], 10, (30, 3)),
    ],
    ids=["at a pair", "after a pair", "ahead of the mirror", "on to the next", "nothing told", "copied again",
         "copied again, not so far", "one record copied again", "told twice", "the copy was deleted"],
)  # fmt: skip
def test_the_first_cut_at_which_nothing_is_read_twice_or_left_out(syncs, position, cut):
    assert exact_cut(told(*syncs), position) == cut


def test_the_last_pair_goes_for_all_offsets_up_to_the_next_record():
    """The table has read the marker of the last transaction, too, which has no copy."""
    assert exact_cut(told((0, 0), (9, 6), next_record=12), 12) == (12, 7)
    assert exact_cut(told((0, 0), (9, 6), next_record=11), 12) is None, "the record at 11 is to be copied yet"
    assert exact_cut(told((20, 9), (9, 15), next_record=12), 12) == (12, 16)


def test_with_a_mirror_each_leg_ends_and_begins_at_the_cut():
    followed, found = settled(MIRRORED, state(old=40, new=30), (0, 0), (20, 15))
    windows = {b.topic_partition.cluster: (b.log_start, b.window_end, b.log_end) for b in found.partitions}
    assert windows == {"old": (0, 20, 20), "new": (15, 30, 30)}
    assert followed.starting[NEW].starting == {0: 15}
    again = follow(followed.known, MIRRORED, "drain", "t")
    assert (again.moves, again.known.logs["old"]["orders"].ends) == ({}, {0: 20})
    later, found = bounded(again, state(old=50, new=40), known(20)[1], NOW)
    assert later.topics("old") == ()
    with pytest.raises(ActionRequiredError, match="is mapped again"):
        follow(later.known, mapping(old={}, new={}), "drain", "t")
    kept = follow(later.known, mapping(new={}), "drain", "t")
    (bounds,) = bounded(kept, state(new=40), known(20)[1], NOW)[1].partitions
    assert bounds.log_start == 15, "what it is a copy of is in the table"


def test_records_that_were_copied_again_are_skipped_where_nothing_else_is_there():
    pairs = [(0, 0), (20, 15), (18, 16), (25, 23)]
    with pytest.raises(ActionRequiredError, match="has copied records again") as caught:
        settled(MIRRORED, state(old=40, new=30), *pairs)
    assert caught.value.where["told"] == "20 → 15, then 18 → 16"
    followed, _ = settled(moved(mirror="mirror_maker", copies_only=True), state(old=40, new=30), *pairs)
    assert followed.known.move_of(NEW).begins == {0: 16}


def test_a_tail_that_was_copied_again_without_a_word_is_seen():
    """The mirror died before it told of its last copies, so no pair runs backwards; but others stand between."""
    pairs = [(0, 0), (20, 20), (21, 60), (30, 69)]
    with pytest.raises(ActionRequiredError, match="has copied records again"):
        settled(MIRRORED, state(old=40, new=70), *pairs, position=25)
    assert exact_cut(told(*pairs), 21) == (21, 60)
    assert exact_cut(told((0, 0), (20, 20), (35, 28)), 25) == (35, 28), "offsets without records have no copies"


def test_what_was_mirrored_is_not_forgotten():
    moved_once, _ = settled(MIRRORED, state(old=40, new=30), (20, 15))
    other = mapping(new={"moved_from": {"cluster": "north"}})
    with pytest.raises(ActionRequiredError, match="continues from its mirror"):
        settle_moves(follow(moved_once.known, other, "drain", "t"), state(new=30), known()[1], NOW, "t")
    named = moved_once.known.named({"old": "O", "new": "N"}, known()[1])
    drained = bounded(follow(named, MIRRORED, "drain", "t"), state(new=30), known(20)[1], NOW)[0].known
    drained = drained.with_log(OLD, None).named({"new": "N"}, known()[1])
    assert drained.ids == {"new": "N", "old": "O"}
    with pytest.raises(ActionRequiredError, match="is mapped again"):
        follow(drained.renamed({"new": "N", "was": "O"}), mapping(was={}, new={}), "drain", "t")
    follow(drained.renamed({"new": "N", "old": "X"}), mapping(old={}, new={}), "drain", "t")  # another cluster


def test_a_new_table_does_not_read_what_its_mirror_has():
    followed, _ = settle_moves(follow(None, MIRRORED, "drain", "t"), state(new=30), Checkpoint(), NOW, "t")
    with pytest.raises(ActionRequiredError, match="is mapped again"):
        follow(followed.known, mapping(old={}), "drain", "t")


def test_a_partition_that_is_added_while_the_old_topic_is_drained_is_copied():
    followed, _ = settled(MIRRORED, state(old=40, new=30), (20, 15))
    added = PartitionBounds(TopicPartition("old", "orders", 1), 0, 30, 30, NOW)
    now = state(old=40, new=30)
    now = replace(now, partitions=[*now.partitions, added])
    later, found = bounded(follow(followed.known, MIRRORED, "drain", "t"), now, known(12)[1], NOW)
    assert [b.window_end for b in found.partitions if b.topic_partition[0] == "old"] == [20, 0]
    done, _ = bounded(follow(later.known, MIRRORED, "drain", "t"), now, known(20)[1], NOW)
    assert done.topics("old") == ()


def test_begins_are_those_of_one_log():
    followed, _ = settled(MIRRORED, state(old=40, new=30), (20, 15))
    again = replace(state(new=5), topic_ids={NEW: "made again"})
    _, found = bounded(follow(followed.known, MIRRORED, "drain", "t"), again, known(20)[1], NOW)
    assert [b.log_start for b in found.partitions] == [0]


def test_retention_beyond_the_end_loses_nothing():
    followed, _ = settled(MIRRORED, state(old=40, new=30), (20, 15))
    gone = PartitionBounds(TopicPartition("old", "orders", 0), 25, 50, 50, NOW)
    _, found = bounded(replace(followed, moves={}), replace(state(), partitions=[gone]), known(20)[1], NOW)
    assert [(b.log_start, b.window_end) for b in found.partitions] in ([(20, 20)], [])


def test_a_move_without_a_mirror_is_made_anew_where_the_old_topic_was_mapped_since():
    said = moved(drain_for="1 hour")
    first, _ = settled(said, state(old=40, new=30))
    assert follow(first.known, said, "drain", "t").moves == {}
    back = follow(first.known, mapping(old={}), "drain", "t")
    assert list(follow(back.known, said, "drain", "t").moves) == [NEW]


def test_where_rows_are_deleted_the_new_topic_waits_for_the_old_one():
    before, checkpoint = known()
    followed, found = settle_moves(
        replace(follow(before, MIRRORED, "drain", "t"), syncs={OLD: {0: told((20, 15))}}), state(old=40, new=30),
        checkpoint, NOW, "t",
    )  # fmt: skip
    held, found = bounded(followed, found, checkpoint, NOW, in_order=True)
    assert {b.topic_partition.cluster for b in found.partitions} == {"old"}
    assert found.valid_through(None) is None
    left, _ = held.known.without_drained(known(20)[1])
    _, found = bounded(follow(left, MIRRORED, "drain", "t"), state(new=30), known(20)[1], NOW, in_order=True)
    assert [(b.topic_partition.cluster, b.log_start) for b in found.partitions] == [("new", 15)]


def test_moves_follow_renamed_clusters():
    followed, _ = settled(MIRRORED, state(old=40, new=30), (20, 15))
    named = followed.known.named({"old": "O", "new": "N"}, known()[1])
    renamed = named.renamed({"was": "O", "is": "N"})
    assert (renamed.mirrored_in(("was", "orders")), renamed.mirrored_in(OLD)) == (("is", "orders"), None)


def test_what_the_mirror_has_not_told_is_waited_for():
    with pytest.raises(RetryableError, match="hasn't recorded an offset yet") as caught:
        settled(MIRRORED, state(old=40, new=30), (8, 6))
    assert (caught.value.where["position"], caught.value.where["last_told"]) == (10, "8 → 6")
    with pytest.raises(RetryableError, match="hasn't recorded an offset yet"):
        settled(MIRRORED, state(old=10, new=0))  # it may not have begun, and copy all ten


def test_a_partition_that_was_always_empty_has_no_copies():
    followed, found = settled(MIRRORED, state(old=0, new=3), position=0)
    assert {b.topic_partition.cluster: (b.log_start, b.window_end) for b in found.partitions} == {"new": (0, 3)}
    assert followed.known.move_of(NEW).begins == {0: 0}


@pytest.mark.parametrize(
    "found",
    [
        state(new=30, leaderless=(OLD,)),
        state(old=40, leaderless=(NEW,)),
        state(new=30, skipped=("old",), leaderless=(OLD,)),
    ],
    ids=["old", "new", "skipped"],
)
def test_a_move_waits_until_all_of_both_can_be_asked(found):
    followed, bounds = settled(MIRRORED, found, (20, 15))
    assert "new" not in followed.known.logs
    assert all(b.topic_partition.cluster == "old" for b in bounds.partitions)
    assert bounds.valid_through(NOW - timedelta(days=1)) == NOW - timedelta(days=1)
    assert "is taken up once all of it" in followed.remarks[-1]
    again = follow(followed.known, MIRRORED, "drain", "t")
    assert list(again.moves) == [NEW]


def test_without_a_mirror_the_old_topic_is_drained():
    followed, found = settled(moved(), state(old=40, new=30))
    assert followed.known.logs["old"]["orders"].ends == {0: 40}
    assert {b.topic_partition.cluster: b.log_start for b in found.partitions} == {"old": 0, "new": 0}


def test_or_for_some_time():
    said = moved(drain_for="1 hour")
    followed, _ = settled(said, state(old=40, new=30))
    assert followed.known.logs["old"]["orders"].drains_until == NOW + timedelta(hours=1)
    for hours, ends in ((0.5, {}), (1, {0: 44})):
        later = follow(followed.known, said, "drain", "t")
        then = NOW + timedelta(hours=hours)
        found, _ = bounded(later, state(old=44, new=30), known(40)[1], then)
        assert found.known.logs["old"]["orders"].ends == ends
    done, _ = bounded(follow(found.known, said, "drain", "t"), state(old=50, new=30), known(44)[1], then)
    assert done.topics("old") == ()


def test_what_does_not_fit_is_refused():
    before, checkpoint = known()
    for found, why in [
        (state(old=40), "fewer partitions"),
        (state(old=40, new=14), "isn't in the topic"),
    ]:
        with pytest.raises(ActionRequiredError, match=why):
            settled(MIRRORED, found, (20, 15))
    both = Checkpoint.model_validate(
        {"clusters": {name: {"topics": {"orders": {"partitions": {0: 3}}}} for name in ("old", "new")}}
    )
    with pytest.raises(ActionRequiredError, match="has already read the topic"):
        settle_moves(follow(before, MIRRORED, "drain", "t"), state(old=40, new=30), both, NOW, "t")
    stranger = mapping(new={"moved_from": {"cluster": "elsewhere"}})
    with pytest.raises(ActionRequiredError, match="doesn't know"):
        settle_moves(follow(before, stranger, "drain", "t"), state(new=30), checkpoint, NOW, "t")
    followed, _ = settle_moves(follow(None, stranger, "drain", "t"), state(new=30), Checkpoint(), NOW, "t")
    assert "has no position to continue from" in followed.remarks[-1]
    assert follow(followed.known, stranger, "drain", "t").moves == {}


def test_a_mapping_that_moves_a_topic_and_keeps_it_is_refused():
    with pytest.raises(ActionRequiredError, match="mapped twice"):
        mapping(old={}, new={"moved_from": {"cluster": "old"}})
    with pytest.raises(ActionRequiredError, match="mapped twice"):
        mapping(a={"moved_from": {"cluster": "old"}}, b={"moved_from": {"cluster": "old"}})


@pytest.mark.parametrize(
    "how",
    [{"offset_syncs": "t"}, {"mirror": "mirror_maker", "drain_for": "1 hour"}, {"topics": {"returns": "old"}}],
)
def test_settings_that_do_not_go_together(how):
    with pytest.raises(ValidationError):
        moved(**how)
