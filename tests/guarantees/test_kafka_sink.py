"""What a consumer of committed records finds in a topic that a pipeline writes."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sluice.connectors.connections import ConnectionSettings, given
from sluice.connectors.views import commit_log_of, shows_commits
from sluice.errors import RetryableError
from sluice.protocol.offsets import OFFSETS_KEY
from sluice.registry.config import VARIABLE
from sluice.sinks.kafka import commits
from sluice.sinks.kafka.rows import table_rows

from .harness.topics import TARGET, consume, create, set_config
from .protobuf_records import message_class


def test_each_record_is_there_once_with_its_key_headers_and_time(make_topics):
    """Two intervals, of two partitions each; keys go where Java's clients would put them."""
    section = {"key_fields": "id", "key": {"encoder": "string"}, "value_fields": ["id", "v"], "headers": {"of": "p"},
               "schema": "id BIGINT, v STRING, p STRING"}  # fmt: skip
    topics = make_topics(section=section)
    for dated in (1_700_000_000_000, 1_600_000_000_123):
        topics.flow.produce(20, dated=dated)
        topics.flow.interval()
    topics.check()
    found = topics.found()
    assert {one.timestamp for one in found} == {1_700_000_000_000, 1_600_000_000_123}
    assert all(one.key == str(one.row[0]).encode() for one in found)
    assert all(one.headers == (("of", f"p{one.row[0] % 2}".encode()),) for one in found)
    assert all(json.loads(one.value or b"") == {"id": one.row[0], "v": f"a{one.row[0]}"} for one in found)
    judge = Producer({"bootstrap.servers": topics.bootstrap, "partitioner": "murmur2_random", "log_level": 0})
    create(topics.bootstrap, f"{topics.name}-judge", 2)
    for one in found:
        judge.produce(f"{topics.name}-judge", b"", one.key)
    judge.flush(30)
    where = {one.key or b"": one.partition for one in consume(topics.bootstrap, f"{topics.name}-judge")}
    assert {one.key: one.partition for one in found} == where
    assert len(set(where.values())) == 2


def test_the_page_shows_the_log_s_intervals_and_verify_knows_which_it_can_compare(make_topics, monkeypatch):
    topics = make_topics()
    table = topics.flow.pipeline.table_id
    assert shows_commits("kafka")
    assert commit_log_of("kafka", table).read() is None
    done = []
    for _ in range(2):
        topics.flow.produce(10)
        done.append(topics.flow.interval().instant)
    topics.flow.produce(1)
    started = topics.flow.start(run := topics.flow.run())
    timeline = commit_log_of("kafka", table).read()
    assert [timeline.standing(one) for one in (*done, started.instant)] == ["completed", "completed", "pending"]
    assert timeline.standing("20200101000000000") == "absent"
    assert [one.requested for one in timeline.of_others(done[:1])] == done[1:]
    facts = commit_log_of("kafka", table).facts(timeline.instants[done[1]])
    assert (facts.rows, facts.bytes_written > 0) == (10, True)
    assert OFFSETS_KEY in facts.extra
    writer = next(one for one in topics.flow.messages() if one.type == "START-COMMIT").writer
    assert table_rows.beyond(writer, done) == {}
    other = writer.model_copy(update={"options": {**writer.options, "value_encoder": "json_with_schema"}})
    assert all("other columns, encoders" in words for words in table_rows.beyond(other, done).values())
    assert "the last 256 intervals" in table_rows.beyond(writer, [started.instant])[started.instant]
    set_config(topics, "cleanup.policy", "compact")
    assert [words.partition(",")[0] for words in table_rows.beyond(writer, done).values()] == [
        "the topic is compacted"
    ] * 2
    topics.flow.abort(run)
    assert commit_log_of("kafka", table).read().standing(started.instant) == "absent"
    monkeypatch.setattr(commits, "READ", 9)  # offsets, with what ends transactions: not all of the log
    bounded = commit_log_of("kafka", table).read()
    assert (list(bounded.instants), bounded.standing(done[0])) == (done[1:], "archived")
    secret = {"bootstrap.servers": "localhost:1", "sasl.password": "hunter2", "socket.timeout.ms": 1000}
    monkeypatch.setattr(commits, "_TIMEOUT", 1.0)
    with given([ConnectionSettings(TARGET, "kafka", extra=secret)]), pytest.raises(RetryableError) as caught:
        commit_log_of("kafka", table).read()
    assert "hunter2" not in str(caught.value)


@pytest.mark.thorough
def test_protobuf_from_end_to_end_and_a_null_in_a_list_is_said(make_topics, registry, monkeypatch):
    """Confluent's own deserializer reads what lands; a record that no message holds stops the interval by its place."""
    section = {"key_fields": "id", "key": {"encoder": "string"}, "schema": "id BIGINT, v STRING, list ARRAY<STRING>",
               "value": {"encoder": "protobuf", "registry": "judge", "record_name": "p.Row"}}  # fmt: skip
    topics = make_topics(section=section)
    monkeypatch.setenv(VARIABLE, registry.url)
    topics.flow.produce(6)
    topics.flow.interval()
    with SchemaRegistryClient({"url": registry.url}) as client:
        text = client.get_latest_version(f"{topics.name}-value").schema.schema_str
    judge = ProtobufDeserializer(message_class(text, "p.Row"), {"use.deprecated.format": False})
    context = SerializationContext(topics.name, MessageField.VALUE)
    read = [judge(one.value, context) for one in topics.found()]
    assert sorted((one.id, one.v) for one in read) == sorted((sent.id, sent.value) for sent in topics.flow.sent)
    done = topics.flow.verify("--json")
    assert done.exit_code == 0, done.exception
    (verified,) = json.loads(done.stdout)["intervals"]
    assert (verified["in_topic"], verified["in_table"], verified["same"]) == (6, 6, True)
    topics.flow.produce_raw(json.dumps({"id": 7, "list": ["a", None]}).encode())
    with pytest.raises(AssertionError, match=r"its column list has a null in a list or a map.* partition=\d, offset=3"):
        topics.flow.interval()
    assert len(topics.found()) == 6
