"""A signed message counts in the topic for which it was sent: a copy in another topic of the same name doesn't."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sluice.control.reader import ControlReader
from sluice.control.topic import ControlTopic
from sluice.kafka import topic_id
from sluice.kafka.config import CONTROL_SECRET, KafkaSettings
from sluice.kafka.sent_letters import Sent, SentLetters
from sluice.kafka.transactional import TransactionalSender
from sluice.protocol.messages import AbortCommit, ControlMessage
from sluice.protocol.signing import Signatures
from sluice.protocol.transaction import State
from sluice.protocol.wire import encode

from ..unit.protocol_messages import INSTANT, TABLE, envelope, start
from .harness import kafka_settings, wait_for
from .harness.topics import Found, consume
from .without_ids import BrokerWithoutIds

SECRET = "a secret of the tests"


def _settings(bootstrap: str) -> KafkaSettings:
    plain = kafka_settings(bootstrap)
    return replace(plain, librdkafka={**plain.librdkafka, CONTROL_SECRET: SECRET})


def _copy(bootstrap: str, topic: str, records: list[Found]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for one in records:
        producer.produce(topic, one.value, one.key, partition=0, headers=list(one.headers))
    assert producer.flush(30) == 0


def _delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)


def _seen(settings: KafkaSettings, topic: str) -> list[int]:
    """The offsets that the page sees."""
    reader = ControlReader(settings, topic)
    bounds = reader.bounds()
    return [offset for batch in reader.read(bounds.first, bounds.end) for offset, _ in batch]


def _states(control: ControlTopic) -> dict[str, State]:
    return {id_: one.state for id_, one in control.table_log(TABLE, 0).transactions.items()}


def _abort(reason: str) -> AbortCommit:
    return AbortCommit(**envelope(INSTANT), reason=reason)


def _reasons(messages: Iterable[tuple[int, ControlMessage]]) -> list[str]:
    return [message.reason for _, message in messages if isinstance(message, AbortCommit)]


def test_copies_do_not_count_in_a_topic_that_was_made_again(bootstrap, topic_name, monkeypatch):
    settings, topic = _settings(bootstrap), topic_name("control")
    before = ControlTopic(settings, topic)
    before.ensure()
    before.send(start(INSTANT, read_position=1000))  # beyond the end of the topic that is made later
    assert _states(before) == {INSTANT: State.OPEN}
    copies = consume(bootstrap, topic)
    _delete(bootstrap, topic)
    control = ControlTopic(settings, topic)
    control.ensure()
    _copy(bootstrap, topic, copies)
    assert _states(control) == {}
    later = "20260101000001000"
    offset = control.send(start(later, read_position=control.end()))
    _copy(bootstrap, topic, copies)
    monkeypatch.setattr(topic_id, "_OLD", 0)  # in place of waiting for a minute
    for reader in (control, before, ControlTopic(settings, topic)):  # also one that has known the topic before
        assert _states(reader) == {later: State.OPEN}
        assert [found for found, _ in reader.recent(TABLE, 500)] == [offset]
    assert _seen(settings, topic) == [offset]


def test_what_was_signed_by_the_topic_s_name_counts_before_the_first_that_is_by_its_id(bootstrap, topic_name):
    settings = _settings(bootstrap)
    control = ControlTopic(settings, topic_name("control"))
    control.ensure()

    def of_a_release_before(reason: str) -> None:
        message = encode(_abort(reason), 1 << 20).last([])
        headers = Signatures(control.topic, (SECRET,), lambda *_: None).headers(TABLE.encode(), message)
        _copy(bootstrap, control.topic, [Found(0, 0, TABLE.encode(), message, tuple(headers), 0)])

    of_a_release_before("1")
    assert _reasons(control._messages(TABLE, 0, control.end())) == ["1"]
    control.send(_abort("2"))
    of_a_release_before("3")
    reader = ControlTopic(settings, control.topic)
    assert _reasons(reader._messages(TABLE, 0, control.end())) == ["1", "2"]
    assert _seen(settings, control.topic) == [0, 1]
    assert _reasons(reader.recent(TABLE, 500)) == ["2"]


def test_notes_of_dead_letters_do_not_count_in_a_topic_that_was_made_again(bootstrap, topic_name):
    settings, topic = _settings(bootstrap), topic_name("letters")
    letters = SentLetters(settings, topic, TABLE)
    letters.ensure()
    with TransactionalSender(settings, f"{topic}.test") as sender:
        sender.send([letters.note(Sent("9", 5, ()))])
    copies = consume(bootstrap, f"{topic}.sent")
    assert letters.last() == Sent("9", 5, ())
    _delete(bootstrap, f"{topic}.sent")
    again = SentLetters(settings, topic, TABLE)
    again.ensure()
    _copy(bootstrap, f"{topic}.sent", copies)
    assert again.last() is None


@pytest.mark.thorough
def test_a_broker_without_topic_ids_keeps_the_signatures_by_name(home, tmp_path: Any):
    with BrokerWithoutIds(home, tmp_path / "broker") as broker:
        settings = _settings(broker.bootstrap)
        control = ControlTopic(settings, "control")
        control.ensure()
        assert control.signatures.topic_id is None
        control.send(_abort("1"))
        assert _reasons(control.recent(TABLE, 500)) == ["1"]
        broker.upgrade()
        upgraded = ControlTopic(settings, "control")
        assert upgraded.signatures.topic_id is not None
        upgraded.send(_abort("2"))
        assert _reasons(upgraded._messages(TABLE, 0, upgraded.end())) == ["1", "2"]
