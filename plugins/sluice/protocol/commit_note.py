"""Sluice's note in the metadata of a table's commit, beside the offsets: what later intervals and people read of it.

The table alone says what was committed: a control topic is kept for some months, a table for years. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field, ValidationError

from sluice.errors import ActionRequiredError
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.messages import LostOffsets, PlannedRange, RecordCounts, StartCommit, WriteStatus
from sluice.protocol.notes_topics import NotesTopic
from sluice.protocol.offsets import TRANSACTION_KEY, TopicPartition
from sluice.protocol.placement import PlacementNote, placement_note
from sluice.protocol.plan import IntervalPlan
from sluice.protocol.settlement import REMEMBERED_INTERVALS, count_records, emptied_at, valid_through
from sluice.protocol.transaction import Transaction
from sluice.untrusted import Untrusted, first_mistake, json_of

_PARTITIONS_NAMED = 500


class RangeRead(Untrusted):
    """Offsets `[start, end)` of one partition that a committed interval has read.

    Attributes:
        records: how many records were there; None in a note of a release that didn't count them by range.
    """

    cluster: str
    topic: str
    partition: int
    start: int
    end: int
    records: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, with its cluster's name at that time."""
        return TopicPartition(self.cluster, self.topic, self.partition)


class RowCounts(Untrusted):
    """Rows written to and deleted from one of an interval's tables."""

    rows: int = 0
    deletes: int = 0


