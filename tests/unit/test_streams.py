"""Streams over several clusters: what a mapping says, and how an interval follows one that changed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.held_back import refuse_held_back
from sluice.protocol.known_streams import KnownLog, KnownMove, KnownStreams
from sluice.protocol.mapping import Stream, StreamMapping, mapping_of, require_streams
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.stream_identity import (
    refuse_copied_ids,
    refuse_lost_address,
    refuse_shared_names,
    refuse_two_names,
    refuse_unknown_ids,
)
from sluice.protocol.streams import Followed, bounded, doubtful, follow, follow_without_answer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def mapping(**streams: dict) -> StreamMapping:
    parsed = {name: Stream.model_validate(stream) for name, stream in streams.items()}
    return mapping_of(parsed, connection="kafka_default", starting="earliest", table="t")


def on(*topics: str, **more: object) -> dict:
    return {"topics": topics, **more}


EAST_AND_WEST = mapping(orders={"clusters": {"east": on("orders"), "west": on("orders")}})
EAST = mapping(orders={"clusters": {"east": on("orders")}})


def after(*answers: StreamMapping, on_removed: str = "drain") -> Followed:
    """What the last of some intervals reads, each of which has committed."""
    known: KnownStreams | None = None
    for answer in answers:
        followed = follow(known, answer, on_removed, "t")
        known = KnownStreams.model_validate_json(followed.known.model_dump_json())
    return followed


def test_a_cluster_wins_over_its_stream_and_that_over_the_pipeline():
    found = mapping(
        a={"clusters": {"east": on("t", starting_offsets="latest", connection="east")}, "starting_offsets": "earliest"},
        b={"clusters": {"west": on("u", "v")}, "starting_offsets": {"u": {"0": 7}}, "stopping_offsets": "latest"},
        c={"clusters": {"north": on("w")}},
    )
    starting = {log: mapped.starting for log, mapped in found.logs.items()}
    assert starting == {("east", "t"): "latest", ("west", "u"): {0: 7}, ("west", "v"): {}, ("north", "w"): "earliest"}
    assert found.logs["west", "u"].stopping == "latest"
    assert {name: address.connection for name, address in found.clusters.items()} == {
        "east": "east", "west": "kafka_default", "north": "kafka_default",
    }  # fmt: skip


def test_a_cluster_s_registry_wins_over_its_stream_s_and_no_word_of_it_is_none():
    found = mapping(
        a={"clusters": {"east": on("t", registry="own"), "west": on("t")}, "registry": "of_stream"},
        b={"clusters": {"north": on("u"), "west": on("u", registry="of_stream")}},
    )
    assert {name: address.registry for name, address in found.clusters.items()} == {
        "east": "own", "west": "of_stream", "north": None,
    }  # fmt: skip
    with pytest.raises(ActionRequiredError, match="name different schema registries"):
        mapping(a={"clusters": {"east": on("t")}, "registry": "r"}, b={"clusters": {"east": on("u")}})
    with pytest.raises(ValidationError, match="registry"):
        mapping(a={"clusters": {"east": on("t", registry="")}})


def test_a_mapping_without_registries_is_written_as_before_there_were_any():
    """Also in START-COMMIT and the commit's note, so that nothing seems to have changed; what is missing is read on."""
    assert EAST.digest == "c59e6a30f2ecfc91bedb4f066ef2f1fee8d42216766e78aabd7aa5857c9f5650"
    (address,) = EAST.clusters.values()
    assert address.model_dump() == {"connection": "kafka_default", "bootstrap_servers": None}
    own = mapping(orders={"clusters": {"east": on("orders", registry="own")}})
    assert own.digest != EAST.digest
    assert after(own, mapping(orders={"clusters": {}})).clusters["east"].registry == "own"
    assert follow_without_answer(after(own).known, 1, "down", "t").clusters["east"].registry == "own"


