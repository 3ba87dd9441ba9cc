"""Table services change the table only while they hold it, leave its rows as they are, and may die anywhere."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from sluice.coordinator import Outcome, Started
from sluice.errors import ActionRequiredError
from sluice.protocol.messages import AbortCommit, AckCommit, StartCommit

from ..thorough import also
from .harness import Flow, Pause, finish, once_the_lease_is_free

UPSERT = {
    "sink__hudi__operation": "upsert",
    "sink__hudi__record_key": "id",
    "table_services": {"compaction": {"after_delta_commits": 2}},
}
SMALL = {"keep_commits": 1, "keep_timeline": 2, "metadata_after_delta_commits": 1}


def upsert_with_two_intervals(make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(**UPSERT)
    flow.produce(40)
    flow.interval()
    outcome = flow.services().plan(flow.run(), "compaction")
    assert isinstance(outcome, Outcome), "it was due too early"
    flow.produce(20, ids=range(20), values="b")
    flow.interval()
    return flow


def base_files(flow: Flow) -> set[str]:
    return {f.name for f in flow.data_files() if f.suffix == ".parquet" and ".log." not in f.name}


def services_of(flow: Flow) -> list[StartCommit]:
    return [m for m in flow.messages() if isinstance(m, StartCommit) and m.kind == "service"]


def test_compaction_gives_every_reader_the_rows_and_intervals_go_on(make_flow):
    flow = upsert_with_two_intervals(make_flow)
    assert not flow.rows_by_rust(), "hudi-rs read log files, so this test shows nothing"
    flow.serve("compaction")
    assert base_files(flow)
    flow.check()
    assert flow.rows_by_rust() == flow.expected()
    service = services_of(flow)[-1]
    assert (service.service, service.ranges) == ("compaction", ())
    assert isinstance(flow.messages()[-1], AckCommit)
    flow.produce(30, ids=range(10, 40), values="c")
    flow.interval()  # its START sweeps: what a compaction has written is nobody's stray
    flow.check()
    flow.produce(30, ids=range(5, 35), values="d")
    flow.interval()
    flow.serve("compaction")
    flow.check()
    assert flow.rows_by_rust() == flow.expected()


@pytest.mark.thorough
def test_a_compaction_that_was_superseded_does_not_complete(make_flow):
    flow = upsert_with_two_intervals(make_flow)
    planned = flow.plan("compaction")
    pause = Pause("service.after_work", flow.folder)
    job = flow.carry_out(planned, failpoint=pause.failpoint)
    pause.wait(job)
    flow.produce(20, ids=range(30, 50), values="c")
    flow.interval()  # its coordinator takes no other run for running
    pause.release()
    assert job.wait() == 1
    assert "The transaction is not open any more" in job.text()
    assert planned.instants[0] in flow.jvm.pending(str(flow.path))
    flow.check()
    flow.serve("compaction")  # carries out the plan that was left
    assert planned.instants[0] not in flow.jvm.pending(str(flow.path))
    flow.check()


@pytest.mark.parametrize("point", also("service.before_ack_commit", "service.after_end_commit"))
def test_a_compaction_may_die_at_any_step(make_flow, point):
    flow = upsert_with_two_intervals(make_flow)
    job = flow.carry_out(flow.plan("compaction"), failpoint=f"{point}=kill")
    assert job.wait() is None
    flow.produce(20, ids=range(30, 50), values="c")
    flow.interval()
    flow.check()
    if flow.jvm.pending(str(flow.path)):
        flow.serve("compaction")
    flow.check()
    assert not flow.jvm.pending(str(flow.path))


def test_a_service_waits_for_the_interval_that_holds_the_table(make_flow):
    flow = make_flow(table_services=SMALL)
    flow.produce(20)
    started = flow.start()
    ended: list[str] = []
    thread = Thread(target=lambda: (flow.serve("cleaning"), ended.append("cleaning")))
    thread.start()
    flow.write_all(started)
    assert not ended
    assert not services_of(flow)
    flow.commit(started)
    thread.join(60)
    assert ended == ["cleaning"]
    kinds = [m.type for m in flow.messages()]
    assert kinds.index("ACK-COMMIT") < kinds.index("START-COMMIT", 1)
    flow.check()


@pytest.mark.thorough
def test_a_cleaning_that_died_holds_nobody_up(make_flow):
    flow = make_flow(table_services=SMALL)
    flow.produce(20)
    flow.interval()
    step = finish(flow.spawn_service("cleaning", failpoint="service.after_end_commit=kill"))
    assert step.killed, step.err
    flow.produce(20)
    flow.interval()
    flow.check()
    aborted = [m for m in flow.messages() if isinstance(m, AbortCommit)]
    assert [m.transaction for m in aborted] == [s.transaction for s in services_of(flow)]


def test_one_that_hangs_has_the_table_for_its_time_alone(make_flow):
    """Airflow takes its run for running all the while: its task waits for executors, or its process stands still."""
    flow = upsert_with_two_intervals(make_flow)
    flow.set(table_services={**SMALL, **UPSERT["table_services"], "timeout": "5 seconds"})
    flow.set(control__commit_timeout="12 seconds")
    planned = flow.plan("compaction")
    flow.produce(20, ids=range(30, 50), values="c")
    _interval_beside_what_runs(flow)
    assert flow.carry_out(planned).wait() == 1
    flow.check()
    pause = Pause("service.during_work", flow.folder)
    cleaning = flow.spawn_service("cleaning", failpoint=pause.failpoint)
    pause.wait(cleaning)
    flow.produce(20, ids=range(40, 60), values="d")
    _interval_beside_what_runs(flow)
    pause.release()
    step = finish(cleaning)
    assert (step.status, "lost its hold on the table" in step.err) == (1, True), step.err
    flow.produce(20, ids=range(50, 70), values="e")
    flow.interval()
    flow.check()
    held = [s.transaction for s in services_of(flow)]
    assert {m.transaction for m in flow.messages() if isinstance(m, AbortCommit)} <= set(held)


def _interval_beside_what_runs(flow: Flow) -> None:
    """An interval of a coordinator that takes each other run for running."""
    started: list[Started] = []
    coordinator = flow.coordinator(lambda _dag_id, _run_id: True)
    run = flow.run()
    starting = Thread(
        target=lambda: started.append(once_the_lease_is_free(lambda: coordinator.start(run))), daemon=True
    )
    starting.start()
    starting.join(180)
    assert started, "the service still holds the table"
    flow.write_all(started[0])
    flow.commit(started[0])


def test_clustering_makes_few_files_of_many_keeps_the_rows_and_may_die(make_flow):
    flow = make_flow(table_services={**SMALL, "clustering": {"after_commits": 2, "sort_by": "id"}})
    for _ in range(2):
        flow.produce(20)
        clustered = flow.interval().instant
    left = set(flow.plan("clustering").instants)  # its job never begins
    flow.produce(20)
    flow.interval()
    begun = flow.plan("clustering")
    assert flow.carry_out(begun, failpoint="service.after_work=kill").wait() is None
    flow.produce(20)
    flow.interval()
    flow.check()
    before = len(flow.jvm.files(str(flow.path), metadata=True))
    last = flow.plan("clustering")  # an earlier one is not carried out: an interval may have replaced its files
    assert not (left | set(begun.instants)) & {*last.instants, *flow.jvm.pending(str(flow.path))}
    flow.carry_out(last).succeed()
    flow.check()
    assert (before, len(flow.jvm.files(str(flow.path), metadata=True))) == (8, 2)
    with pytest.raises(ActionRequiredError, match="its rows are in other file groups now") as caught:
        flow.start(flow.run(kind="replay", instant=clustered))
    assert caught.value.where["moved_by"] == last.instants[0]
    flow.produce(20)
    flow.interval()
    flow.serve("cleaning")
    flow.check()
    assert len(flow.data_files()) < before
