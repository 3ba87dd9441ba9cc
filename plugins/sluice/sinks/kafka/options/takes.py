"""The limits of topics on records, as START-COMMIT pins them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

LARGEST = 1_000_000_000
"""The most bytes of a record that librdkafka sends, before compression."""


@dataclass(frozen=True, order=True)
class Takes:
    """A topic's limits.

    Attributes:
        bytes: the largest batch, after compression (`max.message.bytes`).
        keyed: whether records must have a key, since the topic is compacted.
    """

    bytes: int
    keyed: bool = False


@dataclass(frozen=True)
class Group:
    """Topics with the same limits; all topics that no other group names if `topics` is empty."""

    takes: Takes
    topics: tuple[str, ...]


def as_option(found: Mapping[str, Takes]) -> str:
    """The topics, grouped by their limits; the largest group is last, without its topics' names."""
    groups: dict[Takes, list[str]] = {} if found else {Takes(LARGEST): []}
    for topic, takes in found.items():
        groups.setdefault(takes, []).append(topic)
    ordered = sorted(groups.items(), key=lambda one: (len(one[1]), one[0]))
    return json.dumps(
        [
            [takes.bytes, takes.keyed, sorted(topics) if i < len(ordered) - 1 else []]
            for i, (takes, topics) in enumerate(ordered)
        ]
    )


def from_option(text: str) -> tuple[Group, ...]:
    """The groups that `as_option` wrote; the last group is for all topics that no other group names."""
    return tuple(Group(Takes(size, keyed), tuple(topics)) for size, keyed, topics in json.loads(text))
