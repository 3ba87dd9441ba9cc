"""What a transaction came to, folded from its messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from protocol_messages import TABLE, TIME, abort, ack, end, planned, start, status

from sluice.protocol.interval_facts import IntervalFacts, interval_facts
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.transaction import State, TableLog


def facts(*messages: Any) -> IntervalFacts:
    (transaction,) = TableLog(TABLE).extend(enumerate(messages)).transactions.values()
    return interval_facts(transaction)


def stands(found: IntervalFacts) -> list[int]:
    return [r.end for r in found.stands]


def test_an_open_transaction_has_added_nothing() -> None:
    found = facts(start("7"), status("7"))
    assert (found.state, stands(found), found.records_written, found.bytes_read) == (State.OPEN, [0], 0, 0)
    assert found.write_seconds is None


def test_a_commit_has_its_figures() -> None:
    late = status("7", stats=({"numWrites": 10, "totalWriteBytes": 500}, {"numWrites": 0})).model_copy(
        update={"time": TIME + timedelta(seconds=9)}
    )
    found = facts(start("7"), late, end("7"), ack("7"))
    assert (found.state, stands(found)) == (State.COMMITTED, [10])
    assert (found.records_read, found.bytes_read, found.bytes_written, found.write_seconds) == (10, 100, 500, 9.0)
    assert found.valid_through == TIME + timedelta(hours=1)


def test_only_ranges_that_were_committed_count() -> None:
    tolerant = start("7", ranges=2, on_missing_range="commit")
    found = facts(tolerant, status("7"), end("7", missing=(1,)), status("7", number=1), ack("7"))
    assert (found.records_written, stands(found), found.valid_through) == (10, [10, 0], None)


def test_an_abort_says_why_and_leaves_the_offsets() -> None:
    found = facts(start("7"), status("7"), abort("7"))
    assert (found.state, found.reason, stands(found)) == (State.ABORTED, "why", [0])


def test_they_travel_as_json() -> None:
    found = facts(start("7"), status("7"), end("7"), ack("7"))
    assert IntervalFacts.model_validate(found.model_dump(mode="json")) == found
    assert found.model_copy(update={"records_quarantined": 1}).quarantine_rate == 0.1
    assert found.model_copy(update={"records_read": 0}).quarantine_rate == 0.0


def test_a_window_has_what_it_committed_and_no_lag() -> None:
    window = start("7", kind="range")
    found = facts(window, status("7"), end("7"), ack("7"))
    assert (stands(found), found.lag_records, found.kind) == ([10], None, "range")
    assert stands(facts(window)) == []


def test_streams_have_figures_and_names_by_cluster() -> None:
    """One cluster alone has records in this interval; it is named, since the others have topics of that name."""
    behind = planned(0).model_copy(update={"log_end": 25})
    idle = planned(0, 4, 4).model_copy(update={"cluster": "west", "log_end": 7})
    begun = start("7", idle=(idle,)).model_copy(update={"ranges": ((behind,),)})
    ended = status("7"), end("7"), ack("7")
    found = facts(begun.model_copy(update={"streams": KnownStreams()}), *ended)
    assert found.lag_records == 18
    assert (found.cluster_records, found.cluster_bytes) == ({"kafka": 10}, {"kafka": 100})
    assert [r.named_topic for r in (*found.planned, *found.stands)] == ["kafka/t", "kafka/t", "west/t"]
    assert facts(begun, *ended).cluster_records == {}


def test_the_lag_is_what_the_plan_leaves_up_to_each_log_s_end_and_never_less_than_none() -> None:
    def at(partition: int, end: int, log_end: int | None) -> Any:
        return planned(partition, 0, end).model_copy(update={"log_end": log_end})

    made = start("7").model_copy(update={"ranges": ((at(0, 10, 14), at(1, 10, 7)),), "idle": (at(2, 5, 6),)})
    assert facts(made).lag_records == 4 + 0 + 1  # partition 1 was truncated
    unknown = start("7").model_copy(update={"ranges": ((at(0, 10, None),),)})
    assert facts(unknown).lag_records is None


def test_a_limit_has_left_records_behind_only_where_all_else_is_committed() -> None:
    def cut_short(*groups: bool, idle: bool = False, **more: Any) -> Any:
        ranges = tuple((planned(p).model_copy(update={"behind": behind}),) for p, behind in enumerate(groups))
        rest = (planned(9).model_copy(update={"end": planned(9).start, "behind": True}),) if idle else ()
        return start("7", ranges=len(groups), **more).model_copy(update={"ranges": ranges, "idle": rest})

    whole = (status("7"), end("7"), ack("7"))
    assert not facts(cut_short(False), *whole).behind
    assert facts(cut_short(True), *whole).behind
    assert facts(cut_short(False, idle=True), *whole).behind
    assert not facts(cut_short(True), status("7")).behind
    in_part = (status("7"), end("7", missing=(1,)), ack("7"))
    assert not facts(cut_short(True, True, on_missing_range="commit"), *in_part).behind
