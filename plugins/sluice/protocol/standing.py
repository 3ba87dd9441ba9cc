"""How far behind its clusters a table is once an interval is committed, for metrics. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from pydantic import BaseModel, ConfigDict, Field

from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.state import ClusterState


class ClusterStanding(BaseModel):
    """One cluster's figures, of an interval's plan.

    Attributes:
        partitions: the partitions that are read.
        lag_records: offsets up to the ends of their logs that the interval leaves unread; None if unknown.
        held_back_records: those of them that open Kafka transactions hold back, and what follows these in their
            partitions: offsets from the last stable one. None if unknown.
    """

    model_config = ConfigDict(frozen=True)

    partitions: int
    lag_records: int | None = None
    held_back_records: int | None = None


class Standing(BaseModel):
    """The figures of all clusters.

    Attributes:
        clusters: by name.
        unreachable: clusters that were skipped, since they don't answer.
        metadata_failures: how many intervals in a row have reused the last mapping, since the metadata service didn't
            answer; None without streams.
    """

    model_config = ConfigDict(frozen=True)

    clusters: dict[str, ClusterStanding] = Field(default_factory=dict)
    unreachable: tuple[str, ...] = ()
    metadata_failures: int | None = None

    @property
    def partitions(self) -> int:
        """All that are read."""
        return sum(one.partitions for one in self.clusters.values())

    @property
    def held_back_records(self) -> int | None:
        """Of all clusters; None if it isn't known of one."""
        found = [one.held_back_records for one in self.clusters.values()]
        return None if None in found else sum(one for one in found if one is not None)


def standing_after(
    positions: Mapping[TopicPartition, int], state: ClusterState, streams: KnownStreams | None
) -> Standing:
    """What an interval leaves.

    Args:
        positions: where it leaves each partition.
        state: the clusters' state by which it was planned.
        streams: the streams that it follows, if it does.
    """
    by_cluster: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in positions:
        by_cluster[tp.cluster].append(tp)
    bounds = {b.topic_partition: b for b in state.partitions}
    unknown = {*state.skipped, *(tp.cluster for tp in state.leaderless)}

    def left(tps: Collection[TopicPartition], end_of: Callable[[TopicPartition], int]) -> int:
        return sum(max(0, bounds[tp].end_of_records - end_of(tp)) for tp in tps if tp in bounds)

    def of(name: str) -> ClusterStanding:
        tps = by_cluster[name]
        if name in unknown:
            return ClusterStanding(partitions=len(tps))
        return ClusterStanding(
            partitions=len(tps),
            lag_records=left(tps, positions.__getitem__),
            held_back_records=left(tps, lambda tp: max(positions[tp], bounds[tp].log_end)),
        )

    names = {*by_cluster, *(streams.clusters if streams is not None else ())}
    return Standing(
        clusters={name: of(name) for name in sorted(names)},
        unreachable=tuple(sorted(state.skipped)),
        metadata_failures=streams.failures if streams is not None else None,
    )
