"""A metadata service's answer: the clusters and topics of streams, and where these were moved from.

FLIP-246 has a metadata service that maps a stream to clusters and topics. A setting of a cluster wins over its
stream's, and that over the pipeline's. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from sluice.errors import ActionRequiredError
from sluice.sections import Duration
from sluice.untrusted import Untrusted

Offsets = Literal["earliest", "latest"] | dict[str, dict[int, int]]
"""Where a topic starts or stops: an end of its log, or offsets as {topic: {partition: offset}}."""
OffsetsOfTopic = Literal["earliest", "latest"] | Mapping[int, int]
"""The same for one topic, by partition."""
Mirror = Literal["none", "mirror_maker"]
"""How records of a topic that moves come to where it moves to: not at all, or by Kafka's MirrorMaker 2."""
Log = tuple[str, str]
"""A topic of a cluster: the cluster's name and the topic's."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MovedFrom(_Frozen):
    """The previous logs of a stream's topics on a cluster, from which the next interval continues.

    Attributes:
        cluster: the name of the cluster that they are moved from; the mapping must not have them there any more.
        topics: the old name by the new one, for topics that are renamed.
        mirror: `none`: producers were switched over, and earlier records stay in the old topics. `mirror_maker`:
            MirrorMaker 2 copies all records, before the move and after it.
        drain_for: without a mirror: for how long the old topics are read on after the interval that begins the move.
        copies_only: whether the new topics have only copies before the move, since producers are switched over after
            it. Then records that the mirror has copied twice do no harm.
        offset_syncs: MirrorMaker's topic of corresponding offsets; by default that of a target named like this cluster,
            `mm2-offset-syncs.<cluster>.internal`.
        offset_syncs_location: that topic's cluster, by MirrorMaker's `offset-syncs.topic.location`.
    """

    cluster: str
    topics: dict[str, str] = {}
    mirror: Mirror = "none"
    drain_for: Duration | None = None
    copies_only: bool = False
    offset_syncs: str | None = None
    offset_syncs_location: Literal["source", "target"] = "source"

    @model_validator(mode="after")
    def _of_its_mirror(self) -> MovedFrom:
        if self.mirror == "none" and self.offset_syncs is not None:
            raise ValueError("`offset_syncs` is for mirror: mirror_maker")
        if self.mirror != "none" and self.drain_for is not None:
            raise ValueError("`drain_for` is for mirror: none; with a mirror the old topic is left at an exact offset")
        return self


class StreamCluster(_Frozen):
    """A stream's topics on one cluster.

    Attributes:
        topics: the topics, at least one.
        connection: id of the Airflow connection of type kafka; the pipeline's `connection` by default.
        bootstrap_servers: the cluster's address, instead of the connection's.
        registry: id of the Airflow connection of type http to the schema registry that knows the ids in its records; by
            default the stream's, then those of the pipeline's `value` and `key`.
        starting_offsets: where a topic starts that the table has never read; by default the stream's, then the
            pipeline's.
        stopping_offsets: where reading ends for good: `latest` is the log's end in the interval that first reads it.
        moved_from: where the topics were until now.
    """

    topics: Annotated[tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]
    connection: str | None = None
    bootstrap_servers: str | None = None
    registry: Annotated[str, Field(min_length=1)] | None = None
    starting_offsets: Offsets | None = None
    stopping_offsets: Literal["latest"] | dict[str, dict[int, int]] | None = None
    moved_from: MovedFrom | None = None

    @model_validator(mode="after")
    def _has_topics(self) -> StreamCluster:
        if not self.topics:
            raise ValueError("name the `topics` of the cluster; leave the cluster out where the stream has none on it")
        if self.moved_from is not None and set(self.moved_from.topics) - set(self.topics):
            raise ValueError("`moved_from.topics` has the old names by the new ones, which are among `topics`")
        return self


class Stream(_Frozen):
    """One logical stream: its topics by cluster. Without clusters it has no records now."""

    clusters: dict[str, StreamCluster]
    registry: Annotated[str, Field(min_length=1)] | None = None
    starting_offsets: Offsets | None = None
    stopping_offsets: Literal["latest"] | dict[str, dict[int, int]] | None = None


class ClusterAddress(Untrusted):
    """A cluster's address, and the schema registry of its records.

    Attributes:
        connection: id of the Airflow connection of type kafka.
        bootstrap_servers: an address of the mapping's own, in place of the connection's.
        registry: id of the Airflow connection to the cluster's own schema registry; None for those of the pipeline.
    """

    connection: str
    bootstrap_servers: str | None = None
    registry: str | None = None

    @model_serializer(mode="wrap")
    def _without_what_is_not_said(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A mapping that names no registry is written, and has the digest, as before there were any."""
        said: dict[str, Any] = plain(self)
        return {name: value for name, value in said.items() if name != "registry" or value is not None}


