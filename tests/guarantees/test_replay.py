"""Replay: a committed interval is read again, and its rows take the place of those it wrote, in one commit."""

from __future__ import annotations

import pytest

from sluice.errors import ActionRequiredError, IntervalError, RetryableError

from ..thorough import also
from .harness import DDL, once_the_lease_is_free

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}


def _three_intervals(flow) -> list[str]:
    instants = []
    for _ in range(3):
        flow.produce(20)
        instants.append(str(flow.interval().instant))
    return instants


def test_a_replay_replaces_exactly_what_the_interval_wrote(make_flow):
    flow = make_flow()
    first, second, third = _three_intervals(flow)
    offsets, before = flow.checkpoint(), {i: flow.data_files(i) for i in (first, second, third)}
    for file in before[second]:
        file.write_bytes(b"damaged")  # so that a reader can't mistake the old files for the new
    started = flow.start(flow.run(kind="replay", instant=second, reason="its files were damaged"))
    flow.write_all(started)
    outcome = flow.commit(started)
    assert outcome.records == 20
    flow.check()
    assert flow.checkpoint() == offsets
    assert flow.data_files(first) == before[first]
    assert flow.data_files(third) == before[third]
    assert len(flow.data_files(started.instant)) == len(before[second])
    start = next(m for m in flow.messages() if m.type == "START-COMMIT" and m.transaction == started.instant)
    assert (start.kind, start.replays, start.reason) == ("replay", second, "its files were damaged")
    flow.produce(10)
    flow.interval()
    flow.check()


def test_readers_see_the_old_rows_until_the_commit(make_flow):
    flow = make_flow()
    instants = _three_intervals(flow)
    run = flow.run(kind="replay", instant=instants[0])
    started = flow.start(run)
    flow.write_all(started)
    flow.check()
    assert flow.abort(run).state == "aborted"
    flow.check()
    assert flow.data_files(started.instant) == []
    flow.interval_is_empty()


@pytest.mark.parametrize("settings", [*also({}), UPSERT], ids=["append", "upsert"])
def test_what_was_replayed_is_replayed_by_its_new_instant(make_flow, settings):
    flow = make_flow(**settings)
    flow.produce(10)
    first = flow.interval().instant
    replayed = first
    for _ in range(2):
        outcome = flow.interval(kind="replay", instant=replayed)
        assert outcome.records == 10
        with pytest.raises(ActionRequiredError, match=f"replay {outcome.instant} instead"):
            flow.start(flow.run(kind="replay", instant=replayed))
        replayed = outcome.instant
    with pytest.raises(ActionRequiredError, match=f"replay {replayed} instead"):
        flow.start(flow.run(kind="replay", instant=first))
    flow.check()


def test_an_instant_that_is_no_interval_is_refused(make_flow):
    flow = make_flow()
    _three_intervals(flow)
    with pytest.raises(ActionRequiredError, match="no committed interval"):
        flow.start(flow.run(kind="replay", instant="20200101000000000"))


def test_records_that_are_gone_from_kafka_keep_their_rows(make_flow):
    flow = make_flow()
    instants = _three_intervals(flow)
    flow.delete_records({0: 1})
    with pytest.raises(ActionRequiredError, match="the source doesn't have all of its offsets"):
        flow.start(flow.run(kind="replay", instant=instants[0]))
    flow.check()


def test_a_replay_of_what_another_writers_clustering_is_about_to_rewrite_waits_for_it(make_flow):
    """The clustering's job rewrites its plan's files, whatever has replaced them: the rows would be there twice."""
    flow = make_flow()
    first, second, _ = _three_intervals(flow)
    running, run = flow.run(kind="replay", instant=first), flow.run(kind="replay", instant=second)
    started = flow.start(running)
    flow.write_all(started)
    planned = flow.cluster_by_spark()
    with pytest.raises(IntervalError, match="another writer's clustering is about to rewrite them"):
        flow.commit(started)  # planned while the replay ran
    with pytest.raises(RetryableError, match="another writer's clustering is about to rewrite them") as caught:
        flow.start(run)
    assert caught.value.where["planned_in"] == planned
    flow.produce(20)
    flow.interval()  # the schedule is not held up
    flow.check()
    assert flow.cluster_by_spark(planned) == planned
    flow.check()
    with pytest.raises(ActionRequiredError, match="its rows are in other file groups now"):
        flow.start(run)


@pytest.mark.parametrize("version", [8, *(pytest.param(other, marks=pytest.mark.thorough) for other in (6, 9))])
def test_a_plan_of_a_clustering_of_sluice_holds_no_replay_up(make_flow, version):
    """Its run has died: nothing carries the plan out any more, and the next clustering makes another."""
    services = {"clustering": {"after_commits": 2}}
    flow = make_flow(sink__hudi__table_version=version, control__commit_timeout="1 second", table_services=services)
    flow.produce(20)
    first = str(flow.interval().instant)
    flow.produce(20)
    flow.interval()
    (planned,) = flow.plan("clustering").instants
    once_the_lease_is_free(lambda: flow.interval(kind="replay", instant=first, reason="it was wrong"))
    flow.check()
    flow.serve("clustering")
    assert not list((flow.path / ".hoodie").rglob(f"{planned}*"))
    flow.check()


@pytest.mark.thorough
def test_fewer_records_than_the_interval_had_take_no_rows_away(make_flow):
    """The bounds fit, but what comes back is less: here the aborted records that the interval was told to read."""
    flow = make_flow(source__kafka__isolation_level="read_uncommitted")
    flow.produce_in_transactions([(10, True), (6, False)])
    instant = str(flow.interval().instant)
    before = flow.rows(metadata=True)
    assert before.total() == 16
    flow.set(source__kafka__isolation_level="read_committed")
    run = flow.run(kind="replay", instant=instant)
    started = flow.start(run)
    flow.write_all(started)
    with pytest.raises(ActionRequiredError, match="not the records that the interval had") as caught:
        flow.commit(started)
    assert (caught.value.where["records"], caught.value.where["records_before"]) == (5, 8)
    flow.abort(run)
    assert flow.rows(metadata=True) == before
    flow.set(source__kafka__isolation_level="read_uncommitted")
    flow.interval(kind="replay", instant=instant)
    assert flow.rows(metadata=True) == before


@pytest.mark.parametrize("ordering", [*also(None), "n"], ids=["by arrival", "by an ordering field"])
def test_the_replay_of_an_upsert_never_lets_an_older_version_win(make_flow, ordering):
    flow = make_flow(**UPSERT, sink__hudi__ordering_field=ordering, sink__hudi__schema=f"{DDL}, n BIGINT")
    flow.produce(10, values="a", fields={"n": 1})
    first = flow.interval().instant
    flow.produce(4, ids=range(4), values="b", fields={"n": 2})
    flow.interval()
    outcome = flow.interval(kind="replay", instant=first)
    assert outcome.records == 6  # of the four others the table has newer versions
    flow.check()