@pytest.mark.parametrize(
    ("old", "new", "mirror", "refused"),
    [
        (None, None, "mirror_maker", False),
        ("r", "r", "mirror_maker", False),
        ("ours", None, "mirror_maker", False),
        (None, "r", "mirror_maker", True),
        ("r", "s", "mirror_maker", True),
        ("r", "s", "none", False),
    ],
)
def test_copies_have_the_ids_of_the_registry_that_they_come_from(old, new, mirror, refused):
    moved = on("orders", registry=new, moved_from={"cluster": "east", "mirror": mirror})
    followed = after(
        mapping(orders={"clusters": {"east": on("orders", registry=old)}}),
        mapping(orders={"clusters": {"west": moved}}),
    )
    refuse_copied_ids(followed, (), "t")  # whoever needs no registry doesn't mind
    says = pytest.raises(ActionRequiredError, match=r"another schema registry.*cluster=west, topic=orders")
    with says if refused else nullcontext():
        refuse_copied_ids(followed, ("ours",), "t")


def test_two_streams_of_one_cluster_keep_their_own_starting_offsets():
    found = mapping(a={"clusters": {"east": on("t", starting_offsets="latest")}}, b={"clusters": {"east": on("u")}})
    assert {topic: mapped.starting for (_, topic), mapped in found.logs.items()} == {"t": "latest", "u": "earliest"}


def test_a_topic_of_two_streams_is_read_once():
    found = mapping(a={"clusters": {"east": on("t")}}, b={"clusters": {"east": on("t")}})
    assert found.logs["east", "t"].streams == ("a", "b")


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (on("t", starting_offsets="latest"), "start or stop the topic at different offsets"),
        (on("t", bootstrap_servers="elsewhere:9092"), "reach the cluster at different addresses"),
        (on("u", registry="theirs"), "name different schema registries for the cluster"),
    ],
)
def test_streams_that_contradict_each_other_are_refused(other, what):
    with pytest.raises(ActionRequiredError, match=what):
        mapping(a={"clusters": {"east": on("t")}}, b={"clusters": {"east": other}})


def test_a_cluster_without_topics_is_no_cluster_of_the_stream():
    with pytest.raises(ValidationError, match="leave the cluster out"):
        mapping(a={"clusters": {"east": on()}})


def test_all_that_a_mapping_says_is_in_its_digest():
    """Not its topics alone: an address, a connection or an offset that changed is a change."""
    others = [
        mapping(orders={"clusters": {"east": on("orders", **more)}})
        for more in ({}, {"connection": "c"}, {"bootstrap_servers": "b:1"}, {"starting_offsets": "latest"},
                     {"stopping_offsets": "latest"})
    ]  # fmt: skip
    assert len({m.digest for m in [EAST_AND_WEST, *others]}) == 6
    assert others[0].digest == EAST.digest


def test_what_is_new_is_read_at_once():
    assert after(EAST).topics("west") == ()
    assert after(EAST, EAST_AND_WEST).topics("west") == ("orders",)


def test_a_topic_that_is_missed_once_is_read_on():
    found = after(EAST_AND_WEST, EAST)
    assert found.topics("west") == ("orders",)
    assert found.clusters["west"].connection == "kafka_default"
    assert ("west", "orders") not in found.starting
    (remark,) = found.remarks
    assert "orders of cluster west" in remark
    back = after(EAST_AND_WEST, EAST, EAST_AND_WEST)
    assert (back.known.logs["west"]["orders"].status, back.remarks) == ("active", ())


def test_a_topic_that_is_missed_twice_is_drained():
    found = after(EAST_AND_WEST, EAST, EAST)
    assert (found.topics("west"), found.to_confirm) == (("orders",), {("west", "orders")})
    later = after(EAST_AND_WEST, EAST, EAST, EAST)
    assert (later.topics("west"), later.to_confirm, later.remarks) == (("orders",), frozenset(), ())


