"""Table services change the table only while they hold it, leave its rows as they are, and may die anywhere."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from sluice.protocol.messages import AbortCommit, AckCommit, StartCommit

from .harness import Flow, Pause, finish

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
    (service,) = services_of(flow)
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


def test_a_compaction_that_was_superseded_does_not_complete(make_flow):
    flow = upsert_with_two_intervals(make_flow)
    planned = flow.plan("compaction")
    pause = Pause("service.after_work", flow.folder)
    job = flow.carry_out(planned, failpoint=pause.failpoint)
    pause.wait()
    flow.produce(20, ids=range(30, 50), values="c")
    flow.interval()  # its coordinator takes no other run for running
    pause.release()
    assert job.wait() == 1
    assert "superseded" in job.text()
    assert planned.instants[0] in flow.jvm.pending(str(flow.path))
    flow.check()
    flow.serve("compaction")  # carries out the plan that was left
    assert planned.instants[0] not in flow.jvm.pending(str(flow.path))
    flow.check()


@pytest.mark.parametrize("point", ["service.after_work", "service.after_end_commit", "service.before_ack_commit"])
def test_a_compaction_may_die_at_any_step(make_flow, point):
    flow = upsert_with_two_intervals(make_flow)
    job = flow.carry_out(flow.plan("compaction"), failpoint=f"{point}=kill")
    assert job.wait() is None
    flow.produce(20, ids=range(30, 50), values="c")
    flow.interval()
    flow.check()
    flow.produce(20, ids=range(10, 30), values="d")
    flow.interval()
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


@pytest.mark.parametrize(
    "point", ["service.after_start_commit", "service.after_end_commit", "service.before_ack_commit"]
)
def test_cleaning_may_die_at_any_step(make_flow, point):
    flow = make_flow(table_services=SMALL)
    flow.produce(20)
    flow.interval()
    step = finish(flow.spawn_service("cleaning", failpoint=f"{point}=kill"))
    assert step.killed, step.err
    flow.produce(20)
    flow.interval()
    flow.check()
    aborted = [m for m in flow.messages() if isinstance(m, AbortCommit)]
    assert [m.transaction for m in aborted] == [s.transaction for s in services_of(flow)]


def test_timeline_and_metadata_table_stay_small_and_the_offsets_are_found(make_flow):
    flow = make_flow(partitions=1, table_services=SMALL)
    sizes = []
    for _ in range(3):
        for _ in range(3):
            flow.produce(4, partitions=[0])
            flow.interval()
        for service in ("cleaning", "metadata_compaction", "archiving"):
            flow.serve(service)
        sizes.append((len(flow.commits()), len(list((flow.path / ".hoodie" / "timeline").glob("*commit*")))))
    assert sizes[-1] == sizes[-2], sizes
    assert sizes[-1][0] <= SMALL["keep_timeline"] + 1
    assert list((flow.path / ".hoodie" / "metadata" / "files").glob("*.hfile"))
    flow.check()


def test_clustering_makes_few_files_of_many_and_keeps_the_rows(make_flow):
    flow = make_flow(table_services={**SMALL, "clustering": {"after_commits": 2, "sort_by": "id"}})
    for _ in range(3):
        flow.produce(20)
        flow.interval()
    before = len(flow.jvm.files(str(flow.path), metadata=True))
    flow.serve("clustering")
    flow.check()
    after = len(flow.jvm.files(str(flow.path), metadata=True))
    assert (before, after) == (12, 2)
    assert flow.offsets() == flow.log_ends()
    flow.produce(20)
    flow.interval()
    flow.serve("cleaning")
    flow.check()
    assert len(flow.data_files()) < before


def test_a_clustering_that_died_is_taken_off_and_planned_anew(make_flow):
    flow = make_flow(table_services={**SMALL, "clustering": {"after_commits": 2}})
    for _ in range(2):
        flow.produce(20)
        flow.interval()
    first = flow.plan("clustering")
    assert flow.carry_out(first, failpoint="service.after_work=kill").wait() is None
    flow.produce(20)
    flow.interval()
    flow.check()
    second = flow.plan("clustering")
    assert not set(first.instants) & {*second.instants, *flow.jvm.pending(str(flow.path))}
    flow.carry_out(second).succeed()
    flow.check()


def test_nothing_to_do_holds_the_table_for_a_moment_only(make_flow):
    flow = make_flow(**UPSERT)
    flow.produce(10)
    flow.interval()
    outcome = flow.services().plan(flow.run(), "compaction")
    assert outcome.state == "empty"
    assert isinstance(flow.messages()[-1], AckCommit)
