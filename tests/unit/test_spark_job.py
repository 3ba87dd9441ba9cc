"""What a participant's job on Spark decides, without Spark: which log it reads, in which parts, and what has failed."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, planned, start
from py4j.protocol import Py4JNetworkError

from sluice.connectors.data import Delivered, Gathered, VoidChanges
from sluice.errors import ActionRequiredError, IntervalError, RetryableError
from sluice.participant import parts, quarantine, spark_job
from sluice.participant.participant import NotHereError
from sluice.participant.parts import AT_ONCE, Part, parted
from sluice.participant.quarantine import SetAside, set_aside, together
from sluice.participant.spark_job import RunningSparkJob, readers_of
from sluice.protocol.committable import Committable
from sluice.protocol.identity import LogId
from sluice.protocol.messages import BadRecord
from sluice.protocol.placement import KeyPlacement
from sluice.rows.bad_records import BadSpan
from sluice.rows.changes import ChangeCounts
from sluice.rows.records import Counted

# What has failed


class _Reader:
    """A source's reader that knows one error as its own."""

    def classified(self, error: Exception, *_: Any) -> ActionRequiredError | None:
        return ActionRequiredError("The source says no.", next_step="-") if "refused" in str(error) else None


def _job(reader: Any = None, writer: Any = None, spark: Any = None) -> RunningSparkJob:
    return RunningSparkJob(spark, lambda _cluster: reader or _Reader(), writer, lambda: None)


def _says(error: Exception) -> str:
    return str(_job().classified(error, start(INSTANT), 0))


def test_an_error_that_says_what_to_do_is_reported_as_it_is():
    known = ActionRequiredError("Known.", next_step="-")
    assert _job().classified(known, start(INSTANT), 0) is known
    assert _job().classified(NotHereError(known), start(INSTANT), 0) is known


def test_the_source_s_own_errors_come_before_those_of_spark():
    assert "The source says no." in _says(RuntimeError("refused: OutOfMemoryError"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), "The Spark job ran out of memory."),
        (RuntimeError("Container exited with exit code 52"), "The Spark job ran out of memory."),
        (RuntimeError("Job 0 cancelled because SparkContext was shut down"), "Spark's JVM was lost"),
        (Py4JNetworkError("no answer"), "Spark's JVM was lost"),
        (ConnectionResetError(), "Spark's JVM was lost"),
        (RuntimeError("ExecutorLostFailure (executor 1 exited)"), "Spark lost an executor"),
        (RuntimeError("org.apache.X: wrong\n  Caused by: why\n  Caused by: because"), "[reason=Caused by: why,"),
        (RuntimeError("\n first line\nsecond line"), "[reason=first line,"),
    ],
)
def test_what_ended_spark_s_job_is_told_apart(error, expected):
    assert expected in _says(error)


# Which log is read


class _Logs:
    """A reader of a cluster on which topics have these ids."""

    def __init__(self, *, cluster: str = "K", topic: str = "id", fails: bool = False) -> None:
        self._log, self._fails = LogId(cluster, topic), fails
        self.asked: list[set[str]] = []

    def log_ids(self, topics: Any) -> dict[str, LogId]:
        if self._fails:
            raise RetryableError("The cluster doesn't answer.", next_step="-")
        self.asked.append(set(topics))
        return dict.fromkeys(topics, self._log)


_PLANNED = start(INSTANT, cluster_ids={"kafka": "K"}, topic_ids={"kafka": {"t": "id"}})


@pytest.mark.parametrize(
    ("reader", "is_left"),
    [
        (_Logs(), False),
        (_Logs(cluster="another"), True),
        (_Logs(topic="made again"), True),
        (_Logs(fails=True), True),
        (_Reader(), False),
    ],
    ids=["the log that was planned on", "another cluster", "another topic", "no answer", "a source without ids"],
)
def test_a_range_is_read_only_of_the_logs_that_it_was_planned_on(reader, is_left):
    with pytest.raises(NotHereError) if is_left else nullcontext():
        _job(reader)._require_planned_logs(_PLANNED, 0)