def test_a_topic_that_is_missed_twice_is_dropped_or_fails_the_run():
    found = after(EAST_AND_WEST, EAST, EAST, on_removed="drop")
    assert (found.topics("west"), "west" in found.clusters) == ((), False)
    assert "its unread records are skipped (on_removed: drop)" in found.remarks[0]
    draining = after(EAST_AND_WEST, EAST, EAST).known
    assert follow(draining, EAST, "drop", "t").topics("west") == (), "its cluster may be gone for good"
    assert after(EAST_AND_WEST, EAST, on_removed="fail").topics("west") == ("orders",)
    with pytest.raises(ActionRequiredError, match="removed from the mapping") as caught:
        after(EAST_AND_WEST, EAST, EAST, on_removed="fail")
    assert caught.value.where["topic"] == "orders"


def test_a_topic_of_a_cluster_that_stays_is_no_different():
    both = mapping(orders={"clusters": {"east": on("orders", "returns")}})
    assert after(both, EAST).topics("east") == ("orders", "returns")
    assert after(both, EAST, EAST).to_confirm == {("east", "returns")}


def test_without_an_answer_the_last_one_serves_for_so_many_intervals():
    known = after(EAST_AND_WEST).known
    for number in (1, 2):
        found = follow_without_answer(known, 2, "timed out", "t")
        assert (found.topics("west"), found.known.failures) == (("orders",), number)
        known = found.known
    with pytest.raises(RetryableError, match="served 2 intervals"):
        follow_without_answer(known, 2, "timed out", "t")
    assert follow(known, EAST_AND_WEST, "drain", "t").known.failures == 0


def test_without_any_answer_nothing_begins():
    with pytest.raises(RetryableError, match="didn't say where"):
        follow_without_answer(None, 5, "timed out", "t")


def test_a_stream_that_the_service_does_not_know_is_not_one_without_records():
    require_streams(["a"], ["a", "b"], "t")
    with pytest.raises(ActionRequiredError, match="doesn't know the streams b, c"):
        require_streams(["a", "b", "c"], ["a"], "t")


# Where reading ends


def state(*logs: tuple[str, int, int], leaderless: tuple[str, ...] = ()) -> ClusterState:
    """Partition 0 of the topic `orders` of some clusters: name, log start and log end."""
    return ClusterState(
        [PartitionBounds(TopicPartition(c, "orders", 0), start, end, end, NOW) for c, start, end in logs],
        cluster_ids={},
        topic_ids={},
        leaderless=[TopicPartition(c, "orders", 0) for c in leaderless],
    )


def at(**positions: int) -> Checkpoint:
    topics = {name: {"topics": {"orders": {"partitions": {0: at}}}} for name, at in positions.items()}
    return Checkpoint.model_validate({"clusters": topics})


def windows(found: ClusterState) -> dict[str, int]:
    return {b.topic_partition.cluster: b.window_end for b in found.partitions}


def test_a_removed_topic_is_read_to_where_its_log_ended_then():
    confirmed, _ = bounded(after(EAST_AND_WEST, EAST, EAST), state(("east", 0, 5), ("west", 0, 7)), at(west=3), NOW)
    assert confirmed.known.logs["west"]["orders"] == KnownLog(status="draining", ends={0: 7}, streams=("orders",))
    later = follow(confirmed.known, EAST, "drain", "t")
    still, found = bounded(later, state(("east", 0, 5), ("west", 0, 9)), at(west=6), NOW)
    assert (windows(found), still.topics("west")) == ({"east": 5, "west": 7}, ("orders",))
    drained, _ = bounded(later, state(("east", 0, 5), ("west", 0, 9)), at(west=7), NOW)
    assert (drained.topics("west"), "west" in drained.clusters) == ((), False)
    assert "orders of cluster west is drained" in drained.remarks[-1]


