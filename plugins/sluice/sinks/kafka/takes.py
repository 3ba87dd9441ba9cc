"""What topics take of records, as START-COMMIT pins it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

LARGEST = 1_000_000_000
"""The most bytes of a record that a client of librdkafka sends, before it is packed."""


@dataclass(frozen=True, order=True)
class Takes:
    """What a topic takes.

    Attributes:
        bytes: the largest batch, as it is packed (`max.message.bytes`).
        keyed: whether a record has to have a key: the topic is compacted.
    """

    bytes: int
    keyed: bool = False


@dataclass(frozen=True)
class Group:
    """Topics that take the same; all that no other group names, where `topics` is empty."""

    takes: Takes
    topics: tuple[str, ...]


def as_option(found: Mapping[str, Takes]) -> str:
    """The topics by what they take; those that are most stand last, without their names."""
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


def from_option(text: str) -> list[Group]:
    """What `as_option` has written: the last one is of all topics that none before it names."""
    return [Group(Takes(size, keyed), tuple(topics)) for size, keyed, topics in json.loads(text)]


def pinned_takes(options: Mapping[str, str]) -> list[Group]:
    """What a START-COMMIT says that the topics take; one of a release that didn't ask says that they take all."""
    return from_option(options.get("takes", as_option({})))
