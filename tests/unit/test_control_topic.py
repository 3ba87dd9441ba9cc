"""The control topic and its reader, by real clients of a cluster in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from memory_cluster import cluster_in_memory
from protocol_messages import INSTANT, TABLE, abort, envelope, start, status

from sluice.control import waiters as waits
from sluice.control.clients import Clients
from sluice.control.followed import Following
from sluice.control.reader import ControlReader, TopicBounds
from sluice.control.topic import ControlTopic, UnreadableError
from sluice.control.waiters import Awaited, Waiters
from sluice.kafka.config import KafkaSettings
from sluice.protocol.claims import Verdict
from sluice.protocol.committable import Committable
from sluice.protocol.messages import SkipMessage
from sluice.protocol.transaction import State, TableLog
from sluice.protocol.wire import encode

_NAMES = (f"control-{number}" for number in count())
OTHER = "file:///lake/other"


class Control(ControlTopic):
    """Messages above a limit, which the cluster in memory doesn't say, go in parts."""

    limit = 1 << 20

    def _message_limit(self) -> int:
        return self.limit

    def exists(self) -> bool:
        return True


class Reader(ControlReader):
    first = 0

    def bounds(self) -> TopicBounds:
        return TopicBounds("", self.first, 1 << 30)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaSettings]:
    with cluster_in_memory() as settings:
        yield settings


@pytest.fixture
def control(cluster) -> Control:
    return Control(cluster, next(_NAMES), Clients(cluster))


def foreign(control: Control, value: bytes, table: str = TABLE) -> None:
    with control._clients.producer() as producer:
        producer.produce(control.topic, value, table.encode(), partition=0)
        producer.flush(10)


def in_parts(control: Control, message):
    """Send a message in at least three parts; the offset of the last one."""
    control.limit = 1000
    offset = control.send(message)
    control.limit = 1 << 20
    return offset


LONG = start(INSTANT, ranges=300)


def test_a_message_is_sent_at_the_end_and_folded_into_the_log_of_its_table_alone(control):
    foreign(control, b"{}", OTHER)
    assert control.send(start(INSTANT)) == 1
    assert control.send(status(INSTANT)) == 2
    assert control.end() == 3
    log = control.table_log(TABLE, 0)
    assert log.position == 3
    assert log.transactions[INSTANT].start_offset == 1
    assert log.transactions[INSTANT].state is State.OPEN
    assert control.table_log(OTHER, 1).transactions == {}
    assert control.table_log(TABLE, 2).transactions == {}


def test_reading_continues_where_it_ended(control):
    control.send(start(INSTANT))
    log = control.table_log(TABLE, 0)
    control.send(status(INSTANT))
    assert control.extend(log).transactions[INSTANT].statuses == [status(INSTANT)]
    assert log.position == 2
    assert control.extend(log).position == 2


def test_a_position_past_the_end_is_that_of_a_topic_that_was_made_again(control):
    control.send(start(INSTANT))
    assert INSTANT in control.table_log(TABLE, 2).transactions
    assert control.table_log(TABLE, 1).transactions == {}


def test_the_latest_messages_are_found_by_their_offsets(control):
    control.send(start(INSTANT))
    control.send(status(INSTANT))
    assert [(offset, message.type) for offset, message in control.recent(TABLE, 1)] == [(1, "WRITE-STATUS")]
    assert [offset for offset, _ in control.recent(TABLE, 9)] == [0, 1]
    assert control.recent(TABLE, 0) == []
    assert control.read_one(TABLE, 0) == start(INSTANT)
    assert control.read_one(TABLE, 1) == status(INSTANT)
    assert control.read_one(TABLE, 2) is None
    assert control.read_one(OTHER, 0) is None


def test_a_message_in_parts_counts_at_its_last_part_and_only_whole(control):
    control.send(start("20250101000000000"))
    last = in_parts(control, LONG)
    assert last >= 3
    assert control.recent(TABLE, 1) == [(last, LONG)]
    assert control.read_one(TABLE, last) == LONG
    assert control.read_one(TABLE, last - 1) is None
    assert control.table_log(TABLE, 0).transactions[INSTANT].start_offset == last


