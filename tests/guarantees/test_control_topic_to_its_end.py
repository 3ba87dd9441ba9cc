"""Whoever reads the control topic reads it to its end, whatever lies there: nobody decides by half a story."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from sluice.control.reader import ControlReader
from sluice.control.topic import ControlTopic
from sluice.protocol.messages import AbortCommit
from sluice.protocol.transaction import TableLog

from .harness import kafka_settings, wait_for

TABLE = "file:///lake/t"
OTHER = "file:///lake/other"


def _abort(table: str, number: int) -> AbortCommit:
    return AbortCommit(
        table=table, transaction=f"2026010100000000{number}", epoch=number, dag_id="dag", run_id="run",
        sender="coordinator", time="2026-01-01T00:00:00Z", reason="a test",
    )  # fmt: skip


def _begin(control: ControlTopic) -> Producer:
    """A Kafka transaction of somebody else, open, with a record in the control topic."""
    settings = control.settings.client(transactional_id=str(uuid.uuid4()))
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(control.topic, b"not ours", b"somebody else's key", partition=0)
    assert producer.flush(30) == 0
    return producer


@pytest.fixture
def control(bootstrap, create_topic) -> ControlTopic:
    return ControlTopic(kafka_settings(bootstrap), create_topic("control"))


def _folded(control: ControlTopic, start: int = 0) -> list[int]:
    """The offsets that a fold of the table sees."""
    return [offset for offset, _ in control._messages(TABLE, start, control.end())]


def _seen(control: ControlTopic) -> list[int]:
    """The offsets that the page sees."""
    reader = ControlReader(control.settings, control.topic)
    bounds = reader.bounds()
    return [offset for batch in reader.read(bounds.first, bounds.end) for offset, _ in batch]


def test_messages_behind_an_open_kafka_transaction_are_read(control):
    """Its last stable offset lies before them, and a reader of committed records takes that for the end."""
    first = control.send(_abort(TABLE, 1))
    foreign = _begin(control)
    second = control.send(_abort(TABLE, 2))
    assert _folded(control) == [first, second]
    assert _seen(control) == [first, second]
    table_log = control.extend(TableLog(TABLE), 0)
    assert table_log.position == control.end() == second + 1
    foreign.abort_transaction(30)


def test_a_marker_at_the_end_is_no_message_to_wait_for(control):
    """The end is past the marker, and no record will ever take a reader there."""
    first = control.send(_abort(TABLE, 1))
    _begin(control).commit_transaction(30)
    end = wait_for(lambda: max(0, control.end() - first - 2) and control.end(), "the broker's marker")
    assert _folded(control) == [first]
    assert _seen(control) == [first]
    assert _folded(control, end - 1) == []


def test_messages_of_other_tables_alone(control):
    control.send(_abort(OTHER, 1))
    assert _folded(control) == []
    assert control.table_log(TABLE, 0).position == control.end() == 1
