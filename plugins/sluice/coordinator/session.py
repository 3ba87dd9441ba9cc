"""What the coordinator's steps share: the pipeline's clusters, control topic and table, and its last commit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from sluice.connectors.sink import Pinned, Table
from sluice.coordinator.parts import Parts
from sluice.coordinator.sources import Sources
from sluice.coordinator.streams import Streams
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.sent_letters import SUFFIX
from sluice.pipeline.model import CONTROL_TOPIC_PREFIX, REDRIVEN_SUFFIX, SHARED_CONTROL_TOPIC, Pipeline
from sluice.protocol.commit_note import CommitNote, read_note
from sluice.protocol.identity import refuse_other_spelling, under_present_names
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.protocol.moves import settle_moves
from sluice.protocol.notes_topics import NotesTopics
from sluice.protocol.offsets import Checkpoint, read_checkpoint
from sluice.protocol.request import Request
from sluice.protocol.signing import Signed
from sluice.protocol.standing import Standing
from sluice.protocol.state import ClusterState
from sluice.protocol.stream_identity import refuse_shared_names, refuse_unknown_ids
from sluice.protocol.streams import Followed, bounded
from sluice.protocol.transaction import TableLog, Transaction
from sluice.protocol.version_change import BegunChange


@dataclass(frozen=True)
class Run:
    """The DAG run that is this interval, and what it is asked to do.

    Attributes:
        process: of a table service by hand, the process that waits for its end, by `sluice.process.identity`.
    """

    dag_id: str
    run_id: str
    request: Request = field(default_factory=Request)
    process: str | None = None


@dataclass(frozen=True)
class Started:
    """An open transaction: the offset of its START-COMMIT, what its ranges are to read, and what they leave."""

    instant: str
    control_offset: int
    ranges: tuple[tuple[PlannedRange, ...], ...]
    control_topic: str | None = None
    digest: str | None = None  # of that START-COMMIT, which the write jobs look for (protocol/confine.py)
    connections: tuple[str, ...] = ()  # ids of the Kafka connections of streams' clusters, which the write jobs need
    standing: Standing | None = None  # of an interval of the schedule


@dataclass(frozen=True)
class Outcome:
    """How a step left the interval, as one sentence for people and as counts for programs.

    Attributes:
        lag_records: of an empty interval of the schedule, offsets up to the high watermark that it left unread; None
            where that isn't known of all partitions.
        valid_through: of the same, the time up to which the table is complete; None if unknown.
        standing: of the same, the figures of its clusters.
    """

    state: Literal["empty", "planned", "committed", "aborted", "nothing"]
    summary: str
    instant: str | None = None
    records: int = 0
    remarks: tuple[str, ...] = ()
    lag_records: int | None = None
    valid_through: datetime | None = None
    standing: Standing | None = None


@dataclass(frozen=True)
class Committed:
    """What the timeline says: the last checkpoint, and our own note of the transaction that wrote it."""

    checkpoint: Checkpoint
    note: CommitNote
    elsewhere: str | None = None
    """The control topic with its START, None if that is the pipeline's."""
    is_lost: bool = False
    """Whether that topic was deleted, and another one was made under its name."""

    @property
    def control_offset(self) -> int:
        """The control-topic offset of the last commit's START, 0 before the first in this topic."""
        return 0 if self.elsewhere or self.is_lost else self.note.control_offset or 0

    @property
    def valid_through(self) -> datetime | None:
        """The time up to which the table is complete, None where it isn't known."""
        return self.note.valid_through

    @property
    def recent_control_offsets(self) -> tuple[int, ...]:
        """The control-topic offsets of the last commits' STARTs, oldest first."""
        return (0,) if self.elsewhere or self.is_lost else self.note.started_at


