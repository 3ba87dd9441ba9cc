"""How far the dead letters of each table were sent, recorded for ever in a topic of Sluice's.

A consumer group's offsets would expire: a broker keeps them for a week without members. A chunk's note is part of the
Kafka transaction that sends the chunk, so that it agrees with what consumers see after any crash.

If the connection has a secret (`sluice.control.secret`), each note is signed with it, like control messages
(`sluice.protocol.notes`), and copies of earlier notes don't count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel

from sluice.kafka.config import KafkaSettings
from sluice.kafka.transactional import Record, ensure_topic, present_topic_id, read_all
from sluice.logs import log
from sluice.protocol.notes import SignedNotes, note_of

SUFFIX = ".sent"
_CONFIG = {"cleanup.policy": "compact", "segment.ms": "86400000"}  # only the last note of a table is needed


class _Note(BaseModel):
    """A note's content."""

    instant: str
    letters: int
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sent:
    """The first `letters` of the interval's are in the dead-letter topic, and all of earlier intervals.

    Attributes:
        instant: the interval's.
        letters: how many of the records of `clusters` were sent, in the order of the quarantine's committed files.
        clusters: the clusters whose bad records are sent to this one, in order; none in notes of earlier releases.
    """

    instant: str
    letters: int
    clusters: tuple[str, ...] = ()

    def of(self, instant: str, clusters: tuple[str, ...], most: int) -> int:
        """How many of an interval's letters were sent.

        Where others were counted, since the pipeline file says another `dead_letter_connection` now, it is none: some
        may be there twice then, and none is missing.

        Args:
            instant: the interval's.
            clusters: the clusters whose bad records are to be sent, in order.
            most: as many as there can be, which is the answer for an interval before the note's.
        """
        if self.instant > instant:
            return most
        same = self.instant == instant and self.clusters in ((), clusters)
        return self.letters if same else 0

    def precedes(self, other: Sent) -> bool:
        """Whether a table's notes have this one before the other: instants rise, and the letters of each."""
        same = self.instant == other.instant and self.clusters == other.clusters
        return self.instant < other.instant or (same and self.letters < other.letters)


class SentLetters:
    """The progress of one table's dead letters to one topic.

    Args:
        settings: the cluster of the dead-letter topic.
        topic: the dead-letter topic. The topic that remembers is named after it; tables that share one share the other.
        table: the table's path.
        all_signed: where there is a secret, no unsigned note counts. The topic is compacted, so the table's first
            signed note, from which on that holds, may be gone.

    Raises (all methods):
        RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
    """

    def __init__(self, settings: KafkaSettings, topic: str, table: str, *, all_signed: bool = False) -> None:
        self._settings = settings
        self._notes = f"{topic}{SUFFIX}"
        self._key = table.encode()
        self._all_signed = all_signed
        self._id = present_topic_id(settings, self._notes)
        self._told: set[int] = set()

    def ensure(self) -> None:
        """See that the topic is there, created with one partition on first use."""
        ensure_topic(self._settings, self._notes, _CONFIG)

    def last(self) -> Sent | None:
        """The last note, which is final only once no other process can send any more: after a sender was made."""
        last: Sent | None = None
        signed = self._signed()
        for record in read_all(self._settings, self._notes):
            offset, key, value = record.offset(), _bytes(record.key()), _bytes(record.value())
            assert offset is not None
            if not signed.counts(offset, key, value, record.headers() or ()) or key != self._key:
                continue
            note = note_of(_Note, value)
            if note is None:
                continue
            found = Sent(note.instant, note.letters, note.clusters)
            if signed.asked_for and last is not None and found.precedes(last):
                self._tell(offset, "it is a copy of an earlier one")
                continue
            last = found
        return last

    def note(self, sent: Sent) -> Record:
        """The record of this note; to be sent with the letters in one transaction."""
        note = {"version": 1, "time": datetime.now(UTC).isoformat(), "instant": sent.instant, "letters": sent.letters}
        note["clusters"] = sent.clusters
        value = json.dumps(note).encode()
        return Record(self._notes, self._key, value, self._signed().headers(self._key, value), partition=0)

    def _signed(self) -> SignedNotes:
        signed = SignedNotes(self._notes, self._settings.control_secrets, self._tell, self._id)
        if self._all_signed:
            signed.require_all()
        return signed

    def _tell(self, offset: int, reason: str) -> None:
        if offset not in self._told:
            self._told.add(offset)
            log.warning("a note of dead letters doesn't count", topic=self._notes, offset=offset, reason=reason)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
