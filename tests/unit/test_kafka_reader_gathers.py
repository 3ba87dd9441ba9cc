"""When one client of librdkafka's reads for Spark's, and when it may not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import planned

from sluice.errors import RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.protocol.identity import LogId, LogIds
from sluice.sources.kafka import reader as readers
from sluice.sources.kafka.reader import KafkaReader

RANGES = [planned(0), planned(1)]
SAME = LogIds({"kafka": "K"}, {("kafka", "t"): "id"})


@pytest.fixture
def reader(monkeypatch):
    """A reader without Spark, of a cluster in which both clients find the topic's id."""

    def reader(found: Any = SAME, **java: str) -> tuple[KafkaReader, list[Any]]:
        asked: list[Any] = []

        def log_ids(topics: Any) -> LogIds:
            asked.append(topics)
            if isinstance(found, Exception):
                raise found
            return found

        def gathering(settings: KafkaSettings, isolation: str, *, headers: bool) -> Any:
            asked.append((dict(settings.librdkafka), isolation, headers))
            return SimpleNamespace(read=lambda ranges: (ranges, ()))

        monkeypatch.setattr(readers, "java_settings", lambda *_: {})
        monkeypatch.setattr(readers, "KafkaCluster", lambda _: SimpleNamespace(log_ids=log_ids))
        monkeypatch.setattr(readers, "log_ids_here", lambda *_: {"t": LogId("K", "id")})
        monkeypatch.setattr(readers, "Gathering", gathering)
        monkeypatch.setattr(readers, "gathered", lambda _, whole, unfit, per_task, headers: (whole, per_task, headers))
        settings = KafkaSettings("kafka", {"bootstrap.servers": "b:9092"}, java)
        return KafkaReader(None, settings), asked  # type: ignore[arg-type]

    return reader


def test_it_reads_as_the_interval_does_and_asks_for_a_topic_s_id_once(reader):
    made, asked = reader(**{"client.id": "orders"})
    for _ in range(2):
        assert made.gather(RANGES, 5, "read_uncommitted", headers=True) == (RANGES, 5, True)
    read = {"bootstrap.servers": "b:9092", "client.id": "orders"}, "read_uncommitted", True
    assert asked == [["t"], read, read]


@pytest.mark.parametrize(
    ("found", "java"),
    [
        (LogIds({"kafka": "another"}, {("kafka", "t"): "id"}), {}),
        (LogIds({"kafka": "K"}, {("kafka", "t"): "made again"}), {}),
        (RetryableError("The cluster doesn't answer.", next_step="-"), {}),
        (SAME, {"max.poll.records": "7"}),
    ],
    ids=["another cluster", "another topic", "no answer", "settings of Java's client"],
)
def test_spark_s_client_reads_where_librdkafka_may_find_other_records(found, java, reader):
    made, _ = reader(found, **java)
    left = made.gather(RANGES, 5, "read_committed")
    assert (left.delivered, list(left.unfit)) == ((), RANGES)