class Session:
    """One pipeline's source, control topic and table."""

    def __init__(self, pipeline: Pipeline, parts: Parts) -> None:
        self.pipeline = pipeline
        self.parts = parts
        self.followed: Followed | None = None
        settings = pipeline.source.options.streams_settings
        self._streams = Streams(pipeline, settings, parts) if settings is not None else None
        one = {parts.source.name: parts.source} if settings is None else {}  # of streams it isn't known before START
        self.sources = Sources(one, self._topics_of)
        self.sink = parts.sink
        self.machine = parts.machine
        self.control = parts.control(pipeline.control_topic)
        self.table_id = pipeline.table_id
        self._topics: tuple[str, ...] | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to read: the pipeline file's, or all existing ones that match its pattern.

        Raises:
            ActionRequiredError: none matches.
            RetryableError: the cluster can't be reached.
        """
        return self.sources.topics

    def _topics_of(self, _cluster: str) -> tuple[str, ...]:
        source = self.pipeline.source.options
        if source.topics_pattern is None:
            return source.topics
        if self._topics is None:
            letters = self.pipeline.errors.dead_letter_topic
            own = (self.pipeline.control_topic, SHARED_CONTROL_TOPIC, letters, f"{letters}{SUFFIX}")
            self._topics = self.parts.source.topics_like(source.topics_pattern, own)
        return self._topics

    def table(self) -> AbstractContextManager[Table]:
        """The table, opened for as long as the block; created on first use."""
        return self.sink.open()

    def existing_table(self) -> AbstractContextManager[Table | None]:
        """The table, for looking only: None where it was never written."""
        return self.sink.look()

    def present(self, table: Table | None) -> Committed:
        """What the timeline says, with each cluster under its present name; asks first where streams are now.

        Raises:
            RetryableError: a cluster or the metadata service doesn't answer.
            ActionRequiredError: what it says can't be followed.
        """
        self._topics = None  # START may have waited for hours: topics that were made meanwhile are read, too
        metadata = table.last_checkpoint() if table else None
        note = read_note(metadata or {})
        known = note.streams
        if self._streams is None:
            self._refuse_without_streams(known)
            return self._committed(metadata, note, self.sources.cluster_ids())
        if known is not None and metadata is not None:  # with its clusters under the names that they had then
            known, drained = known.without_drained(read_checkpoint(metadata, self.parts.source.name, ()))
        else:
            drained = ()
        self.followed, self.sources = self._streams.follow(known, self._seen(note))
        self.followed = self.followed.having_drained(drained)
        clusters = self.sources.cluster_ids()
        if not clusters and self.followed.known.skipped:
            raise RetryableError(
                "None of the streams' clusters answers.",
                next_step="the step is retried.",
                table=self.table_id,
                clusters=", ".join(self.followed.known.skipped),
            )
        following = self.followed.known
        ids = {**{name: following.ids[name] for name in following.skipped if name in following.ids}, **clusters}
        committed = self._committed(metadata, note, ids)
        refuse_unknown_ids(committed.checkpoint, tuple(ids), self.table_id)
        named = following.named(clusters, committed.checkpoint)
        refuse_shared_names(named, self.table_id)
        self.followed = replace(self.followed, known=named)
        return committed

    def _seen(self, note: CommitNote) -> tuple[KnownStreams, ...]:
        """The mappings that a watcher has seen since the last commit was planned, oldest first.

        Args:
            note: of the last commit, whose control topic may be another one.
        """
        settings = self.pipeline.source.options.streams_settings
        if settings is None or settings.watched_every is None:
            return ()
        elsewhere = self._elsewhere(note) if note.is_ours else None
        if elsewhere is not None:
            before = self.on_control_topic(elsewhere)
            return (*before._seen_here(note), *self._seen_here(CommitNote()))
        return self._seen_here(note)

    def _seen_here(self, note: CommitNote) -> tuple[KnownStreams, ...]:
        """The same, of this control topic; all of it where `note` is no commit's, or is of another topic."""
        if not self.control.exists():
            return ()
        self._require_signatures(note)
        planned_at = 0
        if note.control_offset is not None and not self.is_made_again(note):
            start = self.control.table_log(self.table_id, note.control_offset).at(note.control_offset)
            planned_at = start.start.read_position if start is not None else note.control_offset
        return tuple(found.streams for _, found in self.control.table_log(self.table_id, planned_at).seen)

    def bound(self, state: ClusterState, checkpoint: Checkpoint) -> ClusterState:
        """The clusters' state within what is read of streams; see `sluice.protocol.moves` and `.streams.bounded`.

        Raises:
            RetryableError, ActionRequiredError: a topic can't be moved as the mapping says, or not yet.
        """
        if self.followed is None:
            return state
        now = self.machine.now()
        followed, state = settle_moves(self.followed, state, checkpoint, now, self.table_id)
        self.followed, state = bounded(followed, state, checkpoint, now, in_order=self.pipeline.changes is not None)
        return state

    def pin(self, table: Table, last: StartCommit | None) -> Pinned:
        """How the next interval's records become rows of the table; see `Sink.pin`.

        Args:
            table: the table.
            last: the table's last START-COMMIT, None if no longer known.

        Raises:
            RetryableError: a registry doesn't answer.
            ActionRequiredError: a schema can't be read, or the rows don't fit the table.
        """
        known = Pinned(last.records, last.writer, last.tables) if last is not None else None
        return self.sink.pin(table, known, self._clusters())

    def _clusters(self) -> list[ClusterTopics]:
        """The topics to read from each cluster, with registries of clusters' own if records are decoded by any."""
        source, followed = self.pipeline.source.options, self.followed
        converters = [source.value] if source.key is None else [source.value, source.key]
        if followed is not None and any(converter.registry for converter in converters):
            clusters = [
                ClusterTopics(name, self.sources.topics_of(name), followed.clusters[name].registry)
                for name in self.sources.names
                if name in followed.clusters  # else it is drained
            ]
            if any(cluster.registry for cluster in clusters):
                return clusters
        return [ClusterTopics(name, self.sources.topics_of(name)) for name in self.sources.names]

    def read_as(self, start: StartCommit) -> None:
        """Ask the clusters that an interval reads, as its START-COMMIT names them; START itself asks those of now."""
        if self._streams is not None and start.streams is not None and not self.sources.names:
            self.sources = self._streams.sources(start.streams)

    def committed(self, table: Table | None, clusters: Mapping[str, str | None] | None = None) -> Committed:
        """What the timeline says.

        Args:
            table: the table, None where there is none yet.
            clusters: Kafka's ids of the clusters by the names under which the checkpoint's offsets are wanted; by
                default they keep the names that they had when the last commit was planned.
        """
        metadata = table.last_checkpoint() if table else None
        return self._committed(metadata, read_note(metadata or {}), clusters)

    def _committed(
        self, metadata: Mapping[str, str] | None, note: CommitNote, clusters: Mapping[str, str | None] | None
    ) -> Committed:
        refuse_other_spelling(note.known_as, self.table_id)
        if metadata is None:
            return Committed(Checkpoint(), note, self._elsewhere(note))
        first = next(iter(self.sources.names), self.parts.source.name)
        checkpoint = read_checkpoint(metadata, first, self.topics)
        if clusters is not None:
            checkpoint = under_present_names(checkpoint, clusters, one_place=self._streams is None)
        elsewhere = self._elsewhere(note)
        committed = Committed(checkpoint, note, elsewhere, elsewhere is None and self.is_made_again(note))
        if committed.elsewhere is None:
            self._require_signatures(note)
        return committed

    def _require_signatures(self, note: CommitNote) -> None:
        for signed, after in self.signed_from(note).items():
            self.control.signatures.require(self.table_id, after, signed)

    def signed_from(self, note: CommitNote) -> dict[Signed, int]:
        """The control topic's offset after which the table's messages have to be signed, by how, as a note says.

        Args:
            note: of the last commit, whose control topic has the name of this one.
        """
        found = {}
        if note.signed_from is not None:
            found[Signed.BY_NAME] = note.signed_from
        if note.signed_by_log_from is not None:
            found[Signed.BY_LOG] = note.signed_by_log_from
        if self.is_made_again(note):  # all of its messages are younger
            return dict.fromkeys(found, -1)
        return found

    def is_made_again(self, note: CommitNote) -> bool:
        """Whether the control topic is another one of the same name than that of a commit, by its note.

        Offsets of the earlier one then mean other messages, of which START must read all.
        """
        known = note.control_topic_id
        present = self.control.topic_id if known is not None else None
        return known is not None and present is not None and known != present

    def notes_topics(self, note: CommitNote) -> NotesTopics:
        """The topics with notes of the table's records that were sent again.

        Args:
            note: of the table's last commit. One of an earlier release names its control topic alone.
        """
        left: tuple[str, ...] = ()
        elsewhere = self._elsewhere(note) if note.is_ours else None
        if elsewhere is not None:
            left = (f"{elsewhere}{REDRIVEN_SUFFIX}",)
            if elsewhere.startswith(CONTROL_TOPIC_PREFIX):  # which a pipeline of another name has without naming it
                left = (*left, f"{SHARED_CONTROL_TOPIC}{REDRIVEN_SUFFIX}")
        return NotesTopics.known_by(note.notes_topics, left, self.pipeline.notes_topic)

    def _refuse_without_streams(self, known: KnownStreams | None) -> None:
        """Rows of an upsert are found by the names that their topics had among the streams' clusters."""
        if known is not None and any(known.prefixes.values()) and self.pipeline.sink.capabilities.upsert:
            raise ActionRequiredError(
                "The table was loaded from streams, by which an upsert finds its rows; the pipeline names topics now.",
                next_step="name the streams again in the source's `streams`; a stream may be of one cluster.",
                table=self.table_id,
            )

    def _elsewhere(self, note: CommitNote) -> str | None:
        """The control topic of the last commit where it isn't this one. Earlier releases didn't note its name."""
        topic = note.control_topic or self.pipeline.control.topic or SHARED_CONTROL_TOPIC
        return str(topic) if topic != self.control.topic else None

    def log_of_change(self, begun: BegunChange) -> TableLog:
        """What the control topic tells since the last attempt at a change of the table's version, by its note.

        Raises:
            RetryableError: Kafka doesn't answer.
            ActionRequiredError: the change was begun on another control topic, or under another name of the table.
        """
        names = {"control topic": (begun.control_topic, self.control.topic), "path": (begun.known_as, self.table_id)}
        for what, (noted, own) in names.items():
            if noted != own:
                raise ActionRequiredError(
                    f"The change of the table's version was begun with another {what} in the pipeline's file.",
                    next_step=f"set it back to {noted}, run `sluice service table_version`, and change it then.",
                    table=self.table_id,
                    now=own,
                )
        is_made_again = begun.control_topic_id is not None and begun.control_topic_id != self.control.topic_id
        for signed, after in begun.signed_from.items():
            self.control.signatures.require(self.table_id, -1 if is_made_again else after, signed)
        return self.control.table_log(self.table_id, 0 if is_made_again else begun.control_offset)

    def on_control_topic(self, topic: str) -> Session:
        """The same clusters and table, on another control topic."""
        other = copy(self)
        other.pipeline = self.pipeline.on_control_topic(topic)
        other.control = self.parts.control(topic)
        return other

    def envelope(self, transaction: str, epoch: int, run: Run) -> dict[str, Any]:
        """The fields that every message carries."""
        return {
            "table": self.table_id,
            "transaction": transaction,
            "epoch": epoch,
            "dag_id": run.dag_id,
            "run_id": run.run_id,
            "sender": "coordinator",
            "time": self.machine.now(),
        }

    def envelope_of(self, transaction: Transaction) -> dict[str, Any]:
        """The same, of a transaction that was started."""
        start = transaction.start
        return self.envelope(transaction.id, start.epoch, Run(start.dag_id, start.run_id))
