"""Rights on topics, as the brokers themselves say them of the one who asks (KIP-430)."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import kafka_errors
from sluice.kafka.transactional import TIMEOUT

READ, WRITE = AclOperation.READ, AclOperation.WRITE


def require_rights(settings: KafkaSettings, topics: Mapping[str, tuple[AclOperation, ...]]) -> None:
    """Check that a connection's principal may do these things to topics that are there.

    Where brokers don't say who may do what, nothing is refused.

    Args:
        settings: the connection.
        topics: what is to be done to each.

    Raises:
        ActionRequiredError: a right is missing.
        RetryableError: Kafka doesn't answer.
    """
    admin = AdminClient(settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
    described = admin.describe_topics(
        TopicCollection([*topics]), include_authorized_operations=True, request_timeout=TIMEOUT
    )
    for topic, answer in described.items():
        where = {"topic": topic, "connection": settings.name}
        with kafka_errors("asking what may be done to the topic", **where):
            allowed = answer.result(TIMEOUT).authorized_operations
        missing = [one.name.capitalize() for one in topics[topic] if one not in allowed] if allowed else []
        if missing:
            raise ActionRequiredError(
                f"The connection's principal lacks a right on the topic: {', '.join(missing)}.",
                next_step=f"allow it {' and '.join(missing)} on the topic (docs/production.md, Kafka).",
                **where,
            )
