"""What the control topic tells of workers, and what the page makes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, TIME, abort, claim, end, start, status

from sluice.control.presence import Member
from sluice.page.cache import Snapshot
from sluice.page.workers import GroupId, Served, group_banners, groups_of
from sluice.protocol.history import TableHistory
from sluice.protocol.messages import decode, encode
from sluice.protocol.workers_seen import WorkerSeen

LATER = "20260101000000001"
GROUP = GroupId("default", "kafka_default")


def _seen(*messages: Any, ranges: int = 2) -> dict[str, WorkerSeen]:
    told = [start(INSTANT, ranges=ranges), *messages]
    return TableHistory(TABLE).extend(enumerate(told)).workers.by_name


def _holds(seen: dict[str, WorkerSeen]) -> dict[str, list[int]]:
    return {name: [hold.number for hold in one.holds.values()] for name, one in seen.items()}


def test_a_worker_holds_what_it_has_claimed_since_it_first_did():
    renewed = claim("a", takes_over=1).model_copy(update={"time": TIME + timedelta(seconds=9)})
    seen = _seen(claim("a"), renewed, claim("a", range=1))
    assert _holds(seen) == {"a": [0, 1]}
    assert {hold.since for hold in seen["a"].holds.values()} == {TIME}


def test_of_two_claims_only_the_one_that_counts_holds():
    assert _holds(_seen(claim("a"), claim("b"))) == {"a": [0]}


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(status(INSTANT), id="reported"),
        pytest.param(status(INSTANT, error="e", recovery="retry"), id="failed"),
        pytest.param(claim("a", takes_over=1, released=True), id="given back"),
        pytest.param(claim("b", takes_over=1), id="taken over"),
        pytest.param(abort(INSTANT), id="aborted"),
        pytest.param(end(INSTANT, reported=(), missing=(0, 1)), id="decided without it"),
        pytest.param(start(LATER, read_position=2), id="superseded"),
    ],
)
def test_it_holds_a_range_no_more_once_that_is(message):
    seen = _seen(claim("a"), message)
    assert _holds(seen)["a"] == []
    assert seen["a"].last == TIME


def test_what_it_says_of_itself_is_that_of_its_last_claim():
    began = datetime(2026, 1, 1, tzinfo=UTC)
    told = claim("a", began=began, memory=900)
    assert decode(encode(told)) == told
    seen = _seen(told, claim("a", takes_over=1, began=began, memory=1000))["a"]
    assert (seen.began, seen.memory) == (began, 1000)
    silent = _seen(claim("a"))["a"]  # an earlier release's
    assert (silent.began, silent.memory) == (None, None)


def test_workers_that_have_gone_are_forgotten_before_those_that_hold_something():
    told: list[Any] = [claim("holder", range=1)]
    for number in range(200):
        at = len(told) + 1  # START's offset is 0
        told += [claim(f"w{number}", takes_over=at - 1 if number else -1)]
        told += [claim(f"w{number}", takes_over=at, released=True)]
    seen = _seen(*told)
    assert len(seen) == 64
    assert _holds(seen)["holder"] == [1]
    assert "w199" in seen


# What the page makes of it -------------------------------------------------------------------------------------------


def _group(there: Snapshot[tuple[Member, ...]], *seen: dict[str, WorkerSeen]) -> dict[str, Any]:
    (group,) = groups_of([Served(f"p{i}", GROUP, one) for i, one in enumerate(seen)], {GROUP: there})
    return group


def _there(*names: str) -> Snapshot[tuple[Member, ...]]:
    return Snapshot(tuple(Member(name, "/10.0.0.1") for name in names), TIME, None)


def test_a_worker_of_several_pipelines_is_shown_once_with_all_that_it_holds():
    later = claim("a", memory=700).model_copy(update={"time": TIME + timedelta(minutes=1)})
    group = _group(_there("a", "b"), _seen(claim("a", memory=500)), _seen(later))
    assert group["pipelines"] == ["p0", "p1"]
    writing, idle = group["workers"]
    assert [(hold["pipeline"], hold["range"]) for hold in writing["holds"]] == [("p0", 0), ("p1", 0)]
    assert (writing["state"], writing["memory"]) == ("writing", 700)
    assert (idle["name"], idle["state"], idle["last_heard"], idle["memory"]) == ("b", "idle", None, None)


def test_one_that_holds_something_and_is_not_there_is_lost():
    group = _group(_there("b"), _seen(claim("a"), claim("c", range=1), status(INSTANT, 1)))
    assert {w["name"]: w["state"] for w in group["workers"]} == {"a": "lost", "b": "idle"}


def test_where_kafka_does_not_say_who_is_there_nobody_is_called_lost():
    silent: Snapshot[tuple[Member, ...]] = Snapshot(None, None, "Kafka did not answer.")
    group = _group(silent, _seen(claim("a")))
    assert (group["known"], [w["state"] for w in group["workers"]]) == (False, ["unknown"])
    assert [b["text"] for b in group_banners({GROUP: silent})] == ["Kafka did not answer."]
