"""Sends quarantined records to their topic again, each once; a topic of ours remembers which.

The records and the note of them are sent in one Kafka transaction. A consumer group's offsets would forget: a broker
keeps those of a group that nobody uses for a week.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from sluice.hudi.quarantine_files import Quarantined
from sluice.kafka.config import KafkaSettings
from sluice.kafka.transactional import Record, TransactionalSender, ensure_topic, identity_of, read_all, topic_exists

HEADER = "sluice.redriven"
_PLACES = 5000  # in one note
Place = tuple[str, int, int]


class Redriven:
    """What was sent again of a cluster's records.

    A record goes back into its topic, for all that read it: where several tables have set it aside, it is sent once.

    Args:
        settings: the cluster of the records.
        topic: the topic that remembers; created on first use, and kept for ever.
        table: the path of the table whose quarantine is looked at.
    """

    def __init__(self, settings: KafkaSettings, topic: str, table: str) -> None:
        self._settings = settings
        self._topic = topic
        self._table = table
        self._identity = identity_of("redrive", topic, topic)

    def places(self) -> set[Place]:
        """Where the records stand that were sent again, as (topic, partition, offset).

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
        """
        found: set[Place] = set()
        if not topic_exists(self._settings, self._topic):
            return found
        for record in read_all(self._settings, self._topic):
            note = json.loads(record.value() or b"{}")
            found |= {(topic, partition, offset) for topic, partition, offset in note.get("places", ())}
        return found

    def send(self, records: Iterable[Quarantined]) -> list[Place]:
        """Send those that weren't sent before, to the partitions that they came from; returns where they stand.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or refuses; nothing was sent.
        """
        ensure_topic(self._settings, self._topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
        with TransactionalSender(self._settings, self._identity) as sender:  # fences others before we look
            known = self.places()
            sent: list[Place] = []
            sender.send(self._with_notes(records, known, sent))
        return sent

    def _with_notes(self, records: Iterable[Quarantined], known: set[Place], sent: list[Place]) -> Iterator[Record]:
        for record in records:
            place = (record.topic, record.partition, record.offset)
            if place in known:
                continue
            known.add(place)
            sent.append(place)
            headers = [*record.headers, (HEADER, record.place.encode())]
            yield Record(record.topic, record.key, record.value, headers, record.partition)
        for i in range(0, len(sent), _PLACES):
            yield self._note(sent[i : i + _PLACES])

    def _note(self, places: Sequence[Place]) -> Record:
        note = {"version": 1, "time": datetime.now(UTC).isoformat(), "places": places}
        return Record(self._topic, self._table.encode(), json.dumps(note).encode(), partition=0)
