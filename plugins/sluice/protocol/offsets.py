"""Offsets of Kafka partitions, and the checkpoint that every commit carries in its metadata.

A checkpoint holds *next* offsets, from which the schedule reads on, and *covered* offsets: a backfill covers some
before or after the schedule's position. It is written in three forms (protocol.md): our own JSON, RFC-32's
`kafka.commit.offsets` and HoodieStreamer's checkpoint; the last two have only next offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol import coverage
from sluice.protocol.coverage import Coverage
from sluice.protocol.topic_id import known_topic_id

OFFSETS_KEY = "sluice.offsets"
TRANSACTION_KEY = "sluice.transaction"
RFC32_KEY = "kafka.commit.offsets"
STREAMER_V1_KEY = "deltastreamer.checkpoint.key"
STREAMER_V2_KEY = "streamer.checkpoint.key.v2"
_NONE: Mapping[TopicPartition, int] = MappingProxyType({})


TOPIC_PARTITION = r"(?P<topic>.+)\[(?P<partition>[0-9]{1,10})\]"
"""A pattern of partitions as `str` writes them. Digits are bounded: Python refuses to convert thousands of them."""
OFFSET = r"[0-9]{1,19}"
"""A pattern of offsets."""


class TopicPartition(NamedTuple):
    """One Kafka partition. `cluster` is the Airflow connection's id: the same topic on two clusters differs."""

    cluster: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class OffsetSync(NamedTuple):
    """A mirror's entry for one record: its offset in the source log, and its copy's offset."""

    upstream: int
    downstream: int


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
        """The number of offsets, which is the most records that the range can hold."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


def in_words(things: Sequence[object], most: int = 20, *, by_cluster: bool = False) -> str:
    """Offsets or partitions as a list for people: at most the first `most` of them, with clusters where they differ.

    With `by_cluster` they are named in any case: several clusters may be read, even if these are all of one.
    """
    clusters = [getattr(getattr(thing, "topic_partition", thing), "cluster", "") for thing in things]
    differ = by_cluster or len(set(clusters)) > 1
    named = ", ".join(
        f"{cluster}/{thing}" if differ and not getattr(thing, "row_topic", None) else str(thing)
        for thing, cluster in zip(things[:most], clusters, strict=False)
    )
    return named if len(things) <= most else f"{named} and {len(things) - most:,} more"


class TopicCheckpoint(BaseModel):
    """The table's offsets in each partition of a topic.

    Attributes:
        topic_id: Kafka's id, by which a recreated topic is recognized (KIP-516).
        partitions: the next offset of each partition that the schedule has begun to read.
        covered: the offsets that were committed. A partition that is missing here, because a peer or an earlier
            release wrote the checkpoint, counts as covered up to its next offset: better to omit rows than double them.
        passed_over: offsets that a person excluded from reading. The table doesn't have them.
        era: how many logs of this topic the table has read before this one. Offsets of different eras don't say which
            record is newer.
        leader_epochs: for each partition, an epoch not older than that of any record read, by which a truncated log is
            recognized. Missing in checkpoints of a peer or an earlier release.
    """

    model_config = ConfigDict(frozen=True)

    topic_id: Annotated[str | None, AfterValidator(known_topic_id)] = None
    partitions: dict[int, int] = Field(default_factory=dict)
    covered: dict[int, Coverage] = Field(default_factory=dict)
    passed_over: dict[int, Coverage] = Field(default_factory=dict)
    era: int = 0
    leader_epochs: dict[int, int] = Field(default_factory=dict)

    @property
    def known(self) -> frozenset[int]:
        """The partitions with known offsets: a position, or committed or passed-over offsets."""
        spans = (*self.covered.items(), *self.passed_over.items())
        return frozenset(self.partitions) | {partition for partition, found in spans if found}

    def is_another(self, topic_id: str | None) -> bool:
        """Whether Kafka's id shows that the topic is another one; False if either id is unknown."""
        return bool(self.topic_id and topic_id and self.topic_id != topic_id)

    def coverage(self, partition: int) -> Coverage:
        """The committed offsets of a partition."""
        known = self.covered.get(partition)
        return coverage.add((), (0, self.partitions.get(partition, 0))) if known is None else known


