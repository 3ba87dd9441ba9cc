"""What a consumer of committed records finds in a topic that a pipeline writes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sluice.connectors.connections import ConnectionSettings, given
from sluice.connectors.views import commit_log_of, shows_commits
from sluice.coordinator import Outcome
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import CONTROL_SECRET
from sluice.protocol.offsets import OFFSETS_KEY
from sluice.schemas.registry.config import VARIABLE
from sluice.sinks.kafka import commits
from sluice.sinks.kafka.rows import table_rows

from ..thorough import also
from .harness.processes import wait_for
from .harness.topics import TARGET, consume, create, environment, set_config
from .protobuf_records import message_class


def test_each_record_is_there_once_with_its_key_headers_and_time(make_topics):
    """Two intervals, of two partitions each; keys go where Java's clients would put them, whoever has encoded them."""
    # On the jobs' Python path is the folder of the application that they run in, which is this one.
    own = {"encoder": "fixed_fields:FixedFields", "options": {"widths": "6"}}
    section = {"key_fields": "id", "key": own, "value_fields": ["id", "v"], "headers": {"of": "p"},
               "schema": "id BIGINT, v STRING, p STRING"}  # fmt: skip
    topics = make_topics(section=section)
    for dated in (1_700_000_000_000, 1_600_000_000_123):
        topics.flow.produce(20, dated=dated)
        topics.flow.interval()
    topics.check()
    found = topics.found()
    assert {one.timestamp for one in found} == {1_700_000_000_000, 1_600_000_000_123}
    assert all(one.key == f"{one.row[0]:<6}".encode() for one in found)
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


def test_a_commit_says_that_its_records_are_older_than_their_topic_keeps_any(make_topics):
    """Kafka deletes them by their own time; not where it keeps all, compacts, or gives them the time of sending."""
    topics = make_topics()
    week = str(7 * 24 * 3600 * 1000)

    def committed(dated: int) -> Outcome:
        topics.flow.produce(4, dated=dated)
        outcome: Outcome = topics.flow.interval()
        assert (outcome.state, outcome.records) == ("committed", 4)
        assert outcome.summary.endswith("".join(f" {remark}." for remark in outcome.remarks))
        return outcome

    assert committed(1_600_000_000_123).remarks == ()
    set_config(topics, "retention.ms", week)
    (remark,) = committed(1_600_000_000_123).remarks
    assert f"delete records of {topics.name} within minutes" in remark
    assert "the oldest has the time 2020-09-13T12:26:40+00:00" in remark
    assert "(7 days)" in remark
    assert committed(0).remarks == ()
    set_config(topics, "message.timestamp.type", "LogAppendTime")
    assert committed(1_600_000_000_123).remarks == ()
    set_config(topics, "message.timestamp.type", "CreateTime")
    topics.flow.set(sink__kafka__timestamp="wallclock")
    assert committed(1_600_000_000_123).remarks == ()


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


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_that_was_written_to(make_topics):
    """Found at START and at the commit; the pipeline may say to write on. Nor may keys move to other partitions."""
    section = {"key_fields": "id", "tombstones": True, "topic_settings": {"create": True, "partitions": 2}}
    key = {"source__kafka__key": {"converter": "json"}, "changes": {"format": "tombstones"}}
    topics = make_topics(1, section=section, targets=0, **key)
    flow, admin = topics.flow, AdminClient({"bootstrap.servers": topics.bootstrap, "log_level": 0})

    def send(*numbers: int) -> None:
        flow.produce_keyed([(b'{"id":%d}' % n, b'{"id":%d,"v":"a%d"}' % (n, n)) for n in numbers])

    def make_again() -> None:
        admin.delete_topics([topics.name])[topics.name].result(30)
        wait_for(lambda: topics.name not in admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)

    send(1, 2)
    flow.interval()
    make_again()
    send(3)
    with pytest.raises(ActionRequiredError, match=rf"{topics.name} was deleted\.") as caught:
        flow.start()
    assert "on_topic_change" in caught.value.next_step
    assert topics.name not in admin.list_topics(timeout=10).topics
    create(topics.bootstrap, topics.name, 2)
    with pytest.raises(ActionRequiredError, match="was deleted and made again"):
        flow.start()
    flow.set(sink__kafka__on_topic_change="continue")
    flow.interval()
    flow.set(sink__kafka__on_topic_change="fail")
    assert topics.rows() == [(3, "a3")]
    send(4)
    started = flow.start(run := flow.run())
    flow.write_all(started)
    make_again()
    create(topics.bootstrap, topics.name, 2)
    with pytest.raises(ActionRequiredError, match="was deleted and made again"):
        flow.commit(started)
    assert topics.rows("read_committed") == []
    flow.abort(run)
    flow.set(sink__kafka__on_topic_change="continue")
    flow.interval()
    flow.set(sink__kafka__on_topic_change="fail")
    assert topics.rows() == [(4, "a4")]
    admin.create_partitions([NewPartitions(topics.name, 3)])[topics.name].result(30)
    send(5)
    with pytest.raises(ActionRequiredError, match="has 3 partitions, and had 2, so that keys move"):
        flow.start()


