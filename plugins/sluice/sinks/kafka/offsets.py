"""The first and last offsets of the target's topics, and the settings that change their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import kafka_errors, until_it_is_known, until_there_is_a_leader
from sluice.kafka.transactional import TIMEOUT


@dataclass(frozen=True)
class TopicConfig:
    """Whether compaction removes a key's earlier records, and whether brokers replace the records' timestamps."""

    compacted: bool
    dates_anew: bool


class Offsets:
    """The offsets of one cluster's topics.

    Args:
        settings: the cluster.
        timeout: how long to wait for an answer, in seconds.

    Raises (all methods):
        RetryableError: Kafka doesn't answer.
        ActionRequiredError: access to a topic is denied.
    """

    def __init__(self, settings: KafkaSettings, timeout: float = TIMEOUT) -> None:
        self._settings, self._timeout = settings, timeout

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """The partitions of the topics that exist."""
        with kafka_errors("looking for the sink's topics", connection=self._settings.name):
            known = self._admin.list_topics(timeout=self._timeout).topics
        return {topic: sorted(known[topic].partitions) for topic in topics if topic in known}

    def ends(self, topics: Collection[str], *, committed: bool) -> dict[str, dict[int, int]]:
        """The end offsets of topics, without topics that don't exist.

        Args:
            topics: the topics' names.
            committed: whether for a consumer of committed records, which stops at the first open transaction.
        """
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(topics, OffsetSpec.latest(), isolation)

    def starts(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """The first offsets of topics that retention has left."""
        return self._offsets(topics, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def config(self, topic: str) -> TopicConfig:
        """The settings of a topic that change its records."""
        with kafka_errors("asking for a topic's settings", topic=topic, connection=self._settings.name):
            found = self._described(topic)
        dates = str(found["message.timestamp.type"].value)
        return TopicConfig("compact" in str(found["cleanup.policy"].value), dates == "LogAppendTime")

    def kept_for(self, topics: Collection[str]) -> dict[str, int]:
        """For how long topics keep records, in milliseconds of the records' own times; none that keep all.

        Kafka deletes a segment once its latest record is older (`retention.ms`).
        """
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, int] = {}
        with kafka_errors("asking for the topics' settings", connection=self._settings.name):
            for resource, answer in self._admin.describe_configs(resources, request_timeout=self._timeout).items():
                config = answer.result()
                keeps = int(config["retention.ms"].value)
                own_times = config["message.timestamp.type"].value == "CreateTime"
                if own_times and keeps >= 0 and "delete" in config["cleanup.policy"].value:
                    found[resource.name] = keeps
        return found

    def _offsets(
        self, topics: Collection[str], which: OffsetSpec, isolation: IsolationLevel
    ) -> dict[str, dict[int, int]]:
        partitions = self.partitions(topics)
        asked = {KafkaTopicPartition(t, p): which for t, numbers in partitions.items() for p in numbers}
        found: dict[str, dict[int, int]] = {topic: {} for topic in partitions}
        if not asked:
            return found
        with kafka_errors("asking where the sink's topics end", connection=self._settings.name):
            for one, offset in self._listed(asked, isolation).items():
                found[one.topic][one.partition] = offset
        return found

    @until_there_is_a_leader
    def _listed(
        self, asked: Mapping[KafkaTopicPartition, OffsetSpec], isolation: IsolationLevel
    ) -> dict[KafkaTopicPartition, int]:
        answers = self._admin.list_offsets(dict(asked), isolation_level=isolation, request_timeout=self._timeout)
        return {one: int(answer.result().offset) for one, answer in answers.items()}

    @until_it_is_known
    def _described(self, topic: str) -> Mapping[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answers = self._admin.describe_configs([resource], request_timeout=self._timeout)
        found: Mapping[str, Any] = answers[resource].result()
        return found

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._settings.client(socket_timeout_ms=int(self._timeout * 1000)))


_MOST: Final = 20_000  # partitions: a record of the log has to fit into a batch


class Spans:
    """The ranges of offsets that contain an interval's records, determined while they are sent.

    Only one process at a time sends for a table, so no other interval's records are in these ranges; records that
    other producers send meanwhile may be.

    Args:
        offsets: the offsets of the cluster's topics.
    """

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets
        self._starts: dict[str, dict[int, int]] = {}

    def begin(self, topic: str) -> None:
        """Note a topic's end offsets before its first record is sent."""
        self._starts |= {topic: {}, **self._offsets.ends([topic], committed=False)}

    def ended(self) -> dict[str, list[tuple[int, int, int]]]:
        """The ranges of all topics that records were sent to, once Kafka has all; empty if there are too many."""
        found = {
            topic: [(p, self._starts[topic].get(p, 0), end) for p, end in ends.items()]
            for topic, ends in self._offsets.ends(list(self._starts), committed=False).items()
        }
        spans = {topic: [one for one in each if one[1] < one[2]] for topic, each in found.items()}
        return spans if sum(map(len, spans.values())) <= _MOST else {}
