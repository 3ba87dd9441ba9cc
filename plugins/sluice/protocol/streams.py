"""Logical streams over several clusters: where their records are, and how an interval follows a mapping that changed.

FLIP-246 has a metadata service that maps a stream to clusters and topics, and lets the mapping change while a job runs.
Here an interval is planned anew each time, so the mapping is asked for once, by START, and stands in START-COMMIT and
in the commit. What changed is the difference from the mapping of the last commit. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.identity import present_names
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds

Offsets = Literal["earliest", "latest"] | dict[str, dict[int, int]]
"""Where a topic starts or stops: an end of its log, or offsets as {topic: {partition: offset}}."""
OffsetsOfTopic = Literal["earliest", "latest"] | Mapping[int, int]
"""The same for one topic, by partition."""
OnRemoved = Literal["drain", "fail", "drop"]
Log = tuple[str, str]
"""A topic of a cluster: the cluster's name and the topic's."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StreamCluster(_Frozen):
    """What a stream has on one cluster.

    Attributes:
        topics: the topics, at least one.
        connection: id of the Airflow connection of type kafka; the pipeline's `connection` by default.
        bootstrap_servers: where the cluster is, in place of what the connection says.
        starting_offsets: where a topic starts that the table has never read; by default the stream's, then the
            pipeline's.
        stopping_offsets: where reading ends for good: `latest` is the log's end in the interval that first reads it.
    """

    topics: Annotated[tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]
    connection: str | None = None
    bootstrap_servers: str | None = None
    starting_offsets: Offsets | None = None
    stopping_offsets: Literal["latest"] | dict[str, dict[int, int]] | None = None

    @model_validator(mode="after")
    def _has_topics(self) -> StreamCluster:
        if not self.topics:
            raise ValueError("name the `topics` of the cluster; leave the cluster out where the stream has none on it")
        return self


class Stream(_Frozen):
    """One logical stream: by the clusters' names what it has on each. No cluster means that it has no records now."""

    clusters: dict[str, StreamCluster]
    starting_offsets: Offsets | None = None
    stopping_offsets: Literal["latest"] | dict[str, dict[int, int]] | None = None


class ClusterAddress(BaseModel):
    """How a cluster is reached: by an Airflow connection, perhaps at an address of the mapping's own."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    connection: str
    bootstrap_servers: str | None = None


@dataclass(frozen=True)
class MappedLog:
    """A topic that a mapping names.

    Attributes:
        starting: where it starts if the table has never read it, by partition or for all of them.
        stopping: where reading it ends for good; None where it goes on.
        streams: the streams that it belongs to.
    """

    starting: OffsetsOfTopic
    stopping: OffsetsOfTopic | None = None
    streams: tuple[str, ...] = ()


@dataclass(frozen=True)
class StreamMapping:
    """What the metadata service says now: the clusters by name, and each topic that is to be read.

    Attributes:
        clusters: how each cluster is reached.
        logs: what is to be read.
    """

    clusters: Mapping[str, ClusterAddress] = field(default_factory=dict)
    logs: Mapping[Log, MappedLog] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A hash of all that it says, by which two answers are compared."""
        said = [f"{name} {address.model_dump_json()}" for name, address in sorted(self.clusters.items())]
        said += [f"{log} {mapped}" for log, mapped in sorted(self.logs.items(), key=lambda item: item[0])]
        return hashlib.sha256("\n".join(said).encode()).hexdigest()


def mapping_of(streams: Mapping[str, Stream], *, connection: str, starting: Offsets, table: str) -> StreamMapping:
    """What several streams have together. A setting of a cluster wins over the stream's, and that over the pipeline's.

    Args:
        streams: the streams by their ids.
        connection: the pipeline's connection, for clusters that name none.
        starting: the pipeline's starting offsets.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: two streams say different things of one cluster or topic.
    """
    clusters: dict[str, ClusterAddress] = {}
    logs: dict[Log, MappedLog] = {}
    for stream_id, stream in sorted(streams.items()):
        for name, there in sorted(stream.clusters.items()):
            address = ClusterAddress(
                connection=there.connection or connection, bootstrap_servers=there.bootstrap_servers
            )
            if clusters.setdefault(name, address) != address:
                raise _contradiction("reach the cluster at different addresses", stream_id, name, table)
            for topic in there.topics:
                here = MappedLog(
                    _of_topic(topic, there.starting_offsets, stream.starting_offsets, starting) or {},
                    _of_topic(topic, there.stopping_offsets, stream.stopping_offsets),
                    (stream_id,),
                )
                known = logs.get((name, topic), here)
                if (known.starting, known.stopping) != (here.starting, here.stopping):
                    raise _contradiction("start or stop the topic at different offsets", stream_id, name, table, topic)
                logs[name, topic] = MappedLog(
                    here.starting, here.stopping, tuple(dict.fromkeys([*known.streams, stream_id]))
                )
    return StreamMapping(clusters, logs)


