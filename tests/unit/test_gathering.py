"""Many partitions read by one client: what is whole, what is left to Spark, and how much is held at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import PlannedRange
from sluice.sources.kafka import gathering
from sluice.sources.kafka.gathered import _batch, _delivered
from sluice.sources.kafka.gathering import Gathering, Record, Stretch

CREATED = 1  # librdkafka's number of a time that the producer has set


def planned(partition: int, start: int = 0, end: int = 2) -> PlannedRange:
    return PlannedRange(cluster="k", topic="t", partition=partition, start=start, end=end)


class Event(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return lambda: self.__dict__[f"_{name}"]


def record(partition: int | None, offset: int, value: bytes | None = b"v", **more: Any) -> Any:
    given = {"key": b"k", "timestamp": (CREATED, 5), "headers": None, "error": None, **more}
    fields = {"topic": "t", "partition": partition, "offset": offset, "value": value, **given}
    return Event(**{f"_{name}": of for name, of in fields.items()})


def end(partition: int, offset: int) -> Any:
    return record(partition, offset, error=KafkaError(KafkaError._PARTITION_EOF))


class Client:
    """In place of a consumer: what it is told, and for each assignment the events that it hands out."""

    def __init__(self, *scripts: list[Any]) -> None:
        self._scripts = list(scripts)
        self._events: list[Any] = []
        self.told: dict[str, Any] = {}
        self.assigned: list[list[tuple[int, int]]] = []
        self.paused: list[int] = []
        self.is_closed = False

    def __call__(self, settings: dict[str, Any]) -> Client:
        self.told = settings
        return self

    def assign(self, partitions: Any) -> None:
        self.assigned.append([(p.partition, p.offset) for p in partitions])
        self._events = self._scripts.pop(0)

    def consume(self, number: int, timeout: float) -> list[Any]:
        found, self._events = self._events[:number], self._events[number:]
        return found

    def pause(self, partitions: Any) -> None:
        self.paused += [p.partition for p in partitions]

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def read(monkeypatch):
    def read(client: Client, *ranges: PlannedRange, headers: bool = False) -> tuple[dict[int, list[int]], list[int]]:
        monkeypatch.setattr(gathering, "AssignedConsumer", client)
        monkeypatch.setattr(gathering, "_PATIENCE", 0.01)
        settings = KafkaSettings("k", {"bootstrap.servers": "nowhere:9"})
        whole, unfit = Gathering(settings, "read_committed", headers=headers).read(ranges)
        assert client.is_closed
        return {s.planned.partition: [r.offset for r in s.records] for s in whole}, [r.partition for r in unfit]

    return read


def test_the_client_joins_no_group_and_never_jumps_and_is_told_of_each_log_s_end(read):
    client = Client([record(0, 0), record(0, 1)])
    assert read(client, planned(0)) == ({0: [0, 1]}, [])
    assert client.assigned == [[(0, 0)]]
    assert client.told["enable.auto.commit"] is False
    assert client.told["auto.offset.reset"] == "error"
    assert client.told["enable.partition.eof"] is True
    assert client.told["isolation.level"] == "read_committed"


def test_a_range_is_whole_when_its_end_is_passed_however_few_records_it_has(read):
    events = [record(0, 0), record(1, 1), record(3, 7), end(2, 2), end(0, 1), end(0, 2)]
    assert read(Client(events), planned(0), planned(1), planned(2), planned(3)) == ({1: [1], 3: [], 2: [], 0: [0]}, [])


def test_what_a_log_has_beyond_is_not_kept_and_not_read_on(read):
    client = Client([record(0, 0), record(0, 1), record(0, 2), record(0, 3), record(1, 1)])
    assert read(client, planned(0), planned(1)) == ({0: [0, 1], 1: [1]}, [])
    assert set(client.paused) == {0}


def test_what_is_not_heard_of_is_left_to_spark_with_all_that_would_come_after_it(read, monkeypatch):
    monkeypatch.setattr(gathering, "_WINDOW", 2)
    client = Client([record(0, 1), record(1, 0), end(1, 1)])
    assert read(client, planned(0), planned(1), planned(2)) == ({0: [1]}, [1, 2])
    assert len(client.assigned) == 1


def test_an_error_of_one_partition_leaves_it_to_spark_and_one_of_the_client_may_pass(read, monkeypatch):
    monkeypatch.setattr(gathering, "_WINDOW", 2)
    gone = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    events = [record(None, 0, error=KafkaError(KafkaError._ALL_BROKERS_DOWN)), record(0, 0, error=gone), record(1, 1)]
    assert read(Client(events, [record(2, 1)]), *map(planned, range(3))) == ({1: [1], 2: [1]}, [0])


@pytest.mark.parametrize("twice", [3, 2])
def test_offsets_that_come_again_or_from_before_are_left_to_spark(twice, read):
    events = [record(0, 3), record(0, twice), record(0, 5), record(1, 1)]
    assert read(Client(events), planned(0, 3, 6), planned(1)) == ({1: [1]}, [0])


class Unreadable(SimpleNamespace):
    def headers(self) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no key of a header")


@pytest.mark.parametrize("when", [(CREATED, -2), (CREATED, 253_402_300_800_000), (7, 5)])
def test_a_time_that_spark_may_read_in_another_way_is_left_to_it(when, read):
    events = [record(0, 0), record(0, 1, timestamp=when), record(1, 1)]
    assert read(Client(events), planned(0), planned(1)) == ({1: [1]}, [0])


def test_headers_that_are_no_text_are_left_to_spark_and_are_not_looked_at_without_need(read):
    def odd() -> Any:
        event = record(0, 1)
        del event._headers
        event.headers = Unreadable().headers
        return event

    assert read(Client([odd(), record(1, 1)]), planned(0), planned(1), headers=True) == ({1: [1]}, [0])
    assert read(Client([odd(), record(1, 1)]), planned(0), planned(1)) == ({0: [1], 1: [1]}, [])


@pytest.mark.parametrize(("limit", "of"), [("FULL_BYTES", 6), ("FULL_RECORDS", 4)])
def test_no_more_partitions_are_begun_than_are_held_at_once(limit, of, read, monkeypatch):
    monkeypatch.setattr(gathering, "_WINDOW", 2)
    monkeypatch.setattr(gathering, limit, of)
    windows = [[record(p, o) for p in window for o in (0, 1)] for window in ((0, 1), (2, 3))]
    whole, unfit = read(Client(*windows), *map(planned, range(4)))  # a record has two bytes
    assert (sorted(whole), unfit) == ([0, 1], [])


def test_partitions_that_do_not_fit_beside_others_come_with_the_next_and_those_that_never_fit_do_not(read, monkeypatch):
    monkeypatch.setattr(gathering, "FULL_BYTES", 4)
    monkeypatch.setattr(gathering, "_AT_MOST", 1)
    large = record(1, 0, b"too large")
    assert read(Client([record(0, 0), record(0, 1), large]), planned(0), planned(1)) == ({0: [0, 1]}, [])
    assert read(Client([large, record(0, 0)]), planned(1)) == ({}, [1])


def test_no_more_offsets_are_read_together_than_are_held_at_once(read, monkeypatch):
    monkeypatch.setattr(gathering, "FULL_RECORDS", 4)
    client = Client([record(0, 1), record(1, 0), record(1, 1)], [record(2, 8)])
    assert read(client, planned(0), planned(1), planned(2, 0, 9), planned(3)) == ({0: [1], 1: [0, 1], 2: [8]}, [])
    assert client.assigned == [[(0, 0), (1, 0)], [(2, 0)]]


def test_a_range_is_counted_by_its_records():
    stretch = Stretch(planned(3), [Record(0, 9, 0, None, b"abc", None), Record(1, 7, 0, b"key", None, None)])
    found = _delivered(stretch, 4)
    assert (found.records, found.bytes, found.last, found.newest, found.task) == (2, 3, 1, 9, 4)
    nothing = _delivered(Stretch(planned(3)), 4)
    assert (nothing.records, nothing.bytes, nothing.last, nothing.newest, nothing.task) == (0, 0, None, None, None)


def test_columns_are_those_of_spark_s_source():
    stretches = [
        Stretch(planned(3), [Record(5, -1, -1, None, b"", None)]),
        Stretch(planned(1), [Record(0, 1500, 1, b"k", None, [("h", None), ("h", b"1")])]),
    ]
    table = _batch(stretches, headers=True).to_pydict()
    assert (table["key"], table["value"], table["topic"]) == ([None, b"k"], [b"", None], ["t", "t"])
    assert (table["partition"], table["offset"], table["timestampType"]) == ([3, 1], [5, 0], [-1, 1])
    assert [time.timestamp() for time in table["timestamp"]] == [-0.001, 1.5]
    assert table["headers"] == [None, [{"key": "h", "value": None}, {"key": "h", "value": b"1"}]]
    assert "headers" not in _batch(stretches, headers=False).schema.names
