"""The short history of a table: true to what TableLog decides, small, and fast over thousands of transactions."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta

import pytest
from protocol_messages import TABLE, TIME, abort, ack, end, planned, start, status

from sluice.protocol.history import TableHistory, fold
from sluice.protocol.messages import AckCommit, ControlMessage, PlannedRange
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.transaction import State, TableLog

SECOND = timedelta(seconds=1)
FIRST_PARTITION = TopicPartition("kafka", "t", 0)


def history(*messages: ControlMessage) -> TableHistory:
    return TableHistory(TABLE).extend(enumerate(messages))


def ack_of(transaction: str, end_offset: int = 10, **more) -> AckCommit:
    return ack(transaction).model_copy(update={"offsets": (planned(0, 0, end_offset),), **more})


def test_a_committed_transaction_in_short():
    stats = ({"numWrites": 10, "totalWriteBytes": 7000}, {"numWrites": 0, "totalWriteBytes": 500})
    result = status("1").partitions[0].model_copy(update={"gaps": 2, "file_groups": ("g1", "g2")})
    ranges = ((PlannedRange(cluster="kafka", topic="t", partition=0, start=0, end=10, log_end=17),),)
    idle = (PlannedRange(cluster="kafka", topic="t", partition=1, start=4, end=4, log_end=5),)
    found = history(
        start("1", kind="range", reason="asked for").model_copy(update={"ranges": ranges, "idle": idle}),
        status("1", began=TIME - SECOND, stats=stats, partitions=(result,)).model_copy(update={"time": TIME + SECOND}),
        end("1"),
        ack_of("1", valid_through=TIME),
    ).transactions["1"]
    assert (found.state, found.kind, found.reason, found.run_id) == (State.COMMITTED, "range", "asked for", "run")
    assert (found.started, found.decided, found.acknowledged, found.aborted) == (TIME, TIME, TIME, None)
    assert found.valid_through == TIME
    (attempt,) = found.ranges[0].attempts
    assert (attempt.began, attempt.ended, attempt.counts) == (TIME - SECOND, TIME + SECOND, True)
    assert {w: found.total(w) for w in ("records_read", "records_written", "bytes_read", "bytes_written", "gaps")} == {
        "records_read": 10, "records_written": 10, "bytes_read": 100, "bytes_written": 7500, "gaps": 2,
    }  # fmt: skip
    assert (attempt.files, attempt.file_groups) == (2, 2)
    assert (found.lag_planned, found.lag_left) == (8, None)  # what lies behind a range is no lag
    assert list(found.offsets) == [0, 1, 2, 3]
    assert found.committed == ((FIRST_PARTITION, 10),)


def test_the_lag_left_is_that_of_what_reads_on_and_what_came_to_nothing_leaves_all():
    ranges = ((PlannedRange(cluster="kafka", topic="t", partition=0, start=4, end=10, log_end=17),),)
    idle = (PlannedRange(cluster="kafka", topic="t", partition=1, start=5, end=5, log_end=6),)

    def plan(**more):
        return start("1", **more).model_copy(update={"ranges": ranges, "idle": idle})

    for messages, lag, of_first in (
        ([plan()], 8, 7),
        ([plan(), status("1"), end("1"), ack("1")], 8, 7),
        ([plan(), abort("1")], 14, 13),
        ([plan(), start("2", read_position=1)], 14, 13),
        ([plan(kind="replay")], None, None),
        ([plan(kind="replay"), abort("1")], None, None),
    ):
        found = history(*messages).transactions["1"]
        assert (found.lag_left, found.lag_left_in(found.planned[0])) == (lag, of_first)


def test_every_attempt_is_told_and_only_the_first_whole_success_counts():
    found = history(
        start("1"),
        status("1", attempt="a", error="a bad record", recovery="act", stats=(), records_read=0, partitions=()),
        status("1", attempt="b", part=0, parts=2),
        status("1", attempt="c"),
        status("1", attempt="b", part=1, parts=2),
        end("1"),
    ).transactions["1"]
    attempts = found.ranges[0].attempts
    assert [(a.attempt, a.counts, a.error, a.parts_seen) for a in attempts] == [
        ("a", False, "a bad record", 1),
        ("b", False, None, 2),
        ("c", True, None, 1),
    ]
    assert found.errors() == 1
    assert found.state is State.DECIDED


def test_a_status_in_parts_counts_its_records_once_and_its_files_all():
    parts = [status("1", part=i, parts=3, stats=({"totalWriteBytes": 5},)) for i in (2, 0, 1)]
    (attempt,) = history(start("1"), *parts).transactions["1"].ranges[0].attempts
    assert (attempt.records_read, attempt.files, attempt.bytes_written, attempt.counts) == (10, 3, 15, True)


def test_a_range_left_out_by_the_commit_is_told_and_a_late_status_of_it_does_not_count():
    messages = [start("1", ranges=2), status("1", 0), end("1", reported=(0,), missing=(1,)), status("1", 1)]
    found = history(*messages).transactions["1"]
    assert found.missing == (1,)
    assert [r.counting is not None for r in found.ranges] == [True, False]


def test_superseded_aborted_and_failures_in_a_row():
    table = history(start("1"), start("2", read_position=1), abort("2"), start("3", read_position=3), abort("3"))
    assert [t.state for t in table.newest()] == [State.ABORTED, State.ABORTED, State.SUPERSEDED]
    assert table.transactions["1"].superseded_by == "2"
    assert table.transactions["2"].abort_reason == "why"
    assert table.failures_in_a_row() == 2
    table.extend([(5, start("4", read_position=5)), (6, status("4")), (7, end("4")), (8, ack_of("4"))])
    assert table.failures_in_a_row() == 0
    assert table.last_committed is table.transactions["4"]


def test_where_the_table_stands_and_what_was_replayed():
    table = history(start("1"), ack_of("1", 10), start("2", read_position=2, kind="replay", replays="1"))
    assert (table.committed, table.replayed_by) == ({FIRST_PARTITION: (10, "1")}, {})
    table.extend([(3, ack_of("2", 9))])
    assert (table.committed, table.replayed_by) == ({FIRST_PARTITION: (10, "1")}, {"1": ["2"]})


@pytest.mark.parametrize(
    ("kind", "begin", "finish", "stands"),
    [
        ("continue", 10, 20, 20),
        ("correction", 10, 14, 14),
        ("service", 0, 0, 10),
        ("replay", 0, 5, 10),
        ("range", 0, 5, 10),
        ("range", 10, 15, 15),
        ("backfill", 40, 50, 10),
    ],
)
def test_what_moves_the_committed_offsets(kind: str, begin: int, finish: int, stands: int):
    acknowledged = planned(0).model_copy(update={"start": begin, "end": finish})
    moved = ack("2").model_copy(update={"offsets": (acknowledged,), "valid_through": TIME})
    table = history(start("1"), ack_of("1", 10), start("2", read_position=2, kind=kind), moved)
    assert table.committed[FIRST_PARTITION][0] == stands
    assert table.valid_through == (TIME if kind == "continue" else None)


def test_a_plan_that_reads_on_behind_what_was_covered_before_tells_where_the_table_stands():
    table = history(start("1"), ack_of("1", 10))
    ahead = planned(0).model_copy(update={"start": 25, "end": 30})
    table.extend([(2, start("2", read_position=2).model_copy(update={"ranges": ((ahead,),)}))])
    assert table.committed == {FIRST_PARTITION: (25, "1")}


def test_runs_and_tables_are_told_apart():
    other = start("9").model_copy(update={"table": "file:///lake/other"})
    second = start("2", read_position=1).model_copy(update={"run_id": "second"})
    tables = fold([(0, start("1")), (1, other), (2, second)], {})
    assert [t.instant for t in tables[TABLE].of_run("dag", "second")] == ["2"]
    assert list(tables["file:///lake/other"].transactions) == ["9"]
    assert tables[TABLE].of_run("dag", "none") == []
    assert tables[TABLE].dag_ids() == ("dag",)


def test_messages_that_were_folded_already_change_nothing():
    messages = list(enumerate([start("1"), status("1"), end("1"), ack_of("1")]))
    table = TableHistory(TABLE).extend(messages).extend(messages)
    assert list(table.transactions["1"].offsets) == [0, 1, 2, 3]


def test_a_start_sent_twice_and_a_lease_taken_over():
    ended = [start("1"), start("1"), status("1"), end("1"), end("1", takes_over=3), ack_of("1")]
    found = history(*ended).transactions["1"]
    assert (found.state, found.takeovers, list(found.offsets)) == (State.COMMITTED, 1, [0, 1, 2, 3, 4, 5])


def any_messages(seed: int, number: int = 60) -> list[ControlMessage]:
    """Messages in any order, also such as no coordinator would send."""
    rng = random.Random(seed)
    messages: list[ControlMessage] = []
    for offset in range(number):
        instant = str(rng.randrange(8))
        position = max(0, offset - rng.randrange(4))
        lease = rng.choice([-1, *range(max(0, offset - 4), offset)])
        choices = [start(instant, read_position=position), status(instant, attempt=rng.choice("ab"))]
        choices += [end(instant, takes_over=lease), ack(instant), abort(instant, lease_offset=lease)]
        messages.append(rng.choice(choices))
    return messages


@pytest.mark.parametrize("seed", range(40))
def test_its_states_are_those_of_a_log_that_keeps_everything(seed: int):
    messages = any_messages(seed)
    table, log = TableHistory(TABLE), TableLog(TABLE)
    for offset, message in enumerate(messages):
        table.extend([(offset, message)])
        log.extend([(offset, message)])
        assert {i: t.state for i, t in table.transactions.items()} == {i: t.state for i, t in log.transactions.items()}


def many(number: int) -> Iterator[tuple[int, ControlMessage]]:
    """Good intervals of two ranges, six messages each, with write stats as large as Hudi's."""
    stat = {"totalWriteBytes": 435053, "numWrites": 10, "path": "p" * 120, **{f"field{i}": i for i in range(30)}}
    for i in range(number):
        instant, first = f"2026{i:013}", 6 * i
        results = tuple(status(instant, n).partitions[0] for n in (0, 1))
        yield first, start(instant, read_position=first, ranges=2).model_copy(update={"run_id": f"run-{i}"})
        for n in (0, 1):
            yield first + 1 + n, status(instant, n, partitions=(results[n],), stats=(dict(stat), dict(stat)))
        yield first + 3, end(instant, reported=(0, 1))
        yield first + 4, ack_of(instant)
        yield first + 5, ack_of(instant)