def _of_topic(topic: str, *settings: Offsets | None) -> OffsetsOfTopic | None:
    """What the first setting says of the topic that is made at all."""
    said = next((setting for setting in settings if setting is not None), None)
    return said.get(topic, {}) if isinstance(said, dict) else said


def _contradiction(what: str, stream: str, cluster: str, table: str, topic: str | None = None) -> ActionRequiredError:
    return ActionRequiredError(
        f"Two streams {what}.",
        next_step="make what the metadata service says of them the same; it is one cluster, and is read once.",
        table=table,
        stream=stream,
        cluster=cluster,
        topic=topic,
    )


class KnownLog(BaseModel):
    """A topic as the last commit knew it.

    Attributes:
        status: `active`: the mapping named it; `missed`: the mapping of that interval didn't name it any more, for the
            first time, and it was read on; `draining`: it is read to `ends`, and then left.
        ends: where reading each partition ends for good: where its log ended when the removal was confirmed, or what
            `stopping_offsets` came to in the interval that first read it.
        streams: the streams that it belonged to.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: Literal["active", "missed", "draining"] = "active"
    ends: dict[int, int] = Field(default_factory=dict)
    streams: tuple[str, ...] = ()


class KnownStreams(BaseModel):
    """The mapping by which the last commit was planned, as its note has it.

    Attributes:
        digest: of the mapping's answer.
        clusters: how each cluster was reached that had something to read.
        logs: by cluster and topic what was read.
        ids: the clusters' own ids by their names, as far as they have any.
        skipped: by cluster for how many intervals in a row that had anything to note it has not answered.
        failures: how many intervals in a row have gone on with this mapping because the service didn't answer.
        prefixes: by a cluster's own id, or by its name where it has none, what stands before its topics' names in rows.
            They outlive names: keys of an upsert are found by them. Empty for a cluster that the table was on before it
            was told of streams.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    digest: str = ""
    clusters: dict[str, ClusterAddress] = Field(default_factory=dict)
    logs: dict[str, dict[str, KnownLog]] = Field(default_factory=dict)
    ids: dict[str, str | None] = Field(default_factory=dict)
    skipped: dict[str, int] = Field(default_factory=dict)
    failures: int = 0
    prefixes: dict[str, str] = Field(default_factory=dict)

    def renamed(self, present: Mapping[str, str | None]) -> KnownStreams:
        """The same, with each cluster under the name that it has now, by its own id.

        Args:
            present: the ids of the mapping's clusters by their names.
        """
        names = present_names(self.ids, present, one_place=False)

        def now(of: Mapping[str, Any]) -> dict[str, Any]:
            return {names.get(name, name): said for name, said in of.items()}

        by_name = {what: getattr(self, what) for what in ("clusters", "logs", "ids", "skipped")}
        return self.model_copy(update={what: now(said) for what, said in by_name.items()})

    def named(self, present: Mapping[str, str | None], before: Checkpoint) -> KnownStreams:
        """The same, with a prefix for each cluster that has none yet.

        Args:
            present: the clusters' own ids by their present names.
            before: what the table knows, with each cluster under its present name. It is asked only where no mapping
                was known: what has positions then was read without streams.
        """
        prefixes = dict(self.prefixes)
        if not prefixes:
            loaded = {n: c for n, c in before.clusters.items() if any(topic.known for topic in c.topics.values())}
            prefixes = {present.get(name) or known.cluster_id or name: "" for name, known in loaded.items()}
        for name, cluster_id in sorted(present.items()):
            is_anothers = f"{name}/" in prefixes.values()
            prefixes.setdefault(cluster_id or name, f"{cluster_id}/" if is_anothers else f"{name}/")
        ids = {name: present.get(name, self.ids.get(name)) for name in self.logs}
        return self.model_copy(update={"prefixes": prefixes, "ids": ids})

    def row_topic(self, topic: str, cluster: str, cluster_id: str | None) -> str:
        """A topic's name in rows, which no other cluster's topic has."""
        return f"{self.prefixes[cluster_id or cluster]}{topic}"

    def differs_from(self, before: KnownStreams | None) -> bool:
        """Whether there is something to note of it even where no record is read."""
        if before is None or set(self.skipped) != set(before.skipped):
            return True
        return self.model_copy(update={"failures": before.failures, "skipped": before.skipped}) != before

    def skipping(self, clusters: Collection[str]) -> KnownStreams:
        """The same, without clusters that don't answer in this interval."""
        return self.model_copy(update={"skipped": {name: self.skipped.get(name, 0) + 1 for name in sorted(clusters)}})

    def topics(self, cluster: str) -> tuple[str, ...]:
        """The topics that are read of a cluster."""
        return tuple(sorted(self.logs.get(cluster, {})))

    def items(self) -> Iterable[tuple[Log, KnownLog]]:
        """Each topic with its cluster's name."""
        return (((cluster, topic), known) for cluster, topics in self.logs.items() for topic, known in topics.items())


