"""A consumer group's committed offsets, for a pipeline that replaces it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import AdminClient

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import classify, kafka_errors

_TIMEOUT = 15.0
_GONE = (ConsumerGroupState.DEAD, ConsumerGroupState.EMPTY)


@dataclass(frozen=True)
class GroupOffsets:
    """A consumer group's committed offsets.

    Attributes:
        offsets: the next offset of each partition with a commit, by topic.
        without: the partitions without one, by topic.
    """

    offsets: Mapping[str, Mapping[int, int]]
    without: Mapping[str, tuple[int, ...]]


def group_offsets(settings: KafkaSettings, group: str, topics: tuple[str, ...], pattern: str | None) -> GroupOffsets:
    """The committed offsets of a group without members.

    Args:
        settings: the cluster.
        group: the group's id.
        topics: the topics to query; a missing one has no offsets.
        pattern: a regular expression for whole names, instead of `topics`.

    Raises:
        ActionRequiredError: the group has members still, has no commits, or may not be read.
        RetryableError: the cluster doesn't answer, or the group is about to change.
    """
    where = {"connection": settings.name, "group": group}
    with kafka_errors("asking for a consumer group", **where):
        admin = AdminClient(settings.client())
        _require_left(admin, group, where)
        asked = ConsumerGroupTopicPartitions(group)
        found = admin.list_consumer_group_offsets([asked], request_timeout=_TIMEOUT)[group].result()
        known = admin.list_topics(timeout=_TIMEOUT).topics
    committed: dict[str, dict[int, int]] = {}
    for one in found.topic_partitions:
        if one.error is not None:
            raise classify(one.error, "asking for a consumer group's offsets", **where, topic=one.topic)
        if one.offset >= 0:
            committed.setdefault(one.topic, {})[one.partition] = one.offset
    wanted = [name for name in sorted(known) if _matches(name, topics, pattern)]
    offsets = {name: dict(sorted(committed[name].items())) for name in wanted if name in committed}
    if not offsets:
        raise ActionRequiredError(
            "The consumer group has no committed offsets of these topics.",
            next_step="check the connector's name and the cluster, or import it without --offsets.",
            **where,
            topics=", ".join(topics) or pattern,
        )
    without = {
        name: missing
        for name in wanted
        if (missing := tuple(p for p in sorted(known[name].partitions) if p not in committed.get(name, {})))
    }
    return GroupOffsets(offsets, without)


def _require_left(admin: AdminClient, group: str, where: Mapping[str, str]) -> None:
    """Check that the group has no members: while it has, its offsets move."""
    try:
        described = admin.describe_consumer_groups([group], request_timeout=_TIMEOUT)[group].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return
        raise
    if described.members:
        raise ActionRequiredError(
            f"The consumer group has {len(described.members)} members still, and its offsets move.",
            next_step="stop the connector for good, and try again.",
            **where,
        )
    if described.state not in _GONE:
        raise RetryableError(
            f"The consumer group is {described.state.name.lower()}.", next_step="try again in a moment.", **where
        )


def _matches(name: str, topics: tuple[str, ...], pattern: str | None) -> bool:
    return name in topics if pattern is None else re.fullmatch(pattern, name) is not None
