"""Sources that break a rule each: the check of `sluice.testing` that is there for it finds it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import functions as F

from sluice.connectors.capabilities import SourceCapabilities
from sluice.connectors.data import Delivered, Gathered
from sluice.testing import SourceConformance
from sluice_lines.options import Lines
from sluice_lines.reader import LinesReader, planned_lines
from sluice_lines.source import LinesSource, complete_lines, local

from .test_conformance import TestLines as Conforming

# PySpark leaves it to the garbage collector to close the socket that rows came by.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Changed(LinesReader):
    """Reads other ranges than it is told, or makes something else of what it has read."""

    def ranges(self, ranges):
        return ranges

    def made(self, frame):
        return frame

    def read(self, ranges, isolation_level, *, headers=False):
        return self.made(super().read(self.ranges(ranges), isolation_level, headers=headers))


class StartsAtTheBeginning(Changed):
    def ranges(self, ranges):
        return [r.model_copy(update={"start": 0}) for r in ranges]


class EndsEarly(Changed):
    def made(self, frame):
        return frame.where(F.col("offset") != 2)


class DeliversWhatThereIs(Changed):
    def ranges(self, ranges):
        there = [len(complete_lines(local(r.cluster) / r.topic)) for r in ranges]
        return [r.model_copy(update={"end": min(r.end, end)}) for r, end in zip(ranges, there, strict=True)]


class ReadsWhatHasCome(DeliversWhatThereIs):
    def ranges(self, ranges):
        return super().ranges([r.model_copy(update={"end": 1000}) for r in ranges])


class LastFirst(Changed):
    def made(self, frame):
        return frame.sortWithinPartitions(F.col("offset").desc())


class AllInOneTask(Changed):
    def made(self, frame):
        return frame.coalesce(1)


class ValuesAsText(Changed):
    def made(self, frame):
        return frame.withColumn("value", F.col("value").cast("string"))


class RemembersHowFarItCame(Changed):
    """As a consumer group does: what was asked for once is not delivered again."""

    asked: ClassVar[dict[str, int]] = {}

    def ranges(self, ranges):
        found = [r.model_copy(update={"start": min(r.end, self.asked.get(str(r), 0) or r.start)}) for r in ranges]
        self.asked |= {str(r): r.start + 1 for r in ranges}
        return found


class Gathers(LinesReader):
    """Reads all in one task, and counts right."""

    def counted(self, delivered):
        return delivered

    def kept(self, frame):
        return frame

    def gather(self, ranges, per_task, isolation_level, *, headers=False):
        frame = self.kept(self.read(ranges, isolation_level, headers=headers)).coalesce(1)
        found = []
        for r in ranges:
            lines = planned_lines(r)
            size = sum(len(line.encode()) for line in lines)
            last = r.end - 1 if lines else None
            found.append(self.counted(Delivered(r, len(lines), size, last, None, 0 if lines else None)))
        return Gathered(frame, 1, tuple(found))


class GathersOneLess(Gathers):
    def kept(self, frame):
        return frame.where(F.col("offset") != 1)


class CountsOneMore(Gathers):
    def counted(self, delivered):
        return replace(delivered, records=delivered.records + 1)


class LeavesEmptyOnesOut(LinesSource):
    def state(self, topics, *window, **more):
        state = super().state(topics, *window, **more)
        return replace(state, partitions=[b for b in state.partitions if b.log_end])


class CountsFromItsEnd(LinesSource):
    def state(self, topics, *window, **more):
        state = super().state(topics, *window, **more)
        return replace(state, partitions=[replace(b, log_start=b.log_end // 2) for b in state.partitions])


class AnotherNameEachTime(LinesSource):
    def __init__(self, folder):
        super().__init__(folder)
        self.name = f"{folder}#{uuid.uuid4()}"


class IdsByLength(LinesSource):
    def topic_ids(self, topics):
        return {topic: f"{topic} of {self._file(topic).stat().st_size}" for topic in topics}


class IdsByName(LinesSource):
    def topic_ids(self, topics):
        return {topic: topic for topic in topics}


class SaysThatAllIsGone(LinesSource):
    def truncated_since(self, read):
        return dict.fromkeys(read, 0)


class BoundsByNothing(LinesSource):
    """It has no times, and says where a window ends."""

    def state(self, topics, window_end, *more, **others):
        state = super().state(topics, window_end, *more, **others)
        return (
            state
            if window_end is None
            else replace(state, partitions=[replace(b, window_end=0) for b in state.partitions])
        )


class LeavesALock(LinesSource):
    """Whoever dies while it holds the lock lets nobody look any more."""

    def state(self, *arguments, **more):
        lock = self._folder / "lock"
        lock.touch(exist_ok=False)
        found = super().state(*arguments, **more)
        lock.unlink()
        return found


class CopiesIntoTheLog(LinesSource):
    def copy_to_group(self, group, next_offsets):
        for tp in next_offsets:
            with (self._folder / tp.topic).open("a") as file:
                file.write("committed\n")


def _can(**capabilities) -> SourceCapabilities:
    return replace(Lines(folder="/in", topics=("a",)).capabilities, **capabilities)


BROKEN = [
    (_can(replayable=False), "it_can_be_used_for_exactly_once"),
    (LeavesEmptyOnesOut, "a_topic_without_records_has_bounds_with_nothing_between"),
    (CountsFromItsEnd, "offsets_grow_with_what_is_added"),
    (AnotherNameEachTime, "it_is_called_the_same_in_each_process"),
    (IdsByLength, "it_is_called_the_same_in_each_process"),
    (IdsByName, "a_topic_that_is_made_again_has_another_id"),
    (SaysThatAllIsGone, "what_was_read_is_not_said_to_be_gone"),
    (BoundsByNothing, "a_window_bounds_it_as_the_capabilities_say"),
    (_can(windows_by_time=True), "a_window_bounds_it_as_the_capabilities_say"),
    (ValuesAsText, "records_have_the_columns_that_are_told"),
    (_can(keyed=True), "records_have_the_columns_that_are_told"),
    (StartsAtTheBeginning, "a_range_begins_and_ends_where_it_is_told"),
    (EndsEarly, "a_range_begins_and_ends_where_it_is_told"),
    (LastFirst, "records_are_in_their_order_as_the_capabilities_say"),
    (ReadsWhatHasCome, "the_same_range_is_the_same_records_whenever_it_is_read"),
    (AllInOneTask, "each_range_is_a_task_of_its_own"),
    (DeliversWhatThereIs, "a_read_that_cannot_deliver_all_fails"),
    (GathersOneLess, "what_is_gathered_is_what_is_read"),
    (CountsOneMore, "what_is_gathered_is_what_is_read"),
    (LeavesALock, "a_process_may_die_at_each_call_while_it_looks"),
    (RemembersHowFarItCame, "a_read_that_was_broken_off_is_whole_when_it_is_repeated"),
    (CopiesIntoTheLog, "a_copy_for_monitors_changes_nothing"),
]


def test_each_check_has_a_source_that_it_finds():
    checks = {name.removeprefix("test_") for name in dir(SourceConformance) if name.startswith("test_")}
    assert checks == {check for _, check in BROKEN}


@pytest.mark.parametrize(("broken", "check"), BROKEN)
def test_a_source_that_breaks_a_rule_fails(tmp_path, spark, broken, check):
    class Tested(Conforming):
        calls = ((Path, "stat"), (Path, "touch"))
        _spark = spark
        make_source = broken if isinstance(broken, type) and issubclass(broken, LinesSource) else LinesSource
        make_reader = broken if isinstance(broken, type) and issubclass(broken, LinesReader) else LinesReader

        def capabilities(self):
            return broken if isinstance(broken, SourceCapabilities) else super().capabilities()

    test = getattr(Tested(), f"test_{check}")
    asked = {"tmp_path": tmp_path, "when": "after"}
    with pytest.raises((AssertionError, FileExistsError, pytest.fail.Exception)):
        test(**{name: value for name, value in asked.items() if name in signature(test).parameters})


def test_deaths_at_calls_that_a_look_never_makes_prove_nothing(tmp_path, spark):
    class Tested(Conforming):
        calls = ((Path, "hardlink_to"),)

    with pytest.raises(AssertionError, match="none of the `calls`"):
        Tested().test_a_process_may_die_at_each_call_while_it_looks(tmp_path, "before")
