"""Sends quarantined records to their topic again, each once, as recorded in a topic of Sluice's.

A few thousand records and the note of them are sent in one Kafka transaction. A consumer group's offsets wouldn't do:
a broker deletes those of an unused group after a week.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, Field

from sluice.errors import RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.transactional import (
    Record,
    TransactionalSender,
    chunks,
    ensure_topic,
    identity_of,
    read_all,
    topic_exists,
)
from sluice.logs import log
from sluice.protocol.notes import note_of
from sluice.protocol.quarantine import Quarantined
from sluice.protocol.redriven import Partition, Place, Places

HEADER = "sluice.redriven"


class _Note(BaseModel):
    """A note's content; notes of earlier releases have no ids."""

    places: tuple[tuple[str, int, int], ...] = ()
    topic_ids: dict[str, str | None] = Field(default_factory=dict)


class Redriven:
    """Which of a cluster's records were sent again.

    A record goes back into its topic, for all readers: if several tables have set it aside, it is sent once.

    Args:
        settings: the cluster of the records.
        topic: the topic of the notes; created on first use, and kept for ever.
        table: the path of the table whose quarantine is looked at.
    """

    def __init__(self, settings: KafkaSettings, topic: str, table: str) -> None:
        self._settings = settings
        self._topic = topic
        self._table = table
        self._identity = identity_of("redrive", topic, topic)

    def places(self) -> Places:
        """The places of the records that were sent again.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
        """
        found = Places()
        if topic_exists(self._settings, self._topic):
            self._read(found)
        return found

    def _read(self, found: Places, since: int = 0) -> int:
        """Add the places of the notes from an offset on; returns the offset behind the last of them."""
        for record in read_all(self._settings, self._topic, since=since):
            at = record.offset()
            assert at is not None
            since = at + 1
            note = note_of(_Note, record.value())
            if note is None:  # what others have written; no command could take it out again
                log.warning("a record among the notes is none", topic=self._topic, offset=at)
                continue
            for topic, partition, offset in note.places:
                found.add((topic, partition, offset), note.topic_ids.get(topic))
        return since

    def send(self, records: Iterable[Quarantined], topic_ids: Mapping[str, str | None]) -> Counter[Partition]:
        """Send records that weren't sent before, to their original partitions; returns the number per partition.

        A few thousand at a time, each batch with a note of their places: after an interruption the first batches have
        been sent, and running the command again sends the others.

        Args:
            records: records that weren't sent before must be from the present logs.
            topic_ids: Kafka's own ids of these topics.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or refuses.
        """
        ensure_topic(self._settings, self._topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
        sent: Counter[Partition] = Counter()
        with TransactionalSender(self._settings, self._identity) as sender:  # fences others before reading
            known = Places()
            noted = self._read(known)
            places: list[Place] = []
            pending: deque[Place] = deque()
            for chunk in chunks(self._unsent(records, known, pending)):
                if places:
                    sender.take_anew()
                    noted = self._require_last(places, noted)
                places = [pending.popleft() for _ in chunk]
                sender.send([*chunk, self._note(places, topic_ids)])
                sent.update((topic, partition) for topic, partition, _ in places)
        return sent

    def _require_last(self, own: Iterable[Place], since: int) -> int:
        """Check that the only note from an offset on is this sender's last one; returns the offset after it."""
        found = Places()
        behind = self._read(found, since)
        if set(found) != set(own):
            raise RetryableError(
                "Another process has sent records again meanwhile.",
                next_step="run the command again: it sends the remaining ones.",
                topic=self._topic,
                connection=self._settings.name,
            )
        return behind

    def _unsent(self, records: Iterable[Quarantined], known: Places, pending: deque[Place]) -> Iterator[Record]:
        for record in records:
            place = (record.topic, record.partition, record.offset)
            if not known.has(place, record.log.topic):
                known.add(place, record.log.topic)
                pending.append(place)
                headers = [*record.headers, (HEADER, record.place.encode())]
                yield Record(record.topic, record.key, record.value, headers, record.partition)

    def _note(self, places: Sequence[Place], topic_ids: Mapping[str, str | None]) -> Record:
        ids = {topic: topic_ids.get(topic) for topic, _, _ in places}
        note = {"version": 1, "time": datetime.now(UTC).isoformat(), "places": places, "topic_ids": ids}
        return Record(self._topic, self._table.encode(), json.dumps(note).encode(), partition=0)