def test_the_logs_of_later_offsets_are_looked_at_too_and_those_of_other_ranges_are_not():
    reader, of_other = _Logs(), planned(0).model_copy(update={"topic": "other"})
    later = planned(0).model_copy(update={"topic": "later"})
    here = _PLANNED.model_copy(update={"ranges": ((planned(0), planned(1)), (of_other,)), "later": (later,)})
    _job(reader)._require_planned_logs(here, 0)
    assert reader.asked == [{"t", "later"}]


def test_each_cluster_of_streams_is_read_where_it_is_and_any_other_by_the_source_s_connection():
    class Settings:
        def at(self, cluster: str, servers: str) -> tuple[str, str]:
            return cluster, servers

    address = SimpleNamespace(connection="of_east", bootstrap_servers="east:9092")
    made: list[Any] = []
    connections: Any = {"of_east": Settings()}.__getitem__
    readers = readers_of(lambda settings: made.append(settings) or len(made), "source", connections, {"east": address})
    assert [readers("east"), readers("west"), readers("east")] == [1, 2, 1]  # one for each, kept
    assert made == [("east", "east:9092"), "source"]


# Parts


def _part(number: int, **more: Any) -> Part:
    fields = {
        "records_read": 10 * number,
        "records_written": number,
        "committables": (Committable(rows=number),),
        "left_out": Counted(filtered=number, deleted=3 * number, moved=2 * number),
        "keys": (),
        "partitions": (),
        "skipped": number,
        "void": VoidChanges(number, 2 * number, number),
        "truncated": number,
    }
    return Part(**{**fields, **more})


class _Writing:
    """In place of `spark_job._Writing`: each job's ranges, and how it was asked."""

    def __init__(self, *parts: Part, after: Any = lambda: None) -> None:
        self._parts, self._after = list(parts), after
        self.jobs: list[tuple[list[int], str | None, bool]] = []
        self.later: list[Any] = []

    def __call__(self, *_: Any) -> _Writing:
        return self

    def remember_deletes(self, later: Any) -> None:
        self.later = later

    def lots(self, planned: Any) -> Any:
        return ((ranges, ()) for ranges in parted(_WIDE, planned, 2))

    def part(self, ranges: Any, emptied_at: str | None, *, truncates: bool = False, gathered: Any = ()) -> Part:
        assert not gathered
        self.jobs.append(([r.partition for r in ranges], emptied_at, truncates))
        self._after()
        return self._parts.pop(0)


_WIDE = start(INSTANT).model_copy(
    update={"ranges": (tuple(map(planned, range(70))),), "later": (planned(3), planned(99)), "emptied_at": "7"}
)
_SPARK = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))


def _running(monkeypatch: pytest.MonkeyPatch, writing: _Writing) -> RunningSparkJob:
    monkeypatch.setattr(spark_job, "_Writing", writing)
    return _job(writer=lambda *_: None, spark=_SPARK)


def _writes(monkeypatch: pytest.MonkeyPatch, writing: _Writing) -> dict[str, Any]:
    return _running(monkeypatch, writing).write(_WIDE, 0, "a", lambda: None)


def test_a_wide_range_is_written_part_by_part_and_reported_as_one(monkeypatch):
    writing = _Writing(_part(1), _part(2))
    found = _writes(monkeypatch, writing)
    assert writing.jobs == [(list(range(64)), "7", False), (list(range(64, 70)), "7", False)]
    assert [r.partition for r in writing.later] == [3]  # of the partitions that are read here
    assert {name: value for name, value in found.items() if value} == {
        "records_read": 30,
        "records_written": 3,
        "records_deleted": 9 - 6,
        "records_filtered": 3,
        "records_skipped": 3 + 3,
        "rows_moved": 6 - 3,
        "rows_truncated": 3,
        "stats": (Committable(rows=1), Committable(rows=2)),
    }


