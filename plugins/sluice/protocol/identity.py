"""Whether a log is still the one that a table's offsets refer to, by Kafka's ids of cluster and topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sluice.errors import ActionRequiredError, IntervalError
from sluice.locations import location
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, TopicPartition
from sluice.protocol.policy import IntervalKind, policy_of
from sluice.protocol.topic_id import known_topic_id

Topic = tuple[str, str]
"""A topic, qualified by its cluster's name."""


@dataclass(frozen=True)
class LogId:
    """Kafka's ids of a topic and its cluster, which identify an offset's log. None if unknown."""

    cluster: str | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "topic", known_topic_id(self.topic))

    def other_than(self, now: LogId) -> str | None:
        """Why the present log is another one; None if nothing indicates that.

        An unknown id indicates nothing: brokers before 2.8 have no topic ids.
        """
        if self.cluster and now.cluster and self.cluster != now.cluster:
            return f"the connection now leads to another cluster ({now.cluster}, was {self.cluster})"
        if self.topic and now.topic and self.topic != now.topic:
            return "the topic was deleted and created again"
        return None


@dataclass(frozen=True)
class LogIds:
    """Kafka's present ids of clusters and topics; None if a broker is too old to have them."""

    clusters: Mapping[str, str | None]
    topics: Mapping[Topic, str | None]

    @classmethod
    def of_topics(cls, clusters: Mapping[str, str | None], topics: Mapping[str, Mapping[str, str | None]]) -> LogIds:
        """The ids of topics that are given by cluster."""
        found = {(cluster, topic): known_topic_id(id_) for cluster, of in topics.items() for topic, id_ in of.items()}
        return cls(clusters, found)

    def of(self, cluster: str, topic: str) -> LogId:
        """The ids of one topic's log."""
        return LogId(self.clusters.get(cluster), self.topics.get((cluster, topic)))


def under_present_names(
    checkpoint: Checkpoint, present: Mapping[str, str | None], *, one_place: bool = True
) -> Checkpoint:
    """The table's checkpoint, with each cluster under its present name.

    A name is the id of an Airflow connection, which may be changed, or lead elsewhere; Kafka's own id identifies the
    cluster. Where only one cluster is known and only one is read, these are assumed to be the same even if their ids
    differ: `other_logs` then finds that its offsets refer to other records.

    Args:
        checkpoint: the table's.
        present: the clusters' ids by their names; None where a source has no id.
        one_place: whether one known cluster and one that is read are assumed to be the same, which isn't so for
            streams.
    """
    names = present_names(checkpoint.cluster_ids, present, one_place=one_place)
    if all(name == now for name, now in names.items()):
        return checkpoint
    clusters: dict[str, ClusterCheckpoint] = {}
    # A name's own topics come last, so that they win over the same cluster's topics under an earlier name.
    for name, known in sorted(checkpoint.clusters.items(), key=lambda item: names[item[0]] == item[0]):
        before = clusters.get(names[name], ClusterCheckpoint())
        topics = {**before.topics, **known.topics}
        clusters[names[name]] = ClusterCheckpoint(cluster_id=known.cluster_id or before.cluster_id, topics=topics)
    return checkpoint.model_copy(update={"clusters": clusters})


def present_names(
    known: Mapping[str, str | None], present: Mapping[str, str | None], *, one_place: bool = True
) -> dict[str, str]:
    """The present name for each name that a cluster had; see `under_present_names`.

    Args:
        known: the clusters' ids by the names that they had.
        present: their ids by the names that they have now.
        one_place: see `under_present_names`.
    """
    places = [name for name, cluster_id in known.items() if name != cluster_id]  # except for clusters that were left
    if one_place and len(places) == len(present) == 1 and not known.keys() & set(present.values()):
        return {name: name for name in known} | dict(zip(places, present, strict=True))
    of_id = {cluster_id: name for name, cluster_id in present.items() if cluster_id}
    names = {name: of_id.get(cluster_id or "", name) for name, cluster_id in known.items()}
    for name, cluster_id in known.items():
        is_anothers = any(now == name != before for before, now in names.items())
        if names[name] == name and is_anothers and cluster_id != present[name]:
            names[name] = cluster_id or f"{name} (before)"  # its name is another cluster's now
    return names


def log_known_by(checkpoint: Checkpoint, cluster: str, topic: str) -> LogId:
    """The log of a topic to which a checkpoint's offsets refer."""
    known = checkpoint.topic(cluster, topic)
    return LogId(checkpoint.clusters[cluster].cluster_id, known.topic_id) if known is not None else LogId()


