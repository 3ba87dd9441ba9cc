"""What the Kafka clients of logs are told: no reader commits or starts elsewhere, and no message is sent half."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec

from sluice.control import clients, presence, waiters
from sluice.control import followed as follows
from sluice.control import reader as readers
from sluice.control import topic as topics
from sluice.control.clients import Clients
from sluice.control.followed import Following
from sluice.control.presence import Membership
from sluice.control.reader import ControlReader
from sluice.control.topic import ControlTopic
from sluice.control.waiters import Waiters
from sluice.kafka.config import KafkaSettings
from sluice.sinks.kafka import log as logs
from sluice.sinks.kafka.log import TableLog

SETTINGS = KafkaSettings("k", {"bootstrap.servers": "nowhere:9"})


class MadeError(Exception):
    """A client was made; no more of it is needed."""


def _following(*named: str) -> Following:
    return Following(SETTINGS, {name: ControlTopic(SETTINGS, name) for name in named}, {}, *[lambda *_: None] * 3)


READERS = {
    "a worker's follower": (follows, lambda: _following()._follow(), "read_uncommitted"),
    "waiting tasks": (waiters, lambda: Waiters(SETTINGS)._follow({}), "read_uncommitted"),
    "a control topic": (topics, lambda: ControlTopic(SETTINGS, "control")._consumer(0), "read_uncommitted"),
    "an observer": (readers, lambda: next(ControlReader(SETTINGS, "control")._records(0, 1)), "read_uncommitted"),
    "a sink's log": (logs, lambda: TableLog(SETTINGS, "log")._reader(), "read_committed"),
}


@pytest.mark.parametrize("who", READERS)
def test_a_reader_of_a_log_joins_no_group_and_never_jumps_and_is_told_of_its_end(who, monkeypatch):
    """Messages of the control topic count as soon as they are in it, records of a sink's log once committed."""
    module, read, isolation = READERS[who]
    made: list[dict[str, Any]] = []

    def consumer(settings: dict[str, Any]) -> Any:
        made.append(settings)
        raise MadeError

    monkeypatch.setattr(module, "AssignedConsumer", consumer)
    with pytest.raises(MadeError):
        read()
    (told,) = made
    assert told["group.id"].startswith("sluice-reader-")
    assert told["enable.auto.commit"] is False
    assert told["auto.offset.reset"] == "error"
    assert told["enable.partition.eof"] is True
    assert told["isolation.level"] == isolation


def test_a_message_is_sent_once_to_all_replicas_and_within_the_time_that_its_sender_waits(monkeypatch):
    monkeypatch.setattr(clients, "Producer", lambda settings: settings)
    told: Any = Clients(SETTINGS)._new_producer()
    assert told["enable.idempotence"] is True
    assert told["acks"] == "all"
    assert told["delivery.timeout.ms"] == 30_000
    assert told["message.max.bytes"] == 1_000_000_000


def test_a_worker_is_a_member_that_consumes_nothing_and_is_missed_after_ten_seconds(monkeypatch):
    made: list[dict[str, Any]] = []
    did: list[Any] = []
    consumer = SimpleNamespace(
        subscribe=lambda names, on_assign, on_revoke: did.append((names, on_assign, on_revoke)),
        assign=lambda partitions: did.append(("assigned", partitions)),
        pause=lambda partitions: did.append(("paused", partitions)),
        poll=lambda _: None,
        close=lambda: did.append("closed"),
    )
    monkeypatch.setattr(presence, "Consumer", lambda settings: made.append(settings) or consumer)
    membership = Membership(SETTINGS, "default", "worker-1", ("b", "a"), lambda: did.append("changed"))
    membership.leave()
    ((names, on_assign, on_revoke), closed) = did
    assert not membership.is_member
    assert (names, closed, membership._thread.is_alive()) == (["b", "a"], "closed", False)
    (told,) = made
    assert (told["group.id"], told["client.id"]) == ("sluice-workers-default", "worker-1")
    assert (told["enable.auto.commit"], told["session.timeout.ms"]) == (False, 10_000)
    on_assign(consumer, ["p"])
    assert did[2:] == [("assigned", ["p"]), ("paused", ["p"]), "changed"]
    assert membership.is_member
    on_revoke(consumer, ["p"])
    assert not membership.is_member


def test_the_ends_of_topics_are_asked_for_as_followers_read_them_and_only_where_there_are_topics():
    asked: list[Any] = []

    def list_offsets(wanted: dict[Any, OffsetSpec], **how: Any) -> Any:
        asked.append((sorted((one.topic, one.partition) for one in wanted), how["isolation_level"]))
        return {partition: SimpleNamespace(offset=len(partition.topic)) for partition in wanted}

    def ask(request: Any, connected_by: str) -> Any:
        assert connected_by == "a"  # else librdkafka may wait for seconds
        return request(SimpleNamespace(list_offsets=list_offsets))

    following = _following("a", "bb")
    following._clients.ask = ask  # type: ignore[method-assign, assignment]
    assert following._offsets([], OffsetSpec.latest()) == {}
    assert asked == []
    assert following._offsets(["a", "bb"], OffsetSpec.latest()) == {"a": 1, "bb": 2}
    assert asked == [([("a", 0), ("bb", 0)], IsolationLevel.READ_UNCOMMITTED)]
