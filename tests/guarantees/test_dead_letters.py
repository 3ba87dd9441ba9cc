"""The dead-letter topic has each bad record of a committed interval once, as it came and with what is wrong with it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from sluice.coordinator import Coordinator
from sluice.errors import SluiceError
from sluice.kafka.config import CONTROL_SECRET
from sluice.local.broker_config import CLUSTER_ID
from sluice.protocol.signing import Signatures

from ..thorough import also
from .harness import CLUSTER, Flow, kafka_settings, wait_for
from .quarantined import TOLERANT, consume, folder, places, quarantine, send


def _tolerant(make_flow, **more) -> tuple[Flow, str]:
    flow = make_flow(**TOLERANT, **more)
    topic = f"{flow.topic}.dlq"
    flow.set(errors__dead_letter_topic=topic)
    return flow, topic


def _places(flow: Flow, topic: str) -> list[tuple[int, int]]:
    headers = [dict(record.headers()) for record in consume(flow, topic)]
    return sorted((int(h["__connect.errors.partition"]), int(h["__connect.errors.offset"])) for h in headers)


def test_a_dead_letter_has_all_that_is_known(make_flow):
    flow, topic = _tolerant(make_flow, write__ranges=2)
    flow.admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "20000"})])[topic].result(30)
    wait_for(lambda: topic in flow.admin.list_topics(timeout=10).topics, "the topic", pause=0.1)
    flow.produce(20)
    own = [("trace", b"\x00\xff"), ("none", None), ("trace", b"again")]
    bad = send(flow, b'{"id": "x"}', partition=1, key=b"key", headers=own, timestamp=1_700_000_000_123)
    large = send(flow, b"x" * 30_000, partition=0, key=b"large")
    tombstone = send(flow, None, partition=0, key=b"gone")
    outcome = flow.interval()
    flow.check()
    letters = {(int(dict(r.headers())["__connect.errors.partition"]), r.key()): r for r in consume(flow, topic)}
    assert sorted(letters) == [(0, b"gone"), (0, b"large"), (1, b"key")]
    letter = letters[1, b"key"]
    assert letter.value() == b'{"id": "x"}'
    assert letter.timestamp()[1] == 1_700_000_000_123
    assert letter.headers()[:3] == own
    reason = b"the value is not JSON, or a field is not of its column's type"
    assert dict(letter.headers()[3:]) == {
        "__connect.errors.topic": flow.topic.encode(),
        "__connect.errors.partition": b"1",
        "__connect.errors.offset": str(bad).encode(),
        "__connect.errors.connector.name": flow.pipeline.name.encode(),
        "__connect.errors.task.id": b"1",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": b"sluice.rows.converters.json.Converter",
        "__connect.errors.exception.class.name": b"org.apache.kafka.connect.errors.DataException",
        "__connect.errors.exception.message": reason,
        "sluice.instant": outcome.instant.encode(),
        "sluice.range": b"1",
        "sluice.reason": reason,
        "sluice.topic_id": flow.checkpoint().clusters[CLUSTER].topics[flow.topic].topic_id.encode(),
        "sluice.cluster": CLUSTER.encode(),
        "sluice.cluster_id": CLUSTER_ID.encode(),
    }
    assert letters[0, b"gone"].value() is None
    assert "sluice.left_out" not in dict(letters[0, b"gone"].headers())
    assert letters[0, b"large"].value() is None
    assert str(folder(flow)) in dict(letters[0, b"large"].headers())["sluice.left_out"].decode()
    sent = sorted([(1, bad), (0, large), (0, tombstone)])
    assert _places(flow, topic) == sent
    # A zombie that comes to its step after a later interval sends nothing.
    sent.append((1, flow.produce_raw(b"{", partition=1)))
    flow.interval()
    coordinator = flow.coordinator()
    table_log = coordinator._session.control.table_log(flow.table, 0)
    with coordinator._session.table() as table:
        coordinator._committer._quarantine.commit(table, table_log.transactions[outcome.instant])
    assert _places(flow, topic) == sorted(sent)


@pytest.mark.parametrize(("point", "then"), also(("before_dead_letters", "next"), ("after_dead_letters", "again")))
def test_killed_round_the_kafka_transaction(make_flow, point, then):
    flow, topic = _tolerant(make_flow)
    flow.produce(20)
    bad = [(p, flow.produce_raw(b"{", partition=p)) for p in (0, 1, 1)]
    started = flow.start()
    flow.write_all(started)
    step = flow.step("commit", "--control-offset", str(started.control_offset), failpoint=f"coordinator.{point}=kill")
    assert step.killed, step.err
    assert _places(flow, topic) == (bad if point == "after_dead_letters" else [])
    if then == "again":
        assert flow.commit(started).state == "committed"
        assert _places(flow, topic) == bad
    bad.append((0, flow.produce_raw(b"{", partition=0)))
    flow.interval()
    flow.check()
    assert _places(flow, topic) == places(quarantine(flow)) == sorted(bad)


def test_killed_in_the_kafka_transaction(make_flow):
    flow, topic = _tolerant(make_flow)
    flow.produce(20)
    bad = [(1, flow.produce_raw(b"{", partition=1)) for _ in range(3)]
    started = flow.start()
    flow.write_all(started)
    step = flow.step(
        "commit", "--control-offset", str(started.control_offset), failpoint="kafka.before_commit_transaction=kill"
    )
    assert step.killed, step.err
    assert flow.commit(started).state == "committed"  # its sender ends the transaction that was left open
    flow.check()
    assert _places(flow, topic) == bad


def test_with_a_secret_no_forged_note_keeps_letters_from_being_sent(make_flow):
    flow, topic = _tolerant(make_flow)
    known = kafka_settings(flow.bootstrap)
    signed = replace(known, librdkafka={**known.librdkafka, CONTROL_SECRET: "a secret of the tests"})
    coordinator = Coordinator(flow.pipeline, signed, None, flow.jvm)
    flow.secrets = {CONTROL_SECRET: "a secret of the tests"}
    flow.produce(20)
    bad = [(p, flow.produce_raw(b"{", partition=p)) for p in (0, 1)]
    started = coordinator.start(flow.run())
    flow.write_all(started)
    key, notes = flow.table.encode(), f"{topic}.sent"
    producer = Producer({"bootstrap.servers": flow.bootstrap, "log_level": 0})
    for secrets in ((), ("a secret of another",)):
        for instant in (started.instant, "99991231235959999"):
            note = json.dumps({"version": 1, "instant": instant, "letters": 2, "clusters": [CLUSTER]}).encode()
            headers = Signatures(notes, secrets, lambda *_: None).headers(key, note)
            producer.produce(notes, note, key, headers=headers)
    assert producer.flush(30) == 0
    for _ in range(2):
        coordinator.commit(started.control_offset, started.instant, started.digest)
        assert _places(flow, topic) == bad


LETTERS = 12_500  # three chunks, of 5,000 at most


@pytest.mark.thorough
def test_killed_at_every_chunk(make_flow):
    flow, topic = _tolerant(make_flow)
    flow.produce(20)
    flow.produce_values([b"{"] * LETTERS)
    started = flow.start()
    flow.write_all(started)
    for failpoint, seen in (
        ("kafka.before_commit_transaction", 0),
        ("coordinator.dead_letters_5000", 5_000),
        ("kafka.before_commit_transaction", 5_000),  # of the process that goes on: the second chunk's
        ("coordinator.dead_letters_10000", 10_000),
    ):
        step = flow.step("commit", "--control-offset", str(started.control_offset), failpoint=f"{failpoint}=kill")
        assert step.killed, step.err
        assert len(_places(flow, topic)) == seen, failpoint
    assert flow.commit(started).state == "committed"
    good = max(sent.offset for sent in flow.sent if sent.partition == 0)
    assert _places(flow, topic) == [(0, good + 1 + i) for i in range(LETTERS)]


def test_not_sent_again_when_the_group_has_forgotten(make_flow):
    """A broker keeps the offsets of a group that nobody uses for a week."""
    flow, topic = _tolerant(make_flow)
    bad = [(0, flow.produce_raw(b"{", partition=0)) for _ in range(3)]
    started = flow.start()
    flow.write_all(started)
    failpoint = "coordinator.after_dead_letters=kill"
    assert flow.step("commit", "--control-offset", str(started.control_offset), failpoint=failpoint).killed
    groups = [g.group_id for g in flow.admin.list_consumer_groups().result(30).valid]
    for group in groups:
        if group.startswith(f"sluice.dead-letters.{flow.topic}"):
            flow.admin.delete_consumer_groups([group])[group].result(30)
    assert flow.commit(started).state == "committed"
    assert _places(flow, topic) == bad


def test_a_topic_that_cannot_be_used_is_changed_in_the_pipeline_file(make_flow):
    flow, topic = _tolerant(make_flow)
    flow.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    bad = [(1, flow.produce_raw(b"{", partition=1)) for _ in range(3)]
    started = flow.start()
    flow.write_all(started)
    too_little = ConfigEntry("max.message.bytes", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[too_little])
    flow.admin.incremental_alter_configs([resource])[resource].result(30)
    with pytest.raises(SluiceError):
        flow.commit(started)
    flow.set(errors__dead_letter_topic=f"{topic}.other")
    assert flow.commit(started).state == "committed"
    assert _places(flow, f"{topic}.other") == bad
    # Nor need there be one: the quarantine has the record.
    bad.append((1, flow.produce_raw(b"{", partition=1)))
    started = flow.start()
    flow.write_all(started)
    flow.set(errors__dead_letter_topic=None)
    assert flow.commit(started).state == "committed"
    flow.check()
    assert Counter(places(quarantine(flow))) == Counter(bad)
    assert _places(flow, f"{topic}.other") == bad[:-1]
