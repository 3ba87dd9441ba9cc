"""The log of a table of topics, by real clients of a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from memory_cluster import cluster_in_memory

from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.transactional import Record
from sluice.sinks.kafka.commits import TopicCommits
from sluice.sinks.kafka.log import KEPT, NOTHING, Commit, TableLog

_NAMES = (f"log-{number}" for number in count())


def _commit(**changed: Any) -> bytes:
    """A commit as it is in the log, with changed fields."""
    return json.dumps({"version": 1, **asdict(Commit(1, "i1", "c", 2, 1, 9, {}, {"out": 3})), **changed}).encode()


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaSettings]:
    with cluster_in_memory() as settings:
        yield settings


class Log:
    """A log's topic, and what is written there."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings, self.topic = settings, next(_NAMES)
        self._producer = Producer(settings.client())
        self.read = TableLog(settings, self.topic)

    def append(self, *records: Record) -> None:
        for one in records:
            self._producer.produce(one.topic, one.value, one.key, partition=one.partition)
        assert self._producer.flush(10) == 0

    def commit(self, number: int, written: str = "w", since: int = 1) -> None:
        made = Commit(number, f"i{number}", "c", 2, 1, 9, {"k": "v"}, {"out": 3}, written=written, since=since)
        self.append(self.read.record_of_commit(made))


@pytest.fixture
def log(cluster) -> Iterator[Log]:
    made = Log(cluster)
    made.append(made.read.record_of_open("i1", None))
    yield made
    made.read.close()


def test_an_interval_is_pending_until_it_has_ended(log):
    assert log.read.read().is_open("i1").rests_on is None
    log.append(log.read.record_of_open("i2", "i1"), log.read.record_of_end("i1"))
    log.read.read()
    assert log.read.is_open("i1") is None
    assert log.read.is_open("i2").rests_on == "i1"


def test_the_last_commit_is_that_with_the_highest_number(log):
    assert log.read.read().last is None
    for number in (1, 2, 3):
        log.commit(number)
    assert log.read.read().last.instant == "i3"
    assert [one.number for one in log.read.commits] == [3, 2, 1]
    assert log.read.find("i2").topics == {"out": 3}
    assert log.read.find("i4") is None
    log.commit(2 + KEPT)  # takes the place of the second
    assert log.read.read().find("i2") is None
    assert log.read.last.number == 2 + KEPT


def test_commits_written_in_one_way_have_one_beginning(log):
    assert log.read.read().since("w") == 1
    log.commit(4, "w", since=3)
    assert log.read.read().since("w") == 3
    assert log.read.since("x") == 5
    log.commit(5, NOTHING, since=3)
    assert log.read.read().since("x") == 3
    log.commit(6, "w", since=0)
    assert log.read.read().since("w") == 7


def test_the_page_reads_the_end_of_a_log_alone(log):
    for number in (1, 2, 3):
        log.commit(number)
    page = TableLog(log.settings, log.topic, newest=2)
    assert [one.number for one in page.read().commits] == [3, 2]
    assert not page.is_whole
    page.close()
    whole = TableLog(log.settings, log.topic, newest=4)
    assert [one.number for one in whole.read().commits] == [3, 2, 1]
    assert whole.is_whole
    assert whole.is_open("i1")
    whole.close()


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (b"another", b"{}", "a record of another kind, 'another'"),
        (b"commit:1", None, "a record of another kind"),
        (b"commit:1", b"[]", "isn't of the version"),
        (b"commit:1", b'{"version": 99}', "isn't of the version"),
        (b"open:i1", b'{"version": 1}', "instant: Field required"),
        (b"commit:1", _commit(spans={"out": [[0, 5]]}), "spans.out.0.2: Field required"),
        (b"commit:1", _commit(spans={"out": [[0, 0, 5, 9]]}), "spans.out.0: Tuple should have at most 3 items"),
        (b"commit:1", _commit(targets={"out": ["id"]}), "targets.out.1: Field required"),
        (b"commit:1", _commit(targets={"out": [3, "id"]}), "targets.out.0: Input should be a valid string"),
    ],
)
def test_a_record_of_another_kind_stops_the_table(log, key, value, says):
    log.append(Record(log.topic, key, value, partition=0))
    with pytest.raises(ActionRequiredError, match=says):
        log.read.read()


def test_the_page_says_of_a_commit_its_records_and_no_files(log, monkeypatch):
    log.commit(3)
    commits = TopicCommits.__new__(TopicCommits)
    monkeypatch.setattr(TopicCommits, "_log", lambda _: log.read.read())
    facts = commits.facts(SimpleNamespace(requested="i3"))  # type: ignore[arg-type]
    assert (facts.rows, facts.bytes_written, facts.extra) == (3, 9, ("k",))
    assert (facts.files, facts.table_partitions, facts.operation) == (0, 0, None)