class CommitNote(RecordCounts):
    """The note of one commit. One without an instant is no commit of Sluice's, or of no commit at all.

    Attributes:
        instant: the interval's transaction.
        control_topic: the topic of its START-COMMIT; None in notes of a release that didn't name it.
        control_offset: the offset of its START-COMMIT.
        recent_control_offsets: those of the last commits' START-COMMITs, oldest first, its own last.
        control_topic_id: Kafka's own id of the control topic, where brokers give one; None in notes of a release that
            noted it of signed topics only.
        known_as: the table's name in the control topic, such as its path as the pipeline file spells it; None in notes
            of a release that didn't name it.
        signed_from: the control topic's offset after which each message of the table has to be signed.
        signed_by_log_from: the one after which the topic's id has to be in the signatures.
        average_record_bytes: bytes of the records read, on average; None if there were none.
        valid_through: the time up to which the table is complete; None if unknown.
        streams: the mapping by which the interval was planned; None without streams.
        replays: the instant that a replay has replaced.
        placement: how keys are placed, for the table's life; None where their places don't matter.
        emptied_at: the position of the last truncate that the table has applied.
        table: of a quarantine's commit, the table whose bad records these are.
        tables: rows by table, where the interval has written several.
        file_groups: by topic and partition.
        table_partitions: in which the interval's attempts have written, 500 at most.
        notes_topics: the topics with notes of records that were sent again, oldest first; empty in notes of a release
            that didn't name them.
    """

    instant: str | None = None
    epoch: int = 0
    control_topic: str | None = None
    control_offset: int | None = None
    recent_control_offsets: tuple[int, ...] = ()
    control_topic_id: str | None = None
    known_as: str | None = None
    signed_from: int | None = None
    signed_by_log_from: int | None = None
    dag_id: str | None = None
    run_id: str | None = None
    average_record_bytes: float | None = None
    valid_through: datetime | None = None
    losses: tuple[LostOffsets, ...] = ()
    remarks: tuple[str, ...] = ()
    streams: KnownStreams | None = None
    kind: str | None = None
    reason: str | None = None
    replays: str | None = None
    placement: PlacementNote | None = None
    emptied_at: str | None = None
    table: str | None = None
    passed_over: tuple[PlannedRange, ...] = ()
    tables: dict[str, RowCounts] = Field(default_factory=dict)
    ranges: tuple[RangeRead, ...] = ()
    file_groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    table_partitions: tuple[str, ...] = ()
    notes_topics: tuple[NotesTopic, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Whether the commit is one of Sluice's."""
        return self.instant is not None

    @property
    def started_at(self) -> tuple[int, ...]:
        """The control topic's offsets of the last commits' START-COMMITs, oldest first; 0 where there are none."""
        return self.recent_control_offsets or (self.control_offset or 0,)

    def metadata(self) -> dict[str, str]:
        """The note as an entry of a commit's extra metadata."""
        return {TRANSACTION_KEY: json.dumps(self.model_dump(mode="json", include=self.model_fields_set))}


NO_NOTE = CommitNote()
"""What is known of a table without a commit, or of another writer's commit."""


def read_note(metadata: Mapping[str, str]) -> CommitNote:
    """Sluice's note in a commit's extra metadata; `NO_NOTE` where another writer has made the commit.

    Raises:
        ActionRequiredError: it can't be read.
    """
    text = metadata.get(TRANSACTION_KEY)
    if text is None:
        return NO_NOTE
    try:
        return CommitNote.model_validate(json_of(text))
    except ValidationError as error:
        raise _unreadable(first_mistake(error, "the note")) from error
    except ValueError as error:
        raise _unreadable(str(error)[:200]) from error


def _unreadable(reason: str) -> ActionRequiredError:
    return ActionRequiredError(
        "Sluice's note in the extra metadata of a commit of the table can't be read.",
        next_step=f"look at `{TRANSACTION_KEY}` of the table's last commits, and find what else writes there; the "
        "interval's ACK-COMMIT in the control topic has the same offsets.",
        reason=reason,
    )


def commit_note(
    transaction: Transaction,
    reported: Mapping[int, WriteStatus],
    earlier: Sequence[int],
    fitting: Mapping[str, Sequence[str]],
    control_topic: str,
    control_topic_id: str | None = None,
) -> CommitNote:
    """The note of a transaction that is about to be committed.

    Args:
        transaction: the transaction to commit.
        reported: the statuses to commit.
        earlier: the control-topic offsets of the earlier commits' STARTs, oldest first.
        fitting: by topic, the partitioners that explain the placement of all keys.
        control_topic: the topic of these STARTs and its own.
        control_topic_id: Kafka's id of it, None where brokers give none.
    """
    start = transaction.start
    counts: dict[str, Any] = {**count_records(reported)}
    partitions = [p for _, status in sorted(reported.items()) for p in status.partitions]
    bytes_read = sum(p.bytes_read for p in partitions)
    written_in = {c.partition for status in reported.values() for c in status.stats} | transaction.opened_in
    return CommitNote(
        instant=transaction.id,
        epoch=start.epoch,
        control_topic=control_topic,
        control_topic_id=control_topic_id,
        known_as=start.table,
        control_offset=transaction.start_offset,
        recent_control_offsets=(*earlier, transaction.start_offset)[-REMEMBERED_INTERVALS:],
        dag_id=start.dag_id,
        run_id=start.run_id,
        **counts,
        average_record_bytes=round(bytes_read / counts["records_read"], 1) if counts["records_read"] else None,
        valid_through=valid_through(start, reported),
        losses=start.losses,
        remarks=start.remarks,
        streams=start.streams,
        kind=start.kind,
        reason=start.reason,
        replays=start.replays,
        placement=placement_note(start.placement, fitting),
        emptied_at=emptied_at(start, reported),
        passed_over=start.passed_over,
        tables=rows_by_table(start, reported) if start.tables else {},
        ranges=tuple(
            RangeRead(**p.topic_partition._asdict(), start=p.start, end=p.next_offset, records=p.records_read)
            for p in partitions
        ),
        file_groups={f"{p.topic}[{p.partition}]": tuple(p.file_groups) for p in partitions},
        table_partitions=tuple(sorted(written_in)[:_PARTITIONS_NAMED]),
        notes_topics=start.notes_topics,
    )


def records_before(plan: IntervalPlan, note: CommitNote) -> tuple[int, ...]:
    """How many records a plan's ranges held when they were first read, by that commit's note; see `StartCommit`."""
    of_each = {(r.topic_partition, r.start): r.records for r in note.ranges}
    found = [of_each.get((r.topic_partition, r.start)) for r in plan.offset_ranges]
    known = tuple(number for number in found if number is not None)
    return known if len(known) == len(found) else (note.records_read,)


def rows_by_table(start: StartCommit, reported: Mapping[int, WriteStatus]) -> dict[str, RowCounts]:
    """Rows written and deleted of each of an interval's tables, by name."""
    names = (start.writer.name, *(t.writer.name for t in start.tables))
    rows, deletes = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for committable in (c for status in reported.values() for c in status.stats):
        name = committable.table or start.writer.name
        rows[name] += committable.rows
        deletes[name] += committable.deletes
    return {name: RowCounts(rows=rows[name], deletes=deletes[name]) for name in names}
