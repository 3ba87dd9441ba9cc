"""Which quarantined records have been sent to their topic again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sluice.protocol.identity import Topic
from sluice.protocol.notes_topics import GivenUp
from sluice.protocol.offsets import OffsetRange
from sluice.protocol.topic_id import known_topic_id

Place = tuple[str, int, int]
"""The place of a record: topic, partition, offset."""
Partition = tuple[str, int]


class Places:
    """The places of records that were sent again, each with the id of its topic.

    A recreated topic has other records at the same places.

    Attributes:
        given_up: lost notes that a person has given up.
    """

    def __init__(self) -> None:
        self._topic_ids: dict[Place, set[str | None]] = {}
        self.given_up: set[GivenUp] = set()

    def add(self, place: Place, topic_id: str | None) -> None:
        """Add a record; `topic_id` is None if unknown."""
        self._topic_ids.setdefault(place, set()).add(known_topic_id(topic_id))

    def add_all(self, others: Places) -> None:
        """Add another cluster's."""
        for place, ids in others._topic_ids.items():
            self._topic_ids.setdefault(place, set()).update(ids)
        self.given_up |= others.given_up

    def renamed(self, name: Callable[[str], str]) -> Places:
        """The same, with each topic under another name."""
        found = Places()
        found._topic_ids = {(name(topic), number, at): ids for (topic, number, at), ids in self._topic_ids.items()}
        found.given_up = self.given_up
        return found

    def has(self, place: Place, topic_id: str | None) -> bool:
        """Whether the record was sent again. If its topic's id or the note's is unknown, the place alone decides."""
        known = self._topic_ids.get(place)
        return known is not None and (topic_id is None or topic_id in known or None in known)

    def within(self, ranges: Iterable[OffsetRange], topic_ids: Mapping[Topic, str | None]) -> list[Place]:
        """The records of these ranges that were sent again, in order.

        Args:
            ranges: they don't overlap.
            topic_ids: the present ids of their topics.
        """
        return sorted(
            place
            for r in ranges
            for place in self
            if place[:2] == r.topic_partition[1:]
            and r.start <= place[2] < r.end
            and self.has(place, topic_ids.get(r.topic_partition[:2]))
        )

    def __iter__(self) -> Iterator[Place]:
        return iter(self._topic_ids)
