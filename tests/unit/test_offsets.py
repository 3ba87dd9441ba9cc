"""The checkpoint in its three forms."""

from __future__ import annotations

import json

import pytest

from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol.identity import LogIds, other_logs, under_present_names
from sluice.protocol.offsets import (
    OFFSETS_KEY,
    RFC32_KEY,
    STREAMER_V1_KEY,
    STREAMER_V2_KEY,
    Checkpoint,
    OffsetRange,
    TopicPartition,
    read_checkpoint,
)

FIRST = TopicPartition("kafka", "t", 0)


def advanced(*positions: tuple[str, int, int], topic_ids=None) -> Checkpoint:
    offsets = {TopicPartition("kafka", topic, p): o for topic, p, o in positions}
    return Checkpoint().advance(offsets, {"kafka": "c1"}, topic_ids or {})


def test_one_topic_is_written_in_all_three_forms():
    metadata = advanced(("t", 1, 456), ("t", 0, 123)).to_metadata()
    assert metadata[RFC32_KEY] == "0=123,1=456"
    assert metadata[STREAMER_V1_KEY] == metadata[STREAMER_V2_KEY] == "t,0:123,1:456"
    assert json.loads(metadata[OFFSETS_KEY])["clusters"]["kafka"]["cluster_id"] == "c1"


def test_several_topics_have_only_our_own_form():
    assert set(advanced(("t", 0, 1), ("u", 0, 2)).to_metadata()) == {OFFSETS_KEY}


def test_our_own_form_is_read_back_as_it_was():
    checkpoint = advanced(("t", 0, 1), ("u", 3, 2), topic_ids={("kafka", "t"): "id"})
    assert read_checkpoint(checkpoint.to_metadata(), "kafka", ["t", "u"]) == checkpoint


@pytest.mark.parametrize(
    "metadata",
    [{STREAMER_V1_KEY: "t,0:7,1:9"}, {STREAMER_V2_KEY: "t,0:7,1:9"}, {RFC32_KEY: "0=7,1=9"}],
    ids=["streamer v1", "streamer v2", "rfc-32"],
)
def test_a_peers_checkpoint_is_read(metadata):
    checkpoint = read_checkpoint(metadata, "kafka", ["t"])
    assert checkpoint.next_offset(TopicPartition("kafka", "t", 0)) == 7
    assert checkpoint.next_offset(TopicPartition("kafka", "t", 1)) == 9
    assert checkpoint.next_offset(TopicPartition("kafka", "t", 2)) is None


@pytest.mark.parametrize(
    "metadata", [{STREAMER_V1_KEY: "other,0:7"}, {RFC32_KEY: "0=x"}, {OFFSETS_KEY: "{"}, {STREAMER_V2_KEY: "t"}]
)
def test_a_checkpoint_that_cannot_be_used_is_refused_not_ignored(metadata):
    topics = ["t"] if metadata != {STREAMER_V2_KEY: "t"} else ["u"]
    with pytest.raises(ActionRequiredError):
        read_checkpoint(metadata, "kafka", topics)


def test_rfc32s_unnamed_topic_needs_a_pipeline_with_one_topic():
    with pytest.raises(ActionRequiredError, match="another topic"):
        read_checkpoint({RFC32_KEY: "0=7"}, "kafka", ["t", "u"])


def test_what_is_not_advanced_is_carried_forward():
    checkpoint = advanced(("t", 0, 1), ("u", 0, 5)).advance({TopicPartition("kafka", "t", 0): 2}, {}, {})
    assert checkpoint.next_offset(TopicPartition("kafka", "t", 0)) == 2
    assert checkpoint.next_offset(TopicPartition("kafka", "u", 0)) == 5


def test_the_same_topic_on_two_clusters_is_two_topics():
    checkpoint = advanced(("t", 0, 1)).advance({TopicPartition("other", "t", 0): 9}, {}, {})
    assert checkpoint.next_offset(TopicPartition("kafka", "t", 0)) == 1
    assert checkpoint.next_offset(TopicPartition("other", "t", 0)) == 9


def test_a_recreated_topic_forgets_the_offsets_of_the_old_one():
    old = advanced(("t", 0, 100), ("t", 1, 100), topic_ids={("kafka", "t"): "old"})
    new = old.advance({FIRST: 5}, {}, {("kafka", "t"): "new"}, forgotten=[FIRST])
    assert new.next_offset(TopicPartition("kafka", "t", 0)) == 5
    assert new.next_offset(TopicPartition("kafka", "t", 1)) is None


def test_a_recreated_topic_is_not_forgotten_unless_the_interval_says_so():
    """Or a correction would leave a table without positions, whose next run begins as if nothing had been lost."""
    old = advanced(("t", 0, 100), ("t", 1, 100), topic_ids={("kafka", "t"): "old"})
    for more in ({"passed_over": [OffsetRange(FIRST, 100, 101)]}, {"committed": [OffsetRange(FIRST, 100, 101)]}):
        with pytest.raises(IntervalError, match="no loss of offsets was declared"):
            old.advance({}, {}, {("kafka", "t"): "new"}, **more)


