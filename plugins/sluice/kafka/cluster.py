"""What a Kafka cluster says of the pipeline's topics when an interval is planned."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from confluent_kafka import Consumer, IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import kafka_errors
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.plan import ClusterState, PartitionBounds

_NOT_DATA = ("__", "sluice-control-")  # Kafka's own topics, and pipelines' control topics
TIMEOUT = 30.0  # seconds for one request; librdkafka retries within it


class KafkaCluster:
    """Read-only view of one cluster, and the copy of our offsets in its consumer groups."""

    def __init__(self, settings: KafkaSettings, *, isolation_level: str = "read_committed") -> None:
        self.settings = settings
        self._isolation = (
            IsolationLevel.READ_COMMITTED if isolation_level == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        )
        self._admin = AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        """The topics whose whole name matches a regular expression, without some and without Kafka's own.

        Raises:
            ActionRequiredError: there is none.
            RetryableError: the cluster can't be reached.
        """
        where = {"connection": self.settings.name, "bootstrap_servers": self.settings.bootstrap_servers}
        with kafka_errors("asking for the topics", **where):
            known = self._admin.list_topics(timeout=TIMEOUT).topics
        found = tuple(
            sorted(t for t in known if re.fullmatch(pattern, t) and not t.startswith(_NOT_DATA) and t not in but_not)
        )
        if not found:
            raise ActionRequiredError(
                "No topic has a name like source.kafka.topics_pattern.",
                next_step="create one, or correct the pattern, which a whole name must match.",
                pattern=pattern,
                **where,
            )
        return found

    def state(
        self, topics: Sequence[str], window_end: datetime | None, window_start: datetime | None = None
    ) -> ClusterState:
        """Offsets, cluster id and topic ids, all asked for now.

        Args:
            topics: the pipeline's topics.
            window_end: records with a time before this belong to the window; None takes all there is. Where no
                record has this time or a later one, the log's end is the window's end.
            window_start: records with a time before this don't belong to the window; None takes all there is.

        Raises:
            ActionRequiredError: a topic does not exist, or may not be read.
            RetryableError: the cluster can't be reached.
        """
        where = {"connection": self.settings.name, "bootstrap_servers": self.settings.bootstrap_servers}
        with kafka_errors("asking for the topics' partitions", **where):
            cluster = self._admin.describe_cluster(request_timeout=TIMEOUT).result()
        topic_ids: dict[tuple[str, str], str | None] = {}
        found: list[TopicPartition] = []
        described = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
        for topic, future in described.items():
            with kafka_errors("asking for the topics' partitions", topic=topic, **where):
                description = future.result()
            topic_ids[self.settings.name, topic] = str(description.topic_id)
            found += [TopicPartition(self.settings.name, topic, p.id) for p in description.partitions]
        asked_at = datetime.now(UTC)
        log_start = self._offsets(found, OffsetSpec.earliest())
        self._offsets(found, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        log_end = self._offsets(found, OffsetSpec.latest())
        high_watermark = self._offsets(found, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        first, last = self._at(found, window_start), self._at(found, window_end)
        partitions = []
        for tp in found:
            end = last.get(tp, -1)
            bounded = 0 <= end < log_end[tp]
            through = window_end if bounded and window_end else asked_at
            start = first.get(tp, 0)
            partitions.append(
                PartitionBounds(
                    topic_partition=tp,
                    log_start=log_start[tp],
                    log_end=log_end[tp],
                    window_end=end if bounded else log_end[tp],
                    valid_through=through,
                    high_watermark=high_watermark[tp],
                    window_start=start if start >= 0 else log_end[tp],  # -1: no record is as late as that
                )
            )
        return ClusterState(partitions, {self.settings.name: cluster.cluster_id}, topic_ids)

    def _at(self, partitions: Sequence[TopicPartition], time: datetime | None) -> Mapping[TopicPartition, int]:
        """The offset of each partition's first record with that time or a later one; -1 where there is none."""
        if time is None:
            return {}
        return self._offsets(partitions, OffsetSpec.for_timestamp(int(time.timestamp() * 1000)))

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Kafka's own id of each topic; a topic that was recreated has another one."""
        described = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
        ids = {}
        for topic, future in described.items():
            with kafka_errors("asking for the topics' ids", topic=topic, connection=self.settings.name):
                ids[topic] = str(future.result().topic_id)
        return ids

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        request = {KafkaTopicPartition(tp.topic, tp.partition): spec for tp in partitions}
        answers = self._admin.list_offsets(
            request, isolation_level=isolation or self._isolation, request_timeout=TIMEOUT
        )
        offsets = {}
        for tp, future in answers.items():
            with kafka_errors("asking for offsets", topic=tp.topic, partition=tp.partition):
                offsets[TopicPartition(self.settings.name, tp.topic, tp.partition)] = int(future.result().offset)
        return offsets

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Copy next offsets into a consumer group, for Kafka's own tools and lag monitors. Nothing reads them back.

        Raises:
            SluiceError: Kafka refused; the caller logs it, since the table is committed whatever comes of the copy.
        """
        if not next_offsets:
            return
        consumer = Consumer(self.settings.client(group_id=group, enable_auto_commit=False))
        try:
            offsets = [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in next_offsets.items()]
            with kafka_errors("copying offsets to the consumer group", group=group):
                for answer in consumer.commit(offsets=offsets, asynchronous=False) or []:
                    if answer.error:
                        raise ActionRequiredError(
                            "Kafka did not take an offset for the consumer group.",
                            next_step="none for the table; lag monitors show an old figure until the next interval.",
                            group=group,
                            topic=answer.topic,
                            partition=answer.partition,
                            reason=str(answer.error),
                        )
        finally:
            consumer.close()
