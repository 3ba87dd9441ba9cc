"""Kafka's errors as ours: what a client said, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartitionInfo
from tenacity import retry, retry_if_exception, stop_after_delay, wait_exponential

from sluice.errors import ActionRequiredError, RetryableError, SluiceError

_PERMISSION = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "read this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "use this consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "create topics or write idempotently",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "use this transactional id",
}


# What a client is told that still knows a leader of before an election. Admin clients don't look for the new one by
# themselves for minutes, though they are asked again: a new client has to be made.
OLD_LEADER = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH)
# The last is librdkafka's own: "Failed to query partition leaders: No leaders found".
_LEADER_MOVES = (
    *OLD_LEADER,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._NOENT,
)
_LEADER_PATIENCE = 15.0  # seconds


def _leader_moves(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _LEADER_MOVES


# A topic that was just created, or whose broker has gone, has no leader for a moment, and the admin client leaves it to
# us to ask again. Kafka has no event to wait for.
until_there_is_a_leader = retry(
    retry=retry_if_exception(_leader_moves),
    wait=wait_exponential(multiplier=0.05, max=1),
    stop=stop_after_delay(_LEADER_PATIENCE),
    reraise=True,
)


def _isnt_known_yet(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


# A broker that is asked about a topic right after its creation may not have heard of it.
until_it_is_known = retry(
    retry=retry_if_exception(_isnt_known_yet),
    wait=wait_exponential(multiplier=0.05, max=1),
    stop=stop_after_delay(_LEADER_PATIENCE),
    reraise=True,
)


def is_led(partition: TopicPartitionInfo) -> bool:
    """Whether a partition, as Kafka describes it, has a leader: of any other nothing can be asked."""
    return partition.leader is not None and partition.leader.id >= 0


@contextmanager
def kafka_errors(doing: str, **where: Any) -> Iterator[None]:
    """Turn a KafkaException inside the block into a SluiceError that says what was being done, and where."""
    try:
        yield
    except KafkaException as error:
        raise classify(error.args[0], doing, **where) from error


def classify(error: KafkaError, doing: str, **where: Any) -> SluiceError:
    """The SluiceError for a Kafka error."""
    code = error.code()
    if code in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
    ):
        return ActionRequiredError(
            f"A topic or partition does not exist ({doing}).",
            next_step="create the topic, or correct the source's `topics`.",
            **where,
        )
    if code in _PERMISSION:
        return ActionRequiredError(
            f"Kafka refuses permission to {_PERMISSION[code]} ({doing}).",
            next_step="grant the principal of the Airflow connection that right (kafka-acls).",
            **where,
        )
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL):
        return ActionRequiredError(
            f"Kafka refuses the log-in ({doing}).",
            next_step="correct user, password or certificate in the Airflow connection.",
            **where,
        )
    return RetryableError(
        f"Kafka did not answer as it should ({doing}): {error.name()}.",
        next_step="check that the brokers are up and can be reached from here; the step is retried.",
        **where,
    )
