"""Whatever dies or stands still while a topic is written: who reads committed records finds each of them once.

After each disturbance the topic is read by a consumer with isolation.level read_committed, and compared with what was
sent to the source.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from sluice.errors import RetryableError
from sluice.kafka.transactional import Record, TransactionalSender
from sluice.protocol.messages import WriteStatus
from sluice.sinks.kafka.options.names import transactional_id

from ..thorough import also
from .harness import once_the_lease_is_free
from .harness.processes import kafka_settings

BEFORE = [
    "coordinator.before_hudi_commit",
    "sink.before_fencing",
    "sink.before_log_entry",
    "kafka.before_commit_transaction",
]
AFTER = ["sink.after_commit_transaction", "coordinator.before_ack_commit"]


@pytest.mark.parametrize("point", [*BEFORE[3:], *also(*BEFORE[:3], *AFTER)])
def test_a_coordinator_that_is_killed_while_it_commits(make_topics, point):
    """The interval is there whole or not at all, then and when the next one has come by."""
    topics = make_topics()
    topics.flow.produce(40)
    started = topics.flow.start()
    topics.flow.write_all(started)
    step = topics.flow.step("commit", "--control-offset", str(started.control_offset), failpoint=f"{point}=kill")
    assert step.killed, step.err
    assert len(topics.rows()) == (40 if point in AFTER else 0)
    if point == BEFORE[3]:  # it had sent all of it
        assert len(topics.rows("read_uncommitted")) == 40
    if point in (BEFORE[0], BEFORE[3], AFTER[0]):
        assert topics.flow.commit(started).state == "committed"
    topics.flow.produce(20)
    topics.flow.interval()
    topics.check()


def test_a_zombie_coordinator_can_commit_nothing(make_topics):
    """It stands still with all records sent, and wakes up when its interval was aborted and another one committed."""
    topics = make_topics(control__commit_timeout="1 second")
    topics.flow.produce(40)
    run = topics.flow.run()
    started = topics.flow.start(run)
    topics.flow.write_all(started)
    pause, zombie = topics.flow.frozen_commit(started, "kafka.before_commit_transaction")
    assert len(topics.rows("read_uncommitted")) == 40
    once_the_lease_is_free(lambda: topics.flow.abort(run))
    topics.flow.produce(20)
    topics.flow.interval()
    topics.check()
    pause.release()
    out, err = zombie.communicate(timeout=120)
    assert zombie.returncode != 0, out
    assert "Another process" in err or "not under way" in err or "aborted" in err, err
    topics.check()
    topics.flow.produce(5)
    topics.flow.interval()
    topics.check()


@pytest.mark.thorough
def test_the_one_that_takes_a_lease_over_commits_once(make_topics):
    """Two processes at the same commit: the first stands still before it ends its transaction."""
    topics = make_topics(control__commit_timeout="1 second")
    topics.flow.produce(40)
    started = topics.flow.start()
    topics.flow.write_all(started)
    pause, zombie = topics.flow.frozen_commit(started, "kafka.before_commit_transaction")
    once_the_lease_is_free(lambda: topics.flow.commit(started))
    topics.check()
    pause.release()
    zombie.communicate(timeout=120)
    topics.check()


def test_a_zombie_producer_of_the_same_id_is_refused(make_topics):
    """Kafka's own rule, on which all of it rests: who had the transactional id before can't commit."""
    topics = make_topics(1)
    topics.flow.produce(10, partitions=[0])
    zombie = Producer(
        {
            "bootstrap.servers": topics.bootstrap,
            "transactional.id": transactional_id(topics.flow.table),
            "log_level": 0,
        }
    )
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce(topics.name, b'{"id": -1, "v": "zombie"}')
    zombie.flush(30)
    topics.flow.interval()
    topics.check()
    with pytest.raises(KafkaException):
        zombie.commit_transaction(30)
    topics.check()


@pytest.mark.parametrize("records", [1, 50])
def test_who_is_refused_while_it_sends_is_told_that_another_sends(make_topics, records):
    """The client tells of it where it waits for what it has sent, and calls back for each record."""
    topics = make_topics(1)
    settings, identity = kafka_settings(topics.bootstrap, "target"), transactional_id(topics.flow.table)
    record = Record(topics.name, None, b"{}", partition=0)
    with TransactionalSender(settings, identity) as zombie:
        zombie.begin()
        zombie.produce_all([record])
        zombie.flush()
        with TransactionalSender(settings, identity):
            zombie.produce_all([record] * records)
            with pytest.raises(RetryableError, match="Another process sends"):
                zombie.flush()
    assert topics.found() == []


@pytest.mark.parametrize("end", also("aborted", "committed"))
def test_a_zombie_participant_reaches_nothing_but_its_staging_folder(make_topics, end):
    topics = make_topics()
    topics.flow.produce(40)
    run = topics.flow.run()
    started = topics.flow.start(run)
    zombie = topics.flow.zombie(started)
    if end == "aborted":
        topics.flow.abort(run)
    else:
        topics.flow.write(started).succeed()
        topics.flow.commit(started)
        topics.check()
    before = sorted(topics.rows("read_uncommitted"))
    zombie.write()
    assert topics.staged() != []
    assert sorted(topics.rows("read_uncommitted")) == before
    zombie.hear()
    statuses = [m for m in topics.flow.messages() if isinstance(m, WriteStatus) and m.error is None]
    assert len(statuses) == (0 if end == "aborted" else 1)
    topics.flow.produce(20)
    topics.flow.interval()
    topics.check()


@pytest.mark.thorough
def test_of_two_runs_at_once_one_commits(make_topics):
    """The second one plans the same offsets and supersedes the first, whose staged records go."""
    topics = make_topics()
    topics.flow.produce(40)
    first = topics.flow.start()
    topics.flow.write_all(first)
    second = topics.flow.start()
    topics.flow.write_all(second)
    with pytest.raises(Exception, match=r"superseded|took over|another run"):
        topics.flow.commit(first)
    topics.flow.commit(second)
    topics.check()


@pytest.mark.thorough
def test_an_interval_that_is_committed_twice_is_there_once(make_topics):
    topics = make_topics()
    topics.flow.produce(40)
    started = topics.flow.start()
    topics.flow.write_all(started)
    for _ in range(2):
        assert topics.flow.commit(started).records == 40
        topics.check()


@pytest.mark.thorough
@pytest.mark.parametrize("point", ["before_start_commit", "after_start_commit", "after_open_instant"])
def test_a_coordinator_that_is_killed_while_it_starts(make_topics, point):
    topics = make_topics()
    topics.flow.produce(40)
    step = topics.flow.step("start", "--run-id", "first", failpoint=f"coordinator.{point}=kill")
    assert step.killed, step.err
    topics.flow.interval()
    topics.check()
