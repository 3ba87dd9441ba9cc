"""Clusters and topics are what Kafka's own ids say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from confluent_kafka import Uuid

from sluice.kafka.topic_id import topic_id
from sluice.protocol.identity import LogId, LogIds, other_logs, under_present_names
from sluice.protocol.known_streams import KnownLog, KnownMove, KnownStreams
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, TopicCheckpoint, TopicPartition
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.streams import Followed, bounded


def _of(**clusters: tuple[str | None, dict[str, int]]) -> Checkpoint:
    return Checkpoint(
        clusters={
            name: ClusterCheckpoint(
                cluster_id=cluster_id, topics={t: TopicCheckpoint(partitions={0: o}) for t, o in topics.items()}
            )
            for name, (cluster_id, topics) in clusters.items()
        }
    )


@pytest.mark.parametrize(
    ("known", "present", "expected"),
    [
        (_of(a=("X", {"t": 7})), {"a": "X"}, _of(a=("X", {"t": 7}))),
        (_of(a=("X", {"t": 7})), {"b": "X"}, _of(b=("X", {"t": 7}))),
        (_of(a=("X", {"t": 7})), {"b": "Y"}, _of(b=("X", {"t": 7}))),
        (_of(a=(None, {"t": 7})), {"b": "Y"}, _of(b=(None, {"t": 7}))),
        (_of(a=("X", {"t": 7})), {"a": "X", "b": "Y"}, _of(a=("X", {"t": 7}))),
        (_of(a=("X", {"t": 7}), b=("Y", {"t": 9})), {"c": "Y"}, _of(a=("X", {"t": 7}), c=("Y", {"t": 9}))),
        (_of(a=("X", {"t": 7}), b=("Y", {"t": 9})), {"b": "X", "a": "Y"}, _of(b=("X", {"t": 7}), a=("Y", {"t": 9}))),
        (_of(a=("X", {"t": 7}), b=("Y", {"t": 9})), {"b": "X"}, _of(b=("X", {"t": 7}), Y=("Y", {"t": 9}))),
        (_of(a=("X", {"t": 7, "u": 1}), b=("X", {"t": 9})), {"b": "X"}, _of(b=("X", {"t": 9, "u": 1}))),
        (_of(b=("X", {"t": 9}), a=("X", {"t": 7, "u": 1})), {"b": "X"}, _of(b=("X", {"t": 9, "u": 1}))),
        (_of(a=("X", {"t": 7}), b=("Y", {"t": 9})), {"b": "Z"}, _of(a=("X", {"t": 7}), b=("Y", {"t": 9}))),
        (_of(a=("Y", {"t": 2}), X=("X", {"t": 7})), {"a": "X"}, _of(Y=("Y", {"t": 2}), a=("X", {"t": 7}))),
        (_of(a=("Y", {"t": 2}), X=("X", {"t": 7})), {"b": "Z"}, _of(b=("Y", {"t": 2}), X=("X", {"t": 7}))),
        (_of(), {"a": "X"}, _of()),
    ],
    ids=[
        "as it was",
        "renamed",
        "another cluster",
        "of a peer, without an id",
        "a second one is new",
        "one of two is renamed",
        "two swap their names",
        "one has the name of another",
        "known under both names",
        "known under both names, the present one first",
        "the name leads elsewhere",
        "the name leads back",
        "renamed, and another cluster, after one was left",
        "nothing",
    ],
)
def test_a_cluster_is_under_the_name_that_it_has_now(known, present, expected):
    assert under_present_names(known, present) == expected
    assert under_present_names(expected, present) == expected


ZERO = "A" * 22  # the text of what Kafka's clients give for a topic of a broker without ids


def test_the_zero_id_is_none_wherever_it_is_held():
    assert (topic_id(Uuid(0, 0)), topic_id(ZERO), topic_id("_-" * 11)) == (None, None, "/+" * 11)
    assert topic_id(Uuid(-5, -70)) == str(Uuid(-5, -70))
    held = Checkpoint.model_validate({"clusters": {"k": {"topics": {"t": {"topic_id": ZERO, "partitions": {0: 7}}}}}})
    now = LogIds({"k": "X"}, {("k", "t"): "first-id"})
    assert (held.topic("k", "t").topic_id, other_logs(held, now)) == (None, {})
    after = held.advance({TopicPartition("k", "t", 0): 9}, {"k": "X"}, now.topics).topic("k", "t")
    assert (after.topic_id, after.partitions, after.era) == ("first-id", {0: 9}, 0)
    assert LogId("X", ZERO).other_than(LogId("X", "first-id")) is None
    assert LogIds.of_topics({}, {"k": {"t": ZERO}}).topics == {("k", "t"): None}
    places = Places()
    places.add(("t", 0, 3), ZERO)
    assert places.has(("t", 0, 3), "first-id")


def test_a_copied_topic_goes_on_from_its_cut_whose_broker_gives_ids_only_now():
    """A broker that has come to give ids has the log of before: read from its start, copies would be rows twice."""
    known = KnownStreams(logs={"new": {"t": KnownLog()}})
    for noted, now, begins in ((ZERO, "first-id", 5), (None, "first-id", 5), ("id", "id", 5), ("id", "another", 0)):
        move = KnownMove(cluster="old", topic="t", mirrored=True, begins={0: 5}, topic_id=noted)
        bounds = PartitionBounds(TopicPartition("new", "t", 0), 0, 9, 9, datetime.now(UTC))
        state = ClusterState([bounds], {}, {("new", "t"): now})
        _, found = bounded(Followed(known.with_move(("new", "t"), move), {}), state, Checkpoint(), datetime.now(UTC))
        assert found.partitions[0].log_start == begins, noted
