"""Kafka's errors as Sluice's: a client's message, and the next step."""

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


_LOG_IN = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.DELEGATION_TOKEN_AUTH_DISABLED,
    KafkaError.DELEGATION_TOKEN_NOT_FOUND,
    KafkaError.DELEGATION_TOKEN_OWNER_MISMATCH,
    KafkaError.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    KafkaError.DELEGATION_TOKEN_EXPIRED,
    KafkaError.PRINCIPAL_DESERIALIZATION_FAILURE,
)
_MISSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._NOENT,
)
_SETTINGS = "correct the settings in the Airflow connection's extra field, or in the pipeline file."
_BROKERS = "upgrade the brokers, or correct their settings: docs/production.md says what Sluice needs."
# What no second try mends. All else may pass, and is tried again.
_LASTS: dict[int, tuple[str, str]] = {
    **dict.fromkeys(
        (KafkaError._INVALID_ARG, KafkaError._NOT_CONFIGURED, KafkaError.INVALID_REQUIRED_ACKS),
        ("Kafka's client can't be used with these settings", _SETTINGS),
    ),
    **dict.fromkeys(
        (KafkaError.INVALID_CONFIG, KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_PARTITIONS),
        ("Kafka refuses a topic's settings", "correct the topic's settings, or create it by hand."),
    ),
    KafkaError.TOPIC_EXCEPTION: ("Kafka has no topics of that name", "correct the topic's name."),
    KafkaError.POLICY_VIOLATION: ("A policy of the cluster refuses it", "see what its administrators allow."),
    KafkaError.SECURITY_DISABLED: ("The cluster has no authorizer", _BROKERS),
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: (
        "The brokers don't know the compression",
        "choose another `compression`, or upgrade the brokers.",
    ),
    **dict.fromkeys(
        (
            KafkaError.UNSUPPORTED_VERSION,
            KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            KafkaError._NOT_IMPLEMENTED,
        ),
        ("The brokers are too old, or not set up, for this request", _BROKERS),
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "The brokers allow no transactions of that length",
        "raise their transaction.max.timeout.ms, or lower the transaction's time-out.",
    ),
}


# The answers to a client that still knows a leader of before an election. Admin clients don't look for the new one for
# minutes, even if the request is repeated: a new client has to be made.
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


# A broker may not know a topic right after its creation.
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
    if code in _MISSING:
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
    if code in _LOG_IN:
        return ActionRequiredError(
            f"Kafka refuses the log-in ({doing}).",
            next_step="correct user, password or certificate in the Airflow connection.",
            **where,
        )
    if code in _LASTS:
        what, next_step = _LASTS[code]
        return ActionRequiredError(f"{what} ({doing}).", next_step=next_step, reason=error.str(), **where)
    return RetryableError(
        f"Kafka did not answer as it should ({doing}): {error.name()}.",
        next_step="check that the brokers are up and can be reached from here; the step is retried.",
        **where,
    )