def test_a_job_s_records_are_read_turned_into_rows_and_written_and_counted_by_what_was_written(monkeypatch):
    asked: dict[str, Any] = {}

    class Chain:
        def __init__(self, *given: Any, **more: Any) -> None:
            asked["chain"] = given[1:], more

        def rows(self, read: Any) -> Any:
            return ["rows of", *read]

        def counts(self, dataset: str) -> Counted:
            assert dataset == "dataset"
            return Counted(filtered=4)

    class Writer:
        def write(self, rows: Any, emptied_at: Any, *, truncates: bool) -> Any:
            asked["write"] = rows, emptied_at, truncates
            groups = {"file_groups": lambda *given: given, "records": 5, "committables": ("c",), "skipped": 6}
            return SimpleNamespace(dataset="dataset", void=VoidChanges(1), truncated=7, **groups)

        def remember_deletes(self, rows: Any) -> None:
            asked["deletes"] = rows

    def read(*given: Any, **more: Any) -> list[Any]:
        asked["read"] = more
        return [r.partition for r in given[1]]

    monkeypatch.setattr(spark_job, "RecordChain", Chain)
    monkeypatch.setattr(spark_job, "read_range", read)
    monkeypatch.setattr(spark_job, "KeyCheck", lambda *_: SimpleNamespace(watch="watch", found=lambda *given: given))
    monkeypatch.setattr(spark_job, "counted", lambda *_: {"records": 9})
    monkeypatch.setattr(spark_job, "partition_results", lambda *given: given)
    monkeypatch.setattr(spark_job, "tasks_of", lambda *_: "tasks")
    monkeypatch.setattr(spark_job, "check_of", lambda _: "check")
    monkeypatch.setattr(spark_job, "wants_record_time", lambda _: True)
    made, ranges = start(INSTANT), [planned(1), planned(2)]
    writing = spark_job._Writing(None, made, None, Writer())  # type: ignore[arg-type]
    part = writing.part(ranges, "7", truncates=True)
    assert asked["write"] == (["rows of", 1, 2], "7", True)
    assert asked["read"] == {"headers": False, "watch": "watch", "of_streams": False, "division": ()}
    assert asked["chain"] == (
        (made.records, made.writer, ranges),
        {"of_streams": False, "record_time": True, "check": "check"},
    )
    assert part == Part(
        records_read=9,
        records_written=5,
        committables=("c",),  # type: ignore[arg-type]
        left_out=Counted(filtered=4),
        keys=("dataset", ChangeCounts()),  # type: ignore[arg-type]
        partitions=(ranges, {"records": 9}, (ranges, "tasks")),  # type: ignore[arg-type]
        skipped=6,
        void=VoidChanges(1),
        truncated=7,
    )
    writing.remember_deletes([])
    assert "deletes" not in asked
    writing.remember_deletes([planned(3)])
    assert asked["deletes"] == ["rows of", 3]


def test_a_job_that_is_cancelled_begins_no_further_part(monkeypatch):
    writing = _Writing(_part(1), _part(2), after=lambda: job.cancel())
    job = _running(monkeypatch, writing)
    with pytest.raises(RuntimeError, match="cancelled"):
        job.write(_WIDE, 0, "a", lambda: None)
    assert len(writing.jobs) == 1


def test_a_range_with_a_truncate_is_written_again_as_a_whole_where_the_pipeline_applies_it(monkeypatch):
    emptied = Counted(changes=ChangeCounts(truncates=1, first_truncate=("t", 3, 5), emptied_at=Decimal(5)))
    writing = _Writing(_part(1, left_out=emptied), _part(2), _part(3, left_out=emptied))
    with pytest.raises(ActionRequiredError, match="emptied by a truncate"):
        _writes(monkeypatch, writing)
    monkeypatch.setattr(spark_job, "require_truncates_apply", lambda *_: None)
    writing = _Writing(_part(1, left_out=emptied), _part(2), _part(3, left_out=emptied))
    found = _writes(monkeypatch, writing)
    assert writing.jobs[2:] == [(list(range(70)), "5", True)]
    assert (found["records_written"], found["emptied_at"]) == (3, "5")  # of the second write alone


def test_whether_it_is_over_is_looked_at_after_the_last_file_is_closed(monkeypatch):
    writing = _Writing(_part(1), _part(2))
    jobs = []
    _running(monkeypatch, writing).write(_WIDE, 0, "a", lambda: jobs.extend(writing.jobs))
    assert len(jobs) == 2


# Many ranges of few records


