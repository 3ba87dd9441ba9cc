"""The copy of a table's offsets in a consumer group, which lag monitors look at and nothing reads back."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from tenacity import Retrying, retry_if_exception_message, stop_after_delay, wait_fixed

from sluice.errors import SluiceError
from sluice.protocol.offsets import TopicPartition
from sluice.sources.kafka.cluster import KafkaCluster

from .harness.processes import CLUSTER, kafka_settings, wait_for


def test_it_is_what_kafka_says_and_a_refusal_is_told(bootstrap, create_topic, topic_name):
    topic, group = create_topic(partitions=2), topic_name("group")
    settings = kafka_settings(bootstrap)
    cluster = KafkaCluster(settings)
    # The broker's coordinator of groups hears of a topic a moment later than its clients do.
    heard = Retrying(retry=retry_if_exception_message(match=".*UNKNOWN_TOPIC_OR_PART"), stop=stop_after_delay(60),
                     wait=wait_fixed(0.1), reraise=True)  # fmt: skip
    for end in (5, 6):
        heard(cluster.copy_to_group, group, {TopicPartition(CLUSTER, topic, p): end + p for p in range(2)})
    member = Consumer(settings.client(group_id=group))
    try:
        found = member.committed([KafkaTopicPartition(topic, p) for p in range(2)], timeout=30)
        assert [one.offset for one in found] == [6, 7]
        member.subscribe([topic])
        wait_for(lambda: member.poll(0.1) is None and member.assignment(), "the group to have a member")
        with pytest.raises(SluiceError):
            cluster.copy_to_group(group, {TopicPartition(CLUSTER, topic, 0): 9})
    finally:
        member.close()
    with pytest.raises(SluiceError):
        cluster.copy_to_group(group, {TopicPartition(CLUSTER, topic_name("none"), 0): 9})
