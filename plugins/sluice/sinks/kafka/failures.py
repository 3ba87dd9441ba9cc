"""Turns Kafka's refusals of records into errors that say what to do."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

from sluice.errors import ActionRequiredError

_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE)
_INVALID = (KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_TIMESTAMP)


def refusal(error: KafkaError, **where: Any) -> ActionRequiredError | None:
    """The error to report if the target refuses records; None for an error that isn't specific to writing them."""
    code = error.code()
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        what, next_step = (
            "Kafka refuses permission to write to the topic.",
            (
                "grant the principal of the sink's connection Write and Describe on the topic and on the sink's log "
                "(kafka-acls). Nothing was committed."
            ),
        )
    elif code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        what, next_step = (
            "Kafka refuses permission to use the transactional id.",
            (
                "grant the principal of the sink's connection Write and Describe on it (kafka-acls "
                "--transactional-id). Nothing was committed."
            ),
        )
    elif code in _TOO_LARGE:
        what, next_step = (
            "A record is larger than the topic takes.",
            ("raise max.message.bytes of the topic, or leave out what makes records large. Nothing was committed."),
        )
    elif code in _UNKNOWN:
        what, next_step = (
            "The topic is gone, or has fewer partitions than records are to go to.",
            ("create it again or add partitions, or choose another `partitioner` than same. Nothing was committed."),
        )
    elif code in _INVALID:
        what, next_step = (
            "The topic refuses a record.",
            (
                "look at its settings: a compacted topic takes no record without a key, and message.timestamp.* bounds "
                "times. Nothing was committed."
            ),
        )
    elif code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        what, next_step = (
            "The brokers allow no transactions of that length.",
            ("lower the sink's transaction_timeout to the brokers' transaction.max.timeout.ms, or raise that."),
        )
    else:
        return None
    return ActionRequiredError(what, next_step=next_step, reason=error.str(), **where)
