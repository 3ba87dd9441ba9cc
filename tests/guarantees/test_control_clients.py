"""A process follows and writes as many control topics as it has pipelines, by a few Kafka clients."""

from __future__ import annotations

import gc
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import psutil
import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.control.clients import Clients
from sluice.control.followed import Following
from sluice.control.topic import ControlTopic
from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import AbortCommit, ControlMessage

from .harness import kafka_settings, wait_for

TABLE = "file:///lake/t"
TOPICS = 20


def _abort(number: int) -> AbortCommit:
    return AbortCommit(
        table=TABLE, transaction=f"2026010100000000{number}", epoch=number, dag_id="dag", run_id="run",
        sender="coordinator", time="2026-01-01T00:00:00Z", reason="a test",
    )  # fmt: skip


def _threads() -> int:
    return psutil.Process().num_threads()


def test_control_topics_share_their_clients_and_each_gets_its_own_messages_in_order(bootstrap):
    settings = kafka_settings(bootstrap)
    clients = Clients(settings)
    topics = [ControlTopic(settings, f"control-{uuid.uuid4()}", clients) for _ in range(TOPICS)]

    def send(control: ControlTopic) -> list[int]:
        control.ensure()
        return [control.send(_abort(number)) for number in range(3)]

    gc.collect()
    gc.disable()  # else it may hide for a moment that a failed request's traceback keeps a forgotten client
    try:
        before = _threads()
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(send, topics)) == [[0, 1, 2]] * TOPICS
        # A client has four threads or so; two clients for each topic were 160.
        assert _threads() - before < 2 * TOPICS
    finally:
        gc.enable()
    for control in topics:
        assert control.recent(TABLE, 10) == [(number, _abort(number)) for number in range(3)]


def test_a_request_is_answered_though_another_thread_forgets_its_client(bootstrap):
    clients = Clients(kafka_settings(bootstrap))
    name = f"control-{uuid.uuid4()}"

    def create(admin: AdminClient) -> dict[str, Future[None]]:
        answers = admin.create_topics([NewTopic(name, 1)], request_timeout=30)
        clients.forget(admin)
        return answers

    asking = threading.Thread(target=clients.ask, args=(create,), daemon=True)
    asking.start()
    asking.join(30)
    assert not asking.is_alive(), "the client is gone, and its answer with it"
    assert clients.ask(lambda admin: admin.describe_topics(TopicCollection([name])))[name].name == name


def _followed(settings: KafkaSettings, topics: dict[str, ControlTopic], dead: Callable[[], None]):
    heard: list[tuple[str, ControlMessage]] = []
    following = Following(
        settings, topics, dict.fromkeys(topics, frozenset({TABLE})),
        lambda topic, messages: heard.extend((topic, message) for _, message in messages),
        lambda _topic, _position, _end: None, dead,
    )  # fmt: skip
    following.start()
    return following, heard


def test_a_follower_loses_no_other_topic_by_what_no_parser_takes_and_says_when_it_is_dead(bootstrap):
    settings = kafka_settings(bootstrap)
    clients = Clients(settings)
    topics = {name: ControlTopic(settings, name, clients) for name in (f"control-{uuid.uuid4()}" for _ in range(2))}
    poisoned, other = topics.values()
    for control in topics.values():
        control.ensure()
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (b"[" * 1000 + b"]" * 1000, b"5", b"null", b"\xff"):
        producer.produce(poisoned.topic, value, TABLE.encode())
    assert producer.flush(30) == 0
    dead = Event()
    following, heard = _followed(settings, topics, dead.set)
    other.send(_abort(0))
    poisoned.send(_abort(1))
    wait_for(lambda: len(heard) == 2, "the messages of both topics")
    assert dict(heard) == {other.topic: _abort(0), poisoned.topic: _abort(1)}
    following.stop()
    assert not dead.is_set()
    with pytest.raises(ActionRequiredError, match="can't be read"):
        poisoned.table_log(TABLE, 0)

    def broken(topic: str, messages: object) -> None:
        raise RuntimeError("a mistake of its own")

    following = Following(
        settings, topics, dict.fromkeys(topics, frozenset({TABLE})), broken, lambda *_: None, dead.set
    )  # fmt: skip
    following.start()
    assert dead.wait(30)
    following.stop()


def test_with_a_secret_no_amount_of_junk_makes_room_for_what_is_unsigned(bootstrap):
    plain = kafka_settings(bootstrap)
    settings = replace(plain, librdkafka={**plain.librdkafka, "sluice.control.secret": "a secret of some length"})
    control = ControlTopic(settings, f"control-{uuid.uuid4()}")
    control.ensure()
    control.send(_abort(0))
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(600):
        producer.produce(control.topic, b"junk", b"another table")
    assert producer.flush(30) == 0
    ControlTopic(plain, control.topic).send(_abort(1))
    signed = control.send(_abort(2))
    assert ControlTopic(settings, control.topic).recent(TABLE, 500) == [(signed, _abort(2))]
