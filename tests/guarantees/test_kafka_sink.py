"""What a consumer of committed records finds in a topic that a pipeline writes."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from .harness.topics import consume, create


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
