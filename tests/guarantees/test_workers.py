"""Workers that stay write ranges in place of Spark jobs; whatever happens to them, each row is there once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka.admin import NewTopic

from sluice.control.followed import Following
from sluice.control.topic import ControlTopic
from sluice.coordinator import start as starting
from sluice.local.broker import LocalBroker
from sluice.protocol.claims import Verdict
from sluice.protocol.messages import Claim, ControlMessage, WriteStatus

from .harness import Flow, Pause, kafka_settings, wait_for
from .harness.workers import LEASE, WorkerProcess, waited


@pytest.fixture
def make_worker() -> Iterator[object]:
    made: list[WorkerProcess] = []

    def make(name: str, flow: Flow, *more: str, trusting: bool = True, wait: bool = True, **settings) -> WorkerProcess:
        trust = ("--trust-control-topic",) if trusting else ()
        made.append(WorkerProcess(name, flow.pipeline.write.workers or "", flow, *trust, *more, **settings))
        if wait:
            wait_for(made[-1].is_there, f"worker {name}")
        return made[-1]

    yield make
    for worker in made:
        if worker.process.poll() is None:
            worker.signal(signal.SIGKILL)
            worker.process.wait()


def _claims(flow: Flow) -> list[Claim]:
    return [m for m in flow.messages() if isinstance(m, Claim)]


def _by(claim: Claim) -> str:
    """What a worker was named; a number of its own stands behind that."""
    return claim.worker.rpartition("-")[0]


def _claims_of(flow: Flow, started) -> list[Claim]:
    return [claim for claim in _claims(flow) if claim.transaction == started.instant]


def test_intervals_of_several_tables_are_written_without_a_spark_job_of_their_own(make_flow, make_worker):
    """Meanwhile the worker's endpoint says that it is well and ready, with and without work, and what it has written.

    A worker whose port is in use ends before it has a Spark application.
    """
    first = make_flow(write__workers="shared", write__ranges=2)
    second = make_flow(write__workers="shared", sink__hudi__operation="upsert", sink__hudi__record_key="id")
    bad = make_flow(write__workers="shared", control__topic=f"wide-{first.topic}")
    bad.admin.create_topics([NewTopic(f"wide-{first.topic}", 2)])[f"wide-{first.topic}"].result(30)
    worker = make_worker("one", first, "--port", "0", files=(bad.file, first.file, second.file))
    wait_for(lambda: worker.answer("/ready") == (200, '{"ok": true, "reason": null, "claims": []}'), "it to be ready")
    port = re.search(r"the worker answers .*port=(\d+)", worker.log.read_text())[1]
    refused = make_worker("refused", first, "--port", port, wait=False)
    assert "a pipeline is left to its own Spark jobs" in worker.log.read_text()
    for flow in (first, second):
        for _ in range(2):
            flow.produce(60)
            started = flow.start()
            assert set(waited(flow, started).values()) == {Verdict.WRITTEN}
            flow.commit(started)
            flow.check()
        assert {_by(claim) for claim in _claims(flow)} == {"one"}
    assert worker.answer("/health") == (200, '{"ok": true, "reason": null}')
    of_first = f'pipeline="{first.pipeline.name}",table="{first.pipeline.table_name}"'
    (cluster,) = {p.cluster for m in first.messages() if isinstance(m, WriteStatus) for p in m.partitions}
    wait_for(
        lambda: (
            {
                f"sluice_worker_ranges_written_total{{{of_first}}} 4.0",
                f'sluice_worker_records_read_total{{cluster="{cluster}",{of_first}}} 120.0',
                f'sluice_worker_records_total{{outcome="written",{of_first}}} 120.0',
                "sluice_worker_ready 1.0",
            }
            <= set(worker.answer("/metrics")[1].splitlines())
        ),
        "its figures",
    )
    assert refused.wait(60) == 1
    assert "can't listen on its port" in refused.log.read_text()
    assert "SparkContext" not in refused.log.read_text()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == 0, worker.log.read_text()
    assert "it was asked to" in worker.log.read_text()


def test_no_worker_and_the_range_is_left_to_its_own_job_at_once(make_flow):
    flow = make_flow(write__workers="nobody", write__claim_within="10 minutes")
    flow.produce(10)
    started = flow.start()
    assert waited(flow, started) == {0: Verdict.SUBMIT}
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()


@pytest.mark.thorough
def test_one_that_begins_leaves_alone_what_has_ended(make_flow, make_worker):
    flow = make_flow(write__workers="late")
    for _ in range(3):
        flow.produce(10)
        flow.interval()
    heard: list[list[ControlMessage]] = []
    control = ControlTopic(kafka_settings(flow.bootstrap), flow.pipeline.control_topic)
    following = Following(
        control.settings,
        {control.topic: control},
        {control.topic: frozenset({flow.pipeline.table_id})},
        lambda _topic, messages: heard.append([message for _, message in messages]),
        lambda _topic, _position, _end: None,
        lambda: None,
    )
    following.start()
    wait_for(lambda: heard, "what the topic holds")
    following.stop()
    assert heard == [flow.messages()]
    make_worker("late", flow)
    flow.produce(10)
    started = flow.start()
    assert waited(flow, started) == {0: Verdict.WRITTEN}
    flow.commit(started)
    flow.check()
    assert {claim.transaction for claim in _claims(flow)} == {started.instant}


def test_killed_after_its_claim_another_takes_over_when_the_lease_has_run_out(make_flow, make_worker):
    flow = make_flow(write__workers="pair")
    flow.produce(60)
    flow.interval()
    pause = Pause("worker.after_claim", flow.folder)
    dying = make_worker("dying", flow, failpoint=pause.failpoint)
    flow.produce(60)
    started = flow.start()
    wait_for(lambda: [_by(c) for c in _claims(flow)] == ["dying"], "the claim")
    make_worker("heir", flow)
    dying.signal(signal.SIGKILL)
    assert waited(flow, started) == {0: Verdict.WRITTEN}
    flow.commit(started)
    flow.check()
    taken = _claims(flow)
    assert [_by(c) for c in taken][:2] == ["dying", "heir"]


@pytest.mark.thorough
def test_frozen_beyond_its_lease_and_woken_its_rows_are_there_once(make_flow, make_worker):
    flow = make_flow(write__workers="cold")
    flow.produce(60)
    pause = Pause("participant.after_write", flow.folder)
    frozen = make_worker("frozen", flow, failpoint=pause.failpoint)
    started = flow.start()
    wait_for(pause.reached, "the range to be written")
    frozen.signal(signal.SIGSTOP)
    assert waited(flow, started) == {0: Verdict.SUBMIT}
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()
    pause.release()
    frozen.signal(signal.SIGCONT)
    flow.produce(60)
    started = flow.start()
    assert waited(flow, started) == {0: Verdict.WRITTEN}
    flow.commit(started)
    flow.check()
    whole = [m for m in flow.messages() if isinstance(m, WriteStatus) and m.error is None]
    assert len(whole) == 2  # the woken one found its interval over, and reported nothing that could count


def test_unsigned_plans_are_left_alone_unless_a_person_trusts_the_topic(make_flow, make_worker):
    flow = make_flow(write__workers="careful")
    worker = make_worker("careful", flow, trusting=False, wait=False)
    assert worker.process.wait(60) == 1
    said = worker.log.read_text()
    assert "sluice.control.secret" in said
    assert "--trust-control-topic" in said


@pytest.mark.thorough
def test_two_claims_at_once_and_the_log_s_first_one_writes(make_flow, make_worker):
    flow = make_flow(write__workers="twins", write__claim_within="1 minute")
    pauses = {name: Pause("worker.before_claim", flow.folder) for name in ("left", "right")}
    for name, pause in pauses.items():
        make_worker(name, flow, failpoint=pause.failpoint, wait=False)
    flow.produce(60)
    started = flow.start()
    for name, pause in pauses.items():
        wait_for(pause.reached, f"{name} about to claim")
    for pause in pauses.values():
        pause.release()
    assert waited(flow, started) == {0: Verdict.WRITTEN}
    flow.commit(started)
    flow.check()
    first, second, *_ = _claims(flow)
    assert {_by(first), _by(second)} == {"left", "right"}
    assert (first.takes_over, second.takes_over) == (-1, -1)
    assert len([m for m in flow.messages() if isinstance(m, WriteStatus)]) == 1


@pytest.mark.thorough
def test_frozen_with_its_claim_another_that_is_there_writes_the_range_within_the_lease(make_flow, make_worker):
    flow = make_flow(write__workers="trio", write__claim_within="1 minute")
    pause = Pause("worker.after_claim", flow.folder)
    frozen = make_worker("frozen", flow, failpoint=pause.failpoint)
    make_worker("heir", flow)
    for _ in range(12):  # whose a range is first is by the hash of its instant
        flow.produce(20)
        started = flow.start()
        wait_for(partial(_claims_of, flow, started), "a claim")
        if _by(_claims_of(flow, started)[0]) == "frozen":
            break
        assert waited(flow, started) == {0: Verdict.WRITTEN}
        flow.commit(started)
    frozen.signal(signal.SIGSTOP)
    assert waited(flow, started) == {0: Verdict.WRITTEN}
    first, second, *_ = _claims_of(flow, started)
    assert (_by(first), _by(second)) == ("frozen", "heir")
    assert LEASE <= (second.time - first.time).total_seconds() < LEASE + 15
    flow.commit(started)
    pause.release()
    frozen.signal(signal.SIGCONT)
    flow.produce(20)
    started = flow.start()
    assert waited(flow, started) == {0: Verdict.WRITTEN}
    flow.commit(started)
    flow.check()


def test_one_whose_connection_leads_to_another_cluster_reads_nothing_of_it(make_flow, make_worker, west):
    """Its environment is its own: a topic of that name on the other cluster has other records at the same offsets.

    A job of the range's own whose environment leads there fails, and one that leads where the plan was made writes it.
    """
    flow = make_flow(
        write__workers="astray", write__claim_within="2 seconds", control__connection="control_cluster",
        write__kafka_options={},
    )  # fmt: skip
    with_control = kafka_settings(flow.bootstrap, "control_cluster").to_environment("control")
    elsewhere = {**kafka_settings(west).to_environment("source"), **with_control}
    flow.produce(20)
    own = flow.bootstrap, flow.admin, flow.sent, flow._next_id
    flow.move(west, flow.connection)
    flow.sent = []
    flow.create_topic(2)
    flow.produce(20, values="west")
    flow.bootstrap, flow.admin, flow.sent, flow._next_id = own
    worker = make_worker("astray", flow, connections=elsewhere)
    started = flow.start()
    assert waited(flow, started) == {0: Verdict.SUBMIT}
    assert "planned on another cluster" in worker.log.read_text()
    assert worker.wait(0) is None, "it would begin with the same connection again"
    flow.secret_environment = elsewhere
    job = flow.write(started)
    assert job.wait() == 1
    assert "planned on another cluster" in job.text()
    assert not [m for m in flow.messages() if isinstance(m, WriteStatus) and m.error is None]
    flow.secret_environment = {}
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()


@pytest.mark.thorough
def test_a_worker_of_another_release_than_the_plan_leaves_it_alone_and_ends_for_a_new_one(
    make_flow, make_worker, monkeypatch
):
    flow = make_flow(write__workers="old", write__claim_within="3 seconds")
    worker = make_worker("old", flow)
    flow.produce(60)
    monkeypatch.setattr(starting, "__version__", "99.0.0")
    started = flow.start()
    assert waited(flow, started) == {0: Verdict.SUBMIT}
    assert worker.process.wait(60) == 0, worker.log.read_text()
    assert "another release" in worker.log.read_text()
    assert not _claims(flow)
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()


@pytest.mark.thorough
def test_its_jvm_is_killed_and_it_ends_with_status_1_and_the_retry_is_a_job(make_flow, make_worker):
    """As the kernel does where memory is short."""
    flow = make_flow(write__workers="poor")
    pause = Pause("participant.before_write", flow.folder)
    worker = make_worker("poor", flow, failpoint=pause.failpoint)
    flow.produce(60)
    started = flow.start()
    wait_for(pause.reached, "the range to begin")
    os.kill(worker.jvm(), signal.SIGKILL)
    pause.release()
    assert worker.process.wait(60) == 1, worker.log.read_text()
    assert "its Spark application is lost or out of memory" in worker.log.read_text()
    assert waited(flow, started) == {0: Verdict.SUBMIT}
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()


@pytest.mark.thorough
def test_a_range_that_runs_out_of_memory_fails_its_task_and_the_worker_goes_on(make_flow, make_worker):
    """A value that its heap doesn't hold. A heap that stays full ends it: tests/unit/test_claiming.py."""
    flow = make_flow(write__workers="full", transforms=[{"set": {"v": f"repeat('x', {400 << 20})"}}])
    worker = make_worker("full", flow, "--memory", "600m")
    flow.produce(2)
    run = flow.run()
    started = flow.start(run)
    assert waited(flow, started) == {0: Verdict.FAILED}
    (status,) = [m for m in flow.messages() if isinstance(m, WriteStatus)]
    assert status.error is not None
    assert "ran out of memory" in str(status.error)
    flow.abort(run)
    assert worker.process.poll() is None
    flow.set(transforms=[])
    assert worker.process.wait(60) == 0, worker.log.read_text()
    flow.interval()
    flow.check()


