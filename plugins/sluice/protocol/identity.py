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
class LogId:
    """Kafka's own ids of a topic and of its cluster: which log an offset is of. None where one isn't known."""

    cluster: str | None = None
    topic: str | None = None

    def other_than(self, now: LogId) -> str | None:
        """Why the log that is there now is another one; None where nothing says so.

        Where one of two ids isn't known nothing is said: brokers before 2.8 give none.
        """
        if self.cluster and now.cluster and self.cluster != now.cluster:
            return f"the connection now leads to another cluster ({now.cluster}, was {self.cluster})"
        if self.topic and now.topic and self.topic != now.topic:
            return "the topic was deleted and created again"
        return None


@dataclass(frozen=True)
class LogIds:
    """Kafka's own ids of clusters and topics, as they are now; None where a broker is too old to give them."""

    clusters: Mapping[str, str | None]
    topics: Mapping[Topic, str | None]

    def of(self, cluster: str, topic: str) -> LogId:
        """The ids of one topic's log."""
        return LogId(self.clusters.get(cluster), self.topics.get((cluster, topic)))


def log_known_by(checkpoint: Checkpoint, cluster: str, topic: str) -> LogId:
    """The log of a topic that a checkpoint knows offsets of."""
    known = checkpoint.topic(cluster, topic)
    return LogId(checkpoint.clusters[cluster].cluster_id, known.topic_id) if known is not None else LogId()


def other_logs(checkpoint: Checkpoint, now: LogIds) -> dict[Topic, str]:
    """The topics whose log is another one than the checkpoint knows of, each with why."""
    found = {}
    for cluster, topic in now.topics:
        known = checkpoint.topic(cluster, topic)
        if known is None or not known.known:
            continue
        reason = log_known_by(checkpoint, cluster, topic).other_than(now.of(cluster, topic))
        if reason is not None:
            found[cluster, topic] = reason
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