def test_thousands_of_transactions_fold_in_linear_time():
    def seconds(number: int) -> float:
        messages = list(many(number))
        began = time.process_time()
        TableHistory(TABLE).extend(messages)
        return time.process_time() - began

    small, large = seconds(400), seconds(4_000)
    assert large < 30 * small, f"{small:.2f} s for 400 transactions, {large:.2f} s for 4,000"


def test_a_thousand_transactions_take_little_memory():
    tracemalloc.start()
    try:
        table = TableHistory(TABLE).extend(many(1_000))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table.transactions) == 1_000
    assert used < 20_000_000, f"{used} bytes: ten thousand would take more than 200 MB"


def test_old_transactions_are_thinned_but_keep_their_sums_and_older_ones_are_forgotten():
    messages = list(many(30))
    whole, small = TableHistory(TABLE).extend(messages), TableHistory(TABLE, remembers=20, partitions=40)
    for message in messages:
        small.extend([message])
    assert list(small.transactions) == list(whole.transactions)[-20:]
    assert small.of_run("dag", "run-0") == []
    assert sum(t.partitions_kept() for t in small.transactions.values()) <= 40
    for instant, thin in small.transactions.items():
        full = whole.transactions[instant]
        assert (thin.state, thin.offsets_planned, thin.offsets) == (full.state, full.offsets_planned, full.offsets)
        assert [thin.total(w) for w in ("records_read", "bytes_read")] == [
            full.total(w) for w in ("records_read", "bytes_read")
        ]
    assert [t.thinned for t in small.transactions.values()].count(False) == 8


def test_a_lease_that_another_process_takes_is_a_takeover_and_neither_the_first_nor_one_given_back_is():
    begun = [start("1"), status("1"), end("1")]
    assert history(*begun).transactions["1"].takeovers == 0
    given_back = end("1", takes_over=2, released=True)
    assert history(*begun, given_back).transactions["1"].takeovers == 0
    assert history(*begun, given_back, end("1", takes_over=3)).transactions["1"].takeovers == 1


def test_all_values_of_a_transaction_s_partitions_are_counted_until_they_are_dropped():
    begun = start("1", ranges=2, passed_over=(planned(7), planned(8), planned(9)))
    (found,) = history(begun, status("1"), end("1"), ack_of("1")).transactions.values()
    assert (len(found.planned), len(found.passed_over), len(found.committed)) == (2, 3, 1)
    assert found.partitions_kept() == 2 + 3 + 1 + 1
    found.thin()
    assert found.partitions_kept() == 0