def test_a_topic_ends_after_the_records_of_a_transaction_that_is_open():
    """Its end is no last stable offset: what is open may commit. The topic is removed, or stops at the latest."""
    here, west = state(("east", 0, 5), ("west", 0, 6)), TopicPartition("west", "orders", 0)
    is_open = replace(here, partitions=[here.partitions[0], replace(here.partitions[1], high_watermark=9)])
    draining, found = bounded(after(EAST_AND_WEST, EAST, EAST), is_open, at(west=6), NOW)
    assert draining.known.logs["west"]["orders"].ends == {0: 9}
    assert (windows(found)["west"], draining.remarks[-1]) == (
        6,
        f"{west}: an open Kafka transaction holds back records before its end",
    )
    assert draining.known.without_drained(at(west=6))[1] == ()
    later = follow(draining.known, EAST, "drain", "t")
    ended, found = bounded(later, state(("east", 0, 5), ("west", 0, 12)), at(west=6), NOW)
    assert (windows(found)["west"], ended.remarks) == (9, ())
    assert bounded(later, state(("east", 0, 5), ("west", 0, 12)), at(west=9), NOW)[0].topics("west") == ()
    stops = mapping(orders={"clusters": {"east": on("orders"), "west": on("orders", stopping_offsets="latest")}})
    first, _ = bounded(follow(None, stops, "drain", "t"), is_open, at(), NOW)
    assert first.known.logs["west"]["orders"].ends == {0: 9}


def test_a_window_of_a_topic_that_was_moved_is_held_back_by_no_transaction_after_its_end():
    moved = mapping(
        orders={"clusters": {"new": on("orders", moved_from={"cluster": "west", "mirror": "mirror_maker"})}}
    )
    known = after(EAST_AND_WEST).known
    known = known.with_log(("west", "orders"), KnownLog(status="draining", ends={0: 5}))
    known = known.with_move(("new", "orders"), KnownMove(cluster="west", topic="orders", mirrored=True))
    here = state(("west", 0, 8), ("new", 0, 8))
    here = replace(here, partitions=[replace(b, high_watermark=9) for b in here.partitions])
    for position in (3, 5):
        _, found = bounded(follow(known, moved, "drain", "t"), here, at(west=position), NOW)
        refuse_held_back({b.topic_partition: (0, 5) for b in found.partitions[:1]}, found.partitions[:1],
                         by_times=True, table="t")  # fmt: skip


def test_a_removal_is_confirmed_once_all_partitions_can_be_asked():
    found, _ = bounded(after(EAST_AND_WEST, EAST, EAST), state(("east", 0, 5), leaderless=("west",)), at(west=3), NOW)
    assert found.known.logs["west"]["orders"].status == "missed"
    assert follow(found.known, EAST, "drain", "t").to_confirm == {("west", "orders")}


def test_retention_that_takes_what_was_to_be_drained_ends_it():
    confirmed, _ = bounded(after(EAST_AND_WEST, EAST, EAST), state(("west", 0, 7)), at(west=3), NOW)
    done, _ = bounded(follow(confirmed.known, EAST, "drain", "t"), state(("west", 8, 9)), at(west=3), NOW)
    assert done.topics("west") == ()


def test_a_removed_topic_is_not_drained_while_an_election_has_put_other_records_below_the_position():
    west = TopicPartition("west", "orders", 0)
    found = replace(state(("east", 0, 5), ("west", 0, 2)), truncated={west: 0})
    held, _ = bounded(after(EAST_AND_WEST, EAST, EAST), found, at(west=4), NOW)
    assert held.topics("west") == ("orders",)
    left, _ = bounded(after(EAST_AND_WEST, EAST, EAST), replace(found, truncated={}), at(west=4), NOW)
    assert left.topics("west") == ()


def test_a_draining_log_that_was_cut_off_below_what_was_read_is_not_read_beyond_its_end():
    found = state(("west", 0, 1))
    other = PartitionBounds(TopicPartition("west", "orders", 1), 0, 8, 8, NOW)  # unread, so the topic isn't drained yet
    found = replace(found, partitions=[*found.partitions, other])
    draining, bounds = bounded(after(EAST_AND_WEST, EAST, EAST), found, at(west=3), NOW)
    assert draining.known.logs["west"]["orders"].ends == {0: 1, 1: 8}
    assert [b.window_end for b in bounds.partitions] == [1, 8]


