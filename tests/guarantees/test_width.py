"""An interval may be as wide as its topics: no message, no step and no record costs more than its own part of that."""

from __future__ import annotations

import json
from collections import Counter

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from .harness import Flow

PARTITIONS = 120


def _control_topic(flow: Flow, limit: int) -> None:
    new = NewTopic(flow.control_topic, 1, config={"max.message.bytes": str(limit)})
    flow.admin.create_topics([new])[flow.control_topic].result(30)


def _parts(flow: Flow) -> Counter[str]:
    """How many records of the control topic are parts of messages, by type."""
    consumer = Consumer({"bootstrap.servers": flow.bootstrap, "group.id": "parts", "log_level": 0})
    try:
        consumer.assign([TopicPartition(flow.control_topic, 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(flow.control_topic, 0), 10)
        fields = [json.loads(record.value()) for record in consumer.consume(end, 30)]
    finally:
        consumer.close()
    return Counter(f["type"] for f in fields if f.get("packed", {}).get("parts", 1) > 1)


def test_every_message_of_an_interval_travels_in_parts_where_it_has_to(make_flow):
    flow = make_flow(partitions=PARTITIONS)
    _control_topic(flow, 3600)
    flow.produce(60, partitions=(0, 7), table_partitions=12)
    flow.interval()
    flow.check()
    run = flow.run()
    flow.produce(8, partitions=(3,))
    flow.start(run)
    assert flow.abort(run).state == "aborted"
    assert set(parts := _parts(flow)) >= {"START-COMMIT", "WRITE-STATUS"}, parts
    flow.interval()
    flow.check()
