"""Sends quarantined records to their topic again, each once; a topic of our own records which.

A few thousand records and the note of them are sent in one Kafka transaction. A consumer group's offsets wouldn't do:
a broker deletes those of an unused group after a week.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

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
from sluice.protocol.quarantine import Quarantined
from sluice.protocol.redriven import Partition, Place, Places

HEADER = "sluice.redriven"


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
        if not topic_exists(self._settings, self._topic):
            return found
        for record in read_all(self._settings, self._topic):
            note = json.loads(record.value() or b"{}")
            ids = note.get("topic_ids", {})  # notes of earlier releases have none
            for topic, partition, offset in note.get("places", ()):
                found.add((topic, partition, offset), ids.get(topic))
        return found

    def send(self, records: Iterable[Quarantined], topic_ids: Mapping[str, str | None]) -> Counter[Partition]:
        """Send those that weren't sent before, to the partitions that they came from; returns the number per partition.

        A few thousand at a time, each batch with a note of their places: after an interruption the first batches have
        been sent, and running the command again sends the others.

        Args:
            records: those that weren't sent before are of the logs that are there now.
            topic_ids: Kafka's own ids of these topics.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or refuses.
        """
        ensure_topic(self._settings, self._topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
        sent: Counter[Partition] = Counter()
        with TransactionalSender(self._settings, self._identity) as sender:  # fences others before we look
            known = self.places()
            pending: deque[Place] = deque()
            for chunk in chunks(self._unsent(records, known, pending)):
                places = [pending.popleft() for _ in chunk]
                sender.send([*chunk, self._note(places, topic_ids)])
                sent.update((topic, partition) for topic, partition, _ in places)
        return sent

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
