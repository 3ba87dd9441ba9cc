"""What every source has to keep, as tests: make a class of your own of `SourceConformance`, and run pytest on it.

An attempt that is repeated, by whatever process and whenever, has to read what the first one read: the protocol counts
on that and on nothing else of a source. Reads need a Spark session; see `SourceConformance.reader`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sluice.connectors.capabilities import SourceCapabilities
from sluice.connectors.data import UNREADABLE, GathersRanges, SourceReader
from sluice.connectors.source import Source
from sluice.protocol.messages import PlannedRange
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.state import PartitionBounds
from sluice.testing.deaths import When, deaths, dying

COLUMNS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "key": "binary",
    "value": "binary",
}
HEADERS = "array<struct<key:string,value:binary>>"
_DAY = datetime(2026, 1, 31, 12, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_LAST = 1000  # the most offsets to query one by one: some sources count theirs in microseconds


@dataclass(frozen=True)
class Record:
    """A record that a test adds.

    Attributes:
        value: its content.
        key: None for a source whose records have no keys.
        time: when it happened; None for a source that doesn't know times, or for now.
    """

    value: bytes
    key: bytes | None = None
    time: datetime | None = None


class SourceConformance(ABC):
    """The tests. A subclass says how its source is made, read, and added to.

    Each test has its own folder; a source that isn't stored in it may derive its names from the folder's.

    Attributes:
        calls: the calls of a source's methods at each of which the process dies once before and once after they have
            had their effect, as (object, name). None of them, where they can't be replaced.
        isolation: the section's `read_isolation`.
        value_type: Spark's type of a record's value, where it isn't bytes; `said` takes these out of it.
        own_headers: whether the source itself gives each record headers.
    """

    calls: ClassVar[Sequence[tuple[Any, str]]] = ()
    isolation: ClassVar[str] = "read_committed"
    value_type: ClassVar[str] = "binary"
    own_headers: ClassVar[bool] = False

    # The subclass

    @abstractmethod
    def topics(self, folder: Path) -> Sequence[str]:
        """The names of two topics of one partition each; made when they are first asked for, without a record.

        A source that reads one topic has one.
        """

    @abstractmethod
    def source(self, folder: Path) -> Source:
        """The source; asked anew for each process."""

    @abstractmethod
    def reader(self, folder: Path) -> SourceReader:
        """Its reader in a Spark session, which all readers of a test may share; asked anew for each process."""

    @abstractmethod
    def capabilities(self) -> SourceCapabilities:
        """Its declared capabilities."""

    @abstractmethod
    def add(self, folder: Path, topic: str, records: Sequence[Record]) -> None:
        """Add records at the end of a topic, in their order."""

    @abstractmethod
    def make_again(self, folder: Path, topic: str) -> None:
        """Delete a topic and make another one of its name, without a record."""

    def said(self, value: Any) -> bytes:
        """The original `Record.value`, from a record's value as read."""
        return bytes(value)

    # Tests of bounds

    def test_it_can_be_used_for_exactly_once(self) -> None:
        """The same offsets are the same records, or Sluice refuses the pipeline file."""
        assert self.capabilities().replayable

    def test_a_topic_without_records_has_bounds_with_nothing_between(self, tmp_path: Path) -> None:
        """It is named all the same: its first records are read from where it began."""
        topics = self.topics(tmp_path)
        bounds = self._bounds(tmp_path, topics)
        assert sorted({b.topic_partition.topic for b in bounds}) == sorted(topics)
        for one in bounds:
            assert one.log_start == one.log_end == one.window_end
            assert one.end_of_records == one.log_end or self.capabilities().sparse
            assert self._rows(tmp_path, _range(one)) == []

    def test_offsets_grow_with_what_is_added(self, tmp_path: Path) -> None:
        """Later records are beyond the earlier end; records before it stay."""
        topic = self.topics(tmp_path)[0]
        before, seen = self._one(tmp_path, topic), 0
        for number in (1, 2, 3):
            self.add(tmp_path, topic, _records(number))
            now = self._one(tmp_path, topic)
            assert before.log_start == now.log_start
            assert before.log_end < now.log_end == now.window_end <= now.end_of_records
            offsets = self._offsets(tmp_path, now)
            assert all(offset >= before.log_end for offset in offsets[seen:])
            assert all(now.log_start <= offset < now.log_end for offset in offsets)
            assert len(offsets) == seen + number
            before, seen = now, len(offsets)

    def test_it_is_called_the_same_in_each_process(self, tmp_path: Path) -> None:
        """Checkpoints contain these names, and its topics'; adding records changes neither name nor id."""
        topics = self.topics(tmp_path)
        name, ids = self.source(tmp_path).name, self.source(tmp_path).topic_ids(topics)
        assert name
        assert sorted(ids) == sorted(topics)
        self.add(tmp_path, topics[0], _records(2))
        again = self.source(tmp_path)
        assert (again.name, again.topic_ids(topics)) == (name, ids)
        assert {b.topic_partition.cluster for b in self._bounds(tmp_path, topics)} == {name}
        told = again.state(topics, None).topic_ids
        assert {topic: told[name, topic] for topic in topics} == ids
        assert again.cluster_ids() == dict(again.state(topics, None).cluster_ids) == self.source(tmp_path).cluster_ids()
        assert again.cluster_ids().keys() == {name}

    def test_a_topic_that_is_made_again_has_another_id(self, tmp_path: Path) -> None:
        """Its offsets mean other records: by the id alone it is seen that they do."""
        topics = self.topics(tmp_path)
        before = self.source(tmp_path).topic_ids(topics)
        self.add(tmp_path, topics[0], _records(1))
        self.make_again(tmp_path, topics[0])
        after = self.source(tmp_path).topic_ids(topics)
        assert before[topics[0]] != after[topics[0]]
        assert [before[other] for other in topics[1:]] == [after[other] for other in topics[1:]]

    def test_what_was_read_is_not_said_to_be_gone(self, tmp_path: Path) -> None:
        """Of a topic that lost nothing, and of none at all."""
        topic = self.topics(tmp_path)[0]
        self.add(tmp_path, topic, _records(3))
        source = self.source(tmp_path)
        state = source.state((topic,), None)
        (bounds,) = state.partitions
        epoch = state.leader_epochs.get(bounds.topic_partition, 0)
        assert source.truncated_since({bounds.topic_partition: (bounds.log_end, epoch)}) == {}
        assert source.truncated_since({}) == {}
        assert state.truncated == {}
        sent = source.sent_again(f"{topic}.redriven", "a table")
        last = range(max(bounds.log_start, bounds.log_end - _LAST), bounds.log_end)
        assert not any(sent.has((topic, 0, offset), None) for offset in last)

    def test_a_window_bounds_it_as_the_capabilities_say(self, tmp_path: Path) -> None:
        """By the times of its records; a source without times takes all there is, and says when it looked."""
        topic = self.topics(tmp_path)[0]
        timed = self.capabilities().windows_by_time
        times = [_DAY + i * _MINUTE for i in range(4)]
        self.add(tmp_path, topic, [Record(b"%d" % i, time=time if timed else None) for i, time in enumerate(times)])
        whole = self._one(tmp_path, topic)
        offsets = self._offsets(tmp_path, whole)
        source = self.source(tmp_path)
        (bounds,) = source.state((topic,), times[3], times[1]).partitions
        if timed:
            assert (bounds.window_start, bounds.window_end) == (offsets[1], offsets[3])
            assert bounds.valid_through == times[3]
        else:
            assert (bounds.window_start, bounds.window_end) == (whole.window_start, whole.log_end)
        (all_of_it,) = source.state((topic,), _DAY + timedelta(hours=1)).partitions
        # Where offsets are times, the end of the window is one itself, and not that of its last record.
        assert all_of_it.window_end == whole.log_end or (timed and self.capabilities().sparse)
        assert all_of_it.window_end > offsets[-1]

    # Tests of reads

    def test_records_have_the_columns_that_are_told(self, tmp_path: Path) -> None:
        """With headers or without: each has its place, and its value as it was added."""
        topic = self.topics(tmp_path)[0]
        keyed = self.capabilities().keyed
        self.add(tmp_path, topic, [Record(b"one", b"k" if keyed else None), Record(b"two")])
        bounds = self._one(tmp_path, topic)
        for headers in (False, True):
            frame = self._frame(tmp_path, [_range(bounds)], headers=headers)
            types = dict(frame.dtypes)
            if self.value_type != "binary":
                assert types.pop(UNREADABLE, "string") == "string"
            assert types == {
                **COLUMNS,
                "value": self.value_type,
                **({"headers": HEADERS} if headers else {}),
            }
            rows = frame.orderBy("offset").collect()
            assert [(row["topic"], row["partition"]) for row in rows] == [bounds.topic_partition[1:]] * 2
            assert [self.said(row["value"]) for row in rows] == [b"one", b"two"]
            assert [row["key"] for row in rows] == [bytearray(b"k") if keyed else None, None]
            if headers:
                assert [bool(row["headers"]) for row in rows] == [self.own_headers] * 2

    def test_a_range_begins_and_ends_where_it_is_told(self, tmp_path: Path) -> None:
        """Each stretch of a topic, the empty ones among them; the end is not read."""
        topic = self.topics(tmp_path)[0]
        self.add(tmp_path, topic, _records(4))
        bounds = self._one(tmp_path, topic)
        offsets = self._offsets(tmp_path, bounds)
        edges = [*offsets, bounds.log_end]
        for first, last in ((0, 1), (1, 3), (3, 4), (0, 4), (2, 2)):
            found = self._rows(tmp_path, _range(bounds, edges[first], edges[last]))
            assert [row["offset"] for row in found] == offsets[first:last]
            assert [self.said(row["value"]) for row in found] == [b"%d" % i for i in range(first, last)]

    def test_records_are_in_their_order_as_the_capabilities_say(self, tmp_path: Path) -> None:
        """As they were added, and by their offsets, in each read."""
        topic = self.topics(tmp_path)[0]
        self.add(tmp_path, topic, _records(20))
        found = self._frame(tmp_path, [_range(self._one(tmp_path, topic))]).collect()
        offsets = [row["offset"] for row in found]
        assert len(set(offsets)) == 20
        if self.capabilities().ordered:
            assert offsets == sorted(offsets)
            assert [self.said(row["value"]) for row in found] == [b"%d" % i for i in range(20)]

    def test_the_same_range_is_the_same_records_whenever_it_is_read(self, tmp_path: Path) -> None:
        """Twice by one process, and by another one after more was added."""
        topic = self.topics(tmp_path)[0]
        self.add(tmp_path, topic, _records(3))
        planned = _range(self._one(tmp_path, topic))
        reader = self.reader(tmp_path)
        first = [_sorted(reader.read([planned], self.isolation, headers=True).collect()) for _ in range(2)]
        self.add(tmp_path, topic, _records(5))
        assert first[0] == first[1] == _sorted(self._frame(tmp_path, [planned], headers=True).collect())
        assert len(first[0]) == 3

    def test_each_range_is_a_task_of_its_own(self, tmp_path: Path) -> None:
        """By its task it is known which range's rows a file holds; nothing of another topic is among them."""
        topics = self.topics(tmp_path)
        for number, topic in enumerate(topics, 2):
            self.add(tmp_path, topic, _records(number))
            self.add(tmp_path, topic, _records(1))
        frame = self._frame(tmp_path, [_range(self._one(tmp_path, topic)) for topic in reversed(topics)])
        assert frame.rdd.getNumPartitions() == len(topics)
        found = frame.selectExpr("topic", "spark_partition_id() AS task").collect()
        tasks = {topic: {row["task"] for row in found if row["topic"] == topic} for topic in topics}
        assert [len(numbers) for numbers in tasks.values()] == [1] * len(topics)
        assert len(set().union(*tasks.values())) == len(topics)
        assert len(found) == sum(number + 1 for number, _ in enumerate(topics, 2))

    def test_what_is_gathered_is_what_is_read(self, tmp_path: Path) -> None:
        """Column by column, of a range with records and of one without; and counted as it is."""
        topics = self.topics(tmp_path)
        reader = self.reader(tmp_path)
        if not isinstance(reader, GathersRanges):
            pytest.skip("it reads each range by a separate Spark task")
        keyed = self.capabilities().keyed
        self.add(tmp_path, topics[0], [Record(b"one", b"k" if keyed else None, _DAY), Record(b""), Record(b"three")])
        ranges = [_range(self._one(tmp_path, topic)) for topic in topics]
        for headers in (False, True):
            found = reader.gather(ranges, 1, self.isolation, headers=headers)
            assert found.unfit == ()
            assert [d.planned for d in found.delivered] in (ranges, ranges[::-1])
            with_records = next(d for d in found.delivered if d.records)
            assert (with_records.records, with_records.bytes) == (3, 8)
            rows = found.frame.selectExpr("*", "spark_partition_id() AS task").collect()
            assert {row["task"] for row in rows} == {with_records.task}
            assert found.frame.rdd.getNumPartitions() == found.tasks
            read = self._frame(tmp_path, ranges, headers=headers)
            assert dict(found.frame.dtypes) == dict(read.dtypes)
            assert _sorted(found.frame.select(*read.columns).collect()) == _sorted(read.collect())
            assert [row["offset"] for row in rows][-1] == with_records.last

    def test_a_read_that_cannot_deliver_all_fails(self, tmp_path: Path) -> None:
        """Offsets that aren't there must not be taken for offsets without a record.

        If offsets don't count records, only the bounds show the difference.
        """
        if self.capabilities().sparse:
            pytest.skip("its offsets aren't numbers of records")
        topic = self.topics(tmp_path)[0]
        self.add(tmp_path, topic, _records(2))
        bounds = self._one(tmp_path, topic)
        with pytest.raises(Exception, match=r"(?s).+"):  # whatever kind its reader, or Spark, makes of it
            self._rows(tmp_path, _range(bounds, bounds.log_start, bounds.log_end + 3))

    # Tests of deaths

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_process_may_die_at_each_call_while_it_looks(self, tmp_path: Path, when: When) -> None:
        """The next one sees the same."""
        topics = self.topics(tmp_path)
        self.add(tmp_path, topics[0], _records(2))

        def look() -> tuple[Any, list[int]]:
            source = self.source(tmp_path)
            bounds = source.state(topics, None).partitions
            starts = [(b.topic_partition, b.log_start) for b in bounds]
            return (starts, source.topic_ids(topics)), [b.log_end for b in bounds]

        seen, ends = look()
        for number in deaths(self.calls):
            with dying(self.calls, number, when) as died:
                look()
            again, now = look()
            assert again == seen
            assert all(self._stays(before, end) for before, end in zip(ends, now, strict=True))
            if not died:
                assert number > 1, "a look makes none of the `calls`: name the calls of the source, or none"
                return

    def test_a_read_that_was_broken_off_is_whole_when_it_is_repeated(self, tmp_path: Path) -> None:
        """A job that fails at its second record has changed nothing for the next."""
        topic = self.topics(tmp_path)[0]
        self.add(tmp_path, topic, _records(5))
        bounds = self._one(tmp_path, topic)
        planned, offsets = _range(bounds), self._offsets(tmp_path, bounds)
        fails = f"CASE WHEN offset >= {offsets[1]} THEN raise_error('the job dies') END"
        with pytest.raises(Exception, match="the job dies"):
            self._frame(tmp_path, [planned]).selectExpr("offset", f"{fails} AS dies").collect()
        assert self._frame(tmp_path, [planned]).limit(1).count() == 1
        assert [row["offset"] for row in self._rows(tmp_path, planned)] == offsets

    def test_a_copy_for_monitors_changes_nothing(self, tmp_path: Path) -> None:
        """Made twice, it moves no bound: only the table's own checkpoint determines the next read."""
        topic = self.topics(tmp_path)[0]
        self.add(tmp_path, topic, _records(2))
        before = self._one(tmp_path, topic)
        for _ in range(2):
            self.source(tmp_path).copy_to_group(f"group-of-{topic}", {before.topic_partition: before.log_end})
        self.source(tmp_path).copy_to_group(f"group-of-{topic}", {})
        after = self._one(tmp_path, topic)
        assert after.log_start == before.log_start
        assert self._stays(before.log_end, after.log_end)
        assert len(self._rows(tmp_path, _range(after))) == 2

    # How

    def _stays(self, before: int, end: int) -> bool:
        """Whether an end is unchanged; an end that is a time moves with the clock."""
        return end >= before if self.capabilities().sparse else end == before

    def _bounds(self, folder: Path, topics: Collection[str]) -> list[PartitionBounds]:
        return list(self.source(folder).state(tuple(topics), None).partitions)

    def _one(self, folder: Path, topic: str) -> PartitionBounds:
        (bounds,) = self._bounds(folder, (topic,))
        assert bounds.topic_partition == TopicPartition(self.source(folder).name, topic, 0)
        return bounds

    def _frame(self, folder: Path, ranges: Sequence[PlannedRange], *, headers: bool = False) -> Any:
        return self.reader(folder).read(ranges, self.isolation, headers=headers)

    def _rows(self, folder: Path, planned: PlannedRange) -> list[Any]:
        return _sorted(self._frame(folder, [planned]).collect())

    def _offsets(self, folder: Path, bounds: PartitionBounds) -> list[int]:
        return [row["offset"] for row in self._rows(folder, _range(bounds))]


def _records(number: int) -> list[Record]:
    return [Record(b"%d" % i) for i in range(number)]


def _range(bounds: PartitionBounds, start: int | None = None, end: int | None = None) -> PlannedRange:
    place = bounds.topic_partition._asdict()
    return PlannedRange(
        **place,
        start=bounds.log_start if start is None else start,
        end=bounds.log_end if end is None else end,
    )


def _sorted(rows: Sequence[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row["topic"], row["offset"]))
