"""Several clusters as one source to the coordinator's steps."""

from __future__ import annotations

from typing import Any, cast

from sluice.connectors.source import Source
from sluice.coordinator.sources import Sources
from sluice.errors import RetryableError
from sluice.protocol.offsets import TopicPartition


class Cluster:
    """One that takes offsets for a consumer group, or doesn't answer."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.told: dict[TopicPartition, int] = {}

    def copy_to_group(self, group: str, next_offsets: dict[TopicPartition, int]) -> None:
        if not self.answers:
            raise RetryableError("No answer.", next_step="wait.")
        self.told = next_offsets


def test_a_cluster_that_does_not_take_a_group_s_offsets_keeps_none_from_theirs() -> None:
    clusters: dict[str, Any] = {"dead": Cluster(answers=False), "east": Cluster(), "west": Cluster()}
    positions = {TopicPartition(name, "orders", 0): number for number, name in enumerate((*clusters, "gone"))}
    sources = Sources(cast(dict[str, Source], clusters), lambda _name: ("orders",))
    assert {name: error.what for name, error in sources.copy_to_group("g", positions).items()} == {"dead": "No answer."}
    assert [list(clusters[name].told.values()) for name in ("east", "west")] == [[1], [2]]
