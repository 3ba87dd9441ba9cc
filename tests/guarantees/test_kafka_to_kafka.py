"""From one cluster to another, exactly once: as it is, or filtered, masked and with other keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from sluice.errors import ActionRequiredError

from ..thorough import also
from .debezium import Log, event, postgresql
from .harness.topics import DDL, TARGET, consume, create, set_config, topics_of
from .harness.topics import environment as target_environment
from .test_routes import Routed

AS_IT_IS = {
    "source__kafka__value": {"converter": "bytes", "as": "value"},
    "source__kafka__key": {"converter": "bytes", "as": "key"},
    "source__kafka__columns": {"headers": "headers"},
    "changes": {"format": "tombstones"},
}
COPY = {
    "key_fields": "key", "key": {"encoder": "bytes"}, "value_fields": "value", "value": {"encoder": "bytes"},
    "headers_from": "headers", "partitioner": "same", "tombstones": True,
    "schema": "key BINARY NOT NULL, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
}  # fmt: skip


@pytest.fixture
def copied(make_flow, west, monkeypatch):
    """A pipeline from the tests' cluster to the second one."""
    for variable, value in target_environment(west).items():
        monkeypatch.setenv(variable, value)

    def made(section, targets=2, **settings):
        return topics_of(make_flow(2, **settings), west, targets, section)

    return made


def test_records_arrive_as_they_are_tombstones_headers_and_times_too(copied):
    """Any bytes, in the partition that they came from, in their order; with what Kafka says of each."""
    topics = copied(COPY, **AS_IT_IS)
    flow = topics.flow
    sent: dict[int, list[tuple]] = {0: [], 1: []}
    producer = Producer({"bootstrap.servers": flow.bootstrap, "log_level": 0})
    for number in range(30):
        partition, time = number % 2, 1_600_000_000_000 + number
        value = None if number % 7 == 3 else bytes([number, 0, 255])
        headers = [("h", bytes([number])), ("h", b"twice"), ("none", None)] if number % 3 == 0 else []
        sent[partition].append((b"k%d" % (number % 5), value, tuple(headers), time))
        producer.produce(flow.topic, value, sent[partition][-1][0], partition, timestamp=time, headers=headers)
    assert producer.flush(30) == 0
    started = flow.start()
    flow.write_all(started)
    step = flow.step(
        "commit", "--control-offset", str(started.control_offset), failpoint="kafka.before_commit_transaction=kill"
    )
    assert step.killed, step.err
    assert topics.found() == []
    flow.commit(started)
    found = topics.found()
    for partition, records in sent.items():
        there = [one for one in found if one.partition == partition]
        assert [(one.key, one.value, one.headers, one.timestamp) for one in there] == records


def test_records_without_a_key_stand_beside_tombstones(copied):
    """One topic may have both; a record that has neither key nor value says nothing, and is a bad one."""
    section = {**COPY, "schema": COPY["schema"].replace(" NOT NULL", "")}
    topics = copied(section, **AS_IT_IS, errors__tolerance="all")
    sent = [(b"k", b"1"), (None, b"2"), (b"k", None), (None, None), (None, b"3")]
    topics.flow.produce_keyed(sent)
    topics.flow.interval()
    found = [(one.key, one.value) for one in topics.found()]
    assert sorted(found, key=repr) == sorted((one for one in sent if one != (None, None)), key=repr)


def test_a_pipeline_filters_masks_and_gives_other_keys(copied):
    """To topics that it creates, whose names are made of the source's."""
    section = {
        "topic": "clean.${topic}", "key_fields": "v", "key": {"encoder": "string"}, "schema": "id BIGINT, v STRING",
        "timestamp": "wallclock", "log_topic": "_clean.log", "topic_settings": {"create": True, "partitions": 3},
    }  # fmt: skip
    topics = copied(section, 0, transforms=[{"filter": "id % 2 = 0"}, {"set": {"v": "concat('x', id)"}}])
    topics.name = f"clean.{topics.flow.topic}"
    topics.flow.produce(20)
    topics.flow.interval()
    found = topics.found()
    assert sorted(one.row for one in found) == [(i, f"x{i}") for i in range(0, 20, 2)]
    assert all(one.key == json.loads(one.value or b"")["v"].encode() for one in found)
    assert {one.partition for one in found} <= {0, 1, 2}


@pytest.mark.thorough
def test_debezium_s_deletes_become_tombstones_and_verify_compares_the_last_record_of_each_key(make_topics):
    section = {"tombstones": True, "key_fields": "id", "topic_settings": {"create": True, "partitions": 2}}
    topics = make_topics(1, targets=0, section=section, changes={"format": "debezium"})
    flow = topics.flow

    def send(*events: dict) -> None:
        sent = Log()
        for one in events:
            sent.send(one)
            if one["op"] == "d":
                sent.tombstone(one["before"]["id"])
        flow.produce_keyed(sent.take())

    def row(number: int, v: str) -> dict:
        return {"id": number, "v": v}

    send(
        event("c", postgresql(100), after=row(1, "a")),
        event("c", postgresql(200), after=row(2, "a")),
        event("u", postgresql(300), row(1, "a"), row(1, "b")),
    )
    flow.interval()
    send(event("d", postgresql(400), row(2, "a")), event("c", postgresql(500), after=row(3, "a")))
    flow.interval()
    by_key: dict[bytes | None, list] = {}
    for one in topics.found():
        by_key.setdefault(one.key, []).append(one.value and json.loads(one.value))
    assert by_key == {
        b'{"id":1}': [row(1, "a"), row(1, "b")], b'{"id":2}': [row(2, "a"), None], b'{"id":3}': [row(3, "a")]
    }  # fmt: skip
    assert compared(topics) == [(2, 2, True)]
    flow.produce_to(topics.name, b'{"id":2}', b'{"id":2,"v":"somebody else\'s"}')
    assert compared(topics) == [(2, 3, False)]


