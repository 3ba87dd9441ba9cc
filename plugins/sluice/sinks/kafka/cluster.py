"""The target cluster: its clients' settings, its topics, and the transactional producer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from sluice.connectors.connections import connection
from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.connection import settings_of_connection
from sluice.kafka.failures import classify, is_away, kafka_errors, until_it_is_known
from sluice.kafka.topic_id import topic_id
from sluice.kafka.transactional import TIMEOUT, TransactionalSender
from sluice.logs import log
from sluice.sinks.kafka.failures import refusal
from sluice.sinks.kafka.identity import NotedLife, TopicLife, changes_of
from sluice.sinks.kafka.log import CONFIG
from sluice.sinks.kafka.offsets import Offsets
from sluice.sinks.kafka.options import KafkaTopic
from sluice.sinks.kafka.options.names import transactional_id
from sluice.sinks.kafka.options.takes import LARGEST, Takes

_PARTITIONERS: Final = {"murmur2": "murmur2_random", "crc32": "consistent_random", "same": "murmur2_random"}
"""librdkafka's names of the partitioners. Records without a key go to a random partition."""
_BATCH: Final = 1_000_000  # librdkafka's default batch.size
_NOT_YET: Final = 1 << 20  # the assumed max.message.bytes of a topic that doesn't exist yet: the brokers' default

MakesSender = Callable[[], TransactionalSender]


def target_settings(connection_id: str) -> KafkaSettings:
    """The settings of the target cluster's clients, from the connection given to this process.

    Raises:
        ActionRequiredError: this process has no such connection, or it isn't of type kafka.
    """
    given = connection(connection_id)
    if given.type != "kafka":
        raise ActionRequiredError(
            f"The sink's connection is of type {given.type or '(none)'}, not kafka.",
            next_step="name a connection of type kafka.",
            connection=connection_id,
        )
    found = settings_of_connection(
        given.id, host=given.host, port=given.port, login=given.login, password=given.password, extra=given.extra
    )
    if "oauth_cb" in found.librdkafka:
        raise ActionRequiredError(
            "The sink's connection names a Python function for its tokens, which this sink doesn't call.",
            next_step="use sasl.oauthbearer.method oidc, or another way to log in.",
            connection=connection_id,
        )
    return found