def test_with_a_secret_no_record_of_others_moves_the_offsets(make_topics, monkeypatch):
    """What isn't signed doesn't count, nor does a copy; what may hide the last commit stops the table."""
    topics = make_topics()
    flow, log = topics.flow, f"_sluice.{topics.name}"
    signed = environment(topics.bootstrap, **{CONTROL_SECRET: "a secret of the tests, of some length"})
    flow.secret_environment.update(signed)
    for variable, value in signed.items():
        monkeypatch.setenv(variable, value)
    for count in (20, 10):
        flow.produce(count)
        flow.interval()
    first, second = (one for one in consume(topics.bootstrap, log) if (one.key or b"").startswith(b"commit:"))
    producer = Producer({"bootstrap.servers": topics.bootstrap, "log_level": 0})

    def forge(number: int, key: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = ()) -> None:
        """The first commit's offsets, as those of another commit."""
        forged = {**json.loads(first.value or b""), "number": number}
        value = first.value if headers else json.dumps(forged).encode()
        producer.produce(log, value, key or b"commit:%d" % number, headers=list(headers))
        assert producer.flush(30) == 0

    forge(9)
    forge(2, headers=first.headers, key=first.key)  # signed: a copy of the first one
    producer.produce(log, b"{", b"\xff")
    assert producer.flush(30) == 0
    flow.produce(5)
    flow.interval()
    topics.check()
    assert first.headers
    assert second.headers
    unsigned = json.dumps({**json.loads(first.value or b""), "number": 200, "instant": "20990101000000000"})
    producer.produce(log, unsigned, b"commit:200")
    assert producer.flush(30) == 0
    monkeypatch.setattr(commits, "READ", 2)  # the forged one and the marker before it: no signed record
    seen = commit_log_of("kafka", flow.pipeline.table_id).read()
    assert "20990101000000000" not in seen.instants
    forge(4)
    with pytest.raises(ActionRequiredError, match="isn't signed, or by another secret, or for another topic"):
        flow.start()
    topics.check()


@pytest.mark.parametrize("encoder", ["avro", *also("json_schema")])
def test_a_column_may_be_added_where_the_registry_asks_for_backward_compatibility(make_topics, asked, client, encoder):
    """As Confluent's does by default. And a time that no record can have makes a bad record, rather than now."""
    section = {"value": {"encoder": encoder, "registry": "judge"}, "timestamp": "at",
               "schema": "id BIGINT NOT NULL, at TIMESTAMP, v STRING"}  # fmt: skip
    topics = make_topics(1, section=section, errors__tolerance="all")
    flow, subject = topics.flow, f"{topics.name}-value"

    def send(number: int, at: str, **more: object) -> None:
        flow.produce_raw(json.dumps({"id": number, "at": at, "v": "a", **more}).encode())

    send(1, "2020-02-03T04:05:06Z")
    for number, old in enumerate(("1960-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z"), 10):
        send(number, old)
    flow.interval()
    client.set_compatibility(subject, "BACKWARD")
    flow.set(sink__kafka__schema=f"{section['schema']}, note STRING, more STRUCT<x: BIGINT, y: STRING>")
    send(2, "2020-02-03T04:05:06Z", note="n", more={"x": 1})
    flow.interval()
    flow.set(sink__kafka__schema=f"{section['schema']}, note STRING, more STRUCT<x: BIGINT, y: STRING, z: DATE>")
    send(3, "2020-02-03T04:05:06Z")
    flow.interval()
    assert len(client.get_versions(subject)) == 3
    assert {one.timestamp for one in topics.found()} == {1_580_702_706_000}
    if encoder == "avro":
        judge = AvroDeserializer(client, client.get_latest_version(subject).schema)
        context = SerializationContext(topics.name, MessageField.VALUE)
        rows = [judge(one.value, context) for one in topics.found()]
    else:
        rows = [json.loads((one.value or b"")[5:]) for one in topics.found()]
    assert {row["id"]: row.get("note") for row in rows} == {1: None, 2: "n", 3: None}


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
