"""Reads an interval's transaction from the control topic, for alerts, metrics and asset events."""

from __future__ import annotations

from sluice.kafka.config import KafkaSettings
from sluice.pipeline.model import Pipeline
from sluice.protocol.transaction import Transaction

INTERVAL_KEY = "sluice_interval"
"""The XCom in which `commit` puts the interval's facts."""


def read_transaction(pipeline: Pipeline, control: KafkaSettings, control_offset: int) -> Transaction:
    """The transaction whose START-COMMIT is at the control-topic offset.

    Raises:
        RetryableError, ActionRequiredError: the control topic can't be read.
        IntervalError: there is no such transaction.
    """
    from sluice.control.topic import ControlTopic
    from sluice.protocol.settlement import transaction_at

    topic = ControlTopic(control, pipeline.control_topic)
    return transaction_at(topic.table_log(pipeline.table_id, control_offset), control_offset)
