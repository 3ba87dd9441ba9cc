"""How far the dead letters of each table were sent; a topic of ours remembers it for ever.

A consumer group's offsets would forget: a broker keeps those of a group that nobody uses for a week. The note of a
chunk stands in the Kafka transaction that sends the chunk, so that it says what consumers see, whoever dies when.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from sluice.kafka.config import KafkaSettings
from sluice.kafka.transactional import Record, ensure_topic, read_all

SUFFIX = ".sent"
_CONFIG = {"cleanup.policy": "compact", "segment.ms": "86400000"}  # the last note of a table is all that is wanted


@dataclass(frozen=True)
class Sent:
    """The first `letters` of the interval's are in the dead-letter topic; those of earlier intervals are all there.

    Attributes:
        instant: the interval's.
        letters: how many of the records of `clusters` were sent, in the order of the quarantine's committed files.
        clusters: of which clusters bad records go to this one, in order; none in notes of earlier releases.
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


class SentLetters:
    """What was sent of one table's dead letters to one topic.

    Args:
        settings: the cluster of the dead-letter topic.
        topic: the dead-letter topic. The topic that remembers is named after it; tables that share one share the other.
        table: the table's path.

    Raises (all methods):
        RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
    """

    def __init__(self, settings: KafkaSettings, topic: str, table: str) -> None:
        self._settings = settings
        self._notes = f"{topic}{SUFFIX}"
        self._key = table.encode()

    def ensure(self) -> None:
        """See that the topic is there, created with one partition on first use."""
        ensure_topic(self._settings, self._notes, _CONFIG)

    def last(self) -> Sent | None:
        """The last note, which only counts once nobody else can send any more: after a sender was made."""
        last: bytes | None = None
        for record in read_all(self._settings, self._notes):
            if record.key() == self._key:
                last = record.value()
        if last is None:
            return None
        note = json.loads(last)
        return Sent(str(note["instant"]), int(note["letters"]), tuple(map(str, note.get("clusters", ()))))

    def note(self, sent: Sent) -> Record:
        """The record that says so; to be sent with the letters in one transaction."""
        note = {"version": 1, "time": datetime.now(UTC).isoformat(), "instant": sent.instant, "letters": sent.letters}
        note["clusters"] = sent.clusters
        return Record(self._notes, self._key, json.dumps(note).encode(), partition=0)
