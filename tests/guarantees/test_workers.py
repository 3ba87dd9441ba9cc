"""Workers that stay write ranges in place of Spark jobs; whatever happens to them, each row is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from sluice.control.presence import members
from sluice.control.topic import ControlTopic
from sluice.control.waiting import wait_for_workers
from sluice.errors import RetryableError
from sluice.failpoints import VARIABLE
from sluice.protocol.claims import Verdict
from sluice.protocol.messages import Claim, WriteStatus

from .harness import Flow, Pause, wait_for
from .harness.processes import MASTER, environment, kafka_settings

LEASE = 6.0


class WorkerProcess:
    """`sluice worker`, in a process of its own."""

    def __init__(
        self, name: str, group: str, flow: Flow, *more: str, files: tuple[Path, ...] = (), failpoint: str = ""
    ):
        self.name, self.group, self.bootstrap = name, group, flow.bootstrap
        self.log = flow.folder / f"worker-{name}.log"
        command = [sys.executable, "-m", "sluice.cli", "worker", *map(str, files or (flow.file,)), "--group", group]
        command += ["--name", name, "--lease", str(LEASE), "--memory", "1g", "--master", MASTER, *more]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command, env=environment(flow.bootstrap, **{VARIABLE: failpoint}), cwd=flow.folder, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def is_there(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        settings = kafka_settings(self.bootstrap)
        with suppress(RetryableError):  # the broker has just begun
            return self.name in [m.worker for m in members(AdminClient(settings.client()), settings, self.group)]
        return False

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)


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


def _waited(flow: Flow, started) -> dict[int, Verdict]:
    control = ControlTopic(kafka_settings(flow.bootstrap), flow.pipeline.control_topic)
    write = flow.pipeline.write
    within = write.claim_within.total_seconds()
    ranges = range(len(started.ranges))
    return wait_for_workers(control, flow.table, started.control_offset, ranges, write.workers or "", within)


def _claims(flow: Flow) -> list[Claim]:
    return [m for m in flow.messages() if isinstance(m, Claim)]


def test_intervals_of_several_tables_are_written_without_a_spark_job_of_their_own(make_flow, make_worker):
    first = make_flow(write__workers="shared", write__ranges=2)
    second = make_flow(write__workers="shared", sink__hudi__operation="upsert", sink__hudi__record_key="id")
    worker = make_worker("one", first, files=(first.file, second.file))
    for flow in (first, second):
        for _ in range(2):
            flow.produce(60)
            started = flow.start()
            assert set(_waited(flow, started).values()) == {Verdict.WRITTEN}
            flow.commit(started)
            flow.check()
        assert {claim.worker for claim in _claims(flow)} == {"one"}
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == 0, worker.log.read_text()
    assert "it was asked to" in worker.log.read_text()


def test_no_worker_and_the_range_is_left_to_its_own_job_at_once(make_flow):
    flow = make_flow(write__workers="nobody", write__claim_within="10 minutes")
    flow.produce(10)
    started = flow.start()
    assert _waited(flow, started) == {0: Verdict.SUBMIT}
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()


def test_killed_after_its_claim_another_takes_over_when_the_lease_has_run_out(make_flow, make_worker):
    flow = make_flow(write__workers="pair")
    flow.produce(60)
    flow.interval()
    pause = Pause("worker.after_claim", flow.folder)
    dying = make_worker("dying", flow, failpoint=pause.failpoint)
    flow.produce(60)
    started = flow.start()
    wait_for(lambda: [c.worker for c in _claims(flow)] == ["dying"], "the claim")
    make_worker("heir", flow)
    dying.signal(signal.SIGKILL)
    assert _waited(flow, started) == {0: Verdict.WRITTEN}
    flow.commit(started)
    flow.check()
    taken = _claims(flow)
    assert [c.worker for c in taken][:2] == ["dying", "heir"]


def test_frozen_beyond_its_lease_and_woken_its_rows_are_there_once(make_flow, make_worker):
    flow = make_flow(write__workers="cold")
    flow.produce(60)
    pause = Pause("participant.after_write", flow.folder)
    frozen = make_worker("frozen", flow, failpoint=pause.failpoint)
    started = flow.start()
    wait_for(pause.reached, "the range to be written")
    frozen.signal(signal.SIGSTOP)
    assert _waited(flow, started) == {0: Verdict.SUBMIT}
    flow.write(started).succeed()
    flow.commit(started)
    flow.check()
    pause.release()
    frozen.signal(signal.SIGCONT)
    flow.produce(60)
    started = flow.start()
    assert _waited(flow, started) == {0: Verdict.WRITTEN}
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
