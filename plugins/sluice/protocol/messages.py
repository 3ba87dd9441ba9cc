"""The messages of the control topic: versioned JSON, keyed by table, small enough to read with a console consumer.

They are RFC-32's, with the plan in START-COMMIT and an ABORT-COMMIT added; `docs/protocol.md` shows one of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from sluice.errors import Recovery
from sluice.protocol.committable import TravellingCommittable
from sluice.protocol.identity import LogIds
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.losses import OffsetLoss
from sluice.protocol.notes_topics import NotesTopic
from sluice.protocol.offsets import OffsetRange, TopicPartition
from sluice.protocol.placement import KeyPlacement, PlacedKeys
from sluice.protocol.plan import IntervalPlan
from sluice.protocol.policy import IntervalKind, RequestPolicy, policy_of
from sluice.records.plan import RecordPlan
from sluice.untrusted import Untrusted, members, model_of

PROTOCOL_VERSION = 1
NO_LEASE = -1
_NONE: Mapping[TopicPartition, int] = MappingProxyType({})


class RecordCounts(Untrusted):
    """The counts of an interval's records; the first is the sum of the others."""

    records_read: int = 0
    records_written: int = 0
    records_deleted: int = 0
    records_quarantined: int = 0
    records_filtered: int = 0
    records_skipped: int = 0


COUNTS = tuple(RecordCounts.model_fields)
"""Their names, which WRITE-STATUS and ACK-COMMIT have after their envelope."""
SUMS = ("bytes_read", "gaps")
"""The figures of partitions (`PartitionResult`) whose sums over an interval's partitions are the interval's."""
_STATS = ("stats", "quarantine_stats")


class PlannedRange(Untrusted):
    """The offsets `[start, end)` of one partition, in messages.

    Attributes:
        behind: whether limits left records after the end.
        log_end: the end of the partition's log when the interval was planned, after records of open transactions (an
            earlier release noted the last stable offset), so that `log_end - end` is the lag in
            offsets that the interval leaves. None if unknown.
        leader_epoch: the leader's epoch when the interval was planned, if known.
        row_topic: the topic's name in rows, where other clusters may have a topic of that name. None: its own.
        rests_on: the offset from which the table had all up to the start when the interval was planned, or a person had
            passed it over, beyond its position. The commit sees to it that this is still so. None if nothing was left
            out.
    """

    cluster: str
    topic: str
    partition: int
    start: int
    end: int
    behind: bool = False
    log_end: int | None = None
    leader_epoch: int | None = None
    row_topic: str | None = None
    rests_on: int | None = None

    @classmethod
    def of(
        cls,
        r: OffsetRange,
        behind: bool = False,
        log_end: int | None = None,
        leader_epoch: int | None = None,
        rests_on: int | None = None,
    ) -> PlannedRange:
        """From the domain's value."""
        where = {**r.topic_partition._asdict(), "start": r.start, "end": r.end}
        return cls(**where, behind=behind, log_end=log_end, leader_epoch=leader_epoch, rests_on=rests_on)

    def offset_range(self) -> OffsetRange:
        """To the domain's value."""
        return OffsetRange(self.topic_partition, self.start, self.end)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.cluster, self.topic, self.partition)

    @property
    def named_topic(self) -> str:
        """The topic by the name that it has in rows."""
        return self.row_topic or self.topic

    def __str__(self) -> str:
        return f"{self.named_topic}[{self.partition}] [{self.start}, {self.end})"


class LostOffsets(Untrusted):
    """Offsets given up under `on_offset_loss`, in messages."""

    cluster: str
    topic: str
    partition: int
    committed: int
    resumed_at: int
    reason: str
    another_log: bool = False
    truncated_at: int | None = None

    @classmethod
    def of(cls, loss: OffsetLoss) -> LostOffsets:
        """From the domain's value."""
        return cls(
            **loss.topic_partition._asdict(),
            committed=loss.committed,
            resumed_at=loss.resumed_at,
            reason=loss.reason,
            another_log=loss.another_log,
            truncated_at=loss.truncated_at,
        )

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.cluster, self.topic, self.partition)

    def __str__(self) -> str:
        return str(OffsetLoss(self.topic_partition, self.committed, self.resumed_at, self.reason, self.another_log))


