"""The API server logs in where pipeline files say, never where messages alone say so, and with few clients."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from protocol_messages import INSTANT, TABLE, start

from sluice.control.reader import ControlReader, _Admins
from sluice.kafka.config import KafkaSettings
from sluice.page import service
from sluice.page.catalogue import ROOTS_VARIABLE, Entry, may_look_at
from sluice.pipeline import load_pipeline
from sluice.protocol.history import TableHistory
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.messages import encode
from sluice.protocol.offsets import TopicPartition

FILE = """
name: flights
source:
  kafka:
    {source}
sink:
  hudi:
    path: file:///lake/flights
    schema: id BIGINT
"""
PATTERN = 'topics_pattern: "fl.*"'
STREAMS = (
    "streams: orders\n    mapped_connections: [kafka_east]\n    metadata: {service: file, path: /etc/streams.yaml}"
)


def entry(tmp_path, source):
    if source is None:
        return Entry("p", "p", TABLE, None, None)
    file = tmp_path / "flights.yaml"
    file.write_text(FILE.replace("{source}", source))
    return Entry("flights", "flights", TABLE, None, load_pipeline(file))


@pytest.mark.parametrize("source", [None, PATTERN, STREAMS])
def test_a_name_in_a_message_is_no_right_to_log_in(source, tmp_path):
    history = TableHistory(TABLE)
    history.committed = {TopicPartition("kafka_hr", "salaries", 0): (10, INSTANT)}
    asked = service._topics(entry(tmp_path, source), history)
    assert "salaries" not in str(asked.values())
    assert {one.connection for one in asked} <= {"kafka_default"}


def test_of_streams_the_connections_that_the_file_names_are_used_and_not_too_many(tmp_path):
    history = TableHistory(TABLE)
    clusters = {
        "own": {"connection": "kafka_default"},
        "east": {"connection": "kafka_east"},
        "hr": {"connection": "kafka_hr"},
        **{f"c{number}": {"connection": "kafka_east"} for number in range(1100)},
    }
    logs = {name: {"flights": {}} for name in clusters}
    history.streams = KnownStreams.model_validate({"digest": "d", "clusters": clusters, "logs": logs})
    asked = service._topics(entry(tmp_path, STREAMS), history)
    assert {one.connection for one in asked} == {"kafka_default", "kafka_east"}
    assert len(asked) <= 50


def test_a_process_has_few_clients_however_many_clusters_are_named():
    admins = _Admins(most=4)
    servers = [f"127.0.0.1:{port}" for port in range(1, 9)]
    made = [
        admins.of(KafkaSettings(f"cluster{number}", {"bootstrap.servers": servers[number % 2]}))
        for number in range(100)
    ]
    assert len(set(map(id, made))) == 2
    for one in servers:
        admins.of(KafkaSettings("k", {"bootstrap.servers": one}))
    assert len(admins._known) == 4


class Record(NamedTuple):
    at: int
    content: bytes

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.content

    def key(self) -> bytes:
        return TABLE.encode()

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


def test_of_a_transactions_messages_those_that_are_messages_are_shown(monkeypatch):
    """Records are handed in: a broker's would be the same bytes."""
    reader = ControlReader(KafkaSettings("k", {"bootstrap.servers": "127.0.0.1:1"}), "c")
    plain = encode(start(INSTANT))
    values = [b"5", b"null", b"[]", b"\xff", b"[" * 5000, b'{"packed": 5}', plain]
    records = [Record(offset, value) for offset, value in enumerate(values)]
    monkeypatch.setattr(reader, "_records", lambda *_: iter([records]))
    shown, left_out = reader.messages(range(len(values)), TABLE, most=100, most_bytes=10**6)
    assert (shown, left_out) == ([(6, json.loads(plain))], 0)


@pytest.mark.parametrize(
    ("table", "reads_all", "looked_at"),
    [("/lake/t", True, True), ("/lake/t", False, False), ("/lakes/t", True, False), (None, True, False)],
)
def test_a_table_that_only_messages_name_is_read_for_users_who_may_read_all_dags(
    monkeypatch, tmp_path, table, reads_all, looked_at
):
    """The DAG that messages name, too, may be another one than the table's."""

    class Viewer:
        def may_read(self, dag_id):
            return reads_all or dag_id == "p"

    monkeypatch.setenv(ROOTS_VARIABLE, "s3a://other, /lake/")
    assert may_look_at(Entry("p", "p", table, None, None), Viewer()) is looked_at
    assert may_look_at(entry(tmp_path, PATTERN), Viewer())