def test_what_was_read_of_a_cluster_is_known_when_its_name_leads_back_to_it():
    """A connection that names another cluster by mistake must not have the first one's records read twice."""
    place = ("kafka", "t")
    old = Checkpoint().advance({FIRST: 7}, {"kafka": "X"}, {place: "a"}, committed=[OffsetRange(FIRST, 0, 7)])
    other = old.advance({FIRST: 3}, {"kafka": "Y"}, {place: "b"}, [OffsetRange(FIRST, 0, 3)], forgotten=[FIRST])
    assert other.next_offset(FIRST) == 3
    assert read_checkpoint(other.to_metadata(), "kafka", ["t"]) == other
    assert other.to_metadata()[RFC32_KEY] == "0=3"
    again = under_present_names(other, {"kafka": "X"})
    assert again.covered(FIRST) == ((0, 7),)
    assert other_logs(again, LogIds({"kafka": "X"}, {place: "a"})) == {}
    assert again.advance({FIRST: 9}, {"kafka": "X"}, {place: "a"}).next_offset(FIRST) == 9


def test_a_peers_checkpoint_covers_everything_before_it():
    """Of what a peer has read nothing is known but where it stands: rows are rather left out than doubled."""
    assert read_checkpoint({RFC32_KEY: "0=7"}, "kafka", ["t"]).covered(FIRST) == ((0, 7),)


def test_a_table_that_started_late_covers_nothing_before_its_start():
    started = advanced(("t", 0, 1000))
    assert started.covered(FIRST) == ()
    read_on = started.advance({FIRST: 1200}, {}, {}, committed=[OffsetRange(FIRST, 1000, 1200)])
    assert read_on.covered(FIRST) == ((1000, 1200),)


def test_the_position_moves_past_what_adjoins_it_and_stays_for_the_rest():
    read = advanced(("t", 0, 10)).advance({}, {}, {}, committed=[OffsetRange(FIRST, 20, 30)])
    assert read.next_offset(FIRST) == 10
    joined = read.advance({FIRST: 20}, {}, {}, committed=[OffsetRange(FIRST, 10, 20)])
    assert joined.next_offset(FIRST) == 30


def test_a_backfill_alone_leaves_no_position():
    alone = Checkpoint().advance({}, {}, {}, committed=[OffsetRange(FIRST, 5, 9)])
    assert alone.next_offset(FIRST) is None
    assert alone.covered(FIRST) == ((5, 9),)
    assert RFC32_KEY not in alone.to_metadata()
    assert read_checkpoint(alone.to_metadata(), "kafka", ["t"]) == alone


def test_what_was_passed_over_is_settled_but_not_covered_until_it_is_read():
    passed = advanced(("t", 0, 10)).advance({}, {}, {}, passed_over=[OffsetRange(FIRST, 12, 13)])
    assert passed.next_offset(FIRST) == 10
    assert passed.settled(FIRST) == ((12, 13),)
    reached = passed.advance({FIRST: 12}, {}, {}, committed=[OffsetRange(FIRST, 10, 12)])
    assert reached.next_offset(FIRST) == 13
    assert reached.covered(FIRST) == ((10, 12),)
    read = reached.advance({}, {}, {}, committed=[OffsetRange(FIRST, 12, 13)])
    assert read.covered(FIRST) == ((10, 13),)
    assert read.topic("kafka", "t").passed_over == {}


def test_the_coverage_of_another_log_is_forgotten():
    old = advanced(("t", 0, 0)).advance({FIRST: 20}, {}, {}, committed=[OffsetRange(FIRST, 0, 20)])
    new = old.advance({FIRST: 5}, {}, {}, committed=[OffsetRange(FIRST, 0, 5)], forgotten=[FIRST])
    assert new.next_offset(FIRST) == 5
    assert new.covered(FIRST) == ((0, 5),)


def test_another_log_of_a_topic_begins_another_era_once():
    second = TopicPartition("kafka", "t", 1)
    place = ("kafka", "t")
    old = Checkpoint().advance({FIRST: 20, second: 7}, {}, {place: "a"})
    assert old.eras({place: "a"}, []) == {place: 0}
    assert old.eras({place: "b"}, []) == old.eras({place: "b"}, [FIRST, second]) == {place: 1}
    new = old.advance({FIRST: 5, second: 5}, {}, {place: "b"}, forgotten=[FIRST, second])
    assert new.eras({place: "b"}, []) == {place: 1}
    assert new.advance({FIRST: 6}, {}, {place: "b"}, forgotten=[FIRST]).eras({place: "b"}, []) == {place: 2}
    assert new.advance({FIRST: 6}, {}, {}).topic(*place).era == 1
    assert Checkpoint().eras({place: "a"}, []) == {}
