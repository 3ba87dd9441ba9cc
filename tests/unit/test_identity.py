"""Clusters and topics are what Kafka's own ids say."""

from __future__ import annotations

import pytest

from sluice.protocol.identity import under_present_names
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, TopicCheckpoint


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
        "the name leads elsewhere",
        "the name leads back",
        "renamed, and another cluster, after one was left",
        "nothing",
    ],
)
def test_a_cluster_is_under_the_name_that_it_has_now(known, present, expected):
    assert under_present_names(known, present) == expected
    assert under_present_names(expected, present) == expected
