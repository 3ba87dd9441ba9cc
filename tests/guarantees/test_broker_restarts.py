"""The broker goes down during an interval: steps come through or fail, and nothing is lost or doubled."""

from __future__ import annotations

from contextlib import suppress
from threading import Timer

import pytest

from sluice.control.presence import Membership, Presence
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError
from sluice.local.broker import LocalBroker

from .harness import Flow, Pause, finish, kafka_settings, wait_for


@pytest.fixture
def broker_of_its_own(home, tmp_path_factory):
    with LocalBroker(home, tmp_path_factory.mktemp("restarts")) as broker:
        yield broker


@pytest.fixture
def flow(broker_of_its_own, tmp_path, shared_jvm, drivers, topic_name) -> Flow:
    flow = Flow(tmp_path, broker_of_its_own.bootstrap, shared_jvm, drivers, topic_name("t"))
    flow.create_topic(2)
    return flow


def test_killed_and_started_again_between_and_within_the_steps(flow, broker_of_its_own):
    broker = broker_of_its_own
    flow.produce(40)
    started = flow.start()
    broker.kill()
    broker.start()
    pause = Pause("participant.before_write", flow.folder)
    job = flow.write(started, failpoint=pause.failpoint)
    pause.wait(job)
    broker.kill()
    pause.release()  # the job finds the broker gone
    broker.start()
    if job.wait() != 0:
        flow.write(started).succeed()
    broker.stop()
    again = Timer(3, broker.start)
    again.start()
    committing = flow.spawn("commit", "--control-offset", str(started.control_offset))
    again.join()
    step = finish(committing)
    if step.status != 0:
        assert "Next step:" in step.err
        assert "Traceback" not in step.err
        flow.commit(started)
    flow.check()
    flow.produce(20)
    flow.interval()
    flow.check()


@pytest.mark.thorough
def test_gone_before_the_status_is_sent(flow, broker_of_its_own):
    broker = broker_of_its_own
    flow.produce(40)
    started = flow.start()
    pause = Pause("participant.after_write", flow.folder)
    job = flow.write(started, failpoint=pause.failpoint)
    pause.wait(job)
    broker.kill()
    again = Timer(2, broker.start)
    again.start()
    pause.release()
    again.join()
    if job.wait() != 0:
        flow.write(started).succeed()
    flow.commit(started)
    flow.check()


def test_which_workers_are_there_is_known_again(broker_of_its_own, topic_name):
    broker, settings = broker_of_its_own, kafka_settings(broker_of_its_own.bootstrap)
    control = ControlTopic(settings, topic_name("control"))
    control.ensure()
    membership = Membership(settings, "steady", "one", [control.topic], lambda: None)
    presence = Presence(settings, timeout=2)

    def is_there() -> bool:
        with suppress(RetryableError):  # while there is no broker, and just after it has begun
            return [member.worker for member in presence.members("steady")] == ["one"]
        return False

    wait_for(is_there, "the worker")
    broker.kill()
    assert not is_there()
    broker.start()
    wait_for(is_there, "the worker again")
    membership.leave()