class PartitionResult(Untrusted):
    """A participant's result for one partition's range.

    Attributes:
        next_offset: the position at which reading ended; the range is complete only if it equals the planned end.
        records_read: records that Kafka delivered; fewer than the offsets if the log has gaps.
        gaps: offsets of the range that held no record (transaction markers, compacted or aborted records).
        max_timestamp: the largest record time; None if there was no record.
        file_groups: ids of the Hudi file groups that hold this partition's records.
    """

    cluster: str
    topic: str
    partition: int
    start: int
    next_offset: int
    records_read: int
    gaps: int
    bytes_read: int
    max_timestamp: datetime | None = None
    file_groups: tuple[str, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.cluster, self.topic, self.partition)


class BadRecord(Untrusted):
    """The place of a record that couldn't become a row, and the reason."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}: {self.reason}"


_SNAPSHOT: Final = "snapshot"


class TableSpec(Untrusted):
    """How a table is written: pinned at START-COMMIT so that all ranges of an interval write alike.

    Attributes:
        path: the table's path, or another unique id.
        table_type: the kind of table, in its sink's terms.
        options: the sink's own settings.
        keeps_unavailable: whether a placeholder in a change leaves the row's value as it is
            (`SinkCapabilities.keeps_unavailable`); None in a message of an earlier release, which took every sink's
            word for it.
        keyless: whether a record without a key is written as it is (`SinkCapabilities.keyless`).
    """

    path: str
    name: str
    table_type: str
    operation: Literal["append", "upsert"]
    record_key: tuple[str, ...]
    partition_fields: tuple[str, ...]
    ordering_fields: tuple[str, ...]
    schema_ddl: str
    schema_avro: str
    options: dict[str, str]
    keeps_unavailable: bool | None = None
    keyless: bool = False

    @property
    def upserts(self) -> bool:
        """Whether the last version of a key is its row; otherwise every record is a row."""
        return self.operation == "upsert"

    @property
    def mirrors(self) -> bool:
        """Whether an interval has all rows of its source, so that missing rows are deleted."""
        return _SNAPSHOT in self.options

    def mirroring(self, whether: bool) -> TableSpec:
        """The same table, mirroring its source or not."""
        options = {name: value for name, value in self.options.items() if name != _SNAPSHOT}
        return self.model_copy(update={"options": options | ({_SNAPSHOT: "true"} if whether else {})})


class FurtherTable(Untrusted):
    """A table that an interval writes beside its first one, and commits together with it.

    Attributes:
        topics: the topics whose records are its rows; those of no further table are the first one's.
        writer: how it is written.
        records: how a record of these topics becomes a row of it.
    """

    topics: tuple[str, ...]
    writer: TableSpec
    records: RecordPlan


class _Message(Untrusted):
    version: int = PROTOCOL_VERSION
    table: str
    transaction: str
    epoch: int
    dag_id: str
    run_id: str
    sender: str
    time: datetime


class StartCommit(_Message):
    """The coordinator opens the transaction: the immutable plan and the table's settings.

    `read_position` is the control topic's end when the coordinator read the table's state. A START or END of the same
    table between that position and this message makes this START void: its plan's offsets may have moved since.

    `oldest_unsettled` is the offset of the oldest START without ACK or ABORT, or of the very oldest before the table's
    first commit. Its coordinator may still open an instant, and its zombies may create files, so later intervals look
    back that far.

    Attributes:
        source: the connector that reads the records, by the name of its section in the pipeline file.
        sink: the connector that writes the rows, likewise.
        reason: why a person requested this transaction, in that person's words.
        replays: the instant of the interval that a replay reads again.
        replaced_file_groups: by table partition, the file groups that the commit removes (a replay of an append
            interval), in the same commit that adds the new ones.
        keep_newer: an upsert keeps the table's version of a row unless it is older than the record, or was written by
            the replayed interval: some later offsets are in the table already.
        out_of_order: by topic, the partitions for which that holds; in the others each record wins. Empty means all.
        records_before: how many records each range held when the replayed interval read it, in the order of
            `offset_ranges`; a single total if that interval's commit has no more.
        planned_on: the instant of the table's last commit when it was planned, on which alone it may be committed; None
            before the first, and of an earlier release.
        passed_over: offsets that a correction excludes from reading.
        service: the table service of a `service` transaction.
        process: the process that began a service by hand and waits for its end, by `sluice.process.identity`; None
            where a scheduler knows whether the run has ended.
        records: how a record becomes a row of the writer's schema.
        placement: how an upsert finds the file group of a key.
        emptied_at: the position at which a truncate emptied the source's table: changes before it are void.
        later: offsets after those read that are in the table already. Deletes among them are read again, since Hudi
            forgets a delete when it compacts, and the rows read now may be the deleted ones.
        quarantine: the table in which bad records are set aside, under the same instant; None if none are tolerated.
        remarks: warnings about partitions, such as a missing leader.
        streams: the mapping by which it was planned; None where the pipeline names its topics itself.
        records_per_task: the offsets that are worth a Spark task, where several may read one range; None in a message
            of an earlier release, which had one task for each.
        release: of the coordinator that planned it; a worker of another one leaves it alone.
        tables: further tables that it writes; `writer` and `records` are the first one's.
        notes_topics: the topics with notes of records of the table that were sent again, for the commit to name.
    """

    type: Literal["START-COMMIT"] = "START-COMMIT"
    kind: IntervalKind = "continue"
    reason: str | None = None
    replays: str | None = None
    replaced_file_groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    keep_newer: bool = False
    out_of_order: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    records_before: tuple[int, ...] = ()
    passed_over: tuple[PlannedRange, ...] = ()
    service: str | None = None
    process: str | None = None
    source: str = "kafka"
    sink: str = "hudi"
    read_position: int
    planned_on: str | None = None
    oldest_unsettled: int = 0
    ranges: tuple[tuple[PlannedRange, ...], ...]
    idle: tuple[PlannedRange, ...] = ()
    cluster_ids: dict[str, str | None] = Field(default_factory=dict)
    topic_ids: dict[str, dict[str, str | None]] = Field(default_factory=dict)
    losses: tuple[LostOffsets, ...] = ()
    valid_through: datetime | None = None
    isolation_level: str = "read_committed"
    on_missing_range: Literal["abort", "commit"] = "abort"
    writer: TableSpec
    records: RecordPlan = RecordPlan()
    placement: KeyPlacement | None = None
    emptied_at: str | None = None
    later: tuple[PlannedRange, ...] = ()
    quarantine: TableSpec | None = None
    remarks: tuple[str, ...] = ()
    streams: KnownStreams | None = None
    tables: tuple[FurtherTable, ...] = ()
    notes_topics: tuple[NotesTopic, ...] = ()
    records_per_task: Annotated[int, Field(gt=0)] | None = None
    release: str | None = None

    @property
    def log_ids(self) -> LogIds:
        """The ids of the logs that the interval was planned on."""
        return LogIds.of_topics(self.cluster_ids, self.topic_ids)

    @classmethod
    def ranges_of(
        cls,
        plan: IntervalPlan,
        log_ends: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int] = _NONE,
    ) -> tuple[tuple[PlannedRange, ...], ...]:
        """The plan's groups in message form."""
        return tuple(cls.as_planned(group, plan, log_ends, leader_epochs) for group in plan.ranges)

    @staticmethod
    def as_planned(
        ranges: Iterable[OffsetRange],
        plan: IntervalPlan,
        log_ends: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int] = _NONE,
    ) -> tuple[PlannedRange, ...]:
        """Ranges of a plan in message form."""
        return tuple(
            PlannedRange.of(r, tp in plan.behind, log_ends.get(tp), leader_epochs.get(tp), plan.rests_on.get(tp))
            for r in ranges
            for tp in (r.topic_partition,)
        )

    def of_each_table(self) -> tuple[StartCommit, ...]:
        """The interval once for each of its tables, each with that table and its topics only.

        Ranges keep their numbers; ranges without any of its topics are empty.
        """
        if not self.tables:
            return (self,)
        taken = {topic for table in self.tables for topic in table.topics}
        first = [r.topic for group in self.ranges for r in group if r.topic not in taken]
        parts = [(self.writer, self.records, first), *((t.writer, t.records, t.topics) for t in self.tables)]
        return tuple(
            self.model_copy(
                update={
                    "writer": writer,
                    "records": records,
                    "ranges": tuple(tuple(r for r in group if r.topic in topics) for group in self.ranges),
                    "tables": (),
                }
            )
            for writer, records, topics in parts
        )

    @property
    def replaces_files(self) -> bool:
        """Whether the commit removes file groups, as the replay of an append interval does."""
        return self.policy.reads == "again" and not self.writer.upserts

    @property
    def policy(self) -> RequestPolicy:
        """The rules for this kind of transaction."""
        return policy_of(self.kind)

    @property
    def offset_ranges(self) -> tuple[PlannedRange, ...]:
        """All planned ranges that have something to read."""
        return tuple(r for group in self.ranges for r in group)

    @property
    def losses_in_words(self) -> tuple[str, ...]:
        """The offsets that are given up, for people."""
        return tuple(f"{loss.cluster}/{loss}" if self.streams is not None else str(loss) for loss in self.losses)


