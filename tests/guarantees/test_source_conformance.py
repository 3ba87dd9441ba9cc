"""Kafka's source keeps what `sluice.testing` asks of every source: the same offsets are the same records."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.errors import ActionRequiredError, RetryableError
from sluice.pipeline import Kafka
from sluice.sources.kafka import cluster
from sluice.sources.kafka.cluster import source_of
from sluice.sources.kafka.reader import KafkaReader
from sluice.testing import SourceConformance

from .harness.processes import kafka_settings, wait_for

pytestmark = [
    pytest.mark.kafka,
    # PySpark leaves it to the garbage collector to close the socket that rows came by.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class TestKafka(SourceConformance):
    """On a real broker, read by Spark's own Kafka source."""

    # What a look does between two requests to the broker; the client's own methods are C, and can't be replaced.
    calls = tuple((cluster, name) for name in ("AdminClient", "TopicCollection", "list_offsets", "truncations"))

    @pytest.fixture(autouse=True)
    def _on_the_broker(self, bootstrap, spark, topic_name):
        self._settings, self._spark = kafka_settings(bootstrap), spark
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._names = topic_name("a"), topic_name("b")
        self._made = False

    def topics(self, folder):
        if not self._made:
            self._make(self._names)
            self._made = True
        return self._names

    def source(self, folder):
        return source_of(Kafka(topics=self._names), self._settings)

    def reader(self, folder):
        return KafkaReader(self._spark, self._settings)

    def capabilities(self):
        return Kafka(topics="any").capabilities

    def add(self, folder, topic, records):
        producer = Producer({"bootstrap.servers": self._settings.bootstrap_servers, "acks": "all", "log_level": 0})
        for record in records:
            time = int(record.time.timestamp() * 1000) if record.time else 0
            producer.produce(topic, record.value, record.key, partition=0, timestamp=time)
        assert producer.flush(60) == 0

    def make_again(self, folder, topic):
        self._admin.delete_topics([topic])[topic].result(60)
        wait_for(lambda: topic not in self._admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)
        self._make([topic])

    def _make(self, names):
        made = self._admin.create_topics([NewTopic(n, 1, 1, config={"retention.ms": "-1"}) for n in names])
        for future in made.values():
            future.result(60)
        wait_for(lambda: self._answers(names), "the topics", pause=0.1)

    def _answers(self, names):
        """A broker may say for a moment that it doesn't lead what it has only just made."""
        try:
            return self.source(None).state(tuple(names), None)
        except (RetryableError, ActionRequiredError):
            return None