def test_latest_is_the_log_s_end_in_the_interval_that_first_reads_it():
    stops = mapping(orders={"clusters": {"east": on("orders", stopping_offsets="latest")}})
    first, found = bounded(follow(None, stops, "drain", "t"), state(("east", 0, 5)), at(), NOW)
    assert (first.known.logs["east"]["orders"].ends, windows(found)) == ({0: 5}, {"east": 5})
    second, found = bounded(follow(first.known, stops, "drain", "t"), state(("east", 0, 8)), at(east=5), NOW)
    assert (second.known.logs["east"]["orders"].ends, windows(found)) == ({0: 5}, {"east": 5})
    moved = mapping(orders={"clusters": {"east": on("orders", stopping_offsets={"orders": {0: 7}})}})
    _, found = bounded(follow(second.known, moved, "drain", "t"), state(("east", 0, 8)), at(east=5), NOW)
    assert windows(found) == {"east": 7}
    _, found = bounded(follow(second.known, EAST, "drain", "t"), state(("east", 0, 8)), at(east=5), NOW)
    assert windows(found) == {"east": 8}


def test_where_a_topic_starts_and_ends_outlives_the_answer():
    later = mapping(orders={"clusters": {"east": on("orders", starting_offsets={"orders": {0: 7}})}})
    without = follow_without_answer(follow(None, later, "drain", "t").known, 2, "timed out", "t")
    assert without.starting["east", "orders"].starting == {0: 7}
    stops = mapping(
        orders={"clusters": {"east": on("orders"), "west": on("orders", stopping_offsets={"orders": {0: 5}})}}
    )
    removed = after(stops, EAST, EAST)
    found, _ = bounded(removed, state(("east", 0, 5), ("west", 0, 9)), at(west=3), NOW)
    assert found.known.logs["west"]["orders"].ends == {0: 5}


# Names


def test_topics_have_the_cluster_s_first_name_in_rows_for_good():
    first = after(EAST_AND_WEST).known.named({"east": "E", "west": "W"}, at())
    assert first.row_topic("orders", "east", "E") == "east/orders"
    renamed = first.renamed({"eastern": "E", "west": "W"}).named({"eastern": "E", "west": "W", "east": "N"}, at())
    assert renamed.row_topic("orders", "eastern", "E") == "east/orders"
    assert renamed.row_topic("orders", "east", "N") == "N/orders", "its name in rows is another's"


def test_topics_of_a_table_of_today_keep_their_names():
    first = after(EAST_AND_WEST).known.named({"east": "E", "west": "W"}, at(east=4))
    assert (first.row_topic("orders", "east", "E"), first.row_topic("orders", "west", "W")) == ("orders", "west/orders")
    away = after(EAST_AND_WEST).known.named({"west": "W"}, at(E=4).model_copy())
    assert away.prefixes == {"E": "", "W": "west/"}, "also while its cluster doesn't answer"
    again = first.named({"east": "E", "west": "W"}, at(east=4, west=4))
    assert again.prefixes == first.prefixes


def test_a_table_that_was_moved_once_has_rows_of_two_clusters():
    both = after(EAST_AND_WEST).known.named({"east": "E", "west": "W"}, at(east=4, west=4))
    with pytest.raises(ActionRequiredError, match="rows of the topic orders from two clusters, east and west"):
        refuse_shared_names(both, "t")
    refuse_shared_names(after(EAST_AND_WEST).known.named({"east": "E", "west": "W"}, at(east=4)), "t")


def test_a_renamed_cluster_is_not_removed():
    known = after(EAST_AND_WEST).known.named({"east": "E", "west": "W"}, at())
    far = mapping(orders={"clusters": {"east": on("orders"), "far": on("orders")}})
    found = follow(known.renamed({"east": "E", "far": "W"}), far, "drain", "t")
    assert (sorted(found.clusters), found.remarks) == (["east", "far"], ())


