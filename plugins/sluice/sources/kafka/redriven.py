"""Sends quarantined records to their topic again, each once, as recorded in a topic of Sluice's.

A few thousand records and the note of them are sent in one Kafka transaction. A consumer group's offsets wouldn't do:
a broker deletes those of an unused group after a week.

If the connection has a secret (`sluice.control.secret`), each note is signed with it, like control messages
(`sluice.protocol.notes`). The notes are kept for ever, and a secret isn't: those signed with the previous one are
signed again with the present one.
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
    present_topic_id,
    read_all,
    topic_exists,
)
from sluice.logs import log
from sluice.protocol.notes import SignedNotes, note_of
from sluice.protocol.quarantine import Quarantined
from sluice.protocol.redriven import Partition, Place, Places
from sluice.protocol.signing import HEADER as SIGNATURE

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
        if not topic_exists(self._settings, self._topic):
            return Places()
        return _Reading(self._settings, self._topic).read()

    def are_to_be_signed(self) -> bool:
        """Whether there are notes that `send` has to sign.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
        """
        if not self._settings.control_secrets or not topic_exists(self._settings, self._topic):
            return False
        notes = _Reading(self._settings, self._topic)
        notes.read()
        return any(True for _ in notes.to_sign())

    def send(self, records: Iterable[Quarantined], topic_ids: Mapping[str, str | None]) -> Counter[Partition]:
        """Send records that weren't sent before, to their original partitions; returns the number per partition.

        A few thousand at a time, each batch with a note of their places: after an interruption the first batches have
        been sent, and running the command again sends the others. Before them, notes are signed that have to be.

        Args:
            records: records that weren't sent before must be from the present logs.
            topic_ids: Kafka's own ids of these topics.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or refuses.
        """
        ensure_topic(self._settings, self._topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
        sent: Counter[Partition] = Counter()
        with TransactionalSender(self._settings, self._identity) as sender:  # fences others before reading
            notes = _Reading(self._settings, self._topic)
            known = notes.read()
            last: Iterable[Place] | None = None
            for again in chunks(notes.to_sign()):
                if last is not None:
                    sender.take_anew()
                    self._require_last(last, notes)
                last = {place for record in again for place in _places_of(record)}
                sender.send(again)
            pending: deque[Place] = deque()
            for chunk in chunks(self._unsent(records, known, pending)):
                if last is not None:
                    sender.take_anew()
                    self._require_last(last, notes)
                last = places = [pending.popleft() for _ in chunk]
                sender.send([*chunk, self._note(places, topic_ids, notes.signed)])
                sent.update((topic, partition) for topic, partition, _ in places)
        return sent

    def _require_last(self, own: Iterable[Place], notes: _Reading) -> None:
        """Check that all new notes are this sender's last ones."""
        if set(notes.read()) != set(own):
            raise RetryableError(
                "Another process has sent records again meanwhile.",
                next_step="run the command again: it sends the remaining ones.",
                topic=self._topic,
                connection=self._settings.name,
            )

    def _unsent(self, records: Iterable[Quarantined], known: Places, pending: deque[Place]) -> Iterator[Record]:
        for record in records:
            place = (record.topic, record.partition, record.offset)
            if not known.has(place, record.log.topic):
                known.add(place, record.log.topic)
                pending.append(place)
                headers = [*record.headers, (HEADER, record.place.encode())]
                yield Record(record.topic, record.key, record.value, headers, record.partition)

    def _note(self, places: Sequence[Place], topic_ids: Mapping[str, str | None], signed: SignedNotes) -> Record:
        ids = {topic: topic_ids.get(topic) for topic, _, _ in places}
        note = {"version": 1, "time": datetime.now(UTC).isoformat(), "places": places, "topic_ids": ids}
        key, value = self._table.encode(), json.dumps(note).encode()
        return Record(self._topic, key, value, signed.headers(key, value), partition=0)


class _Reading:
    """Reads the topic of the notes; each read continues after the last one.

    Args:
        settings: the cluster.
        topic: the topic of the notes.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._position = 0
        self.signed = SignedNotes(topic, settings.control_secrets, self._tell, present_topic_id(settings, topic))
        self._to_sign: dict[tuple[bytes, bytes], None] = {}

    def read(self) -> Places:
        """The places of new notes."""
        found = Places()
        for record in read_all(self._settings, self._topic, since=self._position):
            at, key, value = record.offset(), _bytes(record.key()), _bytes(record.value())
            assert at is not None
            self._position = at + 1
            headers = record.headers() or ()
            if not self.signed.counts(at, key, value, headers):
                continue
            note = note_of(_Note, value)
            if note is None:  # what others have written; no command could take it out again
                self._tell(at, "it is no note")
                continue
            for topic, partition, offset in note.places:
                found.add((topic, partition, offset), note.topic_ids.get(topic))
            if self.signed.is_by_present(key, value, headers):
                self._to_sign.pop((key, value), None)
            elif self.signed.asked_for and any(name == SIGNATURE for name, _ in headers):
                self._to_sign[key, value] = None
        return found

    def to_sign(self) -> Iterator[Record]:
        """The notes that are signed with the previous secret or without the topic's id, signed as notes are now.

        Where neither they nor others begin it, one without places: behind it none that is signed less counts.
        """
        if not self.signed.asked_for:
            return
        begin = [] if self._to_sign or self.signed.have_begun else [(b"", b'{"version": 1, "places": []}')]
        for key, value in [*self._to_sign, *begin]:
            yield Record(self._topic, key, value, self.signed.headers(key, value), partition=0)

    def _tell(self, offset: int, reason: str) -> None:
        log.warning("a note of records sent again doesn't count", topic=self._topic, offset=offset, reason=reason)


def _places_of(record: Record) -> Iterator[Place]:
    """The places that a note names."""
    note = note_of(_Note, record.value)
    yield from note.places if note is not None else ()


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