@dataclass(frozen=True)
class ClusterTopics:
    """The topics to read from one cluster, and its schema registry.

    Attributes:
        cluster: the cluster's name.
        topics: the topics that are read.
        registry: id of the Airflow connection to the cluster's own schema registry; None for those of the pipeline.
    """

    cluster: str
    topics: tuple[str, ...]
    registry: str | None = None


def topics_of(clusters: Iterable[ClusterTopics]) -> tuple[str, ...]:
    """The names of all topics, whichever clusters they are on."""
    return tuple(dict.fromkeys(topic for one in clusters for topic in one.topics))


@dataclass(frozen=True)
class Move:
    """A topic's move from another log, by the mapping.

    Attributes:
        old: the old log.
        mirror: how its records get to the new log.
        drain_for: for how long the old log is still read; None up to its end.
        syncs: the cluster and the topic of the mirror's corresponding offsets.
        copies_only: whether the new log has only copies so far.
    """

    old: Log
    mirror: Mirror = "none"
    drain_for: timedelta | None = None
    syncs: Log | None = None
    copies_only: bool = False


@dataclass(frozen=True)
class MappedLog:
    """A topic that a mapping names.

    Attributes:
        starting: its starting offsets if the table has never read it, by partition or for all of them.
        stopping: its last offsets to read; None without a limit.
        streams: the streams that it belongs to.
        move: its move from another log; None if it wasn't moved.
    """

    starting: OffsetsOfTopic
    stopping: OffsetsOfTopic | None = None
    streams: tuple[str, ...] = ()
    move: Move | None = None

    @property
    def ends(self) -> dict[int, int]:
        """Its last offsets to read that are given as such, by partition."""
        return dict(self.stopping) if isinstance(self.stopping, Mapping) else {}


@dataclass(frozen=True)
class StreamMapping:
    """The metadata service's present answer: the clusters by name, and each topic to read.

    Attributes:
        clusters: each cluster's address.
        logs: the topics to read.
    """

    clusters: Mapping[str, ClusterAddress] = field(default_factory=dict)
    logs: Mapping[Log, MappedLog] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A hash of the whole answer, by which two answers are compared."""
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
                connection=there.connection or connection,
                bootstrap_servers=there.bootstrap_servers,
                registry=there.registry or stream.registry,
            )
            known_address = clusters.setdefault(name, address)
            if known_address.registry != address.registry:
                raise _contradiction("name different schema registries for the cluster", stream_id, name, table)
            if known_address != address:
                raise _contradiction("reach the cluster at different addresses", stream_id, name, table)
            for topic in there.topics:
                here = MappedLog(
                    _of_topic(topic, there.starting_offsets, stream.starting_offsets, starting) or {},
                    _of_topic(topic, there.stopping_offsets, stream.stopping_offsets),
                    (stream_id,),
                    _move(name, topic, there.moved_from),
                )
                known = logs.get((name, topic), here)
                if (known.starting, known.stopping) != (here.starting, here.stopping):
                    raise _contradiction("start or stop the topic at different offsets", stream_id, name, table, topic)
                if known.move != here.move:
                    raise _contradiction("move the topic from different places", stream_id, name, table, topic)
                logs[name, topic] = replace(here, streams=tuple(dict.fromkeys([*known.streams, stream_id])))
    _refuse_crossed_moves(logs, table)
    return StreamMapping(clusters, logs)


def _move(cluster: str, topic: str, said: MovedFrom | None) -> Move | None:
    if said is None:
        return None
    old = said.cluster, said.topics.get(topic, topic)
    if said.mirror == "none":
        return Move(old, drain_for=said.drain_for)
    has_syncs = said.cluster if said.offset_syncs_location == "source" else cluster
    syncs = has_syncs, said.offset_syncs or f"mm2-offset-syncs.{cluster}.internal"
    return Move(old, said.mirror, syncs=syncs, copies_only=said.copies_only)


def _refuse_crossed_moves(logs: Mapping[Log, MappedLog], table: str) -> None:
    """Refuse a topic that is also read from its old log, and two topics moved from the same old log."""
    moved: dict[Log, Log] = {}
    for new, mapped in sorted(logs.items(), key=lambda item: item[0]):
        if mapped.move is None:
            continue
        if mapped.move.old in logs or moved.setdefault(mapped.move.old, new) != new:
            raise ActionRequiredError(
                "A topic is mapped twice: it was moved away, and is still mapped, or is moved to two places.",
                next_step="take it out of the cluster that it is moved away from, in all streams, and move it to one.",
                table=table,
                cluster=mapped.move.old[0],
                topic=mapped.move.old[1],
                moved_to=" of cluster ".join(reversed(new)),
            )


def _of_topic(topic: str, *settings: Offsets | None) -> OffsetsOfTopic | None:
    """A topic's offsets by the first setting that is given."""
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


def require_streams(asked: Collection[str], answered: Collection[str], table: str) -> None:
    """Check that the service knows every stream that the pipeline names: a missing stream isn't an empty one.

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