@pytest.mark.thorough
def test_the_broker_is_gone_while_it_writes_and_comes_back(
    home, tmp_path, tmp_path_factory, shared_jvm, drivers, topic_name, make_worker
):
    with LocalBroker(home, tmp_path_factory.mktemp("gone")) as broker:
        flow = Flow(tmp_path, broker.bootstrap, shared_jvm, drivers, topic_name("t"), write__workers="patient")
        flow.create_topic(2)
        pause = Pause("participant.after_write", flow.folder)
        worker = make_worker("patient", flow, failpoint=pause.failpoint)
        flow.produce(60)
        started = flow.start()
        wait_for(pause.reached, "the range to be written")
        broker.kill()
        pause.release()
        broker.start()
        verdict = waited(flow, started)[0]
        if verdict is not Verdict.WRITTEN:
            flow.write(started).succeed()
        flow.commit(started)
        flow.check()
        wait_for(worker.is_there, "the worker to be back in its group")
        flow.produce(60)
        started = flow.start()
        assert waited(flow, started) == {0: Verdict.WRITTEN}
        flow.commit(started)
        flow.check()


@pytest.mark.thorough
def test_one_whose_jvm_stands_still_is_unhealthy_leaves_its_group_and_ends(make_flow, make_worker):
    flow = make_flow(write__workers="mute", write__claim_within="3 seconds")
    worker = make_worker("mute", flow, "--port", "0")
    wait_for(lambda: worker.answer("/ready")[0] == 200, "it to be ready")
    jvm = worker.jvm()
    os.kill(jvm, signal.SIGSTOP)
    wait_for(lambda: worker.answer("/ready")[0] == 503, "it to claim nothing new")
    assert worker.answer("/health")[0] == 200
    wait_for(lambda: worker.answer("/health")[0] == 503, "it to be unhealthy")
    assert "its JVM has not answered" in worker.answer("/health")[1]
    wait_for(lambda: "does not answer" in worker.log.read_text(), "the worker to give itself up")
    wait_for(lambda: not worker.is_there(), "the group to be without it")
    flow.produce(20)
    started = flow.start()
    assert waited(flow, started) == {0: Verdict.SUBMIT}
    os.kill(jvm, signal.SIGCONT)
    assert worker.wait(60) not in (0, None), worker.log.read_text()
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()


@pytest.mark.thorough
def test_one_that_begins_while_an_interval_of_another_release_is_open_stays_for_those_that_follow(
    make_flow, make_worker, monkeypatch
):
    flow = make_flow(write__workers="new", write__claim_within="3 seconds")
    flow.produce(20)
    with monkeypatch.context() as patch:
        patch.setattr(starting, "__version__", "0.0.1")
        left_open = flow.start()
    worker = make_worker("new", flow)
    assert waited(flow, left_open) == {0: Verdict.SUBMIT}
    assert worker.process.poll() is None, worker.log.read_text()
    flow.write(left_open).succeed()
    flow.commit(left_open)
    flow.produce(20)
    started = flow.start()
    assert waited(flow, started) == {0: Verdict.WRITTEN}
    flow.commit(started)
    flow.check()