def test_clusters_that_can_t_be_told_apart():
    with pytest.raises(ActionRequiredError, match="one cluster under two names, a and b"):
        refuse_two_names({"a": "X", "b": "X", "c": None, "d": None}, "t")
    with pytest.raises(ActionRequiredError, match="isn't known which cluster the table was loaded from"):
        refuse_unknown_ids(at(kafka_default=4), ["east", "west"], "t")
    refuse_unknown_ids(at(east=4), ["east", "west"], "t")
    known = after(EAST_AND_WEST).known.named({"east": "E", "west": "W"}, at())
    with pytest.raises(ActionRequiredError, match="isn't where it was"):
        refuse_lost_address(known, {"west": "E"}, "t")
    refuse_lost_address(known, {"west": "W"}, "t")


def test_a_cluster_that_was_skipped_ever_since_is_known_when_it_answers_under_another_name():
    known = after(EAST_AND_WEST).known.named({"east": "E"}, at())
    assert known.identified({"west": "W"}).renamed({"east": "E", "far": "W"}).topics("far") == ("orders",)
    assert known.identified({"east": "another"}).ids["east"] == "E"


def test_clusters_of_which_the_mapping_is_the_first_that_names_none_of_their_topics():
    assert after(EAST_AND_WEST, EAST).missed == {"west"}
    assert after(EAST_AND_WEST, EAST, EAST).missed == frozenset()
    two = mapping(orders={"clusters": {"east": on("orders", "returns")}})
    assert after(two, EAST).missed == frozenset()


def test_nothing_is_said_of_completeness_where_a_cluster_was_never_read():
    before = NOW - timedelta(days=1)
    known, unknown = TopicPartition("west", "orders", 0), ("west",)
    assert replace(state(("east", 0, 5)), skipped=unknown, leaderless=[known]).valid_through(before) == before
    assert replace(state(("east", 0, 5)), skipped=unknown, unread=unknown).valid_through(before) is None


def test_a_skipped_cluster_is_the_last_commit_s_only_at_the_same_address():
    """Its name may have led elsewhere by mistake until now, and another cluster's time says nothing of its records."""
    before = after(EAST_AND_WEST).known
    assert doubtful(after(EAST_AND_WEST, EAST_AND_WEST).known.skipping(["west"]), before) == frozenset()
    elsewhere = mapping(orders={"clusters": {"east": on("orders"), "west": on("orders", connection="kafka_west")}})
    assert doubtful(after(EAST_AND_WEST, elsewhere).known.skipping(["west"]), before) == {"west"}
    assert doubtful(after(EAST_AND_WEST, elsewhere).known, before) == frozenset(), "it answers"
    assert doubtful(before.skipping(["west"]), None) == {"west"}


def test_a_skipped_cluster_may_have_more_than_the_last_commit_read_of_it():
    west = on("orders", connection="kafka_west")
    before = after(mapping(orders={"clusters": {"west": west}})).known
    more = mapping(orders={"clusters": {"west": on("orders", "returns", connection="kafka_west")}})
    assert doubtful(follow(before, more, "drain", "t").known.skipping(["west"]), before) == {"west"}
    ended = before.with_log(("west", "orders"), KnownLog(status="draining", ends={0: 5}))
    again = follow(ended, mapping(orders={"clusters": {"west": west}}), "drain", "t").known
    assert doubtful(again.skipping(["west"]), ended) == {"west"}, "it was left at an end, and is mapped again"


def test_what_is_to_be_noted():
    known = after(EAST_AND_WEST).known
    assert known.differs_from(None)
    assert not known.model_copy(update={"failures": 2}).differs_from(known)
    assert after(EAST_AND_WEST, EAST).known.differs_from(known)