class WriteStatus(_Message):
    """A participant has written its range, or has failed to.

    `began` is when the attempt began. `stats` are the committables; `part` and `parts` are those of
    earlier releases, in which a large status was several messages, each with its own slice of `stats`.

    Each record that was read is written, deletes a row, is quarantined as bad, is filtered out by the pipeline's
    transforms, or is skipped because the table has a newer version.

    Attributes:
        rows_moved: rows that an update removed from another table partition, which Hudi counts as deletes.
        rows_truncated: rows that a truncate removed, or marked as deleted.
        keys: where the records' keys were, for an upsert with checked key placement.
        emptied_at: the position of the last truncate among the records.
        quarantine_stats: the committables of the quarantine.
        first_bad: the first record in them.
    """

    type: Literal["WRITE-STATUS"] = "WRITE-STATUS"
    range: int
    attempt: str
    began: datetime | None = None
    part: int = 0
    parts: int = 1
    records_read: int = 0
    records_written: int = 0
    records_deleted: int = 0
    records_quarantined: int = 0
    records_filtered: int = 0
    records_skipped: int = 0
    rows_moved: int = 0
    rows_truncated: int = 0
    keys: tuple[PlacedKeys, ...] = ()
    emptied_at: str | None = None
    partitions: tuple[PartitionResult, ...] = ()
    stats: tuple[TravellingCommittable, ...] = ()
    quarantine_stats: tuple[TravellingCommittable, ...] = ()
    first_bad: BadRecord | None = None
    error: str | None = None
    recovery: Recovery | None = None


