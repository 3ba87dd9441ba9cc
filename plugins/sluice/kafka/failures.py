"""Kafka's errors as Sluice's: a client's message, and the next step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartitionInfo
from tenacity import retry, retry_if_exception, stop_after_delay, wait_exponential

from sluice.answers import Answer
from sluice.errors import RetryableError, SluiceError

_RIGHT = "grant the principal of the Airflow connection that right (kafka-acls)."
_SETTINGS = "correct the settings in the Airflow connection's extra field, or in the pipeline file."
_BROKERS = "upgrade the brokers, or correct their settings: docs/production.md says what Sluice needs."
ANSWERS: Final = (
    Answer(
        "act",
        ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_NOENT"),
        "A topic or partition does not exist",
        "create the topic, or correct the source's `topics`.",
    ),
    Answer("act", ("TOPIC_AUTHORIZATION_FAILED",), "Kafka refuses permission to read this topic", _RIGHT),
    Answer("act", ("GROUP_AUTHORIZATION_FAILED",), "Kafka refuses permission to use this consumer group", _RIGHT),
    Answer(
        "act",
        ("CLUSTER_AUTHORIZATION_FAILED",),
        "Kafka refuses permission to create topics or write idempotently",
        _RIGHT,
    ),
    Answer(
        "act",
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED",),
        "Kafka refuses permission to use this transactional id",
        _RIGHT,
    ),
    Answer(
        "act",
        ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE",
         "DELEGATION_TOKEN_AUTH_DISABLED", "DELEGATION_TOKEN_NOT_FOUND", "DELEGATION_TOKEN_OWNER_MISMATCH",
         "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", "DELEGATION_TOKEN_AUTHORIZATION_FAILED", "DELEGATION_TOKEN_EXPIRED",
         "PRINCIPAL_DESERIALIZATION_FAILURE"),
        "Kafka refuses the log-in",
        "correct user, password or certificate in the Airflow connection.",
    ),
    Answer(
        "act",
        ("_INVALID_ARG", "_NOT_CONFIGURED", "INVALID_REQUIRED_ACKS"),
        "Kafka's client can't be used with these settings",
        _SETTINGS,
    ),
    Answer(
        "act",
        ("INVALID_CONFIG", "INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS"),
        "Kafka refuses a topic's settings",
        "correct the topic's settings, or create it by hand.",
    ),
    Answer("act", ("TOPIC_EXCEPTION",), "Kafka has no topics of that name", "correct the topic's name."),
    Answer("act", ("POLICY_VIOLATION",), "A policy of the cluster refuses it", "see what its administrators allow."),
    Answer("act", ("SECURITY_DISABLED",), "The cluster has no authorizer", _BROKERS),
    Answer(
        "act",
        ("UNSUPPORTED_COMPRESSION_TYPE",),
        "The brokers don't know the compression",
        "choose another `compression`, or upgrade the brokers.",
    ),
    Answer(
        "act",
        ("UNSUPPORTED_VERSION", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "_NOT_IMPLEMENTED"),
        "The brokers are too old, or not set up, for this request",
        _BROKERS,
    ),
    Answer(
        "act",
        ("INVALID_TRANSACTION_TIMEOUT",),
        "The brokers allow no transactions of that length",
        "raise their transaction.max.timeout.ms, or lower the transaction's time-out.",
    ),
)  # fmt: skip
"""What no second try mends, by the names of `KafkaError`. All else may pass, and is retried."""


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
# The answers of a broker that hasn't the group yet, or no longer: a coordinator is elected, or reads its log. Admin
# clients hand them on, and ask the coordinator they know again: a new client has to be made.
COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_PATIENCE = 15.0  # seconds
_Asked = ParamSpec("_Asked")
_Answered = TypeVar("_Answered")


def _while_answered(codes: Collection[int]) -> Callable[[Callable[_Asked, _Answered]], Callable[_Asked, _Answered]]:
    """Repeats a request for a while if its answer is one of these errors: Kafka has no event to wait for."""

    def passes(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in codes

    return retry(
        retry=retry_if_exception(passes),
        wait=wait_exponential(multiplier=0.05, max=1),
        stop=stop_after_delay(_PATIENCE),
        reraise=True,
    )


# A topic that was just created, or whose broker has gone, has no leader for a moment, and the admin client leaves it to
# us to ask again.
until_there_is_a_leader = _while_answered(_LEADER_MOVES)
# A broker may not know a topic right after its creation.
until_it_is_known = _while_answered((KafkaError.UNKNOWN_TOPIC_OR_PART,))
until_a_group_has_a_coordinator = _while_answered(COORDINATOR_MOVES)


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


def is_away(error: KafkaError) -> bool:
    """Whether no broker takes part in the cluster just now, as at a restart.

    A controller then answers that topics can't be replicated even once (`StripedReplicaPlacer`), in the code that it
    also has for a replication factor that the cluster never reaches.
    """
    return error.code() == KafkaError.INVALID_REPLICATION_FACTOR and "brokers are currently fenced" in error.str()


def row_of(error: KafkaError, table: Iterable[Answer]) -> Answer | None:
    """A Kafka error's row in a table; None if it isn't there."""
    if is_away(error):
        return None
    return next((row for row in table if error.name() in row.signs), None)


def classify(error: KafkaError, doing: str, **where: Any) -> SluiceError:
    """The SluiceError for a Kafka error."""
    row = row_of(error, ANSWERS)
    if row is not None:
        return row.error(doing, reason=error.str(), **where)
    return RetryableError(
        f"Kafka did not answer as it should ({doing}): {error.name()}.",
        next_step="check that the brokers are up and can be reached from here; the step is retried.",
        **where,
    )