def test_a_message_that_cannot_be_read_stops_its_table_until_it_is_set_aside(control):
    foreign(control, b"no message")
    control.send(start(INSTANT))
    with pytest.raises(UnreadableError) as caught:
        control.table_log(TABLE, 0)
    assert "offset=0," in str(caught.value)
    assert control.table_log(OTHER, 0).transactions == {}
    control.send(SkipMessage(**envelope(INSTANT), offset=1, reason="another one"))
    with pytest.raises(UnreadableError):
        control.table_log(TABLE, 0)
    control.send(SkipMessage(**envelope(INSTANT), offset=0, reason="a slip"))
    assert INSTANT in control.table_log(TABLE, 0).transactions


def test_a_follower_gets_the_log_with_each_message_and_between_them(control):
    control.send(start(INSTANT))
    stop, log = threading.Event(), TableLog(TABLE)
    followed = control.follow(log, stop)
    while INSTANT not in next(followed).transactions:
        pass
    assert next(followed) is log  # without news
    control.send(status(INSTANT))
    while not next(followed).transactions[INSTANT].statuses:
        pass
    stop.set()
    assert list(followed) == []


def test_a_worker_follows_several_topics_by_one_consumer_until_it_is_stopped(cluster):
    topics = {control.topic: control for control in (Control(cluster, next(_NAMES), Clients(cluster)) for _ in "ab")}
    (one, first), (another, second) = topics.items()
    found: SimpleQueue[Any] = SimpleQueue()
    began: list[Any] = []
    first.send(start(INSTANT))
    foreign(first, b"{}", OTHER)
    foreign(second, b"{}", OTHER)
    tables = dict.fromkeys(topics, frozenset([TABLE]))
    following = Following(
        cluster,
        topics,
        tables,
        lambda topic, messages: found.put((topic, list(messages))),
        lambda *since: began.append(since),
        lambda: found.put("dead"),
    )
    following._clients = Clients(cluster)
    following.start()
    assert found.get(timeout=30) == (one, [(0, start(INSTANT))])
    first.send(status(INSTANT))
    assert found.get(timeout=30) == (one, [(2, status(INSTANT))])
    second.send(start(INSTANT))
    assert found.get(timeout=30) == (another, [(1, start(INSTANT))])
    following.stop()
    assert not following._thread.is_alive()
    assert found.empty()
    assert sorted(began) == [(one, 0, 2), (another, 0, 1)]


def test_a_task_waits_for_its_range_from_the_start_of_its_interval(control, monkeypatch):
    monkeypatch.setattr(waits, "Presence", lambda _: SimpleNamespace(has_workers=lambda _group: True))
    monkeypatch.setattr(waits, "_IDLE", 0.0)
    foreign(control, b"no message")
    control.send(start(INSTANT, ranges=2))
    waiters = Waiters(control.settings)
    verdicts: SimpleQueue[Any] = SimpleQueue()
    for number in (0, 1):
        with waiters.waiting(Awaited(TABLE, control.topic, 1, number, "workers", 5.0), verdicts.put):
            thread = waiters._thread
            assert thread is not None
            control.send(status(INSTANT, number))
            assert verdicts.get(timeout=30) is Verdict.WRITTEN
        thread.join(30)
        assert not thread.is_alive()


