"""The checkpoint in its three forms."""

from __future__ import annotations

import json

import pytest

from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import (
    OFFSETS_KEY,
    RFC32_KEY,
    STREAMER_V1_KEY,
    STREAMER_V2_KEY,
    Checkpoint,
    TopicPartition,
    read_checkpoint,
)


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
    new = old.advance({TopicPartition("kafka", "t", 0): 5}, {}, {("kafka", "t"): "new"})
    assert new.next_offset(TopicPartition("kafka", "t", 0)) == 5
    assert new.next_offset(TopicPartition("kafka", "t", 1)) is None