class _Gathers:
    """A reader that gathers two ranges at a time, and never the third partition."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.how: set[Any] = set()

    def gather(self, ranges: Any, per_task: int, isolation_level: str, *, headers: bool) -> Gathered:
        self.asked.append([r.partition for r in ranges])
        self.how.add((per_task, isolation_level, headers))
        unfit = tuple(r for r in ranges[:2] if r.partition == 3)
        return Gathered("frame", 1, tuple(Delivered(r) for r in ranges[:2] if r not in unfit), unfit)


_ANY_ORDER = SimpleNamespace(any_order=True)


def _lots(reader: Any, number: int, *, writer: Any = _ANY_ORDER, **more: Any) -> list[tuple[list[int], int]]:
    begun = start(INSTANT, records_per_task=100_000, **more)
    if "keep_newer" in more:
        begun = begun.model_copy(update={"writer": begun.writer.model_copy(update={"operation": "upsert"})})
    writing = spark_job._Writing(_SPARK, begun, lambda _: reader, writer)  # type: ignore[arg-type]
    return [([r.partition for r in ranges], len(of)) for ranges, of in writing.lots([*map(planned, range(number))])]


def test_many_thin_ranges_are_written_as_they_are_gathered_and_the_rest_as_ever(monkeypatch):
    monkeypatch.setattr(parts, "FEW", 4)
    reader = _Gathers()
    assert _lots(reader, 6) == [([0, 1], 1), ([2], 1), ([4, 5], 1), ([3], 0)]
    assert reader.asked == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5], [4, 5]]
    assert reader.how == {(10_000, "read_committed", False)}


def test_few_ranges_or_those_of_a_source_that_does_not_gather_are_read_as_ever():
    reader = _Gathers()
    assert _lots(reader, 6) == [([*range(6)], 0)]
    assert reader.asked == []
    assert [len(ranges) for ranges, _ in _lots(_Reader(), AT_ONCE + 1)] == [AT_ONCE, 1]


def test_a_writer_that_minds_the_order_gets_a_task_for_each_range(monkeypatch):
    monkeypatch.setattr(parts, "FEW", 4)
    assert _lots(_Gathers(), 6, writer=SimpleNamespace(any_order=False)) == [([*range(6)], 0)]


def test_a_writer_to_which_a_task_may_bring_several_ranges_in_their_order_gets_them(monkeypatch):
    monkeypatch.setattr(parts, "FEW", 4)
    lots = _lots(_Gathers(), 6, writer=SimpleNamespace(any_order=False, write_gathered=print))
    assert lots == [([0, 1], 1), ([2], 1), ([4, 5], 1), ([3], 0)]


def test_what_one_job_has_to_write_is_gathered_as_a_whole_or_read_as_ever(monkeypatch):
    monkeypatch.setattr(parts, "FEW", 1)
    assert _lots(_Gathers(), 2, keep_newer=True) == [([0, 1], 1)]
    assert _lots(_Gathers(), 3, keep_newer=True) == [([0, 1, 2], 0)]

    class Unfit(_Gathers):
        def gather(self, ranges: Any, *_: Any, **__: Any) -> Gathered:
            return Gathered("frame", 1, tuple(map(Delivered, ranges[1:])), tuple(ranges[:1]))

    assert _lots(Unfit(), 3, keep_newer=True) == [([1, 2, 0], 1)]


def test_where_keys_are_checked_so_many_topics_are_gathered_at_once(monkeypatch):
    monkeypatch.setattr(parts, "FEW", 1)
    monkeypatch.setattr(parts, "TOPICS", 2)
    topics, asked = ("a", "b", "a", "c", "b"), []

    class Reader:
        def gather(self, ranges: Any, *_: Any, **__: Any) -> Gathered:
            asked.append([r.topic for r in ranges])
            return Gathered("frame", 1, tuple(map(Delivered, ranges)))

    ranges = [planned(i).model_copy(update={"topic": topic}) for i, topic in enumerate(topics)]
    checked = KeyPlacement(kind="checked", partitions=dict.fromkeys(topics, 9))
    for placement, expected in ((checked, [[*"abab"], ["c"]]), (None, [[*topics]])):
        begun = start(INSTANT, records_per_task=100_000, placement=placement)
        asked.clear()
        assert len([*spark_job._Writing(_SPARK, begun, lambda _: Reader(), _ANY_ORDER).lots(ranges)]) == len(expected)  # type: ignore[arg-type]
        assert asked == expected


class _Frame:
    """In place of a DataFrame: the partitions of which it has records."""

    def __init__(self, *partitions: Any) -> None:
        self.partitions = partitions


def test_what_was_gathered_and_the_rest_are_written_and_counted_by_one_job(monkeypatch):
    asked: list[Any] = []

    class Chain:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def rows(self, read: Any) -> Any:
            return read.partitions

        def counts(self, _: str) -> Counted:
            return Counted()

    class Writer:
        any_order = False

        def write(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("its ranges share tasks")

        def write_gathered(self, *given: Any) -> Any:
            asked.append(given)
            groups = {"file_groups": lambda ranges, _: len(ranges), "records": 5, "committables": (), "skipped": 0}
            return SimpleNamespace(dataset="dataset", void=VoidChanges(), truncated=0, **groups)

    def results(ranges: Any, counts: Any, groups: Any) -> list[Any]:
        return [(r.partition, counts["of"], groups) for r in ranges]

    frame = SimpleNamespace(unionByName=lambda one, other, **_: _Frame(*one.partitions, *other.partitions))
    monkeypatch.setattr(spark_job, "DataFrame", frame)
    monkeypatch.setattr(spark_job, "RecordChain", Chain)
    monkeypatch.setattr(spark_job, "read_gathered", lambda found, **_: _Frame(*(one.frame for one in found)))
    monkeypatch.setattr(spark_job, "read_range", lambda _, ranges, *__, **___: _Frame(*(r.partition for r in ranges)))
    monkeypatch.setattr(spark_job, "KeyCheck", lambda *_: SimpleNamespace(watch="watch", found=lambda *_: ()))
    monkeypatch.setattr(spark_job, "counted_gathered", lambda *_: {"of": "gathered", "records": 7})
    monkeypatch.setattr(spark_job, "counted", lambda *_: {"of": "read", "records": 2})
    monkeypatch.setattr(spark_job, "partition_results", results)
    monkeypatch.setattr(spark_job, "tasks_of", lambda *_: ())
    writing = spark_job._Writing(None, start(INSTANT), None, Writer())  # type: ignore[arg-type]
    gathered = [Gathered("frame", 1, (Delivered(planned(4)), Delivered(planned(2))))]
    part = writing.part([*map(planned, (4, 2, 9))], "7", gathered=gathered)
    assert asked == [(("frame", 9), "7")]
    assert part.records_read == 9
    assert part.partitions == ((4, "gathered", 2), (2, "gathered", 2), (9, "read", 1))


def _again(reader: Any, number: int, *, may_share: bool, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    def read(_: Any, ranges: Any, isolation: str, **how: Any) -> Any:
        assert (isolation, how) == ("read_committed", {"headers": True, "of_streams": False})
        return [r.partition for r in ranges]

    monkeypatch.setattr(spark_job, "read_range", read)
    monkeypatch.setattr(spark_job, "read_gathered", lambda found, of_streams: [one.frame for one in found])
    begun, ranges = start(INSTANT), [*map(planned, range(number))]
    return [*_job(reader, spark=_SPARK)._read_again(begun, ranges, may_share)]


def test_bad_records_of_many_partitions_are_gathered_like_those_that_became_rows(monkeypatch):
    monkeypatch.setattr(parts, "FEW", 4)
    reader = _Gathers()
    assert _again(reader, 6, may_share=True, monkeypatch=monkeypatch) == [*3 * [(["frame"], True)], ([3], False)]
    assert reader.how == {(10_000, "read_committed", True)}
    assert _again(reader, 4, may_share=True, monkeypatch=monkeypatch) == [([0, 1, 2, 3], False)]


@pytest.mark.parametrize("reader", [_Gathers(), _Reader()])
def test_bad_records_are_read_by_a_task_for_each_range_some_at_a_time(reader, monkeypatch):
    found = _again(reader, AT_ONCE + 1, may_share=isinstance(reader, _Reader), monkeypatch=monkeypatch)
    assert found == [([*range(AT_ONCE)], False), ([AT_ONCE], False)]


# Bad records that are set aside


class _Chain:
    """In place of the chain of a record: as many bad records as the offsets that are read again."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def bad(self, read: Any) -> Any:
        return read


