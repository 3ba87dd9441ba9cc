"""Topics that are not what they were: with other partitions, in which keys may have moved, or deleted altogether."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from sluice.coordinator.planning import Planner
from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READ = Checkpoint().advance({TopicPartition("east", "t", 0): 5}, {"east": "E"}, {("east", "t"): "first"})


@pytest.mark.parametrize(
    ("is_stream", "cluster_id", "is_refused"),
    [(True, "W", False), (True, "E", True), (True, None, True), (False, "W", True)],
    ids=["another cluster", "the same one", "it has no id", "without streams both have one name in rows"],
)
def test_only_a_topic_that_shares_its_name_in_rows_needs_the_same_partitions(is_stream, cluster_id, is_refused):
    """Another cluster that is found under a known name has rows of its own, so no key can be doubled."""
    sink = SimpleNamespace(capabilities=None)
    followed = SimpleNamespace() if is_stream else None
    session = SimpleNamespace(table_id="table", pipeline=SimpleNamespace(sink=sink), followed=followed)
    bounds = [PartitionBounds(TopicPartition("east", "t", number), 0, 9, 9, NOW) for number in range(3)]
    state = ClusterState(bounds, {"east": cluster_id}, {("east", "t"): "second"})
    refused = pytest.raises(ActionRequiredError, match="partitions changed") if is_refused else nullcontext()
    with refused:
        Planner(session)._refuse_moved_keys(READ, state)


@pytest.mark.parametrize(
    ("pattern", "there", "on_loss", "is_refused"),
    [
        ("t.*", ("t2",), "fail", True),
        ("t.*", ("t", "t2"), "fail", False),
        ("u.*", ("u",), "fail", False),
        ("t.*", ("t2",), "earliest", False),
        (None, (), "fail", False),
    ],
    ids=["it is gone", "it is there", "the pattern no longer matches it", "losses are accepted", "named topics"],
)
def test_a_topic_that_the_pattern_still_matches_may_not_be_gone(pattern, there, on_loss, is_refused):
    options = SimpleNamespace(topics_pattern=pattern, on_offset_loss=on_loss)
    pipeline = SimpleNamespace(sink=SimpleNamespace(capabilities=None), source=SimpleNamespace(options=options))
    sources = SimpleNamespace(names=("east", "west"), topics_of=lambda _: there)
    session = SimpleNamespace(table_id="table", pipeline=pipeline, sources=sources)
    refused = pytest.raises(ActionRequiredError, match=r"are gone: t[.]") if is_refused else nullcontext()
    with refused:
        Planner(session)._refuse_gone_topics(READ)