class Target:
    """One pipeline's target.

    Args:
        settings: the cluster.
        options: the pipeline's section.

    Raises (all methods):
        RetryableError: Kafka doesn't answer.
        ActionRequiredError: a topic is missing, or access to it is denied.
    """

    def __init__(self, settings: KafkaSettings, options: KafkaTopic) -> None:
        self.settings, self._options = settings, options
        self.offsets = Offsets(settings)
        self._admin: AdminClient | None = None

    def sender(self, smallest: int = _BATCH) -> TransactionalSender:
        """A producer with the table's transactional id, which fences every earlier producer with that id.

        Args:
            smallest: the smallest `max.message.bytes` of the topics that it sends to: it limits the size of batches,
                so that records which are small enough alone don't exceed it in a batch.
        """
        options = self._options
        batch = min(int(options.producer.get("batch.size", _BATCH)), smallest)
        client = {
            **options.producer,
            "partitioner": _PARTITIONERS[options.partitioner],
            "compression.type": options.compression,
            "batch.size": max(batch, 1),  # a larger record becomes a batch by itself
            "delivery.report.only.error": True,  # a callback for every record would take too much time
            "enable.idempotence": True,
        }
        return TransactionalSender(
            self.settings,
            transactional_id(options.table_id),
            timeout=options.transaction_timeout.total_seconds(),
            client=client,
            refusal=partial(refusal, table=options.table_id, connection=self.settings.name),
        )

    def has_log(self) -> bool:
        """Whether the log's topic exists."""
        return self._options.log in self._known()

    def ensure_log(self) -> None:
        """Create the log's topic if it doesn't exist, and check that it never deletes records by age or size."""
        topic = self._options.log
        if topic not in self._known():
            self._create(topic, 1, CONFIG)
        elif len(self._known()[topic].partitions) != 1:
            raise ActionRequiredError(
                "The topic of the sink's log has several partitions, so that nothing in it has an order.",
                next_step="name another one in the sink's `log_topic`.",
                topic=topic,
                connection=self.settings.name,
            )
        policy = self._config(topic)["cleanup.policy"].value
        if "delete" in policy:
            raise ActionRequiredError(
                "The topic of the sink's log deletes its entries after a time, so that records would be sent again.",
                next_step="set its cleanup.policy to compact (kafka-configs), or name another one in `log_topic`.",
                topic=log,
                cleanup_policy=policy,
                connection=self.settings.name,
            )

    def require(self, topics: Sequence[str], *, create: bool) -> dict[str, Takes]:
        """Check that topics exist, and return the limits of each.

        Args:
            topics: the topics to write to.
            create: whether to create missing topics, if the pipeline allows it.
        """
        wanted = self._options.topic_settings
        known = self._known()
        for topic in (one for one in topics if one not in known):
            if not wanted.create:
                raise ActionRequiredError(
                    "The topic that the sink writes to does not exist.",
                    next_step="create it, or say `topic_settings: {create: true}`. Nothing was read.",
                    topic=topic,
                    connection=self.settings.name,
                )
            if create:
                self._create(topic, wanted.partitions or -1, wanted.config)
        return {topic: self._takes(topic, there=create or topic in known) for topic in topics}

    def require_same(
        self, known: Mapping[str, NotedLife], topics: Sequence[str], by_key: Collection[str]
    ) -> dict[str, TopicLife]:
        """Check that no topic was replaced since it was last written to, unless the pipeline accepts the new one.

        Args:
            known: the log's note of each topic, by name.
            topics: the topics to write to.
            by_key: topics for which a changed number of partitions matters (`changes_of`).

        Returns:
            The topics that exist.
        """
        now = self._lives(topics)
        changed = list(changes_of(known, now, topics, by_key))
        where = {"table": self._options.table_id, "connection": self.settings.name}
        if changed and self._options.on_topic_change == "continue":
            log.warning("a topic that was written to is another one now", changed="; ".join(changed), **where)
        elif changed:
            raise ActionRequiredError(
                f"A topic that the sink has written to is another one now: {'; '.join(changed)}.",
                next_step="nothing was written. If its readers need the earlier records, bring them back: load the "
                "source's topics from their start into a new topic with a separate log (`log_topic`). If not, set "
                "the sink's on_topic_change to continue for one interval.",
                **where,
            )
        return now

    def _lives(self, topics: Sequence[str]) -> dict[str, TopicLife]:
        """Kafka's description of each topic that exists."""
        if not topics:
            return {}
        found = {}
        described = self._client().describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
        for topic, answer in described.items():
            with kafka_errors("asking for the sink's topics", topic=topic, connection=self.settings.name):
                try:
                    description = answer.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    continue
            found[topic] = TopicLife(topic_id(description.topic_id), len(description.partitions))
        return found

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it doesn't exist."""
        known = self._known()
        return len(known[topic].partitions) if topic in known else 0

    def _known(self) -> Mapping[str, Any]:
        with kafka_errors("looking for the sink's topics", connection=self.settings.name):
            found: Mapping[str, Any] = self._client().list_topics(timeout=TIMEOUT).topics
        return found

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        where = {"topic": topic, "connection": self.settings.name}
        new = NewTopic(topic, partitions, self._options.topic_settings.replication_factor or -1, config=dict(config))
        try:
            self._client().create_topics([new], request_timeout=TIMEOUT)[topic].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            refused = (KafkaError.INVALID_CONFIG, KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.POLICY_VIOLATION)
            if code in refused and not is_away(error.args[0]):
                raise ActionRequiredError(
                    "Kafka refuses to create the topic as the pipeline says.",
                    next_step="correct the sink's `topic_settings`.",
                    reason=error.args[0].str(),
                    **where,
                ) from error
            raise classify(error.args[0], "creating the sink's topic", **where) from error

    def _takes(self, topic: str, *, there: bool) -> Takes:
        if not there:
            return Takes(_NOT_YET, "compact" in self._options.topic_settings.config.get("cleanup.policy", ""))
        config = self._config(topic)
        largest = min(int(config["max.message.bytes"].value), LARGEST)
        return Takes(largest, "compact" in config["cleanup.policy"].value)

    @until_it_is_known
    def _described(self, topic: str) -> Mapping[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found: Mapping[str, Any] = (
            self._client().describe_configs([resource], request_timeout=TIMEOUT)[resource].result()
        )
        return found

    def _config(self, topic: str) -> Mapping[str, Any]:
        with kafka_errors("asking for a topic's settings", topic=topic, connection=self.settings.name):
            return self._described(topic)

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self.settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
        return self._admin