def test_topics_that_are_read_on_by_their_names_in_rows():
    """A cluster that the table was on before has no prefix; what is drained, or was never asked, isn't among them."""
    logs = {name: {"orders": KnownLog()} for name in ("old", "east", "dead")}
    logs["east"]["returns"] = KnownLog(status="draining", ends={0: 4})
    known = KnownStreams(logs=logs, ids={"old": "O", "east": "E", "dead": None}, prefixes={"O": "", "E": "first/"})
    assert known.logs_in_rows() == {"orders": ("old", "orders"), "first/orders": ("east", "orders")}


@pytest.mark.parametrize(
    ("log", "position", "is_drained"),
    [
        (KnownLog(status="draining", ends={0: 5}), 5, True),
        (KnownLog(status="draining", ends={0: 5}), 4, False),
        (KnownLog(status="draining", ends={0: 5}, drains_until=NOW), 5, False),
        (KnownLog(status="draining"), 5, False),
        (KnownLog(status="active", ends={0: 5}), 5, False),
        (KnownLog(status="missed", ends={0: 5}), 5, False),
    ],
    ids=["at its end", "before it", "for a limited time", "before its end is known", "stops there", "missed once"],
)
def test_only_a_topic_that_is_drained_up_to_its_end_is_left(log, position, is_drained):
    known = after(EAST_AND_WEST).known.with_log(("west", "orders"), log)
    left, drained = known.without_drained(at(east=9, west=position))
    assert drained == ((("west", "orders"),) if is_drained else ())
    assert ("west" in left.clusters, "east" in left.clusters) == (not is_drained, True)


@pytest.mark.parametrize(
    ("ids", "present", "expected"),
    [
        ({"east": "E", "west": "W"}, {"east": "E", "far": "W"}, "far"),
        ({"east": "E", "west": "W"}, {"east": "E", "west": "another"}, "W"),
        ({"east": "E", "west": None}, {"east": "E", "west": "W"}, "west"),
        ({"east": "E", "west": "W"}, {"east": "E", "west": None}, "west"),
        ({"east": "E", "west": "W"}, {"east": "E"}, "west"),
    ],
    ids=["renamed", "its name is another's", "it had no id", "it has no id now", "it doesn't answer"],
)
def test_where_a_topic_was_moved_from_is_known_under_the_cluster_s_present_name(ids, present, expected):
    known = after(EAST_AND_WEST).known.with_move(("east", "orders"), KnownMove(cluster="west", topic="orders"))
    moved = known.model_copy(update={"ids": ids}).renamed(present).moves["east"]["orders"]
    assert moved.cluster == expected


def test_a_move_is_that_of_the_topic_itself():
    known = after(EAST_AND_WEST).known.with_move(("east", "orders"), KnownMove(cluster="west", topic="was"))
    assert known.move_of(("east", "orders")) == KnownMove(cluster="west", topic="was")
    assert known.move_of(("east", "was")) is None
    assert known.move_of(("west", "orders")) is None


@pytest.mark.parametrize(
    ("window", "by_times", "is_refused"),
    [
        ((0, 4), True, False),
        ((0, 5), False, False),
        ((0, 5), True, True),
        ((0, 6), False, True),
        ((6, 8), False, True),
        ((8, 9), False, True),
        ((9, 12), False, False),
    ],
)
def test_a_window_is_held_back_from_the_first_open_record_to_the_log_s_end(window, by_times, is_refused):
    bounds = replace(state(("east", 0, 5)).partitions[0], high_watermark=9)
    refused = pytest.raises(RetryableError, match="open Kafka transaction") if is_refused else nullcontext()
    with refused:
        refuse_held_back({bounds.topic_partition: window}, [bounds], by_times=by_times, table="t")
    closed = replace(bounds, high_watermark=5)
    refuse_held_back({bounds.topic_partition: window}, [closed], by_times=by_times, table="t")
    refuse_held_back({bounds.topic_partition: window}, [], by_times=by_times, table="t")
