"""Splits a range into parts, each a Spark job, since every task carries the counts of all its job's partitions.

With thousands of partitions in one job that would be millions of counts. The jobs' results are joined here, so that
the range is reported as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sluice.connectors.data import VoidChanges
from sluice.protocol.committable import Committable
from sluice.protocol.messages import PartitionResult, PlannedRange, StartCommit
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.placement import PlacedKeys, together
from sluice.rows.changes import ChangeCounts
from sluice.rows.records import Counted

AT_ONCE = 64
"""Partitions of one Spark job, unless Spark has more cores: one costs each task some ms, and a job costs a second."""

THIN = 1000
"""Offsets of a range that is read together with others, where there are more than `FEW` such ranges."""
FEW = 16
"""Ranges that are read by a task each, however thin they are."""
TOPICS = 16
"""Topics that are read together where keys are checked: a record is compared with each of them."""
_WORTH_A_TASK = 10_000
_HELD = 50_000  # about as many records are gathered at once


@dataclass(frozen=True)
class Part:
    """Spark's results for some of a range's partitions.

    Attributes:
        records_read: records that the source delivered.
        records_written: rows written for records, rather than for a truncate.
        committables: the sink's results for the commit.
        left_out: counts of records that didn't become rows, by reason.
        keys: where keys were found, by topic.
        partitions: the result for each partition.
        skipped: records that the table has a newer version of.
        void: changes from before a truncate.
        truncated: rows that a truncate removed.
    """

    records_read: int
    records_written: int
    committables: tuple[Committable, ...]
    left_out: Counted
    keys: tuple[PlacedKeys, ...]
    partitions: tuple[PartitionResult, ...]
    skipped: int = 0
    void: VoidChanges = field(default_factory=VoidChanges)
    truncated: int = 0


def can_be_parted(start: StartCommit) -> bool:
    """Whether several jobs may write the range one by one: no two share a file group, and none reads the table."""
    if not start.writer.upserts:
        return True
    by_partition = start.placement is None or start.placement.buckets is None
    return by_partition and not start.keep_newer and not start.later


def can_be_gathered(start: StartCommit, planned: Sequence[PlannedRange]) -> bool:
    """Whether ranges may share tasks and files.

    Not for a coordinator that promised each range a task; nor where one job has to write them all, and they may be
    more than are held at once.
    """
    if start.records_per_task is None:
        return False
    if can_be_parted(start):
        return True
    found, topics = thin(planned), topics_at_once(start)
    few_topics = topics is None or len({r.named_topic for r in found}) <= topics
    return few_topics and sum(r.end - r.start for r in found) <= _HELD


def topics_at_once(start: StartCommit) -> int | None:
    """Of how many topics ranges are gathered at once; None for all."""
    return TOPICS if start.placement is not None and start.placement.kind == "checked" else None


def thin(planned: Sequence[PlannedRange]) -> list[PlannedRange]:
    """The ranges of so few offsets that a Spark task and a file for each would cost more than their records.

    None, unless they are many: then a task for each of the others is what they cost.
    """
    ranges = Counter(r.topic_partition for r in planned)
    found = [r for r in planned if r.end - r.start <= THIN and ranges[r.topic_partition] == 1]
    return found if len(found) > FEW else []


def per_task(ranges: Sequence[PlannedRange], cores: int) -> int:
    """About how many records of gathered ranges each task has: all cores have work, where it is worth a task."""
    offsets = min(_HELD, sum(r.end - r.start for r in ranges))
    return max(_WORTH_A_TASK, -(-offsets // cores))


def parted(start: StartCommit, planned: Sequence[PlannedRange], cores: int) -> list[tuple[PlannedRange, ...]]:
    """The ranges of each job, in order; a partition's ranges stay together, since they share file groups."""
    at_once = max(AT_ONCE, cores)
    if not can_be_parted(start):
        return [tuple(planned)]
    of_partition: dict[TopicPartition, list[PlannedRange]] = {}
    for r in planned:
        of_partition.setdefault(r.topic_partition, []).append(r)
    parts: list[tuple[PlannedRange, ...]] = [()]
    for ranges in of_partition.values():
        if parts[-1] and len(parts[-1]) + len(ranges) > at_once:
            parts.append(())
        parts[-1] += tuple(ranges)
    return parts


def joined(parts: Sequence[Part]) -> Part:
    """Join all parts of a range."""
    if len(parts) == 1:
        return parts[0]
    return Part(
        records_read=sum(p.records_read for p in parts),
        records_written=sum(p.records_written for p in parts),
        committables=tuple(c for p in parts for c in p.committables),
        left_out=_left_out([p.left_out for p in parts]),
        keys=_keys(one for p in parts for one in p.keys),
        partitions=tuple(one for p in parts for one in p.partitions),
        skipped=sum(p.skipped for p in parts),
        void=VoidChanges(*(sum(getattr(p.void, name) for p in parts) for name in ("records", "deleted", "moved"))),
        truncated=sum(p.truncated for p in parts),
    )


def _left_out(found: Sequence[Counted]) -> Counted:
    return Counted(
        bad=sum(c.bad for c in found),
        filtered=sum(c.filtered for c in found),
        spans=tuple(span for c in found for span in c.spans),
        deleted=sum(c.deleted for c in found),
        moved=sum(c.moved for c in found),
        changes=_seen([c.changes for c in found]),
    )


def _seen(found: Sequence[ChangeCounts]) -> ChangeCounts:
    places = [s.first_truncate for s in found if s.first_truncate is not None]
    emptied = [s.emptied_at for s in found if s.emptied_at is not None]
    topics = dict.fromkeys(topic for s in found for topic in s.keyless)
    keyless = {topic: together(s.keyless.get(topic) for s in found) for topic in topics}
    return ChangeCounts(
        truncates=sum(s.truncates for s in found),
        first_truncate=min(places, key=lambda place: (place[2], place[1], place[0]), default=None),
        emptied_at=max(emptied, default=None),
        keyless={topic: first for topic, first in keyless.items() if first is not None},
    )


def _keys(found: Iterable[PlacedKeys]) -> tuple[PlacedKeys, ...]:
    of_topic: dict[str, list[PlacedKeys]] = {}
    for one in found:
        of_topic.setdefault(one.topic, []).append(one)
    return tuple(
        PlacedKeys(
            topic=topic,
            keyless=together(k.keyless for k in some),
            misplaced={
                name: first
                for name in dict.fromkeys(n for k in some for n in k.misplaced)
                if (first := together(k.misplaced.get(name) for k in some)) is not None
            },
        )
        for topic, some in of_topic.items()
    )