@dataclass(frozen=True)
class Followed:
    """What an interval reads by a mapping and what the last commit knew.

    Attributes:
        known: what this interval's commit is to note.
        starting: where each topic starts if the table has never read it; topics that only drain are not among them.
        to_confirm: topics that the mapping has ceased to name, and of which `ends` has to say where their logs end.
        dropped: topics that are left with whatever of them is unread.
        remarks: what a person should see of it, one sentence for each change.
    """

    known: KnownStreams
    starting: Mapping[Log, MappedLog]
    to_confirm: frozenset[Log] = frozenset()
    dropped: frozenset[Log] = frozenset()
    remarks: tuple[str, ...] = ()

    @property
    def clusters(self) -> Mapping[str, ClusterAddress]:
        """How each cluster is reached that has something to read."""
        return self.known.clusters

    def topics(self, cluster: str) -> tuple[str, ...]:
        """The topics that are read of a cluster."""
        return self.known.topics(cluster)


def follow(known: KnownStreams | None, mapping: StreamMapping, on_removed: OnRemoved, table: str) -> Followed:
    """What to read now that the mapping is this one.

    A topic that the mapping has ceased to name is read on until a second interval's answer says so as well: services
    lose streams for a moment and have them again (FLINK-39837). Then it is drained up to where its log ends at that
    time, or left, or the run fails, as `on_removed` says. Its position stays in the table's checkpoint in any case, so
    that it goes on there if it is mapped again.

    Args:
        known: the mapping of the last commit; None before the first.
        mapping: the metadata service's answer.
        on_removed: what to do with unread records of what was removed.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: a topic was removed, and `on_removed` is `fail`.
    """
    before = known or KnownStreams()
    logs: dict[str, dict[str, KnownLog]] = {}
    remarks = []
    for (cluster, topic), mapped in sorted(mapping.logs.items(), key=lambda item: item[0]):
        seen = before.logs.get(cluster, {}).get(topic)
        stays = seen is not None and seen.status != "draining" and mapped.stopping == "latest"
        logs.setdefault(cluster, {})[topic] = KnownLog(
            streams=mapped.streams, ends=seen.ends if seen is not None and stays else _ends_of(mapped)
        )
    clusters = dict(mapping.clusters)
    to_confirm, dropped = set(), set()
    for (cluster, topic), was in sorted(before.items(), key=lambda item: item[0]):
        if (cluster, topic) in mapping.logs:
            continue
        name = f"{topic} of cluster {cluster}"
        if was.status == "active":
            now = was.model_copy(update={"status": "missed"})
            remarks.append(f"{name} isn't in the mapping any more; it is read on until the next answer says so, too")
        elif was.status == "draining":
            now = was
        elif on_removed == "fail":
            raise ActionRequiredError(
                "A topic was removed from the mapping, and on_removed is fail.",
                next_step="map it again, or set the source's `on_removed` to drain or drop.",
                table=table,
                cluster=cluster,
                topic=topic,
            )
        elif on_removed == "drop":
            dropped.add((cluster, topic))
            remarks.append(f"{name} was removed from the mapping; what is unread of it is left (on_removed: drop)")
            continue
        else:
            now = was.model_copy(update={"status": "draining"})
            to_confirm.add((cluster, topic))
            remarks.append(f"{name} was removed from the mapping; it is read up to where its log ends now")
        logs.setdefault(cluster, {})[topic] = now
        clusters.setdefault(cluster, before.clusters[cluster])
    return Followed(
        before.model_copy(update={"digest": mapping.digest, "clusters": clusters, "logs": logs, "failures": 0}),
        mapping.logs,
        frozenset(to_confirm),
        frozenset(dropped),
        tuple(remarks),
    )


