"""Logical streams over several clusters: where their records are, and how an interval follows a mapping that changed.

FLIP-246 has a metadata service that maps a stream to clusters and topics, and lets the mapping change while a job runs.
Here an interval is planned anew each time, so the mapping is asked for once, by START, and stands in START-COMMIT and
in the commit. What changed is the difference from the mapping of the last commit. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sluice.errors import ActionRequiredError, RetryableError

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
        ends: where each partition's log ended when the removal was confirmed.
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
        failures: how many intervals in a row have gone on with this mapping because the service didn't answer.
        unreachable: by cluster for how many intervals in a row it has been skipped.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    digest: str = ""
    clusters: dict[str, ClusterAddress] = Field(default_factory=dict)
    logs: dict[str, dict[str, KnownLog]] = Field(default_factory=dict)
    failures: int = 0
    unreachable: dict[str, int] = Field(default_factory=dict)

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
        return tuple(sorted(self.known.logs.get(cluster, {})))


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
        logs.setdefault(cluster, {})[topic] = KnownLog(streams=mapped.streams)
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
        KnownStreams(digest=mapping.digest, clusters=clusters, logs=logs, unreachable=before.unreachable),
        mapping.logs,
        frozenset(to_confirm),
        frozenset(dropped),
        tuple(remarks),
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