class ClusterCheckpoint(BaseModel):
    """The topics of one cluster; `cluster_id` is Kafka's id."""

    model_config = ConfigDict(frozen=True)

    cluster_id: str | None = None
    topics: dict[str, TopicCheckpoint] = Field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether anything of it was read, or passed over."""
        return any(topic.known for topic in self.topics.values())


class Checkpoint(BaseModel):
    """All next offsets of one table, qualified by cluster and topic."""

    model_config = ConfigDict(frozen=True)

    version: int = 1
    clusters: dict[str, ClusterCheckpoint] = Field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether anything was read, or passed over."""
        return any(cluster.is_known for cluster in self.clusters.values())

    @property
    def cluster_ids(self) -> dict[str, str | None]:
        """Kafka's ids of the clusters by their names."""
        return {name: cluster.cluster_id for name, cluster in self.clusters.items()}

    def next_offset(self, tp: TopicPartition) -> int | None:
        """First offset that is not in the table, or None if the partition was never read."""
        topic = self.topic(tp.cluster, tp.topic)
        return topic.partitions.get(tp.partition) if topic else None

    def topic(self, cluster: str, topic: str) -> TopicCheckpoint | None:
        """A topic's checkpoint; None if it is unknown."""
        found = self.clusters.get(cluster)
        return found.topics.get(topic) if found else None

    def leader_epoch(self, tp: TopicPartition) -> int | None:
        """A leader epoch not older than any known record of the partition; None if unknown."""
        topic = self.topic(tp.cluster, tp.topic)
        return topic.leader_epochs.get(tp.partition) if topic else None

    def known_partitions(self, cluster: str, topic: str) -> list[TopicPartition]:
        """The partitions of a topic with known offsets, in order."""
        found = self.topic(cluster, topic)
        return [TopicPartition(cluster, topic, partition) for partition in sorted(found.known)] if found else []

    def end_of_known(self, tp: TopicPartition) -> int:
        """The end of a partition's known offsets: its position, or the end of committed or passed-over offsets."""
        position = self.next_offset(tp)
        settled = self.settled(tp)
        return position if position is not None else settled[-1][1] if settled else 0

    def end_of_settled(self, tp: TopicPartition) -> int:
        """The offset after the last known one of a partition, even if that is ahead of the position."""
        settled = self.settled(tp)
        return max(self.next_offset(tp) or 0, settled[-1][1] if settled else 0)

    def covered(self, tp: TopicPartition) -> Coverage:
        """The offsets of a partition that were committed."""
        topic = self.topic(tp.cluster, tp.topic)
        return topic.coverage(tp.partition) if topic else ()

    def settled(self, tp: TopicPartition) -> Coverage:
        """The offsets of a partition that the schedule need not read: committed, or passed over by hand."""
        topic = self.topic(tp.cluster, tp.topic)
        return coverage.add(self.covered(tp), *topic.passed_over.get(tp.partition, ())) if topic else ()

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        cluster_ids: Mapping[str, str | None],
        topic_ids: Mapping[tuple[str, str], str | None],
        committed: Iterable[OffsetRange] = (),
        forgotten: Iterable[TopicPartition] = (),
        passed_over: Iterable[OffsetRange] = (),
        truncated: Mapping[TopicPartition, int] = _NONE,
        leader_epochs: Mapping[TopicPartition, int] = _NONE,
    ) -> Checkpoint:
        """The checkpoint after a commit; everything not named is carried forward.

        Args:
            next_offsets: where the schedule continues. A position at covered offsets moves past them.
            cluster_ids: Kafka's own ids of the clusters. Positions of another cluster under the same name are kept
                under that cluster's id, so that reading can continue there after a name was set wrongly by mistake.
            topic_ids: Kafka's own ids of the topics. A topic whose id changed was recreated: its known offsets are
                dropped, since they mean nothing now.
            committed: the offsets that the commit adds to the table.
            forgotten: partitions whose known offsets refer to a log that is gone, as the interval declared.
            passed_over: offsets to exclude from reading from now on.
            truncated: where logs were truncated: known offsets beyond refer to records that are gone.
            leader_epochs: of the partitions' leaders when the interval was planned.

        Raises:
            IntervalError: a topic's id changed, but the interval declared no loss of its offsets.
        """
        forgotten = set(forgotten)
        eras = self.eras(topic_ids, (*forgotten, *truncated))
        declared = {(tp.cluster, tp.topic) for tp in forgotten}
        added, skipped = _by_partition(committed), _by_partition(passed_over)
        changed: dict[tuple[str, str], list[TopicPartition]] = {}
        for tp in dict.fromkeys((*next_offsets, *added, *skipped)):
            changed.setdefault((tp.cluster, tp.topic), []).append(tp)
        clusters = {name: (cluster.cluster_id, dict(cluster.topics)) for name, cluster in self.clusters.items()}
        for (name, topic_name), partitions in changed.items():
            cluster_id, topics = clusters.get(name, (None, {}))
            cluster_id_now = cluster_ids.get(name) or cluster_id
            if cluster_id and cluster_id_now != cluster_id and self.clusters[name].is_known:
                clusters[cluster_id] = (cluster_id, dict(topics))
            known = topics.get(topic_name) or TopicCheckpoint()
            place = (name, topic_name)
            if known.known and known.is_another(topic_ids.get(place)) and place not in declared:
                raise IntervalError(
                    "The topic is another one than the table was loaded from, and no loss of offsets was declared.",
                    next_step="nothing was committed; the next interval of the schedule reports the loss.",
                    cluster=name,
                    topic=topic_name,
                )
            topic = _TopicDraft(known, topic_ids.get(place), eras.get(place, known.era))
            for tp in partitions:
                if tp in forgotten:
                    topic.forget(tp.partition)
                if tp in truncated:
                    topic.cut(tp.partition, truncated[tp])
                topic.record_leader_epoch(tp.partition, leader_epochs.get(tp))
                topic.advance(tp.partition, next_offsets.get(tp), added.get(tp, ()), skipped.get(tp, ()))
            topics[topic_name] = topic.checkpoint()
            clusters[name] = (cluster_id_now, topics)
        return Checkpoint(
            clusters={name: ClusterCheckpoint(cluster_id=i, topics=topics) for name, (i, topics) in clusters.items()}
        )

    def eras(
        self, topic_ids: Mapping[tuple[str, str], str | None], forgotten: Iterable[TopicPartition]
    ) -> dict[tuple[str, str], int]:
        """The era of each topic in an interval that reads these logs: one more if the table has read another log of it.

        Args:
            topic_ids: Kafka's own ids of the topics.
            forgotten: partitions whose known offsets refer to a log that is gone, or was truncated below them.
        """
        renewed = {(tp.cluster, tp.topic) for tp in forgotten}
        found = {}
        for place in {*topic_ids, *renewed}:
            known = self.topic(*place)
            if known is not None:
                topic_id = topic_ids.get(place)
                another = bool(known.topic_id and topic_id and known.topic_id != topic_id)
                found[place] = known.era + (another or place in renewed)
        return found

    def to_metadata(self) -> dict[str, str]:
        """The checkpoint as commit metadata: always Sluice's key, and the peers' keys if there is only one topic."""
        metadata = {OFFSETS_KEY: self.model_dump_json()}
        of = (c for place, c in self.clusters.items() if place != c.cluster_id)  # where it is now, not where it was
        topics = [(name, topic) for c in of for name, topic in c.topics.items()]
        if len(topics) == 1 and topics[0][1].partitions:
            name, topic = topics[0]
            metadata[RFC32_KEY] = ",".join(f"{p}={o}" for p, o in sorted(topic.partitions.items()))
            streamer = ",".join([name, *(f"{p}:{o}" for p, o in sorted(topic.partitions.items()))])
            metadata[STREAMER_V1_KEY] = metadata[STREAMER_V2_KEY] = streamer
        return metadata