def _ends_of(mapped: MappedLog) -> dict[int, int]:
    return dict(mapped.stopping) if isinstance(mapped.stopping, Mapping) else {}


def bounded(followed: Followed, state: ClusterState, checkpoint: Checkpoint) -> tuple[Followed, ClusterState]:
    """The same, up to where topics are read that end.

    Args:
        followed: what the interval reads.
        state: what the clusters say.
        checkpoint: where the table stands, with each cluster under its present name.

    Returns:
        With the ends that are found now, without topics that are drained; and each partition's window up to its end.
    """
    of_log: dict[Log, list[PartitionBounds]] = {}
    for bounds in state.partitions:
        of_log.setdefault((bounds.topic_partition.cluster, bounds.topic_partition.topic), []).append(bounds)
    unknown = {(tp.cluster, tp.topic) for tp in state.leaderless}
    unknown |= {log for log, _ in followed.known.items() if log[0] in state.skipped}
    logs: dict[str, dict[str, KnownLog]] = {}
    ends: dict[TopicPartition, int] = {}
    remarks = list(followed.remarks)
    for log, known in followed.known.items():
        here = of_log.get(log, [])
        mapped = followed.starting.get(log)
        if log in followed.to_confirm and log in unknown:
            known = known.model_copy(update={"status": "missed"})  # confirmed once all of it can be asked
        elif log in followed.to_confirm or (here and mapped and mapped.stopping == "latest" and not known.ends):
            known = known.model_copy(update={"ends": {b.topic_partition.partition: b.log_end for b in here}})
        found = {TopicPartition(*log, partition): end for partition, end in known.ends.items()}
        if known.status == "draining" and log not in unknown and all(_is_read(b, found, checkpoint) for b in here):
            remarks.append(f"{log[1]} of cluster {log[0]} is drained, and is not read any more")
            continue
        ends |= found
        logs.setdefault(log[0], {})[log[1]] = known
    clusters = {name: address for name, address in followed.known.clusters.items() if name in logs}
    partitions = [_up_to(b, ends.get(b.topic_partition)) for b in state.partitions]
    ids = {name: cluster_id for name, cluster_id in followed.known.ids.items() if name in logs}
    known_now = followed.known.model_copy(update={"logs": logs, "clusters": clusters, "ids": ids})
    return replace(followed, known=known_now, remarks=tuple(remarks)), replace(state, partitions=partitions)


def _is_read(bounds: PartitionBounds, ends: Mapping[TopicPartition, int], checkpoint: Checkpoint) -> bool:
    end = ends.get(bounds.topic_partition, bounds.log_end)
    position = checkpoint.next_offset(bounds.topic_partition)
    return max(bounds.log_start, bounds.log_start if position is None else position) >= end


def _up_to(bounds: PartitionBounds, end: int | None) -> PartitionBounds:
    return bounds if end is None else replace(bounds, window_end=min(bounds.window_end, max(end, bounds.log_start)))


def refuse_two_names(present: Mapping[str, str | None], table: str) -> None:
    """Refuse a mapping that has one cluster under two names: its records would be read twice.

    Args:
        present: the clusters' own ids by the mapping's names.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: it has.
    """
    names: dict[str, str] = {}
    for name, cluster_id in sorted(present.items()):
        if cluster_id and names.setdefault(cluster_id, name) != name:
            raise ActionRequiredError(
                f"The mapping has one cluster under two names, {names[cluster_id]} and {name}.",
                next_step="give it one name in what the metadata service says; nothing was begun.",
                table=table,
                cluster_id=cluster_id,
            )


