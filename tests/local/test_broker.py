from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.local.broker import LocalBroker
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

pytestmark = pytest.mark.kafka


@pytest.fixture
def own_broker(home: SluiceHome, tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker that the test may break."""
    with LocalBroker(home, tmp_path) as running:
        yield running


def _send(bootstrap: str, topic: str, values: list[str]) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failures == []


def _read(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=30)
    finally:
        consumer.close()
    assert [m.error() for m in messages] == [None] * count
    return [m.value().decode() for m in messages]


def test_a_topic_takes_records_and_gives_them_back(bootstrap, create_topic):
    topic = create_topic("orders")
    _send(bootstrap, topic, ["a", "b"])
    assert _read(bootstrap, topic, 2) == ["a", "b"]


def test_topics_are_not_created_by_a_typing_error(bootstrap, topic_name):
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic_name("typo"), timeout=30)
    assert [topic.error is not None for topic in metadata.topics.values()] == [True]


def test_acknowledged_records_outlive_a_kill_and_the_address_stays(own_broker):
    address = own_broker.bootstrap
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    _send(address, "kept", ["before"])

    own_broker.kill()
    assert not own_broker.running
    own_broker.start()

    assert own_broker.bootstrap == address
    _send(address, "kept", ["after"])
    assert _read(address, "kept", 2) == ["before", "after"]


def test_start_is_harmless_where_it_runs_and_stop_where_it_does_not(own_broker, home, tmp_path):
    pid = json.loads((tmp_path / "broker.pid").read_text())["pid"]
    # Another process's view of the same broker, which has nothing but the files.
    LocalBroker(home, tmp_path).start()
    assert json.loads((tmp_path / "broker.pid").read_text())["pid"] == pid

    LocalBroker(home, tmp_path).stop()
    assert not own_broker.running
    assert not psutil.pid_exists(pid)
    own_broker.stop()


def test_it_starts_from_the_archive_of_its_classes(own_broker, home, tmp_path):
    # The JVM says nothing of an archive that it doesn't take: made with another class path, or half of one.
    pid = json.loads((tmp_path / "broker.pid").read_text())["pid"]
    mapped = {Path(m.path) for m in psutil.Process(pid).memory_maps()}
    assert (home.archive / "broker.jsa").resolve() in mapped, "`make install` makes it"


def test_the_end_at_start_shows_the_end_of_the_log(home, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        (tmp_path / "ports.json").write_text(json.dumps([other.getsockname()[1], free_port()]))
        broker = LocalBroker(home, tmp_path)
        began = time.monotonic()
        with pytest.raises(LocalRuntimeError, match="Address already in use") as failure:
            broker.start(timeout=600)
    assert time.monotonic() - began < 300, "waited for a dead broker"
    assert "Next step:" in str(failure.value)
    assert not broker.running


def test_a_wrong_setting_is_named(home, tmp_path):
    broker = LocalBroker(home, tmp_path, settings={"message.max.bytes": "many"})
    with pytest.raises(LocalRuntimeError, match=r"message\.max\.bytes"):
        broker.start()


def test_a_broker_that_does_not_answer_in_time_is_not_left_behind(home, tmp_path):
    broker = LocalBroker(home, tmp_path)
    with pytest.raises(LocalRuntimeError, match="did not answer"):
        broker.start(timeout=0.1)
    assert not broker.running


def test_a_pid_file_of_another_process_is_stale(home, tmp_path):
    # As after a reboot: the number is in use, by someone else.
    (tmp_path / "broker.pid").write_text(json.dumps({"pid": os.getpid(), "started": 1.0}))
    broker = LocalBroker(home, tmp_path)
    assert not broker.running
    broker.kill()
    assert psutil.Process().is_running()
    assert not (tmp_path / "broker.pid").exists()


def test_a_taken_port_is_left_to_its_owner(own_broker):
    taken = int(own_broker.bootstrap.rpartition(":")[2])
    assert free_port(taken) != taken


def test_a_free_port_is_none_that_an_outgoing_connection_can_get():
    # A broker of the tests once lost its port to one, between the choice and its start.
    given_to_connections = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(given_to_connections.read_text().split()[0]) if given_to_connections.exists() else 49_152
    if lowest < 32_768:
        pytest.skip("this machine gives nearly all of its ports to connections")
    drawn = [free_port() for _ in range(200)]
    assert len(set(drawn)) == 200
    assert max(drawn) < lowest
