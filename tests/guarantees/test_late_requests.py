"""A request that ends one Kafka transaction and comes late ends no other: each has a producer epoch for itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.errors import RetryableError, SluiceError
from sluice.kafka import transactional
from sluice.kafka.transactional import Record, TransactionalSender, identity_of
from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome
from sluice.protocol.identity import LogId
from sluice.protocol.quarantine import Quarantined
from sluice.sinks.kafka.cluster import transactional_id
from sluice.sources.kafka.redriven import Redriven

from .harness import Flow, kafka_settings, wait_for
from .harness.topics import consume as found_in
from .harness.topics import create
from .late_requests import SlowNetwork
from .quarantined import TOLERANT, consume

NONE = 0


@pytest.fixture(scope="module")
def network(home: SluiceHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowNetwork]:
    """A broker of these tests' own that all clients reach by the network alone."""
    settings: dict[str, str] = {}
    broker = LocalBroker(home, tmp_path_factory.mktemp("late") / "broker", settings=settings)
    made = SlowNetwork(int(broker.bootstrap.rpartition(":")[2]))
    broker._config.settings.update({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{made.port}"})  # type: ignore[attr-defined]
    with broker:
        yield made
    made.close()


@pytest.fixture(scope="module")
def bootstrap(network: SlowNetwork) -> str:
    return f"127.0.0.1:{network.port}"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "_CHUNK_RECORDS", 10)


def _until_done(step: Any) -> Any:
    """What a step returns in the end; it is retried as Airflow would."""

    def tried() -> Any:
        try:
            return step()
        except RetryableError:
            return None

    return wait_for(tried, "the step", timeout=300, pause=0.2)


@pytest.mark.usefixtures("small_chunks")
def test_dead_letters_are_sent_once(make_flow: Any, network: SlowNetwork) -> None:
    flow: Flow = make_flow(**TOLERANT)
    topic = f"{flow.topic}.dlq"
    flow.set(errors__dead_letter_topic=topic)
    flow.produce(5)
    bad = [(1, flow.produce_raw(b"{", partition=1)) for _ in range(35)]
    started = flow.start()
    flow.write_all(started)
    network.hold_back(identity_of("dead-letters", flow.pipeline.table_name, flow.table), topic)
    assert _until_done(lambda: flow.commit(started)).state == "committed"
    headers = [dict(record.headers()) for record in consume(flow, topic)]
    assert [(int(h["__connect.errors.partition"]), int(h["__connect.errors.offset"])) for h in headers] == bad
    assert network.answer not in (None, NONE)


@pytest.mark.usefixtures("small_chunks")
def test_records_are_sent_again_once(bootstrap: str, network: SlowNetwork, topic_name: Any) -> None:
    topic, notes = topic_name("again"), topic_name("redriven")
    create(bootstrap, topic, 1)
    redriven = Redriven(kafka_settings(bootstrap), notes, "/lake/t")
    records = [
        Quarantined("1", topic, 0, n, "bad", "value", 0, "r", LogId(None, None), value=str(n).encode())
        for n in range(35)
    ]
    network.hold_back(identity_of("redrive", notes, notes), topic)
    _until_done(lambda: redriven.send(records, {}) or True)
    assert sorted(int(one.value or b"") for one in found_in(bootstrap, topic)) == list(range(35))
    assert network.answer not in (None, NONE)


@pytest.mark.usefixtures("small_chunks")
def test_whoever_sends_meanwhile_is_noticed(bootstrap: str, topic_name: Any, monkeypatch: Any) -> None:
    """Between two transactions the id is free: what another process has sent then isn't sent once more."""
    topic, notes = topic_name("again"), topic_name("redriven")
    create(bootstrap, topic, 1)
    records = [
        Quarantined("1", topic, 0, n, "bad", "value", 0, "r", LogId(None, None), value=str(n).encode())
        for n in range(35)
    ]
    send = TransactionalSender.send

    def sent_and_interrupted(sender: TransactionalSender, chunk: Any) -> None:
        send(sender, chunk)
        monkeypatch.setattr(TransactionalSender, "send", send)
        Redriven(kafka_settings(bootstrap), notes, "/lake/t").send(records, {})

    monkeypatch.setattr(TransactionalSender, "send", sent_and_interrupted)
    with pytest.raises(SluiceError, match="Another process"):
        Redriven(kafka_settings(bootstrap), notes, "/lake/t").send(records, {})
    assert sorted(int(one.value or b"") for one in found_in(bootstrap, topic)) == list(range(35))


def test_a_topic_has_each_interval_once(make_topics: Any, network: SlowNetwork) -> None:
    topics = make_topics(2)
    topics.flow.produce(20)
    topics.flow.interval()
    topics.flow.produce(20)
    network.hold_back(transactional_id(topics.flow.table), topics.name)  # the end of the one that opens the interval
    started = topics.flow.start()
    topics.flow.write_all(started)
    assert _until_done(lambda: topics.flow.commit(started)).state == "committed"
    topics.check()
    assert network.answer not in (None, NONE)


def test_one_sender_has_one_transaction(bootstrap: str, topic_name: Any) -> None:
    topic = topic_name("t")
    create(bootstrap, topic, 1)
    with TransactionalSender(kafka_settings(bootstrap), f"one-{hashlib.sha256(topic.encode()).hexdigest()}") as sender:
        sender.send([Record(topic, None, b"1")])
        with pytest.raises(RuntimeError, match="anew"):
            sender.send([Record(topic, None, b"2")])
        sender.take_anew()
        sender.send([Record(topic, None, b"2")])
    assert [one.value for one in found_in(bootstrap, topic)] == [b"1", b"2"]
