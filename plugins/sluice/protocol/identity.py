"""Whether the log is still the one that a table's offsets are of: by Kafka's own ids of cluster and topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.policy import IntervalKind, policy_of

Topic = tuple[str, str]
"""A topic, qualified by its cluster's name."""


@dataclass(frozen=True)
class LogIds:
    """Kafka's own ids of clusters and topics, as they are now; None where a broker is too old to give them."""

    clusters: Mapping[str, str | None]
    topics: Mapping[Topic, str | None]


def other_logs(checkpoint: Checkpoint, now: LogIds) -> dict[Topic, str]:
    """The topics whose log is another one than the checkpoint knows of, each with why.

    Where one of two ids isn't known nothing is said: brokers before 2.8 give none.
    """
    found = {}
    for (cluster, topic), topic_id in now.topics.items():
        known = checkpoint.topic(cluster, topic)
        if known is None or not known.known:
            continue
        cluster_id, known_cluster = now.clusters.get(cluster), checkpoint.clusters[cluster].cluster_id
        if known_cluster and cluster_id and known_cluster != cluster_id:
            found[cluster, topic] = f"the connection now leads to another cluster ({cluster_id}, was {known_cluster})"
        elif known.is_another(topic_id):
            found[cluster, topic] = "the topic was deleted and created again"
    return found


def refuse_other_logs(
    kind: IntervalKind, checkpoint: Checkpoint, now: LogIds, table: str, topics: Collection[Topic] | None = None
) -> None:
    """Refuse a request by offsets that mean other records now.

    Args:
        kind: what is asked for.
        checkpoint: what is known of the log that the request's offsets are of.
        now: what the clusters say.
        table: the table's name, for errors.
        topics: those that the request is about; all of them where it isn't given.

    Raises:
        ActionRequiredError: the request rests on offsets of another log, and may not resume a loss.
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
                topic=topic[1],
                kind=kind,
            )


def refuse_truncated_logs(kind: IntervalKind, truncated: Mapping[TopicPartition, int], table: str) -> None:
    """Refuse a request by offsets of a log that was cut off under what the table knows of it.

    Raises:
        ActionRequiredError: the request rests on offsets, and may not resume a loss.
    """
    policy = policy_of(kind)
    if policy.may_resume_losses or not policy.rests_on_offsets:
        return
    for tp, at in sorted(truncated.items()):
        raise ActionRequiredError(
            f"The offsets that the table knows mean other records now: the log was truncated at {at}.",
            next_step=policy.instead,
            table=table,
            topic=tp.topic,
            partition=tp.partition,
            kind=kind,
        )
