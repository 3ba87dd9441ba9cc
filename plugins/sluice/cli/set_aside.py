"""Records that were set aside, and the selection to send again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.cli.clusters import Clusters
from sluice.cli.inspect import history
from sluice.cli.places import coordinator
from sluice.errors import ActionRequiredError, RetryableError
from sluice.pipeline import Pipeline, load_pipeline
from sluice.protocol.identity import LogId, LogIds, under_present_names
from sluice.protocol.notes_topics import GivenUp, LostNotes, NotesTopics, There, refuse_lost
from sluice.protocol.offsets import OFFSET, TOPIC_PARTITION, Checkpoint, TopicPartition
from sluice.protocol.redriven import Place, Places

if TYPE_CHECKING:
    from sluice.connectors.views import QuarantineReader
    from sluice.protocol.quarantine import Quarantined
    from sluice.sources.kafka.redriven import Redriven

_PLACE = re.compile(f"{TOPIC_PARTITION}@(?P<offset>{OFFSET})")


@dataclass(frozen=True)
class QuarantinedRecords:
    """A pipeline's quarantine, and the records sent again from it."""

    file: Path
    pipeline: Pipeline
    clusters: Clusters
    files: QuarantineReader
    topics: NotesTopics
    redriven: Mapping[str, Redriven]

    @classmethod
    def of(cls, file: Path) -> QuarantinedRecords:
        """The quarantine of a pipeline file.

        Raises:
            ActionRequiredError: the file is wrong, or a connection is missing.
            RetryableError: a cluster or the metadata service doesn't answer.
        """
        from sluice.connectors.views import quarantine_reader_of
        from sluice.protocol.quarantine import quarantine_path
        from sluice.sources.kafka.redriven import Redriven

        pipeline = load_pipeline(file)
        table = pipeline.table_id
        path = quarantine_path(table, pipeline.errors)
        files = quarantine_reader_of(pipeline.sink.place, pipeline.sink.options, path)
        topics = coordinator(file).notes_topics()  # the table's, whatever control topic the file names now
        clusters = Clusters.read_by(file, pipeline)
        redriven = {
            name: Redriven(kafka, topics.current, table, topics.others) for name, kafka in clusters.settings.items()
        }
        return cls(file, pipeline, clusters, files, topics, redriven)

    def sent(self) -> Places:
        """The places of records that were sent again, by their topics' names in rows."""
        found = Places()
        for cluster in self.read:
            places = self.redriven[cluster].places()
            found.add_all(places.renamed(partial(self.clusters.row_topic, cluster)))
        return found

    @property
    def read(self) -> list[str]:
        """The clusters that answer."""
        skipped = self.clusters.streams.skipped if self.clusters.streams is not None else {}
        return sorted(self.redriven.keys() - skipped)

    def there(self) -> dict[str, There]:
        """By cluster, the topics of notes that are there now."""
        return {name: self.redriven[name].there() for name in self.read}

    def lost(self, given_up: Collection[GivenUp]) -> dict[str, tuple[LostNotes, ...]]:
        """By cluster, the notes that can't be read any more, unless they were given up."""
        return {name: self.topics.lost(name, there, given_up) for name, there in self.there().items()}

    def require_notes(
        self, cluster: str, there: There, instants: Collection[str], given_up: Collection[GivenUp]
    ) -> None:
        """Check that it is known which records of these intervals were sent to the cluster again.

        Raises:
            ActionRequiredError: it isn't.
        """
        refuse_lost(
            self.topics.lost(cluster, there, given_up),
            instants,
            "nothing was sent. Bring the topic back, or name later intervals by --instant; or, if none of these "
            f"records were sent again, give its notes up by `sluice quarantine give-up {self.file} TOPIC --reason "
            "'why'`.",
            cluster=cluster,
            table=self.pipeline.table_id,
        )

    def require_same_topics(self, cluster: str, there: There) -> None:
        """Check that no commit of the table names other topics of notes since this command looked, and none was lost.

        Args:
            cluster: the cluster that records are sent to.
            there: the topics that were there when the command looked.

        Raises:
            RetryableError: one does, or was.
        """
        present = self.redriven[cluster].there()
        gone = [topic for topic, log in there.items() if present.get(topic, ...) != log]
        if gone:
            raise RetryableError(
                "A topic of notes of records that were sent again was deleted since this command began.",
                next_step="run the command again: it says which notes are lost.",
                table=self.pipeline.table_id,
                cluster=cluster,
                notes=", ".join(gone),
            )
        now = coordinator(self.file).notes_topics()
        if (now.names, now.current) != (self.topics.names, self.topics.current):
            raise RetryableError(
                "The table's notes of records that were sent again are in another topic since this command began.",
                next_step="run the command again: it sends the remaining ones.",
                table=self.pipeline.table_id,
                notes=now.current,
            )

    def give_up(self, topic: str, reason: str) -> list[tuple[str, LostNotes]]:
        """Note that the lost notes of a topic are given up; returns them, each with its cluster.

        Raises:
            ActionRequiredError: none of that topic are lost.
        """
        lost = {name: [one for one in of if one.topic == topic] for name, of in self.lost(self.sent().given_up).items()}
        if not any(lost.values()):
            raise ActionRequiredError(
                "No notes of that topic are lost.",
                next_step="take the topic from the error's own words; notes that can be read are never given up.",
                table=self.pipeline.table_id,
                topic=topic,
                topics=", ".join(self.topics.names),
            )
        for name, of in lost.items():
            if of:
                self.redriven[name].give_up([one.given_up for one in of], reason)
        return [(name, one) for name, of in lost.items() for one in of]

    def place(self, text: str) -> Place:
        """A record's place as people write it."""
        topic, partition, offset = place_from(text)
        return self.clusters.row_topic_of(topic), partition, offset

    def replayed(self) -> Mapping[str, str]:
        """The intervals that a replay has read again, and the newest such replay: their bad records may be rows now."""
        return {instant: by[-1] for instant, by in history(self.file).replayed_by.items() if by}

    def find(self, place: Place) -> Quarantined:
        """A record, as the newest interval that read it has set it aside."""
        for paths in reversed(list(self.files.committed().values())):
            for path in paths:
                if any(place_of(record) == place for record in self.files.records([path], whole=False)):
                    return next(record for record in self.files.records([path]) if place_of(record) == place)
        raise ActionRequiredError(
            f"The quarantine has no record {in_words(place)}.",
            next_step="look at `sluice quarantine list`; a record that was loaded is in the table.",
            quarantine=self.files.path,
        )

    def chosen(self, instants: Sequence[str], places: set[Place]) -> Chosen:
        """The records of these intervals, or of all intervals without a replay; only those places, if any."""
        replayed = self.replayed()
        for instant in instants:
            if instant in replayed:
                raise ActionRequiredError(
                    f"The interval was read again by {replayed[instant]}: what was bad may be a row now.",
                    next_step="name that instant if it has bad records still; nothing was sent.",
                    instant=instant,
                )
        files = {i: paths for i, paths in self.files.committed(instants).items() if i not in replayed}
        return Chosen(self, files, frozenset(places))

    def other_log(self, record: Quarantined) -> str | None:
        """Why a record's log isn't the topic's present one; None if nothing indicates that."""
        log = self.clusters.log(record.topic)
        if log is None:
            return "its topic isn't read any more"
        try:
            now = self.clusters.log_ids([log])
        except ActionRequiredError as error:
            return error.what
        return record.log.other_than(now.of(*log))

    def checkpoints(self, instants: Iterable[str], now: LogIds) -> dict[str, Checkpoint]:
        """The ids of logs read, as recorded in commits, with clusters under their present names."""
        found = coordinator(self.file).checkpoints(instants)
        one_place = self.clusters.streams is None
        ids = now.clusters if one_place else self.clusters.ids
        return {i: under_present_names(known, ids, one_place=one_place) for i, known in found.items()}