STAT = {"fileId": "x-0", "path": "p/x-0_0-0-0_20260101000000000.parquet", "partitionPath": "p", "numWrites": 10}
FORGED = {
    "a start of another sink": start(INSTANT, sink="other", replaced_file_groups={"../other": ("x-0",)}),
    "partitions": abort(INSTANT).model_copy(update={"table_partitions": (".hoodie",)}),
    "a file": status(INSTANT, stats=(Committable(path="../other/x", payload={}),)),
    "a write stat": status(INSTANT, stats=(STAT, {**STAT, "tempPath": "/etc/passwd"})),
    "a write stat set aside": status(INSTANT, quarantine_stats=({**STAT, "path": "../other/x"},)),
    "the key of another table": start(INSTANT).model_copy(update={"table": OTHER}),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("sink", ["hudi", "files", "not installed here"])
def test_every_reader_leaves_the_same_messages_out_wherever_it_begins(control, sink, forged):
    """Whatever the sink of the table: who begins after the START-COMMIT, or isn't of the pipeline, doesn't know it."""
    control.send(start(INSTANT, sink=sink))
    foreign(control, encode(forged, 1 << 20).last([]))
    control.send(status(INSTANT, stats=(STAT,)))
    page, found = Reader(control.settings, control.topic), {0, 2}
    for first in range(3):
        there = sorted(found - set(range(first)))
        assert [offset for offset, _ in control._messages(TABLE, first, 3)] == there
        assert [offset for offset, _ in control.recent(TABLE, 3 - first)] == there
        assert [offset for batch in page.read(first, 3) for offset, _ in batch] == there
        assert (control.read_one(TABLE, first) is not None) is (first in found)
    assert [offset for offset, _ in page.messages([0, 1, 2], TABLE, most=9, most_bytes=1 << 20)[0]] == sorted(found)
    stop = threading.Event()
    for log in control.follow(TableLog(TABLE), stop):
        if log.position == 3:
            stop.set()
    assert log.transactions[INSTANT].statuses == [status(INSTANT, stats=(STAT,))]


def test_a_reader_gets_the_messages_of_all_tables_in_a_range_of_offsets(control):
    control.send(start(INSTANT))
    foreign(control, b"no message")
    last = in_parts(control, LONG)
    control.send(status(INSTANT))
    reader = Reader(control.settings, control.topic)
    assert [one for batch in reader.read(0, last + 2) for one in batch] == [
        (0, start(INSTANT)),
        (last, LONG),
        (last + 1, status(INSTANT)),
    ]
    assert reader.unreadable == 1
    assert [one for batch in reader.read(1, last) for one in batch] == []
    reader.first = 3  # retention has taken the first part
    assert [offset for batch in reader.read(0, last + 2) for offset, _ in batch] == [0, last + 1]


def test_a_reader_shows_messages_as_they_are_in_the_topic_up_to_a_number_and_a_size(control):
    for number in range(8):
        control.send(status(INSTANT, number))
    reader = Reader(control.settings, control.topic)

    def shown(offsets, **bounds):
        found, left_out = reader.messages(offsets, TABLE, **{"most": 100, "most_bytes": 1 << 20, **bounds})
        return [(offset, fields["range"]) for offset, fields in found], left_out

    assert shown([1, 2, 5]) == ([(1, 1), (2, 2), (5, 5)], 0)
    assert shown(list(range(8)), most=4) == ([(0, 0), (1, 1), (2, 2), (7, 7)], 4)
    assert shown([0, 1, 2], most_bytes=0) == ([(0, 0)], 2)
    assert reader.messages([0], OTHER, most=9, most_bytes=9) == ([], 0)


def test_where_there_is_a_secret_the_latest_messages_are_signed_ones_alone(cluster):
    """The first signed one may be further back than what is read."""
    named = next(_NAMES)
    secret = KafkaSettings(cluster.name, {**cluster.librdkafka, "sluice.control.secret": "0123456789abcdef"})
    plain = Control(cluster, named, Clients(cluster))
    plain.send(status(INSTANT, 1))
    signed = Control(secret, named, Clients(secret))
    signed.signatures._topic_id = lambda _: None  # the cluster in memory gives none
    signed.send(status(INSTANT, 2))
    assert [offset for offset, _ in plain.recent(TABLE, 9)] == [0, 1]
    assert [offset for offset, _ in signed.recent(TABLE, 9)] == [1]
