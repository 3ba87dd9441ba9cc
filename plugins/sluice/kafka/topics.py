"""Queries on a topic that exists, or was just created."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType

from sluice.kafka.failures import until_it_is_known

Settings = dict[str, ConfigEntry]
Request = Callable[[AdminClient], Mapping[ConfigResource, "Future[Settings]"]]


@until_it_is_known
def message_limit(ask: Callable[[Request], Mapping[ConfigResource, Settings]], topic: str, timeout: float) -> int:
    """The largest record batch in bytes that the topic takes.

    Args:
        ask: sends a request by an admin client, and waits for the answers.
        topic: the topic.
        timeout: how many seconds the broker may take.

    Raises:
        KafkaException: the broker doesn't answer in time, or there is no such topic.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = ask(lambda admin: admin.describe_configs([resource], request_timeout=timeout))[resource]
    return int(entries["max.message.bytes"].value)