class _Kept:
    """A quarantine's writer."""

    def __init__(self, rows_in_each: int = 1) -> None:
        self._rows = rows_in_each
        self.written: list[list[tuple[int, int]]] = []

    def write(self, ranges: Any) -> Any:
        self.written.append([(r.start, r.end) for r in ranges])
        return SimpleNamespace(committables=tuple(Committable(rows=self._rows) for _ in ranges))


def _read(ranges: Any, may_share: bool) -> Any:
    assert not may_share  # the writer doesn't say so
    return [(some, False) for some in (ranges[:64], ranges[64:]) if some]


_SPANS = tuple(BadSpan(planned(n), 2, 4) for n in range(70))
_FIRST = BadRecord(topic="t", partition=0, offset=2, reason="why")


def _aside(monkeypatch: pytest.MonkeyPatch, counted: Counted, kept: _Kept, **errors: Any) -> SetAside:
    monkeypatch.setattr(quarantine, "RecordChain", _Chain)
    monkeypatch.setattr(quarantine, "_first", lambda *_: _FIRST)
    monkeypatch.setattr(quarantine, "_rows", lambda bad, *_: bad)
    monkeypatch.setattr(quarantine, "check_of", lambda _: None)
    monkeypatch.setattr(quarantine, "wants_record_time", lambda _: False)
    made = start(INSTANT)
    records = made.records.model_copy(update={"errors": made.records.errors.model_copy(update=errors)})
    here: Any = made.model_copy(update={"quarantine": made.writer, "records": records})
    return set_aside(None, here, counted, _read, lambda: kept, (0, "a"), None)  # type: ignore[arg-type]


