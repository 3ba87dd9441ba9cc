"""Detects whether a topic is still the one that was written to, or was deleted and created again. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

NotedLife = tuple[str | None, int]
"""A topic's id and number of partitions, as noted in the sink's log."""


@dataclass(frozen=True)
class TopicLife:
    """A topic's identity, from its creation to its deletion.

    Attributes:
        id: Kafka's id of the topic, which changes if the topic is deleted and created again; None if the broker has
            no topic ids.
        partitions: the number of its partitions.
    """

    id: str | None
    partitions: int

    @property
    def noted(self) -> NotedLife:
        """The identity as noted in the sink's log."""
        return (self.id, self.partitions)


def changes_of(
    known: Mapping[str, NotedLife], now: Mapping[str, TopicLife], topics: Collection[str], by_key: Collection[str]
) -> Iterator[str]:
    """The changes of topics since they were last written to, in words.

    Args:
        known: the log's note of each topic, by name.
        now: the topics that exist.
        topics: the topics to write to.
        by_key: topics in which a key's last record counts and the key determines the partition: after a change of the
            number of partitions a key may get another partition, and its old record stays in the earlier one.
    """
    for topic in topics:
        if topic not in known:
            continue
        life, noted = now.get(topic), TopicLife(*known[topic])
        if life is None:
            yield f"{topic} was deleted"
        elif life.id != noted.id and None not in (life.id, noted.id):
            yield f"{topic} was deleted and made again"
        elif topic in by_key and life.partitions != noted.partitions:
            yield f"{topic} has {life.partitions} partitions, and had {noted.partitions}, so that keys move"
