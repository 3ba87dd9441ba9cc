"""Queries on a topic that exists, or was just created."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from sluice.kafka.failures import until_it_is_known


@until_it_is_known
def message_limit(admin: AdminClient, topic: str, timeout: float) -> int:
    """The largest record batch in bytes that the topic takes.

    Raises:
        KafkaException: the broker doesn't answer within `timeout` seconds, or there is no such topic.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource], request_timeout=timeout)[resource].result()
    return int(entries["max.message.bytes"].value)
