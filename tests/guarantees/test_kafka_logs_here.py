"""What Spark's own Kafka client says of the logs that it reads: the ids that the coordinator finds, or why not."""

from __future__ import annotations

import pytest

from sluice.errors import ActionRequiredError
from sluice.sources.kafka.cluster import KafkaCluster
from sluice.sources.kafka.driver_settings import java_settings
from sluice.sources.kafka.logs_here import log_ids_here

from .harness import kafka_settings


def test_both_clients_find_the_same_ids(spark, bootstrap, create_topic):
    """librdkafka writes them in another alphabet than Java: of many topics some have letters that differ."""
    topics = [create_topic(f"ids-{number}") for number in range(8)]
    settings = kafka_settings(bootstrap)
    java = java_settings(spark, settings)
    found = KafkaCluster(settings).log_ids(topics)
    here = log_ids_here(spark, java, topics, settings.name)
    assert here == {topic: found.of(settings.name, topic) for topic in topics}
    assert all(log.cluster and len(log.topic) == 22 for log in here.values())
    with pytest.raises(ActionRequiredError, match="doesn't exist where Spark's client looks"):
        log_ids_here(spark, java, [*topics, f"{topics[0]}-gone"], settings.name)
