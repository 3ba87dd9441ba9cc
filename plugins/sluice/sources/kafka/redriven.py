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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    topics_there,
)
from sluice.logs import log
from sluice.protocol.notes import SignedNotes, note_of
from sluice.protocol.notes_topics import GivenUp
from sluice.protocol.quarantine import Quarantined
from sluice.protocol.redriven import Partition, Place, Places
from sluice.protocol.signing import HEADER as SIGNATURE

HEADER = "sluice.redriven"
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}


class _Note(BaseModel):
    """A note's content; notes of earlier releases have no ids."""

    places: tuple[tuple[str, int, int], ...] = ()
    topic_ids: dict[str, str | None] = Field(default_factory=dict)
    given_up: tuple[GivenUp, ...] = ()


class Redriven:
    """Which of a cluster's records were sent again.

    A record goes back into its topic, for all readers: if several tables have set it aside, it is sent once.

    Args:
        settings: the cluster of the records.
        topic: the topic of new notes; created on first use, and kept for ever.
        table: the path of the table whose quarantine is looked at.
        others: further topics with notes of the table's records, of other control topics that it has had.
    """

    def __init__(self, settings: KafkaSettings, topic: str, table: str, others: Sequence[str] = ()) -> None:
        self._settings = settings
        self._topic = topic
        self._table = table
        self._others = tuple(others)

    def places(self) -> Places:
        """The places of the records that were sent again.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
        """
        found = Places()
        for topic in (*self._others, self._topic):
            if topic_exists(self._settings, topic):
                found.add_all(_Reading(self._settings, topic).read())
        return found

    def there(self) -> dict[str, str | None]:
        """Those of the topics that are there, each with its id.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't say.
        """
        return topics_there(self._settings, (*self._others, self._topic))

    def are_to_be_signed(self) -> bool:
        """Whether there are notes that `send` has to sign.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
        """
        return bool(self._settings.control_secrets) and any(map(self._is_to_be_signed, (*self._others, self._topic)))

    def _is_to_be_signed(self, topic: str) -> bool:
        if not topic_exists(self._settings, topic):
            return False
        notes = _Reading(self._settings, topic)
        notes.read()
        return any(True for _ in notes.to_sign())

    def send(
        self,
        records: Iterable[Quarantined],
        topic_ids: Mapping[str, str | None],
        require_same_topics: Callable[[], None] = lambda: None,
    ) -> Counter[Partition]:
        """Send records that weren't sent before, to their original partitions; returns the number per partition.

        A few thousand at a time, each batch with a note of their places: after an interruption the first batches have
        been sent, and running the command again sends the others. Before them, notes are signed that have to be.

        Another process may know a different set of topics: it has the table's commit that names one more, or hasn't.
        So the transactional ids of all topics are taken, which fences it if it was earlier, and only then it is asked
        whether the table still has the same ones, so that this process gives way if it is later.

        Args:
            records: records that weren't sent before must be from the present logs.
            topic_ids: Kafka's own ids of these topics.
            require_same_topics: raises RetryableError if the table's commits name other topics of notes by now.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or refuses.
        """
        ensure_topic(self._settings, self._topic, _KEPT)
        sent: Counter[Partition] = Counter()
        known = Places()
        for topic in self._others:
            with self._sender(topic) as other:
                if topic_exists(self._settings, topic):
                    notes = _Reading(self._settings, topic)
                    known.add_all(notes.read())
                    self._sign_again(other, notes)
        with self._sender(self._topic) as sender:  # fences others before reading
            notes = _Reading(self._settings, self._topic)
            known.add_all(notes.read())
            require_same_topics()
            last = self._sign_again(sender, notes)
            pending: deque[Place] = deque()
            for chunk in chunks(self._unsent(records, known, pending)):
                if last is not None:
                    sender.take_anew()
                    self._require_last(last, notes)
                    require_same_topics()
                last = places = [pending.popleft() for _ in chunk]
                sender.send([*chunk, self._note(places, topic_ids, notes.signed)])
                sent.update((topic, partition) for topic, partition, _ in places)
        return sent

    def give_up(self, lost: Sequence[GivenUp], reason: str) -> None:
        """Note that notes which can't be read any more are given up, and why.

        Raises:
            RetryableError, ActionRequiredError: Kafka doesn't answer, or refuses.
        """
        ensure_topic(self._settings, self._topic, _KEPT)
        with self._sender(self._topic) as sender:
            notes = _Reading(self._settings, self._topic)
            notes.read()
            sender.send([self._record({"places": [], "given_up": lost, "reason": reason}, notes.signed)])

    def _sender(self, topic: str) -> TransactionalSender:
        return TransactionalSender(self._settings, identity_of("redrive", topic, topic))

    def _sign_again(self, sender: TransactionalSender, notes: _Reading) -> Iterable[Place] | None:
        """Sign the notes that have to be; returns the places of the last ones, None if there were none."""
        last: Iterable[Place] | None = None
        for again in chunks(notes.to_sign()):
            if last is not None:
                sender.take_anew()
                self._require_last(last, notes)
            last = {place for record in again for place in _places_of(record)}
            sender.send(again)
        return last

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
        return self._record({"places": places, "topic_ids": ids}, signed)

    def _record(self, content: Mapping[str, object], signed: SignedNotes) -> Record:
        note = {"version": 1, "time": datetime.now(UTC).isoformat(), **content}
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
            found.given_up |= set(note.given_up)
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
