"""Offsets of Kafka partitions, and the checkpoint of them that every commit carries in its metadata.

A checkpoint holds *next* offsets: the offset of the first record that is not in the table yet. The three forms in which
it is written are those of protocol.md: our own JSON, RFC-32's `kafka.commit.offsets` and HoodieStreamer's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sluice.errors import ActionRequiredError

OFFSETS_KEY = "sluice.offsets"
TRANSACTION_KEY = "sluice.transaction"
RFC32_KEY = "kafka.commit.offsets"
STREAMER_V1_KEY = "deltastreamer.checkpoint.key"
STREAMER_V2_KEY = "streamer.checkpoint.key.v2"


class TopicPartition(NamedTuple):
    """One Kafka partition. `cluster` is the Airflow connection's id: the same topic on two clusters differs."""

    cluster: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, order=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition. Offsets may have gaps, so this is a bound, not a count."""

    topic_partition: TopicPartition
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not an offset range: {self.topic_partition} [{self.start}, {self.end})")

    @property
    def span(self) -> int:
        """How many offsets the range has, which is the most records it can hold."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


class TopicCheckpoint(BaseModel):
    """Next offset of each partition of a topic. `topic_id` is Kafka's own: it tells a recreated topic (KIP-516)."""

    model_config = ConfigDict(frozen=True)

    topic_id: str | None = None
    partitions: dict[int, int] = Field(default_factory=dict)


class ClusterCheckpoint(BaseModel):
    """The topics of one cluster; `cluster_id` is Kafka's own id of it."""

    model_config = ConfigDict(frozen=True)

    cluster_id: str | None = None
    topics: dict[str, TopicCheckpoint] = Field(default_factory=dict)


class Checkpoint(BaseModel):
    """All next offsets of one table, qualified by cluster and topic."""

    model_config = ConfigDict(frozen=True)

    version: int = 1
    clusters: dict[str, ClusterCheckpoint] = Field(default_factory=dict)

    def next_offset(self, tp: TopicPartition) -> int | None:
        """First offset that is not in the table, or None where the partition was never read."""
        topic = self.topic(tp.cluster, tp.topic)
        return topic.partitions.get(tp.partition) if topic else None

    def topic(self, cluster: str, topic: str) -> TopicCheckpoint | None:
        """What is known of a topic, or None."""
        found = self.clusters.get(cluster)
        return found.topics.get(topic) if found else None

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        cluster_ids: Mapping[str, str | None],
        topic_ids: Mapping[tuple[str, str], str | None],
    ) -> Checkpoint:
        """A checkpoint with the given next offsets laid over this one; whatever is not named is carried forward.

        A topic whose id changed was recreated: its old partitions are dropped, since their offsets mean nothing now.
        """
        clusters = dict(self.clusters)
        for tp, offset in next_offsets.items():
            cluster = clusters.get(tp.cluster) or ClusterCheckpoint()
            topic = cluster.topics.get(tp.topic) or TopicCheckpoint()
            topic_id = topic_ids.get((tp.cluster, tp.topic))
            kept = {} if topic.topic_id and topic_id and topic.topic_id != topic_id else topic.partitions
            topic = TopicCheckpoint(
                topic_id=topic_id or topic.topic_id,
                partitions=dict(sorted({**kept, tp.partition: offset}.items())),
            )
            clusters[tp.cluster] = ClusterCheckpoint(
                cluster_id=cluster_ids.get(tp.cluster) or cluster.cluster_id,
                topics={**cluster.topics, tp.topic: topic},
            )
        return Checkpoint(clusters=clusters)

    def to_metadata(self) -> dict[str, str]:
        """The checkpoint as commit metadata: our key always, the peers' keys where one topic is all there is."""
        metadata = {OFFSETS_KEY: self.model_dump_json()}
        topics = [(name, topic) for c in self.clusters.values() for name, topic in c.topics.items()]
        if len(topics) == 1:
            name, topic = topics[0]
            metadata[RFC32_KEY] = ",".join(f"{p}={o}" for p, o in sorted(topic.partitions.items()))
            streamer = ",".join([name, *(f"{p}:{o}" for p, o in sorted(topic.partitions.items()))])
            metadata[STREAMER_V1_KEY] = metadata[STREAMER_V2_KEY] = streamer
        return metadata


def holds_checkpoint(metadata: Mapping[str, str]) -> bool:
    """Whether a commit's extra metadata holds a checkpoint in any of the three forms."""
    return any(metadata.get(key) for key in (OFFSETS_KEY, RFC32_KEY, STREAMER_V1_KEY, STREAMER_V2_KEY))


def read_checkpoint(metadata: Mapping[str, str], cluster: str, topics: Iterable[str]) -> Checkpoint:
    """The checkpoint in a commit's extra metadata.

    Args:
        metadata: extra metadata of one Hudi commit.
        cluster: the pipeline's cluster, to which a peer's unqualified offsets are taken to belong.
        topics: the pipeline's topics; RFC-32's form does not name its topic, so there must be just one.

    Raises:
        ActionRequiredError: the checkpoint can't be read, or can't be matched to the pipeline's topics.
    """
    topics = list(topics)
    try:
        if metadata.get(OFFSETS_KEY):
            return Checkpoint.model_validate_json(metadata[OFFSETS_KEY])
        streamer = metadata.get(STREAMER_V2_KEY) or metadata.get(STREAMER_V1_KEY)
        if streamer:
            topic, *pairs = streamer.split(",")
            partitions = {int(p): int(o) for p, o in (pair.split(":") for pair in pairs)}
        else:
            topic = topics[0] if len(topics) == 1 else ""
            partitions = {int(p): int(o) for p, o in (pair.split("=") for pair in metadata[RFC32_KEY].split(","))}
    except (ValidationError, ValueError, KeyError) as error:
        raise ActionRequiredError(
            "The table's last checkpoint can't be read.",
            next_step="look at the extra metadata of the table's last commit; it must name partition and offset pairs.",
            found=dict(metadata),
            reason=type(error).__name__,
        ) from error
    if topic not in topics:
        raise ActionRequiredError(
            "The table's checkpoint is of another topic than the pipeline's, or of one that it doesn't name.",
            next_step="name the topic that the table was loaded from, alone, in source.kafka.topics.",
            checkpoint_topic=topic or "(unnamed, RFC-32)",
            pipeline_topics=topics,
        )
    return Checkpoint(clusters={cluster: ClusterCheckpoint(topics={topic: TopicCheckpoint(partitions=partitions)})})
