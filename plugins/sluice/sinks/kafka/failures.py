"""Turns Kafka's refusals of records into errors that say what to do."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError

from sluice.answers import Answer
from sluice.errors import SluiceError
from sluice.kafka.failures import row_of

ANSWERS: Final = (
    Answer(
        "act",
        ("TOPIC_AUTHORIZATION_FAILED",),
        "Kafka refuses permission to write to the topic",
        "grant the principal of the sink's connection Write and Describe on the topic and on the sink's log "
        "(kafka-acls). Nothing was committed.",
    ),
    Answer(
        "act",
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED",),
        "Kafka refuses permission to use the transactional id",
        "grant the principal of the sink's connection Write and Describe on it (kafka-acls --transactional-id). "
        "Nothing was committed.",
    ),
    Answer(
        "record",
        ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"),
        "A record is larger than the topic takes",
        "raise max.message.bytes of the topic, or leave out what makes records large. Nothing was committed.",
    ),
    Answer(
        "act",
        ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"),
        "The topic is gone, or has fewer partitions than records are to go to",
        "create it again or add partitions, or choose another `partitioner` than same. Nothing was committed.",
    ),
    Answer(
        "record",
        ("INVALID_RECORD", "POLICY_VIOLATION", "INVALID_TIMESTAMP"),
        "The topic refuses a record",
        "look at its settings: a compacted topic takes no record without a key, and message.timestamp.* bounds times. "
        "Nothing was committed.",
    ),
    Answer(
        "act",
        ("INVALID_TRANSACTION_TIMEOUT",),
        "The brokers allow no transactions of that length",
        "lower the sink's transaction_timeout to the brokers' transaction.max.timeout.ms, or raise that.",
    ),
)
"""What Kafka answers to who writes records, where it means more than to any client."""


def refusal(error: KafkaError, **where: Any) -> SluiceError | None:
    """The error to report if the target refuses records; None for an error that isn't specific to writing them."""
    row = row_of(error, ANSWERS)
    return None if row is None else row.error(reason=error.str(), **where)