def test_bad_records_are_read_again_around_them_as_they_are_handed_out(monkeypatch):
    kept = _Kept()
    found = _aside(monkeypatch, Counted(bad=70, spans=_SPANS), kept)
    assert [len(written) for written in kept.written] == [64, 6]
    assert kept.written[0][0] == (2, 5)
    assert (found.records, len(found.committables), found.first) == (70, 70, _FIRST)
    assert _aside(monkeypatch, Counted(), kept) == SetAside()
    assert len(kept.written) == 2


def test_bad_records_that_were_gathered_are_written_as_such(monkeypatch):
    class Takes(_Kept):
        def write_gathered(self, ranges: Any, _: Any) -> Any:
            self.gathered = [r.partition for r in ranges]
            return self.write(())

    def read(ranges: Any, may_share: bool) -> Any:
        assert may_share
        return [(ranges[:2], True), (ranges[2:], False)]

    monkeypatch.setattr(f"{__name__}._read", read)
    kept = Takes()
    with pytest.raises(IntervalError, match="found=68"):  # it says nothing of those that were gathered
        _aside(monkeypatch, Counted(bad=70, spans=_SPANS), kept)
    assert kept.gathered == [0, 1]
    assert [len(written) for written in kept.written] == [0, 68]


@pytest.mark.parametrize("counted", [69, 71])
def test_bad_records_that_are_others_when_they_are_read_again_are_not_committed(counted, monkeypatch):
    with pytest.raises(IntervalError, match="differ"):
        _aside(monkeypatch, Counted(bad=counted, spans=_SPANS), _Kept())


def test_more_bad_records_than_are_tolerated_are_not_even_set_aside(monkeypatch):
    kept = _Kept()
    with pytest.raises(ActionRequiredError, match=r"errors\.max_records is 69"):
        _aside(monkeypatch, Counted(bad=70, spans=_SPANS), kept, max_records=69)
    assert kept.written == []
    assert _aside(monkeypatch, Counted(bad=70, spans=_SPANS), kept, max_records=70).records == 70


def test_what_several_tables_have_set_aside_is_counted_together():
    some = [SetAside(), SetAside(1, (Committable(rows=1),), _FIRST), SetAside(2, (Committable(rows=2),))]
    assert together(some) == SetAside(3, (Committable(rows=1), Committable(rows=2)), _FIRST)