class EndCommit(_Message):
    """The write phase is over and the coordinator has decided to commit: which ranges reported and which did not.

    The first END of the newest START decides the transaction. Until its ACK or ABORT no other coordinator may plan, so
    that no plan uses offsets that are about to move.

    It is also the sender's lease on carrying the commit out, for `control.commit_timeout`. `takes_over` is the offset
    of the END whose lease it takes over, `holder` the process that carries it out; a `released` lease may be taken
    over at once.

    `table_partitions` are the ones in which attempts had opened files, if ranges are missing: no status says where
    these wrote, and an attempt that is suspended between a file's marker and the file may still create the file.
    """

    type: Literal["END-COMMIT"] = "END-COMMIT"
    reported: tuple[int, ...]
    missing: tuple[int, ...] = ()
    table_partitions: tuple[str, ...] = ()
    takes_over: int = NO_LEASE
    holder: str = ""
    released: bool = False


class AckCommit(_Message):
    """Committed: the table's offsets after the commit."""

    type: Literal["ACK-COMMIT"] = "ACK-COMMIT"
    offsets: tuple[PlannedRange, ...]
    records_read: int
    records_written: int
    records_deleted: int = 0
    records_quarantined: int
    records_filtered: int = 0
    records_skipped: int
    valid_through: datetime | None = None