@dataclass(frozen=True)
class Chosen:
    """The records that are to be sent again, as far as they weren't sent before."""

    here: QuarantinedRecords
    files: Mapping[str, Sequence[str]]
    places: frozenset[Place]

    def check(self) -> tuple[Counter[TopicPartition], LogIds, dict[str, There]]:
        """How many are unsent of each partition, the ids of their clusters and topics, and the topics of notes.

        Raises:
            ActionRequiredError: one isn't there, or isn't of a log that is read now.
        """
        from sluice.cli.redrive import Unsent

        there = self.here.there()  # before the notes are read: what is deleted meanwhile is noticed by `send`
        sent, quarantine = self.here.sent(), self.here.files.path
        unsent = Unsent.of(self._rows(), sent)
        logs = unsent.require_read({topic: self.here.clusters.log(topic) for topic in unsent.topics}, quarantine)
        now = self.here.clusters.log_ids(logs.values())
        for cluster, instants in unsent.instants(logs).items():
            self.here.require_notes(cluster, there[cluster], instants, sent.given_up)
        unsent.require_same_logs(logs, now, lambda instants: self.here.checkpoints(instants, now), quarantine)
        numbers = {TopicPartition(*logs[topic], p): number for (topic, p), number in unsent.by_partition.items()}
        return Counter(numbers), now, there

    def send(self, now: LogIds, there: Mapping[str, There]) -> Counter[TopicPartition]:
        """Send the records, each to its own cluster, except those already sent.

        Where nothing is to be sent, notes of earlier times are signed nevertheless.

        Args:
            now: the ids of their clusters and topics.
            there: by cluster, the topics of notes that were there when they were checked.

        Returns:
            How many were sent to each partition.
        """
        sent: Counter[TopicPartition] = Counter()
        clusters = {cluster for cluster, _ in now.topics}
        clusters |= {name for name in set(self.here.read) - clusters if self.here.redriven[name].are_to_be_signed()}
        for cluster in sorted(clusters):
            topic_ids = {topic: topic_id for (name, topic), topic_id in now.topics.items() if name == cluster}
            here = self.here.redriven[cluster].send(
                self._records(cluster), topic_ids, partial(self.here.require_same_topics, cluster, there[cluster])
            )
            sent.update({TopicPartition(cluster, *partition): number for partition, number in here.items()})
        return sent

    def _rows(self) -> Iterator[tuple[str, Place, LogId]]:
        missing = set(self.places)
        for instant, paths in self.files.items():
            for record in self.here.files.records(paths, whole=False):
                place = place_of(record)
                if place in self.places and record.left_out is not None:
                    raise ActionRequiredError(
                        "The record can't be sent again: the topic of bad records doesn't have all of it.",
                        next_step="it is at its place in its source, as long as that keeps it. Nothing was sent.",
                        record=record.place,
                        left_out=record.left_out,
                    )
                if self._wants(record):
                    missing.discard(place)
                    yield instant, place, record.log
        if missing:
            raise ActionRequiredError(
                f"The quarantine has no record {', '.join(map(in_words, sorted(missing)))}.",
                next_step="look at `sluice quarantine list`: a replay may have read it again. Nothing was sent.",
                quarantine=self.here.files.path,
            )

    def _records(self, cluster: str) -> Iterator[Quarantined]:
        """The records of a cluster, whole, under their topics' own names."""
        for paths in self.files.values():
            for record in self.here.files.records(paths):
                log = self.here.clusters.log(record.topic)
                if log is not None and log[0] == cluster and self._wants(record):
                    yield replace(record, topic=log[1])

    def _wants(self, record: Quarantined) -> bool:
        """Whether it is among them. Without all of it, it would be another record: of its key's last one a delete."""
        return record.left_out is None and (not self.places or place_of(record) in self.places)


def place_from(text: str) -> Place:
    """A record's place as people write it: `topic[partition]@offset`."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ActionRequiredError(f"'{text}' is no record's place.", next_step="write topic[partition]@offset.")
    return match["topic"], int(match["partition"]), int(match["offset"])


def place_of(record: Quarantined) -> Place:
    """A record's place, by its topic's name in rows."""
    return record.topic, record.partition, record.offset


def in_words(place: Place) -> str:
    """A place as people write it."""
    return f"{place[0]}[{place[1]}]@{place[2]}"