def _by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[tuple[int, int]]]:
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for r in ranges:
        found.setdefault(r.topic_partition, []).append((r.start, r.end))
    return found


class _TopicDraft:
    """A topic's checkpoint while a commit changes it: changing a partition doesn't copy the whole topic."""

    def __init__(self, topic: TopicCheckpoint, topic_id: str | None, era: int) -> None:
        if topic.is_another(topic_id):
            topic = TopicCheckpoint()
        self._topic_id = topic_id or topic.topic_id
        self._era = era
        self._partitions = dict(topic.partitions)
        self._covered = dict(topic.covered)
        self._passed_over = dict(topic.passed_over)
        self._leader_epochs = dict(topic.leader_epochs)

    def forget(self, partition: int) -> None:
        """Remove a partition's known offsets."""
        for known in (self._partitions, self._covered, self._passed_over, self._leader_epochs):
            known.pop(partition, None)

    def cut(self, partition: int, at: int) -> None:
        """Remove a partition's known offsets from an offset on."""
        self._covered[partition] = coverage.before(self._coverage(partition), at)
        self._passed_over[partition] = coverage.before(self._passed_over.get(partition, ()), at)

    def record_leader_epoch(self, partition: int, epoch: int | None) -> None:
        """Record a leader epoch, if it is known."""
        if epoch is not None:
            self._leader_epochs[partition] = epoch

    def _coverage(self, partition: int) -> Coverage:
        known = self._covered.get(partition)
        return coverage.add((), (0, self._partitions.get(partition, 0))) if known is None else known

    def advance(
        self,
        partition: int,
        position: int | None,
        committed: Iterable[tuple[int, int]],
        passed_over: Iterable[tuple[int, int]],
    ) -> None:
        """Add offsets to a partition; its position moves only if one is given or the offsets adjoin it."""
        position = self._partitions.get(partition) if position is None else position
        covered = coverage.add(self._coverage(partition), *committed)
        passed = coverage.add(self._passed_over.pop(partition, ()), *passed_over)
        passed = tuple(piece for start, end in passed for piece in coverage.missing(covered, start, end))
        if position is not None:
            self._partitions[partition] = coverage.first_missing(coverage.add(covered, *passed), position)
        self._covered[partition] = covered
        if passed:
            self._passed_over[partition] = passed

    def checkpoint(self) -> TopicCheckpoint:
        """The topic's present checkpoint."""
        return TopicCheckpoint(
            topic_id=self._topic_id,
            partitions=dict(sorted(self._partitions.items())),
            covered=dict(sorted(self._covered.items())),
            passed_over=dict(sorted(self._passed_over.items())),
            era=self._era,
            leader_epochs=dict(sorted(self._leader_epochs.items())),
        )


def holds_checkpoint(metadata: Mapping[str, str]) -> bool:
    """Whether a commit's extra metadata holds a checkpoint in any of the three forms."""
    return any(metadata.get(key) for key in (OFFSETS_KEY, RFC32_KEY, STREAMER_V1_KEY, STREAMER_V2_KEY))


def read_checkpoint(metadata: Mapping[str, str], cluster: str, topics: Iterable[str]) -> Checkpoint:
    """The checkpoint in a commit's extra metadata.

    Args:
        metadata: extra metadata of one Hudi commit.
        cluster: the pipeline's cluster, to which a peer's unqualified offsets are assumed to belong.
        topics: the pipeline's topics; RFC-32's form does not name its topic, so there must be exactly one.

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
            next_step="name the topic that the table was loaded from, alone, in the source's `topics`.",
            checkpoint_topic=topic or "(unnamed, RFC-32)",
            pipeline_topics=topics,
        )
    return Checkpoint(clusters={cluster: ClusterCheckpoint(topics={topic: TopicCheckpoint(partitions=partitions)})})