def refuse_lost_address(known: KnownStreams, present: Mapping[str, str | None], table: str) -> None:
    """Refuse to drain a cluster that is not where it was any more.

    Args:
        known: the mapping of the last commit.
        present: the own ids of clusters that the mapping has ceased to name, by their names.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: another cluster is there.
    """
    for name, cluster_id in present.items():
        if known.ids.get(name) and cluster_id and known.ids[name] != cluster_id:
            raise ActionRequiredError(
                "A cluster that the mapping has ceased to name, and that is to be read to its end, isn't where it was.",
                next_step="have its connection lead to it again, or set the source's `on_removed` to drop for one run.",
                table=table,
                cluster=name,
                connection=known.clusters[name].connection,
                found=cluster_id,
            )


def refuse_shared_names(known: KnownStreams, table: str) -> None:
    """Refuse to read topics that have the same name in rows: a table that was moved once has rows of two clusters.

    Args:
        known: with the clusters' ids and prefixes.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: two clusters have such topics.
    """
    names: dict[str, str] = {}
    for (cluster, topic), _ in known.items():
        if (known.ids.get(cluster) or cluster) not in known.prefixes:
            continue  # it doesn't answer, so nothing of it is read
        name = known.row_topic(topic, cluster, known.ids.get(cluster))
        if names.setdefault(name, cluster) != cluster:
            raise ActionRequiredError(
                f"The table has rows of the topic {topic} from two clusters, {names[name]} and {cluster}, which it "
                "can't tell apart.",
                next_step="load the streams into a new table.",
                table=table,
                topic=topic,
            )


def refuse_unknown_ids(checkpoint: Checkpoint, present: Collection[str], table: str) -> None:
    """Refuse to follow streams where it can't be told on which cluster the table's positions are.

    Args:
        checkpoint: what the table knows, with each cluster under its present name.
        present: the names that clusters have now.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: a cluster that no mapping names has positions and no id, so it may be any of those.
    """
    for name, known in checkpoint.clusters.items():
        if name not in present and known.cluster_id is None and any(topic.known for topic in known.topics.values()):
            raise ActionRequiredError(
                "It isn't known which cluster the table was loaded from, so it can't be told among those of the "
                "mapping.",
                next_step=f"run one interval of the same topics without `streams`, which notes the cluster's id; or "
                f"call the cluster {name} in the mapping.",
                table=table,
                cluster=name,
            )


def follow_without_answer(known: KnownStreams | None, most: int, reason: str, table: str) -> Followed:
    """What to read while the metadata service doesn't answer: what the last commit knew, for so many intervals.

    Args:
        known: the mapping of the last commit; None before the first.
        most: for how many intervals in a row that may be.
        reason: why there is no answer.
        table: the table's name, for errors.

    Raises:
        RetryableError: there is no such mapping, or it has served for as many intervals as it may.
    """
    if known is None or not known.digest or known.failures >= most:
        served = (
            f"; the last answer has served {known.failures} intervals" if known is not None and known.failures else ""
        )
        raise RetryableError(
            f"The metadata service didn't say where the streams are{served}.",
            next_step="look at the service; the step is retried. The source's `metadata_failures` says how many "
            "intervals may go on with the last answer.",
            table=table,
            reason=reason,
        )
    again = known.model_copy(update={"failures": known.failures + 1})
    remark = f"the metadata service doesn't answer ({reason}); this is interval {again.failures} with its last answer"
    return Followed(again, {}, remarks=(remark,))


def require_streams(asked: Collection[str], answered: Collection[str], table: str) -> None:
    """Check that the service knows every stream that the pipeline names: one that is missing isn't one without records.

    Raises:
        ActionRequiredError: it doesn't know one.
    """
    missing = sorted(set(asked) - set(answered))
    if missing:
        raise ActionRequiredError(
            f"The metadata service doesn't know the streams {', '.join(missing)}.",
            next_step="add them to what the service says, with no clusters if they have no records, or take them out "
            "of the source's `streams`.",
            table=table,
        )