def other_logs(checkpoint: Checkpoint, now: LogIds) -> dict[Topic, str]:
    """The topics whose log is not the checkpoint's any more, each with the reason."""
    found = {}
    for cluster, topic in now.topics:
        known = checkpoint.topic(cluster, topic)
        if known is None or not known.known:
            continue
        reason = log_known_by(checkpoint, cluster, topic).other_than(now.of(cluster, topic))
        if reason is not None:
            found[cluster, topic] = reason
    return found


def refuse_other_spelling(known_as: str | None, name: str) -> None:
    """Refuse a table's path in another spelling than that of its last commit.

    The path is the table's name in the control topic: under another spelling its open intervals aren't seen.

    Args:
        known_as: the table's name at its last commit; None where that isn't known.
        name: its name now.

    Raises:
        ActionRequiredError: both name one place.
    """
    if known_as is None or known_as == name or location(known_as) != location(name):
        return
    raise ActionRequiredError(
        "The table's path is spelled differently than at its last commit, so that it would be another table in the "
        "control topic.",
        next_step="write the path in the pipeline file as it was written before.",
        table=name,
        before=known_as,
    )


def renamed(known_as: str | None, name: str) -> tuple[str, ...]:
    """A sentence for people where the table had another name at its last commit; none where it had this one.

    Args:
        known_as: the table's name at its last commit; None where that isn't known.
        name: its name now.
    """
    if known_as is None or known_as == name:
        return ()
    return (
        f"the table's last commit was made under the name {known_as}: intervals that are open under it aren't looked "
        "at, so no pipeline may use that name for this table any more",
    )


def refuse_logs_elsewhere(
    planned: LogIds, cluster: str, here: Mapping[str, LogId], *, table: str, instant: str
) -> None:
    """Refuse to read topics that aren't the ones on which an interval was planned.

    Args:
        planned: the ids in the interval's START-COMMIT.
        cluster: the cluster's name there.
        here: the ids of each topic's log, as seen by its reader.
        table: the table's name, for errors.
        instant: the interval's instant, for errors.

    Raises:
        ActionRequiredError: a topic's cluster is another one.
        IntervalError: a topic was deleted and created again.
    """
    for topic, found in here.items():
        was = planned.of(cluster, topic)
        reason = was.other_than(found)
        if reason is None:
            continue
        where = {"table": table, "cluster": cluster, "topic": topic, "instant": instant}
        if was.cluster and found.cluster and was.cluster != found.cluster:
            raise ActionRequiredError(
                "The interval was planned on another cluster than the one that its records would be read of here.",
                next_step="give write jobs and workers the connection that the coordinator has, and run the interval "
                "again. Nothing was read.",
                planned=was.cluster,
                here=found.cluster,
                **where,
            )
        raise IntervalError(
            f"{reason[0].upper()}{reason[1:]} since the interval was planned.",
            next_step="nothing was read; the next interval reports the loss and obeys on_offset_loss.",
            **where,
        )


def refuse_other_logs(
    kind: IntervalKind, checkpoint: Checkpoint, now: LogIds, table: str, topics: Collection[Topic] | None = None
) -> None:
    """Refuse a request by offsets if they now refer to other records.

    Args:
        kind: the kind of request.
        checkpoint: the known ids of the log to which the request's offsets refer.
        now: the present ids.
        table: the table's name, for errors.
        topics: the request's topics; all by default.

    Raises:
        ActionRequiredError: the request depends on offsets of another log, and may not resume after a loss.
    """
    policy = policy_of(kind)
    if policy.may_resume_losses or not policy.rests_on_offsets:
        return
    for topic, reason in other_logs(checkpoint, now).items():
        if topics is None or topic in topics:
            raise ActionRequiredError(
                f"The offsets that are asked for are of another log: {reason}.",
                next_step=policy.instead,
                table=table,
                cluster=topic[0],
                topic=topic[1],
                kind=kind,
            )


def refuse_truncated_logs(kind: IntervalKind, truncated: Mapping[TopicPartition, int], table: str) -> None:
    """Refuse a request by offsets of a log that was truncated below the table's position.

    Raises:
        ActionRequiredError: the request depends on offsets, and may not resume after a loss.
    """
    policy = policy_of(kind)
    if policy.may_resume_losses or not policy.rests_on_offsets:
        return
    for tp, at in sorted(truncated.items()):
        raise ActionRequiredError(
            f"The offsets that the table knows mean other records now: the log was truncated at {at}.",
            next_step=policy.instead,
            table=table,
            **tp._asdict(),
            kind=kind,
        )
