"""What Kafka's clients may say, by what to do next: a person has to act, or the step is tried again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.failures import classify
from sluice.sinks.kafka.failures import refusal

_LASTS = """
    CLUSTER_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTH_DISABLED
    DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED GROUP_AUTHORIZATION_FAILED ILLEGAL_SASL_STATE INVALID_CONFIG
    INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REQUIRED_ACKS INVALID_TRANSACTION_TIMEOUT POLICY_VIOLATION
    PRINCIPAL_DESERIALIZATION_FAILURE SASL_AUTHENTICATION_FAILED SECURITY_DISABLED TOPIC_AUTHORIZATION_FAILED
    TOPIC_EXCEPTION TRANSACTIONAL_ID_AUTHORIZATION_FAILED UNKNOWN_TOPIC_OR_PART UNSUPPORTED_COMPRESSION_TYPE
    UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_SASL_MECHANISM UNSUPPORTED_VERSION _AUTHENTICATION _INVALID_ARG
    _NOENT _NOT_CONFIGURED _NOT_IMPLEMENTED _SSL _UNKNOWN_PARTITION _UNKNOWN_TOPIC
"""
_OF_A_RECORD = "INVALID_MSG_SIZE INVALID_RECORD INVALID_TIMESTAMP MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE"
"""What a topic says of a record that is sent to it."""
LASTS, OF_A_RECORD = _LASTS.split(), _OF_A_RECORD.split()
_ALL = [name for name in dir(KafkaError) if name.replace("_", "").isupper()]


@pytest.mark.parametrize("name", _ALL)
def test_a_code_says_who_has_to_act(name):
    error = KafkaError(getattr(KafkaError, name))
    found = classify(error, "asking", topic="t")
    assert isinstance(found, ActionRequiredError if name in LASTS else RetryableError)
    assert found.next_step
    assert found.where["topic"] == "t"
    of_sink = refusal(error, topic="t")
    assert of_sink is not None or name not in OF_A_RECORD
    if of_sink is not None:
        assert isinstance(of_sink, ActionRequiredError)
        assert name in [*OF_A_RECORD, *LASTS]


def test_the_table_names_codes_that_there_are():
    assert {*LASTS, *OF_A_RECORD} <= {*_ALL}


def test_a_cluster_without_a_broker_just_now_is_asked_again():
    """As KRaft's controller says it of a one-broker cluster whose broker is busy or restarts."""
    words = "Unable to replicate the partition 1 time(s): All brokers are currently fenced."
    error = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, words)
    assert isinstance(classify(error, "creating the topic", topic="t"), RetryableError)
    assert refusal(error, topic="t") is None