class AbortCommit(_Message):
    """Not committed: why, and the offsets from which the next interval starts.

    `lease_offset` is the lease under which a decided transaction is given up. `table_partitions` are those in which
    attempts had opened files: one that is suspended between a file's marker and the file may still create the file,
    after the roll-back has deleted the marker.
    """

    type: Literal["ABORT-COMMIT"] = "ABORT-COMMIT"
    lease_offset: int = NO_LEASE
    table_partitions: tuple[str, ...] = ()
    reason: str
    standing_offsets: tuple[PlannedRange, ...] = ()


class Moved(_Message):
    """The table's messages continue in another control topic: no transaction can start in this one any more.

    It counts by the turn rule, like a START-COMMIT; then it supersedes open transactions and makes later STARTs void.
    """

    type: Literal["MOVED"] = "MOVED"
    read_position: int
    to: str


class SkipMessage(_Message):
    """All readers skip an unreadable message, by a person's decision.

    Attributes:
        offset: the message's control-topic offset.
        reason: why, in that person's words.
    """

    type: Literal["SET-ASIDE"] = "SET-ASIDE"
    offset: int
    reason: str


class Claim(_Message):
    """A worker claims a range, and others don't write it while the claim lasts.

    A claim keeps two workers from doing the same work; safety doesn't depend on it. The result of a range written
    without a claim, or twice, is judged by its WRITE-STATUS all the same.

    Attributes:
        range: number of the range in the plan.
        worker: the worker's name.
        lease: seconds for which the claim lasts unless it is renewed, counted by each reader from when it first saw it.
        takes_over: the offset of the range's claim that this one renews or takes over: a compare-and-set, as for END.
        released: whether the claim is given back.
        began: when the worker began; for people.
        memory: MiB that its processes take; for people.
    """

    type: Literal["CLAIM"] = "CLAIM"
    range: int
    worker: Annotated[str, Field(max_length=250)]
    lease: Annotated[float, Field(gt=0, le=86_400)]
    takes_over: int = NO_LEASE
    released: bool = False
    began: datetime | None = None
    memory: Annotated[int | None, Field(ge=0)] = None


class MappingSeen(_Message):
    """Where the table's streams are, from a watcher between two intervals. It is no turn.

    The next START reads what was mapped meanwhile, though the mapping may not name it any more by then
    (`protocol.seen_streams`).

    Attributes:
        streams: the mapping.
    """

    type: Literal["MAPPING-SEEN"] = "MAPPING-SEEN"
    streams: KnownStreams


ControlMessage = (
    StartCommit | WriteStatus | EndCommit | AckCommit | AbortCommit | Moved | SkipMessage | Claim | MappingSeen
)
_KINDS: Mapping[bytes, type[ControlMessage]] = {
    b'"%s"' % str(kind.model_fields["type"].default).encode(): kind for kind in get_args(ControlMessage)
}


def encode(message: ControlMessage) -> bytes:
    """The whole message as JSON; `wire` brings it into the topic's form."""
    return message.model_dump_json(exclude_none=True).encode()


def decode(value: bytes) -> ControlMessage:
    """Read a whole message.

    Raises:
        ValueError: it isn't one of Sluice's, or is too large; no other error, whatever the value is.
    """
    return decode_members(members(value))


def decode_members(fields: dict[str, bytes]) -> ControlMessage:
    """Read a whole message whose members were taken apart.

    Raises:
        ValueError: as `decode`.
    """
    kind = _KINDS.get(fields.get("type", b""))
    if kind is None:
        raise ValueError("its type is none of a control message")
    return model_of(kind, fields)


def join(parts: Iterable[WriteStatus]) -> WriteStatus | None:
    """A whole status from its parts, in any order and possibly repeated; None while a part is missing.

    Earlier releases split a large status by its stats; now `wire` can split any message.
    """
    by_number = {part.part: part for part in parts}
    first = by_number.get(0)
    if first is None or len(by_number) < first.parts:
        return None
    ordered: Sequence[WriteStatus] = [by_number[i] for i in range(first.parts)]
    whole = {name: tuple(stat for part in ordered for stat in getattr(part, name)) for name in _STATS}
    return first.model_copy(update={"part": 0, "parts": 1, **whole})