def compared(topics) -> list[tuple[int, int, bool]]:
    found = json.loads(topics.flow.verify("--json").stdout)
    return [(one["in_topic"], one["in_table"], one["same"]) for one in found["intervals"]]


def test_routes_send_to_topics_each_with_a_log_of_its_own(make_topics):
    topics = make_topics(1, targets=0)
    flow, name = topics.flow, topics.flow.topic
    kafka = {"connection": TARGET, "schema": DDL, "topic_settings": {"create": True, "partitions": 1}}
    sinks = {one: {**kafka, "topic": f"{name}-{one}", "staging": f"{flow.folder}/{one}"} for one in ("even", "odd")}
    flow.set(sink=None, source__kafka__value={"schema": "id BIGINT, v STRING"})
    tables = {one: {"sink": {"kafka": sink}} for one, sink in sinks.items()}
    flow.set(routes={"by": "if(id % 2 = 0, 'even', 'odd')", "tables": tables, "otherwise": "fail"})
    flow.produce(10, partitions=[0])
    for one in sinks:
        routed = Routed(flow, one)
        assert routed.interval().state == "committed"
        wanted = sorted((sent.id, sent.value) for sent in flow.sent if sent.id % 2 == (one == "odd"))
        assert sorted(record.row for record in consume(topics.bootstrap, f"{name}-{one}")) == wanted
    assert Routed(flow, "even").pipeline.table_id != Routed(flow, "odd").pipeline.table_id


@pytest.mark.thorough
def test_a_backfill_sends_what_lies_before_the_start_and_nothing_twice(make_topics):
    topics = make_topics(source__kafka__starting_offsets="latest")
    flow = topics.flow
    flow.produce(20)
    flow.interval()
    flow.produce(10)
    flow.interval()
    assert len(topics.rows()) == 10
    window = {"from_time": datetime(2000, 1, 1, tzinfo=UTC), "to_time": datetime.now(UTC) + timedelta(hours=1)}
    assert flow.interval(kind="backfill", **window).records == 20
    topics.check()
    assert "are in the table already" in flow.coordinator().start(flow.run(kind="backfill", **window)).summary
    assert compared(topics) == [(10, 10, True), (20, 20, True)]


def refused(topics, planned: Callable[[], None]) -> str:
    """How an interval ends whose records the target doesn't take any more, since something happened to it."""
    run = topics.flow.run()
    started = topics.flow.start(run)
    planned()
    topics.flow.write_all(started)
    with pytest.raises(ActionRequiredError) as caught:
        topics.flow.commit(started)
    topics.flow.abort(run)
    return str(caught.value)


@pytest.mark.thorough
def test_a_topic_that_is_missing_is_said_before_anything_is_read(make_topics):
    topics = make_topics(targets=0)
    topics.flow.produce(5)
    with pytest.raises(ActionRequiredError, match="The topic that the sink writes to does not exist"):
        topics.flow.start()
    create(topics.bootstrap, topics.name, 1)
    topics.flow.interval()
    topics.check()


@pytest.mark.thorough
def test_a_record_that_is_too_large_is_named_and_nothing_is_lost(make_topics):
    topics = make_topics(targets=0)
    create(topics.bootstrap, topics.name, 1, max_message_bytes="2000")
    topics.flow.produce(5)
    topics.flow.produce(1, partitions=[1], values="x" * 3000)
    run = topics.flow.run()
    started = topics.flow.start(run)
    job = topics.flow.write(started)
    assert job.wait() != 0
    said = rf"its record for the topic {topics.name} has 3\d\d\d bytes, and the topic takes 2000 \(max.message.bytes\)"
    assert re.search(said, job.text())
    assert f"topic={topics.flow.topic}, partition=1" in job.text()
    topics.flow.abort(run)
    assert topics.rows() == []
    set_config(topics, "max.message.bytes", "1000000")
    topics.flow.interval()
    topics.check()


@pytest.mark.parametrize("compression", ["lz4", *also("none")])
def test_a_topic_that_refuses_at_the_commit_loses_nothing(make_topics, compression):
    """A compacted topic takes no record without a key; this one is so only once the interval is planned."""
    topics = make_topics(targets=0, section={"compression": compression})
    create(topics.bootstrap, topics.name, 1)
    topics.flow.produce(5)
    assert "The topic refuses a record" in refused(topics, lambda: set_config(topics, "cleanup.policy", "compact"))
    assert topics.rows() == []
    with pytest.raises(ActionRequiredError, match="The topic is compacted, which takes no record without a key"):
        topics.flow.start()
    set_config(topics, "cleanup.policy", "delete")
    topics.flow.interval()
    topics.check()
