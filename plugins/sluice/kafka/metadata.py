"""A cluster's answer about itself."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, ClusterMetadata

_ALWAYS_THERE = "__consumer_offsets"


def metadata_of(admin: AdminClient, timeout: float, topic: str = _ALWAYS_THERE) -> ClusterMetadata:
    """A cluster's id and brokers, asked for together with one topic, since without one Kafka would list them all.

    `AdminClient.describe_cluster` has the same, but aborts the process where the answer names no broker, as a cluster
    gives it whose brokers are all fenced: a broker so busy that it missed its heartbeats is
    (`rd_kafka_DescribeClusterResponse_parse` of librdkafka 2.16 takes the error for none).

    Args:
        admin: a client with `allow.auto.create.topics` off, or the question would create the topic.
        timeout: seconds for an answer with a broker.
        topic: one that the client may describe; brokers may log a refusal otherwise. It need not exist.

    Raises:
        KafkaException: there is no such answer within the time.
    """
    return admin.list_topics(topic, timeout=timeout)
