"""What an interval came to, read from the control topic for those who tell of it."""

from __future__ import annotations

from sluice.kafka.config import KafkaSettings
from sluice.pipeline.model import Pipeline
from sluice.protocol.transaction import Transaction

INTERVAL_KEY = "sluice_interval"
"""The XCom in which `commit` leaves the interval's facts."""


def read_transaction(pipeline: Pipeline, control: KafkaSettings, control_offset: int) -> Transaction:
    """The transaction whose START-COMMIT stands at the control-topic offset.

    Raises:
        RetryableError, ActionRequiredError: the control topic can't be read.
        IntervalError: it holds no such transaction.
    """
    from sluice.control.topic import ControlTopic
    from sluice.protocol.settlement import transaction_at

    topic = ControlTopic(control, pipeline.control_topic)
    return transaction_at(topic.table_log(pipeline.table_id, control_offset), control_offset)
